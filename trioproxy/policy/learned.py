"""What past calls teach about the next one: how long answers are, how far estimates are off.

Answers: a decayed quantile per route, in buckets that grow by `GROWTH`. A quantile is read as its bucket's upper edge, so it
is never below the exact quantile of the weighted observations and at most `GROWTH - 1` (10 %) above it. Every observation
weighs `DECAY` times the one after it: about 400 count effectively, which leaves 1.1 percentage points of standard error at
p95 (sqrt(0.95 · 0.05 / 400)). Until `ENOUGH` were seen the default stands in where it is larger.

Ratios: an exponentially weighted mean and deviation per channel of actual over estimated input, clamped to [0.5, 3].

Everything is bounded (`MOST` routes and channels, the longest unused goes first) and can be kept as plain dicts.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import define, field

from trioproxy.journal import Usage

GROWTH = 1.1
PER_BUCKET = 1.0 / math.log(GROWTH)  # buckets to a factor of e
DECAY = 0.995
ENOUGH = 20  # below 20 observations nothing lies beyond the 95th percentile
MOST = 4096
QUANTILE = 0.95

FLOOR = 64  # tokens; a shorter reservation is not worth its risk
UNKNOWN = 2048  # tokens of an answer on a route that nobody has used: dear on purpose, p95 of chat is below it
# What reasoning adds on such a route, by the effort that is asked for.
EFFORT = {"minimal": 0, "low": 1024, "medium": 4096, "high": 16_384, "xhigh": 16_384}

ALPHA = 0.05
LEAST, GREATEST = 0.5, 3.0
SURPRISE = 5.0  # a ratio beyond this (or its inverse) has another cause: a cache, a hidden search
PRIOR_DEVIATION = 0.1  # before anything was learned the margin is a tenth

_RESCALE = 1e9

Kind = TypeVar("Kind")


@define(eq=False)
class Quantile:
    """A decayed quantile of positive numbers. Newer observations weigh more instead of old ones being touched."""

    count: int = 0
    _buckets: dict[int, float] = field(init=False, factory=dict)
    _weight: float = field(init=False, default=1.0)

    def observe(self, value: float) -> None:
        """One observation; below 1 counts as 1."""
        bucket = math.ceil(math.log(max(1.0, value)) * PER_BUCKET - 1e-9)
        self.count += 1
        self._weight /= DECAY
        self._buckets[bucket] = self._buckets.get(bucket, 0.0) + self._weight
        if self._weight > _RESCALE:
            # What has faded to nothing goes, so the buckets stay as few as recent answers need.
            scaled = {bucket: weight / _RESCALE for bucket, weight in self._buckets.items()}
            self._buckets = {bucket: weight for bucket, weight in scaled.items() if weight > 1e-6}
            self._weight /= _RESCALE

    def at(self, quantile: float = QUANTILE) -> float:
        """The quantile's upper bound; 0 where nothing was observed."""
        beyond = (1.0 - quantile) * sum(self._buckets.values())
        for bucket in sorted(self._buckets, reverse=True):
            beyond -= self._buckets[bucket]
            if beyond < 0:
                return GROWTH**bucket
        return 0.0

    def snapshot(self) -> dict[str, Any]:
        weights = {str(bucket): weight / self._weight for bucket, weight in self._buckets.items()}
        return {"count": self.count, "buckets": weights}

    @classmethod
    def restored(cls, kept: Mapping[str, Any]) -> "Quantile":
        made = cls(int(kept["count"]))
        made._buckets = {int(bucket): float(weight) for bucket, weight in kept["buckets"].items()}
        return made


@define(eq=False)
class Mean:
    """An exponentially weighted mean and variance, starting from a prior."""

    mean: float = 1.0
    variance: float = PRIOR_DEVIATION**2

    def observe(self, value: float) -> None:
        off = value - self.mean
        self.mean += ALPHA * off
        self.variance = (1.0 - ALPHA) * (self.variance + ALPHA * off * off)

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)


@define(eq=False)
class Learned:
    """All that was learned. A route is what decides how long answers are (tenant, model, tools); names are the shell's."""

    unknown: int = UNKNOWN
    _outputs: dict[str, Quantile] = field(init=False, factory=dict)
    _seconds: dict[str, Quantile] = field(init=False, factory=dict)
    _ratios: dict[str, Mean] = field(init=False, factory=dict)
    _cached: dict[str, Mean] = field(init=False, factory=dict)

    def output(self, route: str, effort: str | None = None) -> int:
        """Tokens of answer to reserve on a route, reasoning included."""
        known = self._outputs.get(route)
        default = self.unknown + EFFORT.get(effort or "", 0)
        if known is None:
            return default
        likely = max(FLOOR, math.ceil(known.at()))
        return likely if known.count >= ENOUGH else max(default, likely)

    def seconds(self, route: str) -> float | None:
        """How long a stream of a route lasts at p95; None where too few were seen."""
        known = self._seconds.get(route)
        return known.at() / 1000 if known is not None and known.count >= ENOUGH else None

    def factor(self, channel: str) -> float:
        """What to multiply an estimate of input by, for a reservation: the ratio and one relative deviation more."""
        ratio = self._ratios.get(channel)
        if ratio is None:
            return 1.0 + PRIOR_DEVIATION
        return min(GREATEST, max(LEAST, ratio.mean * (1.0 + ratio.deviation)))

    def drift(self) -> dict[str, tuple[float, float]]:
        """Per channel, how much more its provider counts than was estimated of input (1: the same), and the deviation."""
        return {channel: (ratio.mean, ratio.deviation) for channel, ratio in self._ratios.items()}

    def cached(self, route: str) -> float:
        """The share of input that the provider's cache will serve, with one deviation taken off; 0 where unknown."""
        share = self._cached.get(route)
        return 0.0 if share is None else min(1.0, max(0.0, share.mean - share.deviation))

    def answered(self, route: str, usage: Usage, seconds: float | None = None) -> None:
        """One answer that ended by itself (a cut one tells nothing about lengths). `seconds` is how long it streamed."""
        if usage.estimated:
            return
        _entry(self._outputs, route, Quantile).observe(usage.output)
        if seconds is not None:
            _entry(self._seconds, route, Quantile).observe(seconds * 1000)
        total = usage.input + usage.cached
        if total:
            _entry(self._cached, route, lambda: Mean(0.0)).observe(usage.cached / total)

    def counted(self, channel: str, estimated: int, usage: Usage) -> None:
        """What the channel's provider counted for an input that was `estimated` without a margin."""
        ratio = (usage.input + usage.cached) / max(1, estimated)
        if not usage.estimated and 1 / SURPRISE <= ratio <= SURPRISE:
            _entry(self._ratios, channel, Mean).observe(min(GREATEST, max(LEAST, ratio)))

    def snapshot(self) -> dict[str, Any]:
        """Plain dicts of numbers, for a store."""
        return {
            "outputs": {route: known.snapshot() for route, known in self._outputs.items()},
            "seconds": {route: known.snapshot() for route, known in self._seconds.items()},
            "ratios": {channel: [known.mean, known.variance] for channel, known in self._ratios.items()},
            "cached": {route: [known.mean, known.variance] for route, known in self._cached.items()},
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Take up what `snapshot` gave, in place of what is known. Raises `KeyError`, `TypeError` or `ValueError`."""
        quantiles = [{name: Quantile.restored(one) for name, one in kept[family].items()} for family in _QUANTILES]
        means = [{name: Mean(float(one[0]), float(one[1])) for name, one in kept[family].items()} for family in _MEANS]
        self._outputs, self._seconds = quantiles
        self._ratios, self._cached = means


_QUANTILES = ("outputs", "seconds")
_MEANS = ("ratios", "cached")


def _entry(known: dict[str, Kind], name: str, make: Callable[[], Kind]) -> Kind:
    """The entry of a name, moved to the end of its dict; the first one, longest unused, makes room for a new one."""
    entry = known.pop(name, None)
    if entry is None:
        entry = make()
        if len(known) >= MOST:
            del known[next(iter(known))]
    known[name] = entry
    return entry
