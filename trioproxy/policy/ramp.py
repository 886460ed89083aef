"""How fast a channel's traffic may grow: ceilings on growth, warming up, and a brake.

Providers refuse growth as such ("slow_down", `ramp_limit_exceeded`), and a large pool thrown onto a cold channel is how the
second outage begins. `Ramp` lets a rate grow by a factor per period over the highest one of the last period; `Warmup` gives a
new or recovered channel a growing share of its weight; `Thresholds` say when growth must pause.
"""

from collections import deque
from typing import NamedTuple

from attrs import define, field, frozen, validators


@frozen
class RampPolicy:
    """Above 1 M input tokens a minute OpenAI allows 50 % more per 15 minutes; `floor` is what is always allowed."""

    floor: float = field(default=1_000_000.0, validator=validators.gt(0.0))
    growth: float = field(default=1.5, validator=validators.ge(1.0))
    period: float = field(default=900.0, validator=validators.gt(0.0))


@define(eq=False)
class Ramp:
    """A ceiling on one rate, in the policy's unit (tokens per minute). `now` is monotonic seconds; never blocks.

    Every rate that was reached may have grown since by `growth` per period; one that is older than a period is forgotten, so a
    channel that lay idle begins at the floor again. The ceiling after t seconds is never above
    `max(floor, first) · growth^(t / period)`.
    """

    policy: RampPolicy = field(factory=RampPolicy)
    paused: str | None = field(init=False, default=None)  # why, while growth is paused
    # (when, rate), each worth more than those after
    _peaks: deque[tuple[float, float]] = field(init=False, factory=deque)
    _held: float = field(init=False, default=0.0)

    def used(self, now: float, rate: float) -> None:
        """The rate that was measured lately."""
        while self._peaks and self._peaks[-1][1] * self._grown(now - self._peaks[-1][0]) <= rate:
            self._peaks.pop()
        if not self._peaks or rate > self.policy.floor:
            self._peaks.append((now, rate))
        self._forget(now)

    def allowed(self, now: float, cap: float) -> float:
        """The rate that is allowed now, never above `cap`."""
        level = self._held if self.paused is not None else self._level(now)
        return min(cap, level)

    def pause(self, now: float, why: str) -> None:
        """No growth from here: the ceiling stays where it is. Pausing again changes the reason only."""
        if self.paused is None:
            self._held = self._level(now)
        self.paused = why

    def resume(self, now: float) -> None:
        """Growth goes on from where it was paused, not from where it would be."""
        if self.paused is None:
            return
        self.paused = None
        self._peaks.clear()
        self._peaks.append((now, self._held))

    def _level(self, now: float) -> float:
        self._forget(now)
        grown = (rate * self._grown(now - when) for when, rate in self._peaks)
        level: float = max(self.policy.floor, max(grown, default=0.0))
        return level

    def _grown(self, seconds: float) -> float:
        return float(self.policy.growth ** (max(0.0, seconds) / self.policy.period))

    def _forget(self, now: float) -> None:
        while self._peaks and self._peaks[0][0] < now - self.policy.period:
            self._peaks.popleft()


@frozen
class Warmup:
    """The share of its weight that a channel gets `age` seconds after it appeared or recovered (slow start).

    `aggression` 1 grows linearly from `least` to 1 over `window`; above 1 it grows faster at first.
    """

    window: float = field(default=60.0, validator=validators.gt(0.0))
    least: float = field(default=0.1, validator=[validators.gt(0.0), validators.le(1.0)])
    aggression: float = field(default=1.0, validator=validators.gt(0.0))

    def share(self, age: float) -> float:
        if age >= self.window:
            return 1.0
        return max(self.least, float((max(0.0, age) / self.window) ** (1.0 / self.aggression)))


class Signals(NamedTuple):
    """What was observed lately. `p95` is seconds, `queued` calls that wait; the others are counts of calls."""

    calls: int = 0
    rate_limited: int = 0
    fallbacks: int = 0
    queued: int = 0
    p95: float = 0.0


@frozen
class Thresholds:
    """What pauses growth; None asks nothing. Shares are of calls, and mean nothing below `least` of them."""

    rate_limited: float | None = 0.05
    fallbacks: float | None = 0.1
    queued: int | None = None
    p95: float | None = None
    least: int = 20

    def breach(self, seen: Signals) -> str | None:
        """Which threshold is passed, in words with both figures; None while all is well."""
        if self.queued is not None and seen.queued > self.queued:
            return f"{seen.queued} calls are waiting, more than {self.queued}"
        if seen.calls < self.least:
            return None
        shares = (
            ("refused by the provider", seen.rate_limited, self.rate_limited),
            ("answered by a fallback", seen.fallbacks, self.fallbacks),
        )
        for what, count, most in shares:
            if most is not None and count > most * seen.calls:
                return f"{count} of {seen.calls} calls were {what}, more than {most:.0%}"
        if self.p95 is not None and seen.p95 > self.p95:
            return f"p95 latency is {seen.p95:.2f} s, more than {self.p95:.2f} s"
        return None
