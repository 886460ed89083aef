"""What may be limited, per scope: dimensions, the limits of one scope, and the rules that they come to.

Every amount is a whole number of its own unit: requests, tokens, micro-USD, calls. A limit that is None does not exist; a
limit of 0 lets nothing through. `Limits` is what an operator writes, or a tier; a `Rule` is one of its dimensions, ready for
the limiter that keeps it. A rule that observes decides and is counted, and lets everything pass.
"""

import enum
import math
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from attrs import Attribute, field, frozen, validators


class Dimension(enum.Enum):
    """Each value is the name of a field of `Limits`. The order is that of the checks: cheapest refusals first."""

    CONCURRENCY = "concurrency"
    REQUESTS_PER_MINUTE = "requests_per_minute"
    INPUT_TOKENS_PER_MINUTE = "input_tokens_per_minute"
    OUTPUT_TOKENS_PER_MINUTE = "output_tokens_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    REQUESTS_PER_DAY = "requests_per_day"
    TOKENS_PER_DAY = "tokens_per_day"
    MICRO_USD_PER_DAY = "micro_usd_per_day"
    MICRO_USD_PER_WEEK = "micro_usd_per_week"
    MICRO_USD_PER_MONTH = "micro_usd_per_month"
    BALANCE = "balance"


class Need(NamedTuple):
    """What one call needs, or turned out to have used. A plain tuple: rules find their amount by position."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    micro_usd: int = 0
    calls: int = 1


BUDGETS = frozenset({Dimension.MICRO_USD_PER_DAY, Dimension.MICRO_USD_PER_WEEK, Dimension.MICRO_USD_PER_MONTH})
NOTHING = Need(calls=0)

_UNITS = {
    Dimension.CONCURRENCY: "calls",
    Dimension.REQUESTS_PER_MINUTE: "requests",
    Dimension.INPUT_TOKENS_PER_MINUTE: "input_tokens",
    Dimension.OUTPUT_TOKENS_PER_MINUTE: "output_tokens",
    Dimension.TOKENS_PER_MINUTE: "total_tokens",
    Dimension.REQUESTS_PER_DAY: "requests",
    Dimension.TOKENS_PER_DAY: "total_tokens",
    Dimension.MICRO_USD_PER_DAY: "micro_usd",
    Dimension.MICRO_USD_PER_WEEK: "micro_usd",
    Dimension.MICRO_USD_PER_MONTH: "micro_usd",
    Dimension.BALANCE: "micro_usd",
}


_PLACES = {dimension: place for place, dimension in enumerate(Dimension)}


@frozen
class Rule:
    """One dimension of one scope's limits.

    `unit` is the position in a `Need`. `burst` is what a full bucket holds and `rate` what it regains per second; the
    other limiters look at `limit` alone.
    """

    dimension: Dimension
    unit: int
    limit: int
    burst: int
    rate: float
    observe: bool
    zone: str
    alert: int = 0  # the use of a budget at which it is told of; 0: never
    place: int = 0  # of its dimension among all; a dimension itself is dear to look up


def _known_zone(_limits: object, _field: "Attribute[str]", value: str) -> None:
    try:
        ZoneInfo(value)
    except (OSError, ValueError, KeyError) as exc:
        raise ValueError(f"{value!r} is no time zone; write one like Europe/Berlin or UTC") from exc


def _limit() -> int | None:
    limit: int | None = field(
        default=None, validator=validators.optional([validators.instance_of(int), validators.ge(0)])
    )
    return limit


@frozen(kw_only=True)
class Limits:
    """The limits of one scope. Per-minute limits are buckets that hold `burst` seconds of their rate.

    `balance` is everything that was ever paid in, in micro-USD: what was spent of it never comes back, and paying in
    raises it. `stream` is how long one answer may stream, in seconds: the shell makes a deadline of it.
    """

    concurrency: int | None = _limit()
    requests_per_minute: int | None = _limit()
    input_tokens_per_minute: int | None = _limit()
    output_tokens_per_minute: int | None = _limit()
    tokens_per_minute: int | None = _limit()
    requests_per_day: int | None = _limit()
    tokens_per_day: int | None = _limit()
    micro_usd_per_day: int | None = _limit()
    micro_usd_per_week: int | None = _limit()
    micro_usd_per_month: int | None = _limit()
    balance: int | None = _limit()
    stream: float = field(default=math.inf, validator=validators.gt(0.0))
    # OpenAI and Anthropic behave like 60 s of the rate, Azure's requests like 1 to 10.
    burst: float = field(default=60.0, validator=validators.gt(0.0))
    zone: str = field(default="UTC", validator=_known_zone)
    observe: frozenset[Dimension] = frozenset()
    alert_at: float = field(default=0.8, validator=[validators.gt(0.0), validators.le(1.0)])  # of a budget
    rules: tuple[Rule, ...] = field(init=False, eq=False, repr=False)

    @rules.default
    def _make_rules(self) -> tuple[Rule, ...]:
        return tuple(self._rule(dimension) for dimension in Dimension if getattr(self, dimension.value) is not None)

    def _rule(self, dimension: Dimension) -> Rule:
        limit: int = getattr(self, dimension.value)
        return Rule(
            dimension=dimension,
            unit=Need._fields.index(_UNITS[dimension]),
            limit=limit,
            burst=max(1, round(limit * self.burst / 60)) if limit else 0,
            rate=limit / 60,
            observe=dimension in self.observe,
            zone=self.zone,
            place=_PLACES[dimension],
            alert=math.ceil(limit * self.alert_at) if dimension in BUDGETS else 0,
        )


class Limiter(Protocol):
    """One rule's live state. `now` is monotonic seconds, `wall` seconds since 1970; nothing blocks."""

    rule: Rule

    def objection(self, now: float, wall: float, amount: int) -> float | None:
        """None where `amount` fits. Otherwise seconds after which it would, nobody else asking; `math.inf` = never."""

    def take(self, amount: int) -> None:
        """Charge `amount`, right after `objection` had none."""

    def settle(self, reserved: int, actual: int, now: float, at: float) -> None:
        """Replace what was taken at wall time `at` by what was used: the rest comes back, an overrun is debt."""

    def remaining(self, now: float, wall: float) -> int:
        """What would fit now, never below 0."""

    def reset_after(self, now: float, wall: float) -> float:
        """Seconds until everything is free again, nobody asking."""

    def idle(self, now: float, wall: float) -> bool:
        """Whether a new limiter in its place would behave the same."""
