"""A histogram of durations with a bounded relative error, small and quick whatever the range.

Values are whole nanoseconds in buckets whose width doubles with their size, so any quantile is right to one part in 1,024.
Histograms of several windows add up. Nothing is sampled and nothing is cut off, which is what a tail needs.
"""

import math
from collections import Counter

from attrs import define, field

BITS = 10
NANO = 1_000_000_000


@define(eq=False)
class Histogram:
    """Counts of durations. Durations go in and come out as seconds."""

    counts: Counter[int] = field(factory=Counter)  # by bucket
    total: int = 0
    highest: float = 0.0

    def record(self, seconds: float) -> None:
        """Count one duration. Below zero counts as zero."""
        value = max(0, int(seconds * NANO))
        self.counts[bucket(value)] += 1
        self.total += 1
        self.highest = max(self.highest, seconds)

    def add(self, other: "Histogram") -> None:
        """Count what another histogram counted."""
        self.counts.update(other.counts)
        self.total += other.total
        self.highest = max(self.highest, other.highest)

    def quantile(self, share: float) -> float:
        """The least duration that at least `share` (0..1) of the recorded ones do not exceed; NaN when there are none."""
        if not self.total:
            return math.nan
        wanted = max(1, math.ceil(share * self.total))
        seen = 0
        for index in sorted(self.counts):
            seen += self.counts[index]
            if seen >= wanted:
                return min(middle(index) / NANO, self.highest)
        raise AssertionError("the buckets hold fewer values than were recorded")

    def summary(self) -> dict[str, float]:
        """The usual quantiles, in seconds."""
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
        return {name: self.quantile(share) for name, share in shares.items()}

    def curve(self) -> list[tuple[float, float]]:
        """(duration, share of values up to it) for every bucket, rising in both: what a plot wants."""
        seen = 0
        points = []
        for index in sorted(self.counts):
            seen += self.counts[index]
            points.append((middle(index) / NANO, seen / self.total))
        return points


def bucket(value: int) -> int:
    """The bucket of a value >= 0: exact below 2^BITS, then 2^(BITS-1) buckets for each doubling."""
    shift = max(0, value.bit_length() - BITS)
    return (shift << (BITS - 1)) + (value >> shift)


def middle(index: int) -> float:
    """The value in the middle of a bucket."""
    shift = max(0, (index >> (BITS - 1)) - 1)
    low = (index - (shift << (BITS - 1))) << shift
    return low + ((1 << shift) - 1) / 2
