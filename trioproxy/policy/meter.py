"""A meter of how much there was lately: a count that fades, read as "in the last minute".

What was added weighs e^(-age / 60 s). A steady rate reads as itself, per minute; a burst reads whole at once and is forgotten
gradually, as a bucket that refills would. Two numbers, whatever the traffic.
"""

import math

from attrs import define, field

MINUTE = 60.0


@define(eq=False)
class Meter:
    """One count, never below 0. `now` is seconds on the caller's monotonic clock; never blocks."""

    _count: float = field(init=False, default=0.0)
    _at: float = field(init=False, default=0.0)

    def add(self, now: float, amount: float) -> None:
        """`amount` more; a negative one takes back what turned out not to be."""
        if now > self._at:
            self._count *= math.exp((self._at - now) / MINUTE)
            self._at = now
        count = self._count + amount
        self._count = count if count > 0 else 0.0

    def reading(self, now: float) -> float:
        if now <= self._at:
            return self._count
        return self._count * math.exp((self._at - now) / MINUTE)

    def wait(self, now: float, room: float) -> float:
        """Seconds until it reads no more than `room`, nothing being added; `math.inf` where there is no room at all."""
        reading = self.reading(now)
        if reading <= room:
            return 0.0
        return MINUTE * math.log(reading / room) if room > 0 else math.inf
