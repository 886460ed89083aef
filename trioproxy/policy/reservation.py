"""What a call asks of the quota and what it is told: a path of scopes, and a reservation or a denial.

A scope is a rank and a name. The order of a path is organization → tenant → team → key → end user → model → channel; any may
be missing. The channel stands apart: it changes on failover, and reserves by its provider's own rule.
"""

import enum
import math
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from trioproxy.policy.limits import Dimension, Limiter, Limits, Need, Rule

if TYPE_CHECKING:
    from trioproxy.policy.account import Account


class Rank(enum.Enum):
    ORGANIZATION = "organization"
    TENANT = "tenant"
    TEAM = "team"
    KEY = "key"
    END_USER = "end_user"
    MODEL = "model"
    CHANNEL = "channel"


@frozen(cache_hash=True)
class Scope:
    """Whose limits. Names are unique in their rank."""

    rank: Rank
    name: str


@frozen
class Step:
    """A scope with the limits that it has at the moment; other limits than last time reshape what is there."""

    scope: Scope
    limits: Limits


@frozen
class Path:
    """The scopes of a call, outermost first. Made once per caller and model, and kept for as long as one likes."""

    callers: tuple[Step, ...]
    channel: Step | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.callers if self.channel is None else (*self.callers, self.channel)

    @property
    def stream(self) -> float:
        """How long an answer may stream, in seconds: the shortest of all steps."""
        return min((step.limits.stream for step in self.steps), default=math.inf)


@frozen
class Objection:
    """One limiter's no. `wait` is honest seconds, `math.inf` = never."""

    scope: Scope
    rule: Rule
    remaining: int
    needed: int
    wait: float

    @property
    def limiter(self) -> tuple[Rank, Dimension]:
        return self.scope.rank, self.rule.dimension


@frozen
class Denial:
    """Nothing was charged anywhere. `binding` is the objection with the longest wait; `observed` only watched."""

    binding: Objection
    observed: tuple[Objection, ...]

    @property
    def out_of_balance(self) -> bool:
        """Whether money has to be paid in first: 402, terminal, rather than 429."""
        return self.binding.rule.dimension is Dimension.BALANCE


@define(eq=False)
class Hold:
    """What is held at some limiters: `need` at each of them, since wall time `at`."""

    accounts: list["Account"]
    limiters: list[Limiter]
    need: Need
    at: float

    def take(self) -> None:
        need = self.need
        for limiter in self.limiters:
            limiter.take(need[limiter.rule.unit])
        for account in self.accounts:
            account.calls += 1

    def settle(self, actual: Need, now: float) -> None:
        need, at = self.need, self.at
        for limiter in self.limiters:
            unit = limiter.rule.unit
            limiter.settle(need[unit], actual[unit], now, at)
        for account in self.accounts:
            account.calls -= 1


@define(eq=False)
class Reservation:
    """Quota held for a call, to be settled exactly once. `observed` would have refused it, had they been in force."""

    callers: Hold
    channel: Hold | None
    observed: list[Objection]
    settled: bool = field(init=False, default=False)
