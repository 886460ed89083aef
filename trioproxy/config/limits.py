"""The quota as an operator writes it: limits and budgets per scope, and who belongs to whom.

What is left out does not exist; a limit of nothing is a fault, since no call could ever fit. Money is USD here and whole
micro-USD everywhere behind `config.scopes`.
"""

from collections.abc import Mapping
from typing import Literal
from zoneinfo import ZoneInfo

from attrs import field, frozen, validators

from trioproxy.config import rules

Tier = Literal["free", "basic", "pro", "enterprise"]

# The names of what can be limited, in the order of `policy.limits.Dimension`.
LIMITABLE = (
    "concurrency",
    "requests_per_minute",
    "input_tokens_per_minute",
    "output_tokens_per_minute",
    "tokens_per_minute",
    "requests_per_day",
    "tokens_per_day",
)
PERIODS = ("day", "week", "month")


def _zone(_instance: object, _attribute: object, value: str) -> None:
    try:
        ZoneInfo(value)
    except (OSError, ValueError, KeyError):
        raise ValueError(f"{rules.shown(value)} is no time zone: give one such as Europe/Berlin or UTC") from None


def _limitable(_instance: object, _attribute: object, value: str) -> None:
    if value != "*" and value not in LIMITABLE:
        known = ", ".join(LIMITABLE)
        raise ValueError(f'{rules.shown(value)} is no limit: give "*" for all of this scope, or some of {known}')


def _count() -> int | None:
    limit: int | None = field(default=None, validator=validators.optional(rules.at_least(1)))
    return limit


def _usd() -> float | None:
    amount: float | None = field(default=None, validator=validators.optional(rules.at_least(0.000_001)))
    return amount


@frozen
class Limits:
    """The limits of one scope. Per-minute limits are buckets that hold `burst` seconds of their rate."""

    concurrency: int | None = _count()
    requests_per_minute: int | None = _count()
    input_tokens_per_minute: int | None = _count()
    output_tokens_per_minute: int | None = _count()
    tokens_per_minute: int | None = _count()
    requests_per_day: int | None = _count()
    tokens_per_day: int | None = _count()
    # how long one answer may stream
    stream: float | None = field(default=None, validator=validators.optional(rules.positive))
    burst: float = field(default=60.0, validator=rules.positive)
    # names of limits that decide and are counted, and let everything pass
    observe: tuple[str, ...] = field(default=(), validator=rules.each(_limitable))


@frozen
class Budget:
    """What one scope may spend, in USD per calendar period of `[quota] zone`."""

    day: float | None = _usd()
    week: float | None = _usd()
    month: float | None = _usd()
    observe: bool = False
    # told once per period when so much of it is spent or held: late enough to be news, early enough to act
    alert_at: float = field(default=0.8, validator=rules.share)


@frozen
class Quotas:
    """The quotas of a scope that has nothing else to say: the organization, or each end user of a tenant."""

    limits: Limits = field(factory=Limits)
    budget: Budget = field(factory=Budget)


def _baseline(_instance: object, _attribute: object, value: Mapping[str, int]) -> None:
    for name, rate in value.items():
        if rate < 1:
            raise ValueError(
                f"{rate} tokens a minute of {rules.shown(name)} are none: give at least 1, or leave it out"
            )


@frozen
class Tenant:
    """Whom keys belong to. `balance` is all that was ever paid in; `end_user` holds for each of its end users alone.

    `weight` is its part where tenants of a class wait for the same; `baseline` maps classes to tokens a minute of their pools
    that are its own.
    """

    name: str = field(validator=rules.name)
    tier: Tier | None = None
    limits: Limits = field(factory=Limits)
    budget: Budget = field(factory=Budget)
    balance: float | None = _usd()
    end_user: Quotas = field(factory=Quotas)
    weight: float = field(default=1.0, validator=rules.at_least(0.001))
    baseline: Mapping[str, int] = field(factory=dict, validator=_baseline)


@frozen
class Team:
    """A part of a tenant, with limits of its own inside the tenant's."""

    name: str = field(validator=rules.name)
    tenant: str = field(default="default", validator=rules.name)
    limits: Limits = field(factory=Limits)
    budget: Budget = field(factory=Budget)


@frozen
class QuotaSettings:
    """What holds for all scopes. `output` is what an answer is expected to take on a route that nobody has used yet."""

    zone: str = field(default="UTC", validator=_zone)
    observe: bool = False
    output: int = field(default=2048, validator=rules.at_least(1))
