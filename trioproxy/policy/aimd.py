"""A channel's rate (or concurrency) found by trying: up by little while it is used, down at once when it was too much.

The same law serves tokens per second and calls at once. It never goes above what is configured or what the provider's headers
announce. A decrease starts from what was really used, not from a limit that nobody reached, and happens once per round trip
or Retry-After: a burst of refusals is one piece of news. Where `memory` says so, the climb is slow for that long from just below
what was refused, and then as fast as ever: a limit that stands is met seldom, one that was raised is found soon.
"""

import math

from attrs import define, field, frozen, validators

NEAR = 0.85  # of what was in use when it was refused
WARY = 0.1  # of the usual climb
STEP = 1.0  # seconds: more than this between two answers is not counted as time under load


@frozen
class AimdPolicy:
    """`floor` is the least, in the limit's own unit. `decrease` is for a refusal, `mild` for one with quota remaining."""

    configured: float = field(validator=validators.gt(0.0))
    floor: float = field(default=1.0, validator=validators.gt(0.0))
    decrease: float = field(default=0.7, validator=[validators.gt(0.0), validators.lt(1.0)])
    mild: float = field(default=0.85, validator=[validators.gt(0.0), validators.lt(1.0)])
    # utilisation that earns an increase
    busy: float = field(default=0.8, validator=[validators.gt(0.0), validators.le(1.0)])
    climb: float = field(default=100.0, validator=validators.gt(0.0))  # seconds under load from nothing to `configured`
    memory: float = field(default=0.0, validator=validators.ge(0.0))  # seconds that a refusal makes the climb wary


@define(eq=False)
class Aimd:
    """One limit of one channel and model. Times are seconds on the caller's monotonic clock; never blocks."""

    policy: AimdPolicy
    limit: float = field(init=False)
    _ceiling: float = field(init=False)
    _deaf: float = field(init=False, default=-math.inf)  # until then refusals are old news
    _risen: float = field(init=False, default=math.inf)
    _near: float = field(init=False, default=math.inf)  # from here on it climbs warily,
    _wary: float = field(init=False, default=-math.inf)  # until then

    def __attrs_post_init__(self) -> None:
        self.limit = self._ceiling = self.policy.configured

    def refused(self, now: float, used: float, *, quiet: float, remaining: float | None = None) -> bool:
        """A 429, 529 or the like. Returns whether the limit was lowered.

        `used` is what was measured lately, in the limit's unit; `quiet` the larger of round trip and Retry-After, seconds;
        `remaining` what the provider's headers still showed.
        """
        if now < self._deaf:
            return False
        factor = self.policy.mild if remaining is not None and remaining > 0 else self.policy.decrease
        self._deaf = now + max(0.0, quiet)
        self._risen = math.inf
        self._near, self._wary = NEAR * min(max(0.0, used), self.limit), now + self.policy.memory
        self.limit = self._within(factor * min(max(0.0, used), self.limit))
        return True

    def answered(self, now: float, utilisation: float) -> None:
        """A success, with the share of the limit that is in use. Idle time earns nothing."""
        if utilisation < self.policy.busy:
            self._risen = math.inf
            return
        under_load = min(STEP, max(0.0, now - self._risen))
        self._risen = now
        climb = under_load * self.policy.configured / self.policy.climb
        if now < self._wary:
            climb = min(climb, max(WARY * climb, self._near - self.limit))
        self.limit = self._within(self.limit + climb)

    def announced(self, limit: float | None) -> None:
        """What the provider's headers give as its limit, in this limit's unit; None where they give none."""
        known = limit is not None and math.isfinite(limit) and limit > 0
        self._ceiling = min(self.policy.configured, limit) if known and limit is not None else self.policy.configured
        self.limit = self._within(self.limit)

    def _within(self, wanted: float) -> float:
        """Never above the ceiling; the floor yields to it."""
        return min(self._ceiling, max(self.policy.floor, wanted))


def shortfall(need: float, remaining: float, held: float, per_minute: float) -> float:
    """Seconds until a provider's bucket will hold `need`, from an observation of it.

    `held` is what we reserved after the observation was made. The provider's `reset` is the time to a full bucket, far longer
    than needed; what matters is how fast it fills. `math.inf` where it does not fill at all, or never holds so much.
    """
    missing = need - (remaining - held)
    if missing <= 0:
        return 0.0
    if per_minute <= 0 or need > per_minute:
        return math.inf
    return missing / (per_minute / 60)
