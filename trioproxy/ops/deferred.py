"""Calls that were put off are done: when a channel of their model may be asked again, by class and age, a few at a time.

Each goes through the line as any call does, under its caller's limits. What it ends with is its result, unless waiting may mend
it: then it goes back and waits longer. The store is the only memory: whatever is asked of it again after a trouble or a restart is
what was durable.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
import trio
from attrs import define, field

from trioproxy.answer import Answer
from trioproxy.call import Request
from trioproxy.config.deferred import Deferring
from trioproxy.errors import ChainExhausted, Refusal, RefusalKind
from trioproxy.gateway import Gateway
from trioproxy.journal import BreakerMoved, Event, ProbeRan
from trioproxy.ops.results import Results
from trioproxy.store import deferred
from trioproxy.store.database import Database, DatabaseTrouble
from trioproxy.store.deferred import Work
from trioproxy.store.store import Store

T = TypeVar("T")

# Seconds between two looks at what may be done now, where nothing tells that there is something: while some wait, and while none do.
LOOK, IDLE = 1.0, 15.0
AGAIN = 1.0  # seconds until the store is asked again that was in trouble, and before a second run; doubling
MOST = 1024  # models that rest
QUEUES = frozenset({RefusalKind.QUEUE_FULL, RefusalKind.QUEUE_TIMEOUT, RefusalKind.CLASS_PAUSED})
TIDY = 5.0  # seconds between two looks at what is too old


@define(eq=False)
class Performer:
    """The one task that does deferred calls. `jitter` is from 0 to 1."""

    gateway: Gateway
    store: Store
    settings: Deferring
    wall: Callable[[], float]
    results: Results
    jitter: Callable[[], float] = random.random
    _wake: trio.Event = field(init=False, factory=trio.Event)
    _eager: bool = field(init=False, default=False)  # a channel is back: who rests need not
    _waited_for: list[str] = field(init=False, factory=list)  # models, at the last look
    _resting: dict[str, tuple[float, int]] = field(init=False, factory=dict)  # model → until, failures in a row

    def stirred(self) -> None:
        """There may be more to do."""
        self._wake.set()

    def heard(self, event: Event) -> None:
        """A channel that is back may do what waits."""
        if (isinstance(event, BreakerMoved) and event.state == "closed") or (isinstance(event, ProbeRan) and event.ok):
            if self._resting:
                self._resting.clear()
                self._eager = True
            self._wake.set()

    async def run(self) -> None:
        """Work until cancelled; what is under way then is begun again by the next life."""
        self.gateway.journal.subscribe(self.heard, BreakerMoved, ProbeRan)
        try:
            await self._sure(partial(deferred.resume, spool=self._spool))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tidy)
                nursery.start_soon(self.results.run)
                places = trio.Semaphore(self.settings.concurrency)
                while True:
                    await places.acquire()
                    nursery.start_soon(self._do, await self._next(), places)
        finally:
            self.gateway.journal.unsubscribe(self.heard)

    @property
    def _spool(self) -> int:
        return self.store.writer.importer.number

    async def _next(self) -> Work:
        while True:
            self._wake = trio.Event()
            work = await self._claimed()
            if work is not None:
                return work
            with trio.move_on_after(self._pause()):
                await self._wake.wait()

    def _pause(self) -> float:
        """Seconds until the next look, where nothing happens until then."""
        if not self._waited_for:
            return IDLE
        ends = (until - trio.current_time() for until, _ in self._resting.values())
        return min([LOOK, *(left for left in ends if left > 0)])

    async def _claimed(self) -> Work | None:
        spool, now = self._spool, self.wall()
        try:
            self._waited_for = await self.store.query(partial(deferred.models, spool=spool, now=now))
            wanted = [model for model in self._waited_for if self._may(model)]
            if not wanted:
                return None
            eager, self._eager = self._eager, False
            return await self.store.run(partial(deferred.claim, spool=spool, wanted=wanted, now=now, eager=eager))
        except DatabaseTrouble:
            return None

    def _may(self, model: str) -> bool:
        """Whether somebody may be asked for this model now. For one that is gone: its caller is to be told so."""
        if self._resting.get(model, (0.0, 0))[0] > trio.current_time():
            return False
        try:
            return any(chain.steps for chain in self.gateway.chains(model).values())
        except KeyError:
            return True

    async def _do(self, work: Work, places: trio.Semaphore) -> None:
        try:
            outcome = await self._performed(work)
            if isinstance(outcome, float):
                await self._sure(partial(deferred.put_back, work=work, not_before=self.wall() + outcome))
                self.stirred()  # somebody waits again
                return
            status, body = outcome
            await self._sure(partial(deferred.finish, work=work, status=status, result=body, now=self.wall()))
            self.results.stirred()
        finally:
            places.release()

    async def _performed(self, work: Work) -> tuple[int, bytes] | float:
        """What it ended with; or how many seconds to wait where that may be mended."""
        headers = {name.encode("latin-1"): value.encode("latin-1") for name, value in work.headers.items()}
        request = Request("POST", work.endpoint, {**headers, b"x-request-id": work.id.encode()}, work.body)
        pause = min(self.settings.longest_wait, AGAIN * 2.0 ** min(work.runs - 1, 20)) * (0.5 + self.jitter() / 2)
        try:
            async with self.gateway.perform(request, work.key_id) as answer:
                body = await answer.read()
        except Exception:  # noqa: BLE001 - a bug of the line is recorded there, and ends this run alone
            return pause
        if answer.status != 429 and answer.status < 500:
            self._resting.pop(work.model, None)
            return answer.status, _json(body)
        if isinstance(answer.error, ChainExhausted):
            if len(self._resting) > MOST:  # callers may invent names where a pattern takes them
                self._resting.clear()
            failures = self._resting.get(work.model, (0.0, 0))[1] + 1
            rest = min(self.settings.longest_wait, AGAIN * 2.0 ** min(failures - 1, 20))
            self._resting[work.model] = (trio.current_time() + rest, failures)
        return min(self.settings.longest_wait, max(pause, _told(answer)))

    async def _tidy(self) -> None:
        while True:
            work = partial(deferred.tidy, spool=self._spool, now=self.wall(), retention=self.settings.retention)
            if await self._sure(work):
                self.results.stirred()
            await trio.sleep(TIDY)

    async def _sure(self, work: Callable[[Database], T]) -> T:
        """Have it made, however long the store is in trouble."""
        while True:
            try:
                return await self.store.run(work)
            except DatabaseTrouble:
                await trio.sleep(AGAIN)


def _json(body: bytes) -> bytes:
    """A result stands inside of what is told of it, so it has to be JSON: a provider's own error body may be anything."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.encode(body.decode("utf-8", "replace"))
    return body


def _told(answer: Answer) -> float:
    """The seconds that an answer asks to wait for. A queue's are for those who would stand in it, and places come sooner."""
    if isinstance(answer.error, Refusal) and answer.error.kind in QUEUES:
        return 0.0
    said: Sequence[str] = [value for name, value in answer.headers if name == "retry-after"]
    return float(said[0]) if said else 0.0
