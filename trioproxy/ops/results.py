"""Ends of deferred calls on their way to webhooks, signed as alerts are.

That an end is owed is in the store, so a restart goes on telling. A message has the call's id at every try: a receiver that got it
twice, because a life ended between its word and our note, can tell. Nobody but the operator says where to.
"""

import random
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlsplit

import msgspec
import trio
from attrs import define, field

from trioproxy.codec.signature import signing_key
from trioproxy.config.deferred import ResultHook
from trioproxy.config.secrets import hook_name
from trioproxy.http.client import Origin, Upstream
from trioproxy.http.pool import Pool
from trioproxy.http.wire import Dial
from trioproxy.ops.carriers import Unsigned, Webhook, target
from trioproxy.ops.couriers import FIRST_WAIT, LONGEST_WAIT, Carrier, Parcel, tried
from trioproxy.store import deferred
from trioproxy.store.database import DatabaseTrouble
from trioproxy.store.deferred import Deferred
from trioproxy.store.store import Store

IDLE, SOON = 15.0, 0.05  # seconds between two looks at what is owed, at most and at least
TOGETHER = 8  # posted at once; a receiver that hangs holds so many up for its timeout


@define(eq=False)
class Results:
    """Tells every end once it is durable, until it was taken or tried often enough."""

    store: Store
    hooks: Mapping[str, tuple[ResultHook, Carrier]]
    wall: Callable[[], float]
    jitter: Callable[[], float] = random.random
    _wake: trio.Event = field(init=False, factory=trio.Event)

    def stirred(self) -> None:
        """There may be more to tell."""
        self._wake.set()

    async def run(self) -> None:
        """Tell until cancelled; what is owed then is told by the next life."""
        while True:
            self._wake = trio.Event()
            with trio.move_on_after(await self._told()):
                await self._wake.wait()

    async def _told(self) -> float:
        """Try what is due; how long until there is more."""
        spool, now = self.store.writer.importer.number, self.wall()
        try:
            due = await self.store.query(partial(deferred.owed, spool=spool, now=now, most=TOGETHER))
            outcomes: list[Callable[..., None]] = []
            async with trio.open_nursery() as nursery:
                for each in due:
                    nursery.start_soon(self._try, each, outcomes)
            for note in outcomes:
                await self.store.run(note)
            at = await self.store.query(partial(deferred.next_owed, spool=spool))
        except DatabaseTrouble:
            return IDLE  # it is owed still, and told again
        return IDLE if at is None else min(IDLE, max(SOON, at - self.wall()))

    async def _try(self, end: Deferred, outcomes: list[Callable[..., None]]) -> None:
        known = self.hooks.get(end.hook)
        if known is None:  # the configuration no longer has it
            outcomes.append(partial(deferred.told, id_=end.id))
            return
        hook, carrier = known
        miss = await tried(carrier, Parcel(end.id, self._body(end)), hook.timeout)
        if miss is None or miss.final or end.tries + 1 >= hook.tries:
            outcomes.append(partial(deferred.told, id_=end.id))
            return
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(end.tries, 20)) * (0.5 + self.jitter() / 2)
        outcomes.append(partial(deferred.untold, id_=end.id, next_try=self.wall() + wait))

    def _body(self, end: Deferred) -> bytes:
        stamp = datetime.fromtimestamp(end.finished, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return msgspec.json.encode({"type": f"deferred.{end.status}", "timestamp": stamp, "data": end.told()})


def hooks(
    wanted: tuple[ResultHook, ...], secrets: Mapping[str, str], dial: Dial, wall: Callable[[], float]
) -> dict[str, tuple[ResultHook, Carrier]]:
    """Every webhook's way out, by its name. One that lacks its secret is `Unsigned`. Opens nothing."""
    return {hook.name: (hook, _carrier(hook, secrets.get(hook_name(hook.name)), dial, wall)) for hook in wanted}


def _carrier(hook: ResultHook, secret: str | None, dial: Dial, wall: Callable[[], float]) -> Carrier:
    called = f"{hook.name} ({urlsplit(hook.url).hostname})"
    if hook.secret is not None and secret is None:
        return Unsigned(called)
    origin = Origin.from_url(hook.url)
    tls = ssl.create_default_context(cafile=hook.ca_file) if origin.tls else None
    upstream = Upstream(origin, dial, Pool(0.0), tls, hook.timeout)
    return Webhook(called, target(hook.url), upstream, wall, None if secret is None else signing_key(secret))
