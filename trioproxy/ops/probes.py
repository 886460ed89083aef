"""Health checks that mean something: the smallest real completion at each channel, again and again.

A check never takes a caller's slot and goes nowhere that a provider wants to be left in peace: not to a channel that is parked
(our key or our money there; only a person, and a new start, heals that) or that cools down. While the breaker is closed its
result is only told and, a number of times in a row, opens it; a success never ends a streak of real failures. While it is open
the check is its probe: a success closes it as a call's would, a failure leaves the count alone and renews the wait, so
that no call has to find out that the channel is still dead.
"""

from collections.abc import Callable, Mapping
from functools import partial

import trio
from attrs import define, evolve, field

from trioproxy.channel import ChannelState, Pass, Probed
from trioproxy.codec.chat_probe import verdict
from trioproxy.config.probes import Probes
from trioproxy.errors import AttemptError, Blame, Fault, FaultKind
from trioproxy.family import Family
from trioproxy.http.client import Exchange
from trioproxy.journal import BreakerMoved, Event, Journal, ProbeRan, Usage
from trioproxy.policy.breaker import State

MAX_BODY = 65_536  # bytes; an answer of one token is a hundredth of that


@define(eq=False)
class Subject:
    """One channel to check. `charge` counts what a check used against the channel's own limits."""

    state: ChannelState
    model: str
    request: bytes = field(repr=False)
    charge: Callable[[Usage], None]
    streak: int = field(init=False, default=0)  # failed checks, no call answered between
    answered: int = field(init=False, default=0)
    moved: trio.Event = field(init=False, factory=trio.Event)  # the breaker has, since the last look


@define(eq=False)
class Prober:
    """All checks of one gateway. `luck` gives random numbers from 0 to 1, `wall` is Unix seconds."""

    subjects: Mapping[str, Subject]
    settings: Probes
    family: Family[dict[str, ChannelState]]
    journal: Journal
    wall: Callable[[], float]
    luck: Callable[[], float]

    async def watch(self) -> None:
        """Check every channel in its rhythm, until cancelled."""
        self.journal.subscribe(self._hear)
        try:
            async with trio.open_nursery() as nursery:
                for subject in self.subjects.values():
                    nursery.start_soon(self._keep, subject)
        finally:
            self.journal.unsubscribe(self._hear)

    async def check(self, subject: Subject) -> None:
        """One check, where one may be made now. Cancelled, it is no evidence."""
        state, began = subject.state, trio.current_time()
        enter = partial(state.enter_probe, closes=self.settings.closes)
        leave = await self.family.decide(enter, subject.model, began)
        if leave is None:
            return
        try:
            fault, usage = await self._ask(subject)
        except BaseException:
            self.family.post(state.abandon, leave, trio.current_time())
            raise
        fault = None if fault is None else state.shown(fault)
        self.family.post(self._learn, subject, leave, fault)
        self._tell(subject, fault, usage, began)

    async def _keep(self, subject: Subject) -> None:
        await trio.sleep(self.settings.every * self.settings.jitter * self.luck())
        while True:
            since = trio.current_time()
            await self.check(subject)
            await self._pause(subject, since)

    async def _pause(self, subject: Subject, since: float) -> None:
        """Until the check after that of `since` is due, which a breaker that has opened brings forward."""
        luck = self.luck()
        while (wait := since + self._interval(subject.state, luck) - trio.current_time()) > 0:
            subject.moved = trio.Event()
            with trio.move_on_after(wait):
                await subject.moved.wait()

    def _interval(self, state: ChannelState, luck: float) -> float:
        breaker, settings = state.breaker, self.settings
        seconds = settings.every
        if breaker.state is not State.CLOSED:
            seconds = min(seconds, settings.every_open, breaker.policy.open_for / 2)
        return seconds * (1.0 + settings.jitter * (2.0 * luck - 1.0))

    async def _ask(self, subject: Subject) -> tuple[Fault | None, Usage]:
        exchange = Exchange(subject.state.upstream)
        timeout = self.settings.timeout
        try:
            with trio.move_on_after(timeout):
                head = await exchange.open(subject.request)
                body = b""
                while len(body) < MAX_BODY and (data := await exchange.receive()):
                    body += data
                return verdict(head.status, head.headers, body, self.wall())
        except AttemptError as exc:
            return exc.fault, Usage()
        except Exception as exc:  # noqa: BLE001 - a health check must not end the gateway
            return Fault(FaultKind.NOT_AN_ANSWER, Blame.ADAPTER, f"the health check itself failed: {exc!r}"), Usage()
        finally:
            exchange.close(trio.current_time())
        message = f"no answer to a health check within {timeout:g} s"
        return Fault(FaultKind.HEADERS_TIMEOUT, Blame.PROVIDER, message, retry=True, counts=True), Usage()

    def _learn(self, subject: Subject, leave: Pass, fault: Fault | None) -> None:
        state, now = subject.state, trio.current_time()
        state.settle_probe(leave, fault, now)
        if fault is None or not fault.counts:
            subject.streak = 0
            return
        lively = state.tally.successes != subject.answered
        subject.answered = state.tally.successes
        subject.streak = 1 if lively else subject.streak + 1
        if subject.streak == self.settings.failures:
            subject.streak = 0
            state.trip(now)

    def _tell(self, subject: Subject, fault: Fault | None, usage: Usage, began: float) -> None:
        state, now = subject.state, trio.current_time()
        cost = state.tariff.cost(usage) if state.tariff is not None else (0 if usage == Usage() else None)
        subject.charge(usage)
        why = "" if fault is None else fault.message or fault.kind.value
        before = state.probed or Probed()
        state.probed = evolve(
            before,
            runs=before.runs + 1,
            failed=before.failed + (fault is not None),
            cost=before.cost + (cost or 0),
            ok=fault is None,
            why=why,
            at=now,
        )
        self.journal.emit(ProbeRan(state.name, subject.model, fault is None, why, now - began, usage, cost, now))

    def _hear(self, event: Event) -> None:
        if isinstance(event, BreakerMoved) and event.channel in self.subjects:
            self.subjects[event.channel].moved.set()
