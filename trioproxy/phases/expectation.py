"""What is known of a call before it is sent: its caller's steps, its size, and what its channels would charge for it."""

import math
from functools import lru_cache

from attrs import evolve, field, frozen

from trioproxy.codec.frame import Facts
from trioproxy.phases.allowance import OWN
from trioproxy.policy.chain import Candidate
from trioproxy.policy.charges import Charge, Estimate, Route, expected
from trioproxy.policy.estimate import Measure
from trioproxy.policy.learned import Learned
from trioproxy.policy.limits import Need
from trioproxy.policy.pricing import Tariff
from trioproxy.policy.profile import profile_of
from trioproxy.policy.reservation import Path, Step

SPENDING = Need._fields.index("micro_usd")
COUNTING = frozenset(map(Need._fields.index, ("input_tokens", "output_tokens", "total_tokens", "micro_usd")))
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

    @classmethod
    def of(cls, steps: tuple[Step, ...]) -> "Way":
        needed = units(*steps)
        own = tuple(step for step in steps if step.scope.rank in OWN)
        return cls(Path(steps), Path(own), bool(needed & COUNTING), SPENDING in needed)


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
