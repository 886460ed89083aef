"""When calls are meant to be sent: a plan made without looking at the server, so a slow server cannot thin out its own load.

A profile is a list of segments, `RATExSECONDS` or `FROM-TOxSECONDS`: `100x10,100-500x20,2000x1` holds 100 calls a second,
ramps to 500 and spikes to 2,000. Arrivals are those instants where the integral of the rate passes the next threshold:
whole numbers for even spacing, sums of exponential steps for a Poisson process. Pure.
"""

import math
import random
import re
from collections.abc import Iterator
from typing import Literal

from attrs import frozen

SEGMENT = re.compile(r"([0-9.]+)(?:-([0-9.]+))?x([0-9.]+)")
Spacing = Literal["poisson", "constant"]


@frozen
class Segment:
    """A rate that goes evenly from `first` to `last` calls a second within `seconds`."""

    first: float
    last: float
    seconds: float

    @property
    def calls(self) -> float:
        """How many calls it expects."""
        return (self.first + self.last) / 2 * self.seconds

    def when(self, calls: float) -> float:
        """Seconds into the segment at which it has expected this many calls (at most `self.calls`)."""
        slope = (self.last - self.first) / self.seconds
        # Solves first*t + slope/2*t^2 = calls, in the form that stays exact as the slope goes to 0.
        root = math.sqrt(max(0.0, self.first * self.first + 2 * slope * calls))
        return min(self.seconds, 2 * calls / (self.first + root)) if calls else 0.0


def parse(profile: str) -> tuple[Segment, ...]:
    """The segments of a profile. Raises `ValueError` with the part that is not understood."""
    segments = []
    for part in profile.split(","):
        found = SEGMENT.fullmatch(part.strip())
        if not found or not float(found[3]):
            raise ValueError(f"{part!r} is no segment: write RATExSECONDS or FROM-TOxSECONDS, as in 100x10,100-500x20")
        segments.append(Segment(float(found[1]), float(found[2] or found[1]), float(found[3])))
    return tuple(segments)


def schedule(segments: tuple[Segment, ...], spacing: Spacing, rng: random.Random) -> Iterator[float]:
    """The intended send times in seconds from the start, rising."""
    start = 0.0
    passed = 0.0  # calls expected before this segment
    threshold = 0.0
    for segment in segments:
        while threshold < passed + segment.calls:
            yield start + segment.when(threshold - passed)
            threshold += rng.expovariate(1.0) if spacing == "poisson" else 1.0
        start += segment.seconds
        passed += segment.calls


def length(segments: tuple[Segment, ...]) -> float:
    """Seconds from the first to the last intended send."""
    return sum(segment.seconds for segment in segments)
