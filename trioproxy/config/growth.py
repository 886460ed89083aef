"""How fast a channel's traffic may grow, as an operator writes it: `[channels.ramp]`. What is left out does not exist."""

from attrs import field, frozen, validators

from trioproxy.config import rules


def _share(default: float | None) -> float | None:
    share: float | None = field(default=default, validator=validators.optional(rules.share))
    return share


@frozen
class Growth:
    """Ceilings on growth, a slow start, and what pauses growth."""

    # What is allowed at once; it grows from there. OpenAI's own rule begins at 1 M input tokens a minute.
    requests_per_minute: int | None = field(default=None, validator=validators.optional(rules.at_least(1)))
    tokens_per_minute: int | None = field(default=None, validator=validators.optional(rules.at_least(1)))
    # OpenAI's: 50 % more per 15 minutes
    growth: float = field(default=1.5, validator=rules.at_least(1))
    period: float = field(default=900.0, validator=rules.positive)
    warmup: float = field(default=0.0, validator=rules.at_least(0))  # 0: all of its calls from the first moment
    least: float = field(default=0.1, validator=rules.share)  # Envoy's slow start has the same
    # Growth is a cause of refusals before it is one of failures, so those are borne less.
    max_rate_limited: float | None = _share(0.05)
    max_fallbacks: float | None = _share(0.1)
    max_waiting: int | None = field(default=None, validator=validators.optional(rules.at_least(0)))
    max_p95: float | None = field(default=None, validator=validators.optional(rules.positive))
    least_calls: int = field(default=20, validator=rules.at_least(1))  # below 20 one call is more than 5 %
