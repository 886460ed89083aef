"""How late the loop runs: the one figure that says that something blocks it, or that the process is at its limit.

Ten times a second a task asks to be woken and notes by how much it was late. One histogram per minute is reported: quietly,
or as a warning where somebody was held up for longer than a person notices.
"""

from bisect import bisect_left

import trio
from attrs import define, field, frozen

from trioproxy.ops.log import Log

EVERY = 0.1
REPORT = 60.0
NOTICED = 0.1  # seconds; what people call instant ends about there
BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # upper ends of the buckets, seconds


@frozen
class LagStatistics:
    """A histogram: `counts` per bucket of `BOUNDS`, the last one for all above. `worst` is seconds."""

    counts: tuple[int, ...]
    worst: float

    def quantile(self, share: float) -> float:
        """The upper end of the bucket that this share of the wakings was in; `worst` for the last bucket, 0 for none."""
        left = share * sum(self.counts)
        for bound, count in zip(BOUNDS, self.counts, strict=False):
            left -= count
            if left <= 0:
                return min(bound, self.worst)
        return self.worst


@define(eq=False)
class LoopLag:
    """The histogram since the last `take`."""

    _counts: list[int] = field(init=False, factory=lambda: [0] * (len(BOUNDS) + 1))
    _worst: float = field(init=False, default=0.0)

    def note(self, lag: float) -> None:
        self._counts[bisect_left(BOUNDS, lag)] += 1
        self._worst = max(self._worst, lag)

    def statistics(self) -> LagStatistics:
        return LagStatistics(tuple(self._counts), self._worst)

    def take(self) -> LagStatistics:
        """The histogram so far; it begins anew."""
        taken = self.statistics()
        self._counts = [0] * (len(BOUNDS) + 1)
        self._worst = 0.0
        return taken

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = trio.current_time() + EVERY
            await trio.sleep_until(due)
            self.note(trio.current_time() - due)

    async def report(self, log: Log) -> None:
        """Tell the log once a minute, until cancelled."""
        while True:
            await trio.sleep(REPORT)
            log.account()
            taken = self.take()
            loud = log.warn if taken.worst >= NOTICED else log.whisper
            p50, p99 = taken.quantile(0.5), taken.quantile(0.99)
            loud("lag", p50_ms=round(p50 * 1000, 1), p99_ms=round(p99 * 1000, 1), worst_ms=round(taken.worst * 1000, 1))
