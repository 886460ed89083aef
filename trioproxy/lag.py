"""How late the loop runs: the one figure that says that something blocks it, or that the process is at its limit.

Ten times a second a task asks to be woken and notes by how much it was late.
"""

from bisect import bisect_left

import trio
from attrs import define, field, frozen

EVERY = 0.1
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

    def since(self, before: "LagStatistics") -> tuple[int, ...]:
        """What was counted after an earlier reading."""
        return tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))


@define(eq=False)
class LoopLag:
    """The histogram since the start; `take` gives what came since the last one was taken."""

    _counts: list[int] = field(init=False, factory=lambda: [0] * (len(BOUNDS) + 1))
    _worst: float = field(init=False, default=0.0)  # since the start
    _recent: float = field(init=False, default=0.0)  # the worst one that is not taken yet
    _taken: LagStatistics = field(init=False, factory=lambda: LagStatistics((0,) * (len(BOUNDS) + 1), 0.0))

    def note(self, lag: float) -> None:
        self._counts[bisect_left(BOUNDS, lag)] += 1
        self._recent = max(self._recent, lag)
        self._worst = max(self._worst, lag)

    def statistics(self) -> LagStatistics:
        return LagStatistics(tuple(self._counts), self._worst)

    def take(self) -> LagStatistics:
        """The histogram since the last one was taken."""
        whole = self.statistics()
        taken = LagStatistics(whole.since(self._taken), self._recent)
        self._taken, self._recent = whole, 0.0
        return taken

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due = trio.current_time() + EVERY
            await trio.sleep_until(due)
            self.note(trio.current_time() - due)
