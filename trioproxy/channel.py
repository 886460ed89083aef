"""One channel as it is now: its breaker, standing, slots and connections, and what attempts teach about it.

The objects inside are synchronous; whoever shares them goes through the `channels` family of the supervisor. Whatever is given out
(leave for an attempt, a slot) is handed back exactly once.
"""

import trio
from attrs import define, evolve, field, frozen

from trioproxy.codec.frame import Dialect, Shape
from trioproxy.codec.scrub import scrub
from trioproxy.errors import AttemptError, Blame, Fault, FaultKind
from trioproxy.http.client import Upstream
from trioproxy.journal import BreakerMoved, ChannelCooled, ChannelParked, Journal
from trioproxy.policy.breaker import Breaker, Permit, State
from trioproxy.policy.pricing import Tariff
from trioproxy.policy.slots import Slots, Ticket
from trioproxy.policy.standing import Standing


@define(eq=False)
class Pass:
    """Leave to make one attempt at a channel: the breaker's permit, and the standings of which it is the trial."""

    permit: Permit
    model: str
    trials: tuple[Standing, ...] = ()


@frozen
class ChannelStatistics:
    """A reading of one channel. Times are seconds from now, 0 where they do not apply."""

    breaker: str
    failures: int
    open_for: float
    objection: str | None
    in_flight: int
    waiting: int
    idle_connections: int


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
    standing: Standing = field(init=False, factory=Standing)
    models: dict[str, Standing] = field(init=False, factory=dict)
    _waiters: dict[Ticket, trio.Event] = field(init=False, factory=dict)

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

    def try_enter(self, model: str, now: float) -> Pass | None:
        """Leave for one attempt, or None. Hand it back exactly once, to `settle` or `abandon`."""
        if self.objection(model, now) is not None:
            return None
        was = self.breaker.state
        permit = self.breaker.try_enter(now)
        if permit is None:
            return None
        self._told(was, now)
        standings = (self.standing, self.models[model]) if model in self.models else (self.standing,)
        trials = tuple(standing for standing in standings if standing.on_probation)
        for standing in trials:
            standing.enter(now)
        return Pass(permit, model, trials)

    def commit(self, leave: Pass, now: float) -> None:
        """The attempt has content: the channel is alive. A probe has proved it and closes; others tell at their end."""
        self.standing.restore(now)
        self.models.pop(leave.model, None)
        if leave.permit.probe:
            was = self.breaker.state
            self.breaker.success(leave.permit, now)
            self._told(was, now)

    def settle(self, leave: Pass, fault: Fault | None, now: float) -> None:
        """What the attempt taught about the channel; `fault` None means that it answered."""
        was = self.breaker.state
        if leave.permit.spent:  # a probe that committed; what came after it counts by itself
            if fault is not None and fault.counts:
                self.breaker.strike(leave.permit, now)
        elif fault is None:
            self.breaker.success(leave.permit, now)
        elif fault.counts:
            self.breaker.failure(leave.permit, now)
        else:
            self.breaker.abandon(leave.permit, now)
        self._told(was, now)
        self._settle_standing(leave, fault, now)

    def abandon(self, leave: Pass, now: float) -> None:
        """The attempt ended without evidence: the caller left, or a deadline that was not the channel's."""
        if not leave.permit.spent:
            self.breaker.abandon(leave.permit, now)
        self._abandon_trial(leave)

    def _settle_standing(self, leave: Pass, fault: Fault | None, now: float) -> None:
        if fault is None or fault.blame is Blame.CLIENT:  # it is alive, and took our key
            self.standing.restore(now)
            self.models.pop(leave.model, None)
        elif fault.kind is FaultKind.MODEL_NOT_FOUND and fault.park is not None:
            seconds = self.models.setdefault(leave.model, Standing()).park(now, fault.park, fault.message)
            self._abandon_trial(leave)
            self.journal.emit(ChannelParked(self.name, fault.kind.value, fault.message, seconds, now))
        elif fault.park is not None:
            seconds = self.standing.park(now, fault.park, fault.message)
            self.journal.emit(ChannelParked(self.name, fault.kind.value, fault.message, seconds, now))
        elif fault.blame is Blame.RATE or fault.cooldown is not None:
            seconds = self.standing.cool(now, fault.cooldown, fault.message)
            self.journal.emit(ChannelCooled(self.name, fault.kind.value, seconds, now))
        else:
            self._abandon_trial(leave)

    def _abandon_trial(self, leave: Pass) -> None:
        for standing in leave.trials:
            standing.abandon()

    def _told(self, was: State, now: float) -> None:
        state = self.breaker.state
        if state is not was:
            until = self.breaker.until if state is State.OPEN else None
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
        )
