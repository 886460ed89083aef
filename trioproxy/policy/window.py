"""Calendar windows: so much per day, week or month of a time zone, and a balance that never returns.

A day is from one local midnight to the next, 23, 24 or 25 hours; a week starts on Monday. All windows of one zone and
period share a calendar and its current span, so that a window is one comparison and one sum.

A call settles in the window that it reserved in, however late. What a window was overrun by is the next one's debt, up to
half a window; a window that nobody used forgives it. Strict: what does not fit is refused until the window ends.
"""

import enum
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from attrs import define, field, frozen

from trioproxy.policy.limits import Dimension, Rule


class Period(enum.Enum):
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    EVER = "ever"


PERIODS = {
    Dimension.REQUESTS_PER_DAY: Period.DAY,
    Dimension.TOKENS_PER_DAY: Period.DAY,
    Dimension.MICRO_USD_PER_DAY: Period.DAY,
    Dimension.MICRO_USD_PER_WEEK: Period.WEEK,
    Dimension.MICRO_USD_PER_MONTH: Period.MONTH,
    Dimension.BALANCE: Period.EVER,
}


@frozen(eq=False)
class Span:
    """One window of the calendar, in seconds since 1970. `previous` is where the one before it started."""

    calendar: "Calendar"
    previous: float
    start: float
    end: float


@define(eq=False)
class Calendar:
    """The windows of one period in one zone."""

    zone: ZoneInfo
    period: Period
    _current: Span | None = field(init=False, default=None)

    def at(self, wall: float) -> Span:
        """The span in force. A clock set back by less than a window does not bring the old one back."""
        if self._current is None or not self._current.previous <= wall < self._current.end:
            self._current = self.span(wall)
        return self._current

    def span(self, wall: float) -> Span:
        """The span that holds `wall`."""
        if self.period is Period.EVER:
            return Span(self, -math.inf, -math.inf, math.inf)
        first = self._first(datetime.fromtimestamp(wall, self.zone).date())
        longest = {Period.DAY: 1, Period.WEEK: 7, Period.MONTH: 31}[self.period]
        before, after = self._first(first - timedelta(1)), self._first(first + timedelta(longest))
        return Span(self, self._midnight(before), self._midnight(first), self._midnight(after))

    def _first(self, day: date) -> date:
        match self.period:
            case Period.WEEK:
                return day - timedelta(day.weekday())
            case Period.MONTH:
                return day.replace(day=1)
            case _:
                return day

    def _midnight(self, day: date) -> float:
        # Where the clock skips midnight this is the moment of the skip, where it strikes twice the first of them (PEP 495).
        return datetime(day.year, day.month, day.day, tzinfo=self.zone).timestamp()


@define(eq=False, weakref_slot=False)  # there is one for every tenant: eight bytes less
class Window:
    """What was used of one limit in the current span and in the one before."""

    rule: Rule
    _span: Span
    _used: int = field(init=False, default=0)
    _before: int = field(init=False, default=0)

    @property
    def used(self) -> int:
        """What is spent and held in the span that was in force when something was last asked."""
        return self._used

    @property
    def span(self) -> Span:
        return self._span

    def objection(self, now: float, wall: float, amount: int) -> float | None:
        span = self._span
        if not span.start <= wall < span.end:
            self._roll(wall)
        limit = self.rule.limit
        if self._used + amount <= limit or not amount:
            return None
        if amount > limit:
            return math.inf
        end = self._span.end
        if amount + self._debt(self._used) > limit:
            end = self._span.calendar.span(end).end
        return end - wall

    def take(self, amount: int) -> None:
        self._used += amount

    def settle(self, reserved: int, actual: int, now: float, at: float) -> None:
        if at >= self._span.start:
            self._used = max(0, self._used + actual - reserved)
            return
        owed = self._debt(self._before)
        self._before += actual - reserved
        self._used += self._debt(self._before) - owed

    def remaining(self, now: float, wall: float) -> int:
        self._roll(wall)
        return max(0, self.rule.limit - self._used)

    def reset_after(self, now: float, wall: float) -> float:
        self._roll(wall)
        return max(0.0, self._span.end - wall) if self._used else 0.0

    def idle(self, now: float, wall: float) -> bool:
        self._roll(wall)
        return not self._used and not self._before

    def reshape(self, rule: Rule, span: Span) -> None:
        """Another limit or zone from now on. What was used stays used: a change neither resets nor doubles a quota."""
        self._roll(max(self._span.start, span.start))
        self._span = span
        self.rule = rule

    def snapshot(self, now: float, wall: float, held: Iterable[tuple[float, int]]) -> dict[str, Any] | None:
        """What was used, without what open calls hold (since when, how much), and when it ends; None where a new one is as good."""
        self._roll(wall)
        span, used, before = self._span, self._used, self._before
        for at, amount in held:
            if at >= span.start:
                used -= amount
            elif at >= span.previous:  # it was reserved before midnight, and settles there
                before -= amount
        used -= self._debt(self._before) - self._debt(before)
        used, before = max(0, used), max(0, before)
        if not used and not before:
            return None
        return {"used": used, "before": before, "end": span.end if span.end < math.inf else None}

    def restore(self, kept: Mapping[str, Any], now: float, wall: float, age: float) -> None:
        """Take up what `snapshot` gave: in the same window, as the one before, or not at all where that is long over.

        By its end, so that another time zone does not forgive what was used today.
        """
        self._roll(wall)
        used, before, end = int(kept["used"]), int(kept["before"]), kept["end"]
        if end is None or wall < float(end):
            self._used, self._before = used, before
        elif float(end) > self._span.previous:
            self._before = used
            self._used = self._debt(used)

    def _roll(self, wall: float) -> None:
        span = self._span.calendar.at(wall)
        if span is self._span:
            return
        self._before = self._used if span.previous == self._span.start else 0
        self._used = self._debt(self._before)
        self._span = span

    def _debt(self, used: int) -> int:
        return min(max(0, used - self.rule.limit), self.rule.limit // 2)
