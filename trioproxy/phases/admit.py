"""May it be sent? What the call is likely to use is held at every scope of its caller, all or nothing.

The channel's part is held when an attempt at it begins, by its provider's own arithmetic, and moves on with a failover. Whatever
is held is given back or replaced by what was used when the call is settled, exactly once. Every decision is one synchronous
step in the quota's family; where nothing is limited there is no admission at all.

A call whose class has a queue waits there for what it needs, a place at a channel included, and has all of it once it is
granted; others are refused at once.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import trio
from attrs import define, evolve, field

from trioproxy.call import Call
from trioproxy.channel import ChannelState
from trioproxy.config.model import Model
from trioproxy.config.scopes import Scopes
from trioproxy.errors import Blame, ChainExhausted, Fault, FaultKind, Limited, Refusal, RefusalKind
from trioproxy.family import Family
from trioproxy.journal import BudgetNearing, Journal, Usage
from trioproxy.phases.allowance import QUEUE, crowded, lines, stopped, throttled, why
from trioproxy.phases.expectation import SPENDING, Expectation, Provider, Scales, Way, Ways
from trioproxy.phases.turn import Chains, Turn, seconds
from trioproxy.policy import tickets
from trioproxy.policy.chain import Candidate, Chain
from trioproxy.policy.charges import Estimate
from trioproxy.policy.limits import NOTHING, Need
from trioproxy.policy.pricing import Tariff
from trioproxy.policy.reservation import Denial, Objection, Reservation
from trioproxy.policy.slots import Ticket as Slot
from trioproxy.supervisor import QuotaState
from trioproxy.waiting_room import Waiter

END_USER = b"x-trioproxy-user"

SENT = Need(requests=1, calls=0)  # what a failed attempt used of a channel: a request
ONE = Need(requests=1)
AT_LIMIT = Fault(FaultKind.RATE_LIMITED, Blame.RATE, "every channel of this model is at its limit or resting", 429)


@define(eq=False)
class Admitter:
    """The limits of one configuration over the live quota. `wall` is Unix seconds."""

    family: Family[QuotaState]
    scopes: Scopes
    providers: Mapping[str, Provider]
    wall: Callable[[], float]
    journal: Journal
    channels: Mapping[str, ChannelState] = field(factory=dict)  # whose places those that wait are waiting for
    _ways: Ways = field(init=False)
    _scales: Scales = field(init=False, factory=Scales)

    def __attrs_post_init__(self) -> None:
        self._ways = Ways(self.scopes)

    async def admit(
        self, call: Call, model: Model, chain: Chain, user: bytes = b"", *, live: Callable[[float], Chain]
    ) -> "Admission | None":
        """Hold what the call is likely to use; None where nothing limits it. `user` is the caller's word for its end user.

        Where it has to wait for that, `live` tells what its chain has become meanwhile. Raises `Refusal`. Cancelled, nothing is
        held, and its place in the queue is free.
        """
        way = self._ways.to(call, model, user)
        candidates = chain.steps + chain.left_out
        providers = [self.providers[each.channel] for each in chain.steps + chain.beyond]
        room = self.family.state.room
        if room is None and not way.path.callers and all(each.step is None for each in providers):
            return None
        queue = call.policy.queue if room is not None else None
        counts = way.counts or any(each.counts for each in providers) or (queue is not None and queue.pooled)
        expectation = self._scales.weigh(call, model, candidates[0]) if counts else None
        admission = Admission(self, call, way, expectation, candidates[0])
        tariffs = self._dearest(chain) if way.spends else []
        if room is None or queue is None:
            await self.family.decide(admission.reserve, tariffs)
            return admission
        turn = admission.turn = Turn(room, queue, Chains(model.name, self.channels), chain, live)
        await self.family.decide(
            admission.line_up, turn, tariffs, partial(self._scales.weigh, call, model, candidates[0])
        )
        if turn.waiter is not None:
            await admission.wait(turn, turn.waiter)
        return admission

    def _dearest(self, chain: Chain) -> list[Tariff]:
        tariffs = (self.providers[step.channel].tariff for step in chain.steps + chain.beyond)
        return [tariff for tariff in tariffs if tariff is not None]


@define(eq=False)
class Admission:
    """One call's leave, and what it holds for it. `refused` has the channels whose own limits were in the way."""

    admitter: Admitter
    call: Call
    way: Way
    expectation: Expectation | None
    first: Candidate
    estimate: Estimate = field(init=False, default=Estimate(0, 0))
    refused: list[tuple[Candidate, Objection]] = field(init=False, factory=list)
    turn: Turn | None = field(init=False, default=None)
    _need: Need = field(init=False, default=ONE)
    _reservation: Reservation | None = field(init=False, default=None)
    _refunded: bool = field(init=False, default=False)

    def reserve(self, tariffs: list[Tariff]) -> None:
        """Hold the callers' parts, at the price of the dearest channel that may be asked. Raises `Refusal`."""
        state, now, wall = self._moment()
        self._measure(state, tariffs)
        outcome = state.quota.reserve(self.way.path, self._need, now, wall)
        if isinstance(outcome, Denial):
            raise self._refusal(outcome)
        self._reservation = outcome
        self._tell_budgets(now)

    def _tell_budgets(self, now: float) -> None:
        """Whose budgets are nearly used up now."""
        if self.way.spends and self._reservation is not None:
            for near in self.admitter.family.state.nearing.look(self._reservation.callers.accounts):
                limiter = f"{near.scope.rank.value}.{near.dimension.value}"
                self.admitter.journal.emit(BudgetNearing(limiter, near.scope.name, near.share, now))

    def _measure(self, state: QuotaState, tariffs: list[Tariff]) -> None:
        if self.expectation is not None:
            estimate = self.estimate = self.expectation.at(self.first, state.learned)
            usage = Usage(input=estimate.input, output=estimate.output)
            self._need = estimate.need._replace(micro_usd=max((tariff.cost(usage) for tariff in tariffs), default=0))

    def line_up(self, turn: Turn, tariffs: list[Tariff], measure: Callable[[], Expectation]) -> None:
        """Take everything at once where nobody waits and it fits; else stand in the line of its class, or be turned away.

        The line counts in tokens; a call that no limit counts is measured for it.
        """
        state, now, _ = self._moment()
        self._measure(state, tariffs)
        name, tenant = self.call.traffic_class, self.call.caller.tenant
        weight = self.admitter.scopes.weights.get(tenant, 1.0)
        if turn.room.quiet(name) and self._take(turn, now) is None:
            turn.room.passed(name, tenant, max(1, self.estimate.input + self.estimate.output), weight=weight, now=now)
            return
        estimate = self.estimate if self.expectation is not None else measure().at(self.first, state.learned)
        scopes = (*(step.scope for step in self.way.path.callers), turn.chains.scope(turn.chain))
        ticket = tickets.Ticket(
            name,
            tenant,
            estimate.input + estimate.output,
            (*scopes, ("incident", turn.chains.name)) if turn.policy.pause_in_incident else scopes,
            weight=weight,
            deadline=self.call.deadlines.start - self.call.policy.min_attempt,
        )
        turn.waiter = Waiter(ticket)
        turn.since = now
        turn.room.enter(turn.waiter, partial(self._take, turn), now)

    async def wait(self, turn: Turn, waiter: Waiter) -> None:
        """Until its turn has come; then it holds what it needs. Raises `Refusal`."""
        try:
            await waiter.wait()
        except BaseException:  # it leaves; whatever it was given in the same moment comes back
            self.admitter.family.post(self._walk_out, turn, waiter)
            raise
        turn.queued = trio.current_time() - turn.since
        if waiter.refused is not None:
            raise self._turned_away(turn, waiter.refused)

    def _walk_out(self, turn: Turn, waiter: Waiter) -> None:
        state, now, _ = self._moment()
        if self._reservation is not None:
            self._give_back(state, now)
            turn.place.free()
        turn.room.leave(waiter, now)

    def _take(self, turn: Turn, now: float) -> tickets.Objection | None:
        """What the line asks: hold everything that the call needs now, or say what stands in the way."""
        turn.objection = self._objection(turn, now)
        if turn.objection is None:
            self._tell_budgets(now)
        return turn.objection

    def _objection(self, turn: Turn, now: float) -> tickets.Objection | None:
        if turn.policy.pause_in_incident and (incident := turn.chains.incident(turn.chain, now)):
            return incident
        state = self.admitter.family.state
        outcome = state.quota.ask(self.way.path, self._need, now, self.admitter.wall())
        turn.denial = outcome if isinstance(outcome, Denial) else None
        if isinstance(outcome, Denial):
            return tickets.Objection(outcome.binding.scope, seconds(outcome.binding))
        self._reservation = outcome
        if turn.waiter is not None and now > turn.since:
            turn.chain = turn.live(now)
        full = turn.place.find(turn.chains, turn.chain, self._move)
        self.refused = turn.place.objections
        if full is not None:
            self._give_back(state, now)
        return full

    def _give_back(self, state: QuotaState, now: float) -> None:
        assert self._reservation is not None
        state.quota.settle(self._reservation, NOTHING, now)
        self._reservation = None

    @property
    def queued(self) -> float | None:
        """Seconds in the queue of its class; None where it has none."""
        return None if self.turn is None else self.turn.queued

    def slot(self) -> Slot | None:
        """The slot that came with its turn, for the first attempt."""
        return None if self.turn is None else self.turn.place.hand_over()

    async def enter(self, step: Candidate) -> str | None:
        """Hold the part of the channel that is asked next; or say why its own limits do not allow it."""
        place = None if self.turn is None else self.turn.place
        if place is not None and place.slot is not None:  # held since its turn came
            return None if step is place.step else place.passed_over(step)
        if self.admitter.providers[step.channel].step is None:
            return None
        return await self.admitter.family.decide(self._enter, step)

    def _move(self, step: Candidate) -> Denial | None:
        """Hold the channel's part, where it has limits."""
        state, now, wall = self._moment()
        own = self.admitter.providers[step.channel].step
        if own is None:
            return None
        assert self._reservation is not None
        return state.quota.move(self._reservation, own, self.need(step) or ONE, now=now, wall=wall)

    def _enter(self, step: Candidate) -> str | None:
        denial = self._move(step)
        if denial is None:
            return None
        self.admitter.family.state.quota.deny(denial)
        self.refused.append((step, denial.binding))
        return why(denial.binding)

    def forgo(self, step: Candidate) -> None:
        """The place that came with its turn is not taken: its channel may not be asked after all."""
        if self.turn is not None and self.turn.place.slot is not None and self.turn.place.step is step:
            self.turn.place.free()
            self.leave(sent=False)

    def need(self, step: Candidate) -> Need | None:
        """What the call needs at this channel, by its provider's arithmetic; None where it was not measured."""
        if self.expectation is None:
            return None
        first = step is self.first  # already estimated
        estimate = self.estimate if first else self.expectation.at(step, self.admitter.family.state.learned)
        return self.admitter.providers[step.channel].charge.need(estimate)

    def longest(self, step: Candidate) -> float:
        """How long an answer of this channel may stream, in seconds."""
        own = self.admitter.providers[step.channel].step
        return min(self.way.path.stream, math.inf if own is None else own.limits.stream)

    def leave(self, *, sent: bool) -> None:
        """The attempt has failed: the channel's part is given back, but for the request if it was `sent`."""
        self.admitter.family.post(self._leave, SENT if sent else NOTHING)

    def _leave(self, spent: Need) -> None:
        state, now, _ = self._moment()
        if self._reservation is not None and not self._reservation.settled:
            state.quota.leave(self._reservation, spent, now)
        if state.room is not None:
            state.room.pump(now)

    def stir(self) -> None:
        """The channel's place is free already: an answer that is here whole needs it no more, however slow its reader is."""
        room = self.admitter.family.state.room
        if room is not None:
            self.admitter.family.post(room.pump, trio.current_time())

    def refund(self) -> None:
        """Nothing was answered, so nothing is owed. A second time changes nothing."""
        if not self._refunded:
            self._refunded = True
            self.admitter.family.post(self._settle, NOTHING, SENT)

    def settle(self, usage: Usage, cost: int | None, channel: str) -> None:
        """Replace what is held by what was used, at the channel by its provider's arithmetic."""
        whole = usage.input + usage.cached
        actual = Need(1, whole, usage.output, whole + usage.output, cost or 0)
        self.admitter.family.post(self._settle, actual, self.admitter.providers[channel].charge.used(usage))

    def _settle(self, actual: Need, at_channel: Need) -> None:
        state, now, _ = self._moment()
        assert self._reservation is not None
        state.quota.settle(self._reservation, actual, now, at_channel)
        self._tell_budgets(now)
        turn = self.turn
        if turn is not None:
            turn.place.free()
        if turn is not None and turn.waiter is not None:
            turn.room.settle(turn.waiter, actual.total_tokens, now)
        elif state.room is not None:
            state.room.pump(now)

    def learn(self, usage: Usage, step: tuple[str, str], *, seconds: float | None, whole: bool) -> None:
        """What the answer teaches for the next estimate. `step` is channel and model; a cut answer tells no length."""
        expectation, learned = self.expectation, self.admitter.family.state.learned
        if expectation is None:
            return
        self.admitter.family.post(learned.counted, step[0], expectation.tokens(step[1]), usage)
        if whole:
            self.admitter.family.post(learned.answered, expectation.route, usage, seconds)

    def lines(self) -> bytes:
        """Header lines about what the caller has left."""
        if not self.way.own.callers:
            return b""
        state, now, wall = self._moment()
        return lines(state.quota.least(self.way.own.callers, now, wall), now, wall)

    def judged(self, error: ChainExhausted) -> ChainExhausted:
        """The end of a chain some of whose channels were not asked because of their own limits."""
        if not self.refused:
            return error
        waits = [objection.wait for _, objection in self.refused if objection.wait < math.inf]
        waits += [] if error.retry_after is None else [error.retry_after]
        if not waits:  # too large for all of them, at any time
            return error
        return ChainExhausted(error.faults or (AT_LIMIT,), retry_after=min(waits), deadline=error.deadline)

    def stopped(self) -> Limited:
        """What is told where channels' own limits were all that was in the way."""
        return self._told(*min(self.refused, key=lambda each: each[1].wait))

    def _turned_away(self, turn: Turn, refused: tickets.Refused) -> Refusal:
        """The line's no: that of the limit that the call would have to outwait, else the queue's own."""
        if turn.denial is not None:
            self.admitter.family.state.quota.deny(turn.denial)
        wait = refused.retry_after
        if turn.told and turn.denial is not None:
            refusal = self._refusal(turn.denial)
        else:
            kind, message = crowded(self.call.traffic_class, refused.why, turn.policy, turn.queued)
            incident = turn.objection is not None and turn.objection.at == ("incident", turn.chains.name)
            kind = RefusalKind.CLASS_PAUSED if incident else kind
            refusal = Refusal(kind, message, limited=self._crowd(turn))
            refusal.lines = self.lines()
            if wait is None and refusal.limited is not None and refusal.limited.retry_after_ms is not None:
                wait = refusal.limited.retry_after_ms / 1000  # what the body says, the header says
        if wait is not None and wait < math.inf:
            refusal.retry_after = wait
            assert refusal.limited is not None
            refusal.limited = evolve(refusal.limited, retry_after_ms=math.ceil(wait * 1000))
        refusal.queued = turn.queued
        refusal.lines += QUEUE % (turn.queued * 1000)
        return refusal

    def _crowd(self, turn: Turn) -> Limited:
        """Which limit those in the line wait for."""
        if turn.denial is not None:
            return self._told(self.first, turn.denial.binding)
        if turn.place.objections:
            return self.stopped()
        provider = self.admitter.providers[self.first.channel].name
        told = throttled(self.call, provider, self.first.model, None)
        pooled = turn.policy.pooled and turn.objection is None
        return evolve(
            told,
            limiter="class.tokens_per_minute" if pooled else "class.queue",
            scope=self.call.traffic_class,
            gateway_decision="rejected_before_dispatch",
            estimated_input_tokens=self.estimate.input,
            estimated_output_tokens=self.estimate.output,
        )

    def _refusal(self, denial: Denial) -> Refusal:
        binding = denial.binding
        kind = RefusalKind.RATE_LIMITED
        if denial.out_of_balance:
            kind = RefusalKind.OUT_OF_BALANCE
        elif binding.rule.unit == SPENDING:
            kind = RefusalKind.OVER_BUDGET
        wait = None if binding.wait == math.inf else binding.wait
        refusal = Refusal(kind, why(binding), retry_after=wait, limited=self._told(self.first, binding))
        refusal.lines = self.lines()
        return refusal

    def _told(self, step: Candidate, objection: Objection) -> Limited:
        provider = self.admitter.providers[step.channel].name
        told = stopped(throttled(self.call, provider, step.model, None), objection)
        return evolve(told, estimated_input_tokens=self.estimate.input, estimated_output_tokens=self.estimate.output)

    def _moment(self) -> tuple[QuotaState, float, float]:
        return self.admitter.family.state, trio.current_time(), self.admitter.wall()
