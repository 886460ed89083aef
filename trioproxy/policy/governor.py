"""The governor: how fast one channel's traffic may grow, watched: ceilings, a slow start, and a brake that lets go by itself.

A call is held back where the ceiling of a `Ramp` is reached, and passes a channel over that warms up as often as its share
says: by counting, so that of ten calls at 30 % three go, spread evenly. Growth pauses while what was seen in the last minute
is past a threshold, and goes on once it has been well for `REST`. Everything is looked at once a second at most.
"""

import math
from collections import deque

from attrs import define, field

from trioproxy.policy.limits import Need
from trioproxy.policy.meter import MINUTE, Meter
from trioproxy.policy.ramp import Ramp, Signals, Thresholds, Warmup

TICK = 1.0
REST = 30.0  # seconds without a breach before growth goes on
LATENCIES = 256  # answers that a p95 is read from, none older than a minute


@define(eq=False)
class Turns:
    """A share of calls, spread evenly and without chance. The first one goes where `credit` is 1."""

    credit: float = 1.0

    def mine(self, share: float) -> bool:
        """Whether this call is one of the `share`."""
        if self.credit < 1.0:
            self.credit += share
        if self.credit < 1.0 - 1e-9:
            return False
        self.credit -= 1.0
        return True


@define(eq=False)
class Ceiling:
    """One rate that grows no faster than its ramp allows."""

    name: str
    unit: int  # the place in a `Need`
    ramp: Ramp
    meter: Meter = field(init=False, factory=Meter)
    limit: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.limit = self.ramp.policy.floor

    def wait(self, need: Need, now: float) -> float:
        """Seconds until it fits; what is larger than the whole passes when a tenth is in use."""
        return self.meter.wait(now, max(self.limit - need[self.unit], self.limit / 10))

    def tick(self, now: float) -> None:
        self.ramp.used(now, self.meter.reading(now))
        self.limit = self.ramp.allowed(now, math.inf)


@define(eq=False)
class Governor:
    """One channel's. Times are seconds on the caller's monotonic clock; never blocks."""

    ceilings: tuple[Ceiling, ...]
    warmup: Warmup | None = None
    thresholds: Thresholds = field(factory=Thresholds)
    paused: str = field(init=False, default="")  # why
    _since: float | None = field(init=False, default=None)  # new, or back, since
    _turns: Turns = field(init=False, factory=Turns)
    _calls: Meter = field(init=False, factory=Meter)
    _limited: Meter = field(init=False, factory=Meter)
    _fallbacks: Meter = field(init=False, factory=Meter)
    _latencies: deque[tuple[float, float]] = field(init=False, factory=lambda: deque(maxlen=LATENCIES))
    _looked: float = field(init=False, default=-math.inf)
    _ill: float = field(init=False, default=-math.inf)

    def share(self, now: float) -> float:
        """The share of its calls that it takes now; 1 once it is warm."""
        if self.warmup is None:
            return 1.0
        return self.warmup.share(0.0 if self._since is None else now - self._since)

    def passes_over(self, now: float) -> bool:
        """Whether this call goes to another channel because this one is warming up. Counts the call."""
        if self._since is None:
            self._since = now
        share = self.share(now)
        return share < 1.0 and not self._turns.mine(share)

    def recovered(self, now: float) -> None:
        """It is back after it could not be asked, as a call has just found: it begins slowly again."""
        self._since, self._turns = now, Turns(0.0)

    def wait(self, need: Need, now: float) -> tuple[float, Ceiling | None]:
        """Seconds until its growth leaves room for `need`, and which ceiling that is."""
        longest, worst = 0.0, None
        for ceiling in self.ceilings:
            wait = ceiling.wait(need, now)
            if wait > longest:
                longest, worst = wait, ceiling
        return longest, worst

    def took(self, need: Need, now: float) -> None:
        for ceiling in self.ceilings:
            ceiling.meter.add(now, need[ceiling.unit])

    def answered(self, now: float, seconds: float) -> None:
        """A first byte of an answer, `seconds` after it was asked for."""
        self._latencies.append((now, seconds))

    def ended(self, now: float, *, limited: bool, failed: bool) -> None:
        """An attempt's end: whether its provider refused it for its rate, or it failed so that another channel was asked."""
        self._calls.add(now, 1)
        self._limited.add(now, limited)
        self._fallbacks.add(now, failed)

    def look(self, now: float, waiting: int) -> str | None:
        """Pause or go on; why where that changed ("": it goes on), else None. `waiting` is how many calls wait for a place."""
        if now - self._looked < TICK:
            return None
        self._looked = now
        breach = self.thresholds.breach(self.signals(now, waiting))
        changed = None
        if breach is not None:
            self._ill = now
            changed = None if self.paused else breach
            self.paused = breach
            for ceiling in self.ceilings:
                ceiling.ramp.pause(now, breach)
        elif self.paused and now - self._ill >= REST:
            changed = self.paused = ""
            for ceiling in self.ceilings:
                ceiling.ramp.resume(now)
        for ceiling in self.ceilings:
            ceiling.tick(now)
        return changed

    def signals(self, now: float, waiting: int) -> Signals:
        while self._latencies and self._latencies[0][0] < now - MINUTE:
            self._latencies.popleft()
        ranked = sorted(seconds for _, seconds in self._latencies)
        p95 = ranked[math.ceil(0.95 * len(ranked)) - 1] if ranked else 0.0
        calls, limited, fallbacks = (round(each.reading(now)) for each in (self._calls, self._limited, self._fallbacks))
        return Signals(calls, limited, fallbacks, waiting, p95)
