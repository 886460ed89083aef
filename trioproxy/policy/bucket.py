"""The token bucket of a per-minute limit: refilled lazily, in debt where a call used more than it reserved.

It keeps what is missing from full, as a whole number, and the moment up to which time has been credited. Only whole tokens
are credited and only their time is used up, so that no amount is ever lost to rounding and free + held + spent is exact.

A need larger than the whole bucket passes when the bucket is full, instead of never. Debt has a floor, one minute's limit
below empty: one runaway answer cannot lock a tenant out for an hour. What lies below the floor is in the ledger alone.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

from trioproxy.policy.limits import Rule

# The clock's last digits: at an origin of 1e6 s a float steps by 1e-10 s, and a wait that we named must be enough.
_SLACK = 1e-6


@define(eq=False, weakref_slot=False)  # there is one for every tenant: eight bytes less
class Bucket:
    """One bucket, full at first."""

    rule: Rule
    _missing: int = field(init=False, default=0)
    _since: float = field(init=False, default=0.0)

    def objection(self, now: float, wall: float, amount: int) -> float | None:
        rule = self.rule
        if self._missing:
            self._refill(now)
        else:
            self._since = now
        burst = rule.burst
        if self._missing + amount <= burst or not amount:
            return None
        if not burst:
            return math.inf
        short = self._missing + min(amount, burst) - burst
        return self._since + short / rule.rate - now if short > 0 else None

    def take(self, amount: int) -> None:
        self._missing += amount

    def settle(self, reserved: int, actual: int, now: float, at: float) -> None:
        back = reserved - actual
        if back >= 0:
            self._missing = max(0, self._missing - back)
            return
        self._refill(now)
        floor = self.rule.burst + self.rule.limit
        self._missing = max(self._missing, min(self._missing - back, floor))

    def remaining(self, now: float, wall: float) -> int:
        self._refill(now)
        return max(0, self.rule.burst - self._missing)

    def reset_after(self, now: float, wall: float) -> float:
        self._refill(now)
        return self._since + self._missing / self.rule.rate - now if self._missing else 0.0

    def idle(self, now: float, wall: float) -> bool:
        self._refill(now)
        return not self._missing

    def reshape(self, rule: Rule, now: float) -> None:
        """Another limit from now on, at the same fill: a tenth of the old is a tenth of the new."""
        self._refill(now)
        if self.rule.burst and rule.burst != self.rule.burst:
            self._missing = round(self._missing * rule.burst / self.rule.burst)
        self.rule = rule

    def snapshot(self, now: float, wall: float, held: Iterable[tuple[float, int]]) -> dict[str, Any] | None:
        """What was used, without what open calls hold (since when, how much); None where a new bucket is as good."""
        self._refill(now)
        used = max(0, self._missing - sum(amount for _, amount in held))
        return {"used": used} if used else None

    def restore(self, kept: Mapping[str, Any], now: float, wall: float, age: float) -> None:
        """Take up what `snapshot` gave `age` seconds ago; refilled since. Another limit finds the same amount used."""
        self._missing = min(max(0, int(kept["used"])), self.rule.burst + self.rule.limit)
        self._since = now - age
        self._refill(now)

    def _refill(self, now: float) -> None:
        back = int((now - self._since + _SLACK) * self.rule.rate)
        if not self._missing or back >= self._missing:
            self._missing = 0
            self._since = now
        elif back > 0:
            self._missing -= back
            self._since += back / self.rule.rate
