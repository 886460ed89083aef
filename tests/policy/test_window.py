"""Calendar windows: exact days over clock changes, settlement in the window of the reservation, debt, the balance."""

import math
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioproxy.policy.limits import Limits, Rule
from trioproxy.policy.window import PERIODS, Calendar, Period, Window

HOUR = 3_600.0
DAY = 86_400.0


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def calendar(zone: str = "UTC", period: Period = Period.DAY) -> Calendar:
    return Calendar(ZoneInfo(zone), period)


def daily(limit: int, zone: str = "UTC") -> Rule:
    [rule] = Limits(tokens_per_day=limit, zone=zone).rules
    return rule


def window(limit: int, wall: float) -> Window:
    return Window(daily(limit), calendar().at(wall))


def ask(window: Window, wall: float, amount: int) -> float | None:
    wait = window.objection(0.0, wall, amount)
    if wait is None:
        window.take(amount)
    return wait


NOON = instant("2026-05-04T12:00:00+00:00")  # a Monday
MIDNIGHT = NOON + 12 * HOUR


@pytest.mark.parametrize(
    "zone, inside, start, hours",
    [
        ("UTC", "2026-03-29T12:00:00+00:00", "2026-03-29T00:00:00+00:00", 24.0),
        ("Europe/Berlin", "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", 23.0),
        ("Europe/Berlin", "2026-03-28T23:59:59+01:00", "2026-03-28T00:00:00+01:00", 24.0),
        ("Europe/Berlin", "2026-10-25T02:30:00+01:00", "2026-10-25T00:00:00+02:00", 25.0),
        ("Europe/Berlin", "2026-10-26T00:00:00+01:00", "2026-10-26T00:00:00+01:00", 24.0),
        ("Australia/Lord_Howe", "2026-04-05T12:00:00+10:30", "2026-04-05T00:00:00+11:00", 24.5),
        ("Australia/Lord_Howe", "2026-10-04T12:00:00+11:00", "2026-10-04T00:00:00+10:30", 23.5),
        # Midnight itself does not exist: Cairo goes from 24:00 to 01:00, so that its day starts at one.
        ("Africa/Cairo", "2026-04-24T12:00:00+03:00", "2026-04-24T01:00:00+03:00", 23.0),
        # Midnight strikes twice: Havana falls back from 01:00 to 00:00, and the day starts at the first.
        ("America/Havana", "2026-11-01T12:00:00-05:00", "2026-11-01T00:00:00-04:00", 25.0),
    ],
)
def test_a_day_is_from_local_midnight_to_the_next(zone: str, inside: str, start: str, hours: float) -> None:
    span = calendar(zone).at(instant(inside))
    assert span.start == instant(start)
    assert span.end - span.start == hours * HOUR


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kathmandu"])
@pytest.mark.parametrize("period", list(Period)[:3])
def test_windows_follow_each_other_without_gap_or_overlap(zone: str, period: Period) -> None:
    """All of 2026: each window starts where the one before ended, and says so."""
    subject = calendar(zone, period)
    span = subject.span(instant("2026-01-01T12:00:00+00:00"))
    while span.end < instant("2027-01-01T00:00:00+00:00"):
        following = subject.span(span.end)
        assert (following.start, following.previous) == (span.end, span.start)
        assert subject.span(span.end - 1.0).start == span.start
        span = following


def test_a_week_starts_on_monday_and_a_month_on_its_first() -> None:
    inside = instant("2026-02-15T12:00:00+00:00")
    week, month = calendar(period=Period.WEEK).at(inside), calendar(period=Period.MONTH).at(inside)
    assert (week.start, week.end) == (instant("2026-02-09T00:00:00+00:00"), instant("2026-02-16T00:00:00+00:00"))
    assert (month.start, month.end) == (instant("2026-02-01T00:00:00+00:00"), instant("2026-03-01T00:00:00+00:00"))
    assert month.previous == instant("2026-01-01T00:00:00+00:00")


def test_a_refusal_names_the_seconds_to_midnight_and_midnight_makes_it_true() -> None:
    subject = window(100, NOON)
    assert ask(subject, NOON, 100) is None
    assert ask(subject, NOON, 1) == 12 * HOUR
    assert subject.reset_after(0.0, NOON) == 12 * HOUR
    assert ask(subject, MIDNIGHT - 0.5, 1) == 0.5
    assert ask(subject, MIDNIGHT, 1) is None
    assert subject.remaining(0.0, MIDNIGHT) == 99


def test_on_the_long_day_the_wait_is_an_hour_longer() -> None:
    """Berlin, 25 October 2026 at 01:00 summer time: 24 hours to go."""
    wall = instant("2026-10-25T01:00:00+02:00")
    subject = Window(daily(10, "Europe/Berlin"), calendar("Europe/Berlin").at(wall))
    ask(subject, wall, 10)
    assert ask(subject, wall, 1) == 24 * HOUR


def test_what_is_larger_than_a_whole_window_never_fits() -> None:
    assert ask(window(100, NOON), NOON, 101) == math.inf


def test_what_was_not_used_comes_back_the_same_day() -> None:
    subject = window(100, NOON)
    ask(subject, NOON, 80)
    subject.settle(80, 30, 0.0, NOON)
    assert subject.remaining(0.0, NOON) == 70


@pytest.mark.parametrize("actual", [0, 60, 90])
def test_a_call_settles_in_the_window_it_reserved_in(actual: int) -> None:
    """Reserved before midnight and settled after: the new day does not hear of it while the old one had room."""
    subject = window(100, NOON)
    ask(subject, MIDNIGHT - 1.0, 80)
    ask(subject, MIDNIGHT + 1.0, 10)
    subject.settle(80, actual, 0.0, MIDNIGHT - 1.0)
    assert subject.remaining(0.0, MIDNIGHT + 2.0) == 90


def test_a_late_overrun_of_a_full_day_is_the_next_days_debt() -> None:
    subject = window(100, NOON)
    ask(subject, MIDNIGHT - 1.0, 60)
    ask(subject, MIDNIGHT - 1.0, 20)
    assert subject.remaining(0.0, MIDNIGHT) == 100
    subject.settle(60, 110, 0.0, MIDNIGHT - 1.0)
    assert subject.remaining(0.0, MIDNIGHT) == 70
    subject.settle(20, 0, 0.0, MIDNIGHT - 1.0)
    assert subject.remaining(0.0, MIDNIGHT) == 90


def test_an_overrun_is_the_next_days_debt_up_to_half_of_it() -> None:
    subject = window(100, NOON)
    ask(subject, NOON, 100)
    subject.settle(100, 120, 0.0, NOON)
    assert subject.remaining(0.0, NOON) == 0
    assert subject.remaining(0.0, MIDNIGHT) == 80
    subject.settle(0, 1_000, 0.0, MIDNIGHT)
    assert subject.remaining(0.0, MIDNIGHT + DAY) == 50
    assert subject.remaining(0.0, MIDNIGHT + 2 * DAY) == 100


def test_what_the_debt_leaves_no_room_for_tomorrow_is_told_to_come_the_day_after() -> None:
    subject = window(100, NOON)
    subject.settle(0, 150, 0.0, NOON)
    assert ask(subject, NOON, 50) == 12 * HOUR
    assert ask(subject, NOON, 51) == 36 * HOUR


def test_a_day_that_nobody_used_forgives_the_debt_of_the_day_before() -> None:
    subject = window(100, NOON)
    subject.settle(0, 150, 0.0, NOON)
    assert subject.remaining(0.0, NOON + 2 * DAY) == 100


def test_a_clock_set_back_over_midnight_does_not_bring_yesterday_back() -> None:
    subject = window(100, NOON)
    ask(subject, MIDNIGHT + 1.0, 100)
    assert ask(subject, MIDNIGHT - 1.0, 1) == DAY + 1.0
    subject.settle(100, 0, 0.0, MIDNIGHT + 1.0)
    assert subject.remaining(0.0, MIDNIGHT - 1.0) == 100


def test_a_clock_that_had_been_days_ahead_finds_its_own_day_again() -> None:
    subject = window(100, NOON + 30 * DAY)
    ask(subject, NOON + 30 * DAY, 100)
    assert ask(subject, NOON, 1) is None
    subject.settle(100, 0, 0.0, NOON + 30 * DAY)
    assert subject.remaining(0.0, NOON) == 100


def test_another_limit_or_zone_neither_resets_nor_doubles_what_was_used() -> None:
    subject = window(100, NOON)
    ask(subject, NOON, 60)
    subject.reshape(daily(200, "Europe/Berlin"), calendar("Europe/Berlin").at(NOON))
    assert subject.remaining(0.0, NOON) == 140
    subject.reshape(daily(50), calendar().at(NOON))
    assert subject.remaining(0.0, NOON) == 0
    assert subject.remaining(0.0, MIDNIGHT) == 90 - 50


def test_a_change_on_a_later_day_does_not_carry_the_old_days_use() -> None:
    subject = window(100, NOON)
    ask(subject, NOON, 60)
    same = subject._span.calendar
    subject.reshape(daily(100), same.at(NOON + DAY))
    assert subject.remaining(0.0, NOON + DAY) == 100


def test_a_window_is_idle_while_nothing_of_it_or_of_a_late_call_can_matter() -> None:
    subject = window(100, NOON)
    assert subject.idle(0.0, NOON)
    assert subject.reset_after(0.0, NOON) == 0.0
    ask(subject, NOON, 1)
    assert not subject.idle(0.0, NOON)
    assert not subject.idle(0.0, NOON + DAY)
    assert subject.idle(0.0, NOON + 2 * DAY)


def test_a_balance_never_returns_and_is_raised_by_paying_in() -> None:
    [rule] = Limits(balance=1_000_000).rules
    [raised] = Limits(balance=1_500_000).rules
    assert PERIODS[rule.dimension] is Period.EVER
    ever = calendar(period=Period.EVER).at(NOON)
    subject = Window(rule, ever)
    assert ask(subject, NOON, 900_000) is None
    assert ask(subject, NOON + 400 * DAY, 200_000) == math.inf
    subject.settle(900_000, 1_200_000, 0.0, NOON)
    assert (subject.remaining(0.0, NOON), subject.reset_after(0.0, NOON)) == (0, math.inf)
    assert ask(subject, NOON + 4_000 * DAY, 1) == math.inf
    subject.reshape(raised, ever)
    assert subject.remaining(0.0, NOON) == 300_000


def test_a_zone_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="'Europe/Nowhere' is no time zone"):
        Limits(zone="Europe/Nowhere")


@settings(deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "America/Havana"]))
def test_every_moment_lies_in_its_day(wall: int, zone: str) -> None:
    span = calendar(zone).at(float(wall))
    assert span.start <= wall < span.end
    assert 22 * HOUR <= span.end - span.start <= 26 * HOUR
