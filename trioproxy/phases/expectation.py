"""What is known of a call before it is sent: its caller's steps, its size, and what its channels would charge for it."""

import math
from functools import lru_cache

from attrs import define, evolve, field, frozen
from msgspec.structs import replace

from trioproxy.call import Call
from trioproxy.codec.frame import Facts
from trioproxy.config.model import Model
from trioproxy.config.scopes import Scopes
from trioproxy.phases.allowance import OWN
from trioproxy.policy.chain import Candidate
from trioproxy.policy.charges import Charge, Estimate, Route, effort_of, expected
from trioproxy.policy.estimate import Estimator, Measure
from trioproxy.policy.learned import Learned
from trioproxy.policy.limits import Need
from trioproxy.policy.pricing import Tariff
from trioproxy.policy.profile import profile_of
from trioproxy.policy.reservation import Path, Rank, Scope, Step

SPENDING = Need._fields.index("micro_usd")
COUNTING = frozenset(map(Need._fields.index, ("input_tokens", "output_tokens", "total_tokens", "micro_usd")))
LONGEST_USER = 256  # characters that tell one end user from another
profile = lru_cache(maxsize=1024)(profile_of)


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


@define(eq=False)
class Ways:
    """The ways of one configuration, each made once; those of end users every time."""

    scopes: Scopes
    _known: dict[tuple[str, str, str], Way] = field(init=False, factory=dict)

    def to(self, call: Call, model: Model, user: bytes) -> Way:
        """The steps of a call to a model. `user` is the caller's word for its end user."""
        caller = call.caller
        key = caller.key_id, caller.tenant, model.name
        limits = self.scopes.end_users.get(caller.tenant)
        name = (user.decode("latin-1") or call.facts.user) if limits is not None else None
        if limits is None or not name:
            way = self._known.get(key)
            if way is None:  # as many as the configuration has keys and models
                way = self._known[key] = Way.of((*self.scopes.callers(*key[:2]), *self.scopes.models[model.name]))
            return way
        person = Step(Scope(Rank.END_USER, f"{caller.tenant} / {name[:LONGEST_USER]}"), limits)
        steps = (*self.scopes.callers(*key[:2]), person, *self.scopes.models[model.name])
        return Way.of(steps, name[:LONGEST_USER])


@frozen
class Expectation:
    """A call's size, measured once. `facts` has the cap of its answers bounded by what the model can say.

    `headroom` is by how much its class wants more held for an answer than is likely.
    """

    measure: Measure
    facts: Facts
    route: str
    effort: str | None
    most: int
    headroom: float = 1.0

    def tokens(self, model: str) -> int:
        return self.measure.tokens(profile(model))

    def at(self, step: Candidate, learned: Learned) -> Estimate:
        """What it is likely to use at this channel."""
        route = Route(self.route, step.channel, self.effort)
        estimate = expected(self.tokens(step.model), self.facts, route, learned)
        if self.headroom > 1.0:
            cap = self.most if estimate.cap is None else estimate.cap
            estimate = evolve(estimate, output=min(cap, math.ceil(estimate.output * self.headroom)))
        return estimate if estimate.output <= self.most else evolve(estimate, output=self.most)


@define(eq=False)
class Scales:
    """Measures calls, with an estimator for each vocabulary."""

    _estimators: dict[str, Estimator] = field(init=False, factory=dict)

    def weigh(self, call: Call, model: Model, first: Candidate) -> Expectation:
        """A call's size, counted as the model of its `first` channel does."""
        facts = call.facts
        vocabulary = profile(first.model).vocabulary
        estimator = self._estimators.get(vocabulary)
        if estimator is None:
            estimator = self._estimators[vocabulary] = Estimator(vocabulary)
        measure = estimator.measure(call.body, facts.members)
        if facts.output_cap is not None and facts.output_cap > model.max_output:
            facts = replace(facts, output_cap=model.max_output)
        route = f"{call.caller.tenant}/{model.name}" + ("+tools" if "tools" in facts.members else "")
        most = model.max_output * facts.choices
        queue = call.policy.queue
        headroom = 1.0 if queue is None else queue.output_headroom
        return Expectation(measure, facts, route, effort_of(call.body, facts.members), most, headroom)
