"""May it be sent? What the call is likely to use is held at every scope of its caller, all or nothing.

The channel's part is held when an attempt at it begins, by its provider's own arithmetic, and moves on with a failover. Whatever
is held is given back or replaced by what was used when the call is settled, exactly once. Every decision is one synchronous
step in the quota's family; where nothing is limited there is no admission at all.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import trio
from attrs import define, evolve, field, frozen

from trioproxy.call import Call
from trioproxy.codec.frame import Facts
from trioproxy.config.model import Model
from trioproxy.config.scopes import Scopes
from trioproxy.errors import Blame, ChainExhausted, Fault, FaultKind, Limited, Refusal, RefusalKind
from trioproxy.family import Family
from trioproxy.journal import Usage
from trioproxy.phases.allowance import OWN, lines, stopped, throttled, why
from trioproxy.policy.chain import Candidate, Chain
from trioproxy.policy.charges import Charge, Estimate, Route, effort_of, expected
from trioproxy.policy.estimate import Estimator, Measure
from trioproxy.policy.learned import Learned
from trioproxy.policy.limits import NOTHING, Need
from trioproxy.policy.pricing import Tariff
from trioproxy.policy.profile import profile_of
from trioproxy.policy.reservation import Denial, Objection, Path, Rank, Reservation, Scope, Step
from trioproxy.supervisor import QuotaState

END_USER = b"x-trioproxy-user"
LONGEST_USER = 256  # characters that tell one end user from another

SENT = Need(requests=1, calls=0)  # what a failed attempt used of a channel: a request
ONE = Need(requests=1)
AT_LIMIT = Fault(FaultKind.RATE_LIMITED, Blame.RATE, "every channel of this model is at its limit or resting", 429)
SPENDING = Need._fields.index("micro_usd")
COUNTING = frozenset(map(Need._fields.index, ("input_tokens", "output_tokens", "total_tokens", "micro_usd")))
_profile = lru_cache(maxsize=1024)(profile_of)


def units(*steps: Step) -> set[int]:
    """What has to be known of a call to pass these steps, as places in a `Need`."""
    return {rule.unit for step in steps for rule in step.limits.rules}


@frozen
class Provider:
    """What is known of a channel before it is asked."""

    name: str
    charge: Charge
    tariff: Tariff | None
    step: Step | None  # where the channel has limits of its own
    counts: bool = field(init=False)  # whether these need a call's size

    @counts.default
    def _counts(self) -> bool:
        return self.step is not None and bool(units(self.step) & COUNTING)


@frozen
class Way:
    """The caller's steps to a model, and what has to be known of a call to pass them."""

    path: Path
    own: Path
    counts: bool
    spends: bool
    user: str = ""  # the end user, where it has limits of its own

    @classmethod
    def of(cls, steps: tuple[Step, ...], user: str = "") -> "Way":
        needed = units(*steps)
        own = tuple(step for step in steps if step.scope.rank in OWN)
        return cls(Path(steps), Path(own), bool(needed & COUNTING), SPENDING in needed, user)


@frozen
class Expectation:
    """A call's size, measured once. `facts` has the cap of its answers bounded by what the model can say."""

    measure: Measure
    facts: Facts
    route: str
    effort: str | None
    most: int

    def tokens(self, model: str) -> int:
        return self.measure.tokens(_profile(model))

    def at(self, step: Candidate, learned: Learned) -> Estimate:
        """What it is likely to use at this channel."""
        route = Route(self.route, step.channel, self.effort)
        estimate = expected(self.tokens(step.model), self.facts, route, learned)
        return estimate if estimate.output <= self.most else evolve(estimate, output=self.most)


@define(eq=False)
class Admitter:
    """The limits of one configuration over the live quota. `wall` is Unix seconds."""

    family: Family[QuotaState]
    scopes: Scopes
    providers: Mapping[str, Provider]
    wall: Callable[[], float]
    _ways: dict[tuple[str, str, str], Way] = field(init=False, factory=dict)
    _estimators: dict[str, Estimator] = field(init=False, factory=dict)

    async def admit(self, call: Call, model: Model, chain: Chain, user: bytes = b"") -> "Admission | None":
        """Hold what the call is likely to use; None where nothing limits it. `user` is the caller's word for its end user.

        Raises `Refusal`. Cancelled only before anything is held.
        """
        way = self._way(call, model, user)
        candidates = chain.steps + chain.left_out
        providers = [self.providers[each.channel] for each in chain.steps + chain.beyond]
        if not way.path.callers and all(each.step is None for each in providers):
            return None
        counts = way.counts or any(each.counts for each in providers)
        expectation = self._measured(call, model, candidates[0]) if counts else None
        admission = Admission(self, call, way, expectation, candidates[0])
        await self.family.decide(admission.reserve, self._dearest(chain) if way.spends else [])
        return admission

    def _way(self, call: Call, model: Model, user: bytes) -> Way:
        caller = call.caller
        key = caller.key_id, caller.tenant, model.name
        limits = self.scopes.end_users.get(caller.tenant)
        name = (user.decode("latin-1") or call.facts.user) if limits is not None else None
        if limits is None or not name:
            way = self._ways.get(key)
            if way is None:  # as many as the configuration has keys and models
                way = self._ways[key] = Way.of((*self.scopes.callers(*key[:2]), *self.scopes.models[model.name]))
            return way
        person = Step(Scope(Rank.END_USER, f"{caller.tenant} / {name[:LONGEST_USER]}"), limits)
        steps = (*self.scopes.callers(*key[:2]), person, *self.scopes.models[model.name])
        return Way.of(steps, name[:LONGEST_USER])

    def _measured(self, call: Call, model: Model, first: Candidate) -> Expectation:
        facts = call.facts
        vocabulary = _profile(first.model).vocabulary
        estimator = self._estimators.get(vocabulary)
        if estimator is None:
            estimator = self._estimators[vocabulary] = Estimator(vocabulary)
        measure = estimator.measure(call.body, facts.members)
        if facts.output_cap is not None and facts.output_cap > model.max_output:
            facts = evolve(facts, output_cap=model.max_output)
        route = f"{call.caller.tenant}/{model.name}" + ("+tools" if "tools" in facts.members else "")
        return Expectation(measure, facts, route, effort_of(call.body, facts.members), model.max_output * facts.choices)

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
    _reservation: Reservation | None = field(init=False, default=None)

    def reserve(self, tariffs: list[Tariff]) -> None:
        """Hold the callers' parts, at the price of the dearest channel that may be asked. Raises `Refusal`."""
        state, now, wall = self._moment()
        need = ONE
        if self.expectation is not None:
            estimate = self.estimate = self.expectation.at(self.first, state.learned)
            usage = Usage(input=estimate.input, output=estimate.output)
            need = estimate.need._replace(micro_usd=max((tariff.cost(usage) for tariff in tariffs), default=0))
        outcome = state.quota.reserve(self.way.path, need, now, wall)
        if isinstance(outcome, Denial):
            raise self._refusal(outcome)
        self._reservation = outcome

    async def enter(self, step: Candidate) -> str | None:
        """Hold the part of the channel that is asked next; or say why its own limits do not allow it."""
        if self.admitter.providers[step.channel].step is None:
            return None
        return await self.admitter.family.decide(self._enter, step)

    def _enter(self, step: Candidate) -> str | None:
        state, now, wall = self._moment()
        provider = self.admitter.providers[step.channel]
        need = ONE
        if self.expectation is not None:
            first = step is self.first  # already estimated
            need = provider.charge.need(self.estimate if first else self.expectation.at(step, state.learned))
        assert self._reservation is not None
        assert provider.step is not None
        denial = state.quota.move(self._reservation, provider.step, need, now=now, wall=wall)
        if denial is None:
            return None
        self.refused.append((step, denial.binding))
        return why(denial.binding)

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

    def refund(self) -> None:
        """Nothing was answered, so nothing is owed."""
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
        return lines(state.quota.tightest(self.way.own, now, wall))

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
