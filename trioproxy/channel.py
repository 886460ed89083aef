"""One channel as it is now: its breaker, standing, slots and connections, and what attempts teach about it.

The objects inside are synchronous; whoever shares them goes through the `channels` family of the supervisor. Whatever is given out
(leave for an attempt, a slot) is handed back exactly once.
"""

import random
from collections.abc import Callable

import trio
from attrs import define, evolve, field, frozen

from trioproxy.codec.frame import Dialect, Shape
from trioproxy.codec.scrub import scrub
from trioproxy.errors import AttemptError, Blame, Fault, FaultKind
from trioproxy.http.client import Upstream
from trioproxy.journal import BreakerMoved, ChannelCooled, ChannelParked, Journal
from trioproxy.pacer import Pacer
from trioproxy.policy.breaker import Breaker, Permit, State
from trioproxy.policy.charges import OTHER, Charge
from trioproxy.policy.pace import Pace, Sent
from trioproxy.policy.pricing import Tariff
from trioproxy.policy.promptness import Promptness, Tally
from trioproxy.policy.slots import Slots, Ticket
from trioproxy.policy.standing import Standing

WEIGHTLESS = -1  # an epoch that no breaker is ever in


@define(eq=False)
class Pass:
    """Leave to make one attempt at a channel: the breaker's permit, and the standings of which it is the trial."""

    permit: Permit
    model: str
    trials: tuple[Standing, ...] = ()
    since: float = 0.0
    streamed: bool = False
    sent: Sent | None = None  # what it took of what the channel may be sent, where that is known


@frozen
class Probed:
    """What health checks found since the start. `cost` is micro-USD of those whose price is known, `at` on Trio's clock."""

    runs: int = 0
    failed: int = 0
    cost: int = 0
    ok: bool = True
    why: str = ""
    at: float = 0.0


@frozen
class ChannelStatistics:
    """A reading of one channel. Times are seconds, 0 where they do not apply; `open_for` is until half-open.

    `successes`, `failed` and `rejected` are totals since the start: what counted for the breaker and against it, and calls that
    had to pass the channel over because of it. The p95 are of recent streams' first content and of recent whole answers,
    None before the first. `probed` is what health checks found, None where there are none.
    """

    breaker: str
    failures: int
    open_for: float
    objection: str | None
    in_flight: int
    waiting: int
    idle_connections: int
    successes: int = 0
    failed: int = 0
    rejected: int = 0
    success_rate: float | None = None
    first_content_p95: float | None = None
    whole_p95: float | None = None
    probed: Probed | None = None


@define(eq=False)
class ChannelState:
    """One channel as it is now. Methods take `now`, seconds on Trio's clock, and never block but for `slot`."""

    name: str
    upstream: Upstream
    dialect: Dialect
    shape: Shape
    breaker: Breaker
    slots: Slots
    slot_timeout: float
    max_answer: int
    journal: Journal
    request_lines: bytes = field(repr=False)  # the constant part of every request's head, credential included
    secrets: tuple[str, ...] = field(default=(), repr=False)  # what must never appear in anything shown
    tariff: Tariff | None = None
    provider: str = ""  # what a caller is told of whose channel it is
    disabled: str | None = None  # why this channel can never be asked as configured
    luck: Callable[[], float] = random.random
    promptness: Promptness = field(init=False)
    pacer: Pacer = field(init=False)
    tally: Tally = field(init=False, factory=Tally)
    probed: Probed | None = field(init=False, default=None)
    pace: Pace = field(factory=Pace)
    charge: Charge = OTHER
    standing: Standing = field(init=False, factory=Standing)
    models: dict[str, Standing] = field(init=False, factory=dict)
    _waiters: dict[Ticket, trio.Event] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.promptness = Promptness(self.breaker.policy.silence)
        self.pacer = Pacer(self.name, self.pace, self.slots, self.journal)

    def objection(self, model: str, now: float) -> str | None:
        """Why this channel is skipped for this provider model now, or None. Changes nothing."""
        if self.disabled is not None:
            return self.disabled
        objection = self.standing.objection(now)
        if objection is None and model in self.models:
            objection = self.models[model].objection(now)
        if objection is None and not self.breaker.admits(now):
            wait = max(0.0, self.breaker.until - now)
            return f"breaker open for another {wait:.0f} s" if wait else "breaker half-open: its probes are out"
        return objection

    def passed_over(self, model: str, now: float) -> str | None:
        """As `objection`, asked for a call; what its breaker rejects is counted."""
        objection = self.objection(model, now)
        if objection is not None and not self.breaker.admits(now):
            self.tally.rejected += 1
        return objection

    def resort_in(self, model: str, now: float, *, breakers: bool, guesses: bool) -> float | None:
        """Seconds until the channel is back, where it may be asked all the same because everybody is out.

        What a provider asked for, a park, and a trial that is out already are never passed over. One of the others is, where
        the caller says so: our own `guesses` at a rest, or `breakers`; both at once are too much.
        """
        known = self.models.get(model)
        if self.disabled is not None or (known is not None and known.objection(now) is not None):
            return None
        if self.standing.objection(now) is not None:
            if not (guesses and self.standing.doubtful(now) and self.breaker.admits(now)):
                return None
        elif not self.breaker.admits(now):
            free = self.breaker.state is State.OPEN and not self.breaker.leases
            if not (breakers and free):
                return None
        return self.back_in(model, now)

    @property
    def on_trial(self) -> bool:
        """Whether the next call only tries whether it is back: a probe, or the first one after a rest."""
        return self.breaker.state is not State.CLOSED or self.standing.on_probation

    @property
    def probing(self) -> bool:
        """Whether its breaker lets calls through a few at a time only."""
        return self.breaker.state is State.HALF_OPEN or (
            self.breaker.state is State.OPEN and self.breaker.policy.probes > 0
        )

    def trouble(self, model: str, now: float) -> str:
        """In a word why calls go elsewhere now; "" where they need not."""
        if self.disabled is not None:
            return "disabled"
        if self.breaker.state is not State.CLOSED:
            return "breaker open"
        if now < self.standing.until or self.standing.on_probation:
            return "parked" if self.standing.parked else "cooling"
        return "model not found" if self.lacks(model, now) else ""

    def lacks(self, model: str, now: float) -> bool:
        """Whether the provider has just said that it does not know this model."""
        return model in self.models and self.models[model].objection(now) is not None

    def back_in(self, model: str, now: float) -> float | None:
        """Seconds until the channel may be asked again, where that is known."""
        if self.disabled is not None:
            return None
        waits = [self.standing.wait(now)]
        if model in self.models:
            waits.append(self.models[model].wait(now))
        if self.breaker.state is State.OPEN:
            waits.append(self.breaker.until - now)
        return max(0.0, *waits)

    def request(self, suffix: str, forwarded: bytes, body: bytes) -> bytes:
        """One request, head and body, as it goes to the provider. `suffix` follows the base URL's path."""
        origin = self.upstream.origin
        target = f"{origin.path}{suffix}?{origin.query}" if origin.query else origin.path + suffix
        return b"POST %b HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n%b" % (
            target.encode(),
            self.request_lines,
            forwarded,
            len(body),
            body,
        )

    def shown(self, fault: Fault) -> Fault:
        """The fault as it may be shown: without our credential, or the address it goes to."""
        if not (fault.message or fault.body):
            return fault
        return evolve(fault, message=scrub(fault.message, self.secrets), body=scrub(fault.body, self.secrets))

    def try_enter(
        self, model: str, now: float, *, streamed: bool = False, resort: bool = False, sent: Sent | None = None
    ) -> Pass | None:
        """Leave for one attempt, or None. Hand it back exactly once, to `settle` or `abandon`. `resort`: also where it is out."""
        doubted = resort and self.standing.doubtful(now)
        if not resort and self.passed_over(model, now) is not None:
            return None
        if resort and self.resort_in(model, now, breakers=not doubted, guesses=True) is None:
            return None
        was = self.breaker.state
        permit = self.breaker.resort(now) if resort else self.breaker.try_enter(now)
        if permit is None:
            return None
        self._told(was, now)
        standings = (self.standing, self.models[model]) if model in self.models else (self.standing,)
        trials = tuple(standing for standing in standings if standing.on_probation)
        for standing in trials:
            if doubted and standing is self.standing:
                standing.doubt(now)
            else:
                standing.enter(now)
        return Pass(permit, model, trials, now, streamed, sent)

    def commit(self, leave: Pass, now: float) -> None:
        """A stream has content: the channel is alive. A probe has proved it and closes; others tell at their end."""
        self._recover(leave, now)
        first = now - leave.since
        self.promptness.answered(first, now, streamed=True)
        self.pacer.answered(first, now)
        was = self.breaker.state
        if not self.breaker.began(leave.permit, first, now, self.luck()):
            self.tally.failures += 1
        elif leave.permit.spent:
            self.tally.successes += 1
        self._told(was, now)

    def settle(self, leave: Pass, fault: Fault | None, now: float) -> None:
        """What the attempt taught about the channel; `fault` None means that it answered."""
        was = self.breaker.state
        if leave.permit.spent:  # a probe that committed; what came after it counts by itself
            if fault is not None and fault.counts:
                self.tally.failures += 1
                self.breaker.strike(leave.permit, now, self.luck())
        elif fault is None:
            self.tally.successes += 1
            if not leave.streamed:
                self.promptness.answered(now - leave.since, now, streamed=False)
                self.pacer.answered(now - leave.since, now)
            self.breaker.success(leave.permit, now)
        elif fault.counts:
            self.tally.failures += 1
            self.breaker.failure(leave.permit, now, self.luck())
        else:
            self.breaker.abandon(leave.permit, now)
        if fault is not None and fault.status:
            self.promptness.heard = now
        self._told(was, now)
        self._settle_standing(leave, fault, now)
        self.pacer.settle(leave.model, leave.sent, fault, now)

    def abandon(self, leave: Pass, now: float, *, unanswered: bool = False) -> None:
        """The attempt ended without evidence: the caller left, or a deadline that was not the channel's.

        `unanswered`: it was asked and had not said a thing. Where that lasted longer than it ever does, it is evidence.
        """
        was = self.breaker.state
        if not leave.permit.spent:
            if unanswered and self.promptness.swallowed(leave.since, now, streamed=leave.streamed):
                self.tally.failures += 1
                self.breaker.failure(leave.permit, now, self.luck())
            else:
                self.breaker.abandon(leave.permit, now)
        self._told(was, now)
        self._abandon_trial(leave)

    def enter_probe(self, model: str, now: float, *, closes: bool) -> Pass | None:
        """Leave for a health check, or None. It weighs nothing while the breaker is closed, or where it may not close it."""
        known = self.models.get(model)
        rests = self.standing.parked or self.standing.objection(now) or (known is not None and known.objection(now))
        if self.disabled is not None or rests:
            return None
        if self.breaker.state is State.CLOSED or not closes:
            return Pass(Permit(WEIGHTLESS, probe=False), model, since=now)
        was = self.breaker.state
        permit = self.breaker.resort(now)
        self._told(was, now)
        return None if permit is None else Pass(permit, model, since=now)

    def settle_probe(self, leave: Pass, fault: Fault | None, now: float) -> None:
        """What a health check found. It is no call, so it counts in no total and tells nothing of how long answers take."""
        was = self.breaker.state
        if fault is None:
            self.breaker.success(leave.permit, now)
        elif fault.counts:
            self.breaker.failure(leave.permit, now, self.luck())
        else:
            self.breaker.abandon(leave.permit, now)
        self._told(was, now)
        self._settle_standing(leave, fault, now)
        self.pacer.settle(leave.model, None, fault, now)

    def trip(self, now: float) -> None:
        """Health checks have failed: open the breaker."""
        was = self.breaker.state
        self.breaker.trip(now, self.luck())
        self._told(was, now)

    def _settle_standing(self, leave: Pass, fault: Fault | None, now: float) -> None:
        if fault is None or fault.blame is Blame.CLIENT:  # it is alive, and took our key
            self._recover(leave, now)
        elif fault.kind is FaultKind.MODEL_NOT_FOUND and fault.park is not None:
            seconds = self.models.setdefault(leave.model, Standing()).park(now, fault.park, fault.message)
            self._abandon_trial(leave)
            self.journal.emit(ChannelParked(self.name, fault.kind.value, fault.message, seconds, now))
        elif fault.park is not None:
            seconds = self.standing.park(now, fault.park, fault.message)
            self.journal.emit(ChannelParked(self.name, fault.kind.value, fault.message, seconds, now))
        elif fault.blame is Blame.RATE or fault.cooldown is not None:
            seconds = self.standing.cool(now, fault.cooldown, fault.message, trial=self.standing in leave.trials)
            self.journal.emit(ChannelCooled(self.name, fault.kind.value, seconds, now))
        else:
            self._abandon_trial(leave)

    def _recover(self, leave: Pass, now: float) -> None:
        if self.standing.parked and now >= self.standing.until:
            self.pacer.recovered(now)
        self.standing.restore(now, trial=self.standing in leave.trials)
        self.models.pop(leave.model, None)

    def _abandon_trial(self, leave: Pass) -> None:
        for standing in leave.trials:
            standing.abandon()

    def _told(self, was: State, now: float) -> None:
        state = self.breaker.state
        if state is not was:
            until = self.breaker.until if state is State.OPEN else None
            if state is State.CLOSED:
                self.pacer.recovered(now)
            self.journal.emit(BreakerMoved(self.name, was.value, state.value, now, until))

    async def slot(self, ticket: Ticket) -> None:
        """Wait, at most `slot_timeout` seconds, until `ticket` holds a slot. Raises `AttemptError`, blaming nobody.

        Whatever happens, `leave` must follow; it is the caller's `finally`.
        """
        if ticket.granted or self.slots.take(ticket):  # it may have been taken when the call was admitted
            return
        self._wake(self.slots.offer(ticket))
        granted = self._waiters[ticket] = trio.Event()
        with trio.move_on_after(self.slot_timeout):
            await granted.wait()
        if not ticket.granted:
            message = f"{self.slots.limit} attempts are under way at this channel and none ended in time"
            raise AttemptError(Fault(FaultKind.SATURATED, Blame.RATE, message, retry=True))

    def leave(self, ticket: Ticket) -> None:
        """Give the slot, or the place in the queue, back."""
        self._waiters.pop(ticket, None)
        if granted := self.slots.withdraw(ticket):
            self._wake(granted)

    def _wake(self, granted: list[Ticket]) -> None:
        for ticket in granted:
            waiter = self._waiters.get(ticket)
            if waiter is not None:
                waiter.set()

    def statistics(self, now: float) -> ChannelStatistics:
        return ChannelStatistics(
            breaker=self.breaker.state.value,
            failures=self.breaker.count(now),
            open_for=max(0.0, self.breaker.until - now) if self.breaker.state is State.OPEN else 0.0,
            objection=self.disabled or self.standing.objection(now),
            in_flight=self.slots.held,
            waiting=self.slots.waiting,
            idle_connections=len(self.upstream.pool),
            successes=self.tally.successes,
            failed=self.tally.failures,
            rejected=self.tally.rejected,
            success_rate=self.tally.success_rate,
            first_content_p95=self.promptness.p95(streamed=True),
            whole_p95=self.promptness.p95(streamed=False),
            probed=self.probed,
        )
