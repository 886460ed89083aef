"""Alerts on their way to one sink: a bounded queue and a task that tries, waits and tries again.

Nothing here can hold up or end anything else: offering never waits, the oldest alert goes where the queue is full, tries are
bounded in time and number, and whatever a sink does is a `Miss`. A sink is asked by one task, so never twice at once.
"""

import random
import secrets
from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio
from attrs import define, field, frozen

from trioproxy.config.model import Sink
from trioproxy.config.rules import told
from trioproxy.journal import AlertTold
from trioproxy.policy.alerting import SEVERITIES

FIRST_WAIT = 1.0  # seconds before the second try, doubling
LONGEST_WAIT = 300.0


@frozen
class Parcel:
    """One alert ready to go. The id is the same at every try, so that a receiver can tell a repetition."""

    id: str
    body: bytes

    @classmethod
    def of(cls, body: bytes) -> "Parcel":
        return cls(f"msg_{secrets.token_hex(12)}", body)


@frozen
class Miss:
    """A try that did not deliver, and why. `final`: the sink wants no more, for good."""

    why: str
    final: bool = False


class Carrier(Protocol):
    """The way to one sink. One parcel at a time; cancelling leaves nothing behind."""

    name: str  # shown in the log and by the command line; holds no credential

    async def deliver(self, parcel: Parcel) -> Miss | None:
        """Hand it over; None where it was taken."""


async def tried(carrier: Carrier, parcel: Parcel, timeout: float) -> Miss | None:  # noqa: ASYNC109 - the sink's own term
    """One try, within `timeout` seconds."""
    with trio.move_on_after(timeout):  # noqa: ASYNC912 - delivering waits
        try:
            return await carrier.deliver(parcel)
        except Exception as exc:  # noqa: BLE001 - a fault here ends no gateway
            return Miss(f"a bug: {type(exc).__name__}")
    return Miss(f"nothing within {timeout:g} s")


@define(eq=False)
class Courier:
    """The queue before one sink. `wrap` makes an alert's body, `lose` hears of each that is given up."""

    carrier: Carrier
    terms: Sink
    wrap: Callable[[AlertTold], bytes]
    lose: Callable[[str, AlertTold, str, int], None]  # sink, alert, why, how many so far
    jitter: Callable[[], float] = random.random
    _waiting: deque[AlertTold] = field(init=False, factory=deque)
    _more: trio.Event = field(init=False, factory=trio.Event)
    _closed: str = field(init=False, default="")  # why the sink wants no more
    _lost: int = field(init=False, default=0)

    def offer(self, alert: AlertTold) -> None:
        """Let it go out in its turn, if this sink is told of such alerts."""
        terms = self.terms
        if not told(alert.cause.value, terms.causes) or SEVERITIES.index(alert.severity) < SEVERITIES.index(
            terms.least
        ):
            return
        if self._closed:
            self._give_up(alert, self._closed)
            return
        if len(self._waiting) >= terms.queue:
            self._give_up(self._waiting.popleft(), f"more than {terms.queue} are waiting")
        self._waiting.append(alert)
        self._more.set()

    async def run(self) -> None:
        """Deliver until cancelled; what is waiting then is lost."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            while self._waiting:
                await self._send(self._waiting.popleft())

    async def _send(self, alert: AlertTold) -> None:
        parcel, why = Parcel.of(self.wrap(alert)), ""
        for number in range(self.terms.tries):
            if number:
                # Between half and all of it, so that many gateways do not come back to a receiver at once.
                await trio.sleep(min(LONGEST_WAIT, FIRST_WAIT * 2 ** (number - 1)) * (0.5 + self.jitter() / 2))
            miss = await tried(self.carrier, parcel, self.terms.timeout)
            if miss is None:
                return
            why = miss.why
            if miss.final:
                self._close(why)
                break
        self._give_up(alert, why)

    def _close(self, why: str) -> None:
        self._closed = why
        while self._waiting:
            self._give_up(self._waiting.popleft(), why)

    def _give_up(self, alert: AlertTold, why: str) -> None:
        self._lost += 1
        self.lose(self.carrier.name, alert, why, self._lost)
