"""Concurrency: so many calls at once. Taken when a call is admitted, returned when it ends, whatever it used."""

import math

from attrs import define, field

from trioproxy.policy.limits import Rule

# Nothing here knows when a call will end. The queue does, from its drain rate; without one, a second is the shortest
# Retry-After that can be written.
SOON = 1.0


@define(eq=False, weakref_slot=False)  # there is one for every tenant: eight bytes less
class Level:
    """Invariant: used ≤ limit, unless the limit was lowered under calls that are under way."""

    rule: Rule
    _used: int = field(init=False, default=0)

    def objection(self, now: float, wall: float, amount: int) -> float | None:
        if self._used + amount <= self.rule.limit:
            return None
        return SOON if amount <= self.rule.limit else math.inf

    def take(self, amount: int) -> None:
        self._used += amount

    def settle(self, reserved: int, actual: int, now: float, at: float) -> None:
        self._used -= reserved

    def remaining(self, now: float, wall: float) -> int:
        return max(0, self.rule.limit - self._used)

    def reset_after(self, now: float, wall: float) -> float:
        return SOON if self._used else 0.0

    def idle(self, now: float, wall: float) -> bool:
        return not self._used

    def reshape(self, rule: Rule) -> None:
        """Another limit from now on; calls that are under way keep their places."""
        self.rule = rule
