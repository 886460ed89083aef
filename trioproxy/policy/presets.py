"""The rules of a breaker, and three sets of them that are known to work.

A policy is values alone; `policy.breaker` does what they say. Every field may be set by itself, on top of a preset.
"""

from typing import Literal

from attrs import field, frozen, validators


@frozen
class BreakerPolicy:
    """When a breaker opens, for how long, and what closes it. Durations are seconds.

    `window` set: `failures` within that many seconds open it, and old ones still count after the cooldown. `window`
    0: `failures` in a row open it. `probes` 0: traffic simply flows again after `open_for`; otherwise that many calls at
    once are let through half-open, and `successes` of them close it. `failed_probe` says what a failed probe does to the
    count of failures: "keep" leaves it alone and only renews the cooldown (a probe is no traffic), "count" adds to it.

    `growth` multiplies `open_for` at every opening that follows another without a success between, up to `open_max`, and
    `jitter` spreads it by that share either way. `slow` set: it opens, too, where more streams than `slow_quantile` leaves
    out began later than so many seconds, of at least `slow_minimum` recent ones. `silence` is for `policy.promptness`.
    """

    failures: int = field(default=3, validator=[validators.instance_of(int), validators.ge(1)])
    window: float = field(default=300.0, validator=validators.ge(0.0))
    open_for: float = field(default=60.0, validator=validators.gt(0.0))
    probes: int = field(default=0, validator=validators.ge(0))
    successes: int = field(default=1, validator=validators.ge(1))
    failed_probe: Literal["keep", "count"] = "keep"
    growth: float = field(default=1.0, validator=[validators.ge(1.0), validators.le(10.0)])
    open_max: float = field(default=600.0, validator=validators.gt(0.0))
    jitter: float = field(default=0.0, validator=[validators.ge(0.0), validators.le(0.5)])
    slow: float = field(default=0.0, validator=validators.ge(0.0))
    slow_quantile: float = field(default=0.95, validator=[validators.gt(0.0), validators.lt(1.0)])
    slow_minimum: int = field(default=20, validator=validators.ge(1))
    # Callers that leave sooner prove nothing: most models begin to speak within this, all but a few providers sooner.
    silence: float = field(default=10.0, validator=validators.ge(0.0))

    def rest(self, before: int, luck: float) -> float:
        """Seconds open, after so many openings in a row. `luck` is a random number from 0 to 1."""
        grown = min(self.open_for * self.growth ** min(before, 64), self.open_max)
        return max(self.open_for, grown) * (1.0 + self.jitter * (2.0 * luck - 1.0))


# Three gateways that were written about in public. `four-layer`: 3 failures within 300 s, 60 s open, then traffic flows and
# old failures still count. `consecutive`: 5 in a row, 60 s, exactly one probe. `half-open`: 5 in a row, 30 s, 3 probes,
# 3 successes, slow calls at p95.
PRESETS = {
    "four-layer": BreakerPolicy(),
    "consecutive": BreakerPolicy(failures=5, window=0.0, open_for=60.0, probes=1),
    "half-open": BreakerPolicy(failures=5, window=0.0, open_for=30.0, probes=3, successes=3, slow=5.0),
}
