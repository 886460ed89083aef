"""The token bucket: honest waits, debt with a floor, whole tokens; and the concurrency level beside it."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from trioproxy.policy.bucket import Bucket
from trioproxy.policy.level import SOON, Level
from trioproxy.policy.limits import Limits, Rule


def minute(limit: int, burst: float = 60.0) -> Rule:
    [rule] = Limits(tokens_per_minute=limit, burst=burst).rules
    return rule


def places(limit: int) -> Rule:
    [rule] = Limits(concurrency=limit).rules
    return rule


def ask(bucket: Bucket | Level, now: float, amount: int) -> float | None:
    """Take where it fits, as the quota does."""
    wait = bucket.objection(now, 0.0, amount)
    if wait is None:
        bucket.take(amount)
    return wait


def test_a_bucket_starts_full_and_an_empty_one_names_the_exact_wait() -> None:
    bucket = Bucket(minute(60))
    assert bucket.remaining(100.0, 0.0) == 60
    assert ask(bucket, 100.0, 60) is None
    assert bucket.remaining(100.0, 0.0) == 0
    assert ask(bucket, 100.0, 5) == 5.0
    assert ask(bucket, 104.5, 5) == 0.5
    assert ask(bucket, 105.0, 5) is None
    assert bucket.reset_after(105.0, 0.0) == 60.0


def test_waiting_before_the_first_call_earns_nothing_beyond_full() -> None:
    bucket = Bucket(minute(60))
    assert ask(bucket, 1_000.0, 10) is None
    assert bucket.remaining(1_000.0, 0.0) == 50
    assert ask(bucket, 1_003.0, 0) is None
    assert bucket.remaining(1_003.0, 0.0) == 53


def test_parts_of_a_token_are_kept_as_time_and_never_lost() -> None:
    """One token a second, looked at ten times a second."""
    bucket = Bucket(minute(60))
    ask(bucket, 0.0, 60)
    seen = [bucket.remaining(tick / 10, 0.0) for tick in range(101)]
    assert seen == [tick // 10 for tick in range(101)]


def test_a_need_larger_than_the_bucket_passes_a_full_one_only() -> None:
    bucket = Bucket(minute(60))
    assert ask(bucket, 0.0, 1) is None
    assert ask(bucket, 0.0, 100) == 1.0
    assert ask(bucket, 1.0, 100) is None
    assert bucket.remaining(1.0, 0.0) == 0
    assert ask(bucket, 1.0, 1) == 41.0


def test_what_was_not_used_comes_back_and_never_beyond_full() -> None:
    bucket = Bucket(minute(60))
    ask(bucket, 0.0, 40)
    bucket.settle(40, 10, 0.0, 0.0)
    assert bucket.remaining(0.0, 0.0) == 50
    ask(bucket, 0.0, 50)
    assert bucket.remaining(30.0, 0.0) == 30
    bucket.settle(50, 0, 30.0, 0.0)
    assert bucket.remaining(30.0, 0.0) == 60


def test_an_overrun_is_debt_that_time_pays_off() -> None:
    bucket = Bucket(minute(60))
    ask(bucket, 0.0, 50)
    bucket.settle(50, 80, 0.0, 0.0)
    assert bucket.remaining(0.0, 0.0) == 0
    assert ask(bucket, 0.0, 1) == 21.0
    assert ask(bucket, 21.0, 1) is None


def test_debt_ends_one_minutes_limit_below_empty() -> None:
    """A runaway answer of a million tokens locks nobody out for more than a minute and a token."""
    bucket = Bucket(minute(60))
    ask(bucket, 0.0, 10)
    bucket.settle(10, 1_000_000, 0.0, 0.0)
    assert ask(bucket, 0.0, 1) == 61.0
    ask(bucket, 61.0, 1)
    bucket.settle(1, 2, 61.0, 0.0)
    assert ask(bucket, 61.0, 1) == 2.0


def test_a_need_beyond_the_floor_is_owed_in_full_and_an_overrun_of_it_adds_nothing() -> None:
    bucket = Bucket(minute(60))
    ask(bucket, 0.0, 200)
    bucket.settle(200, 300, 0.0, 0.0)
    assert ask(bucket, 0.0, 1) == 141.0
    bucket.settle(200, 190, 0.0, 0.0)
    assert ask(bucket, 0.0, 1) == 131.0


def test_debt_made_after_a_long_silence_is_not_paid_by_that_silence() -> None:
    bucket = Bucket(minute(60))
    ask(bucket, 0.0, 10)
    bucket.settle(10, 70, 1_000.0, 0.0)
    assert bucket.remaining(1_000.0, 0.0) == 0
    assert bucket.reset_after(1_000.0, 0.0) == 60.0


def test_who_needs_nothing_is_not_stopped_by_debt() -> None:
    bucket = Bucket(minute(60))
    bucket.settle(0, 90, 0.0, 0.0)
    assert ask(bucket, 0.0, 0) is None


def test_a_limit_of_zero_never_lets_anything_through() -> None:
    bucket = Bucket(minute(0))
    assert ask(bucket, 0.0, 1) == math.inf
    assert ask(bucket, 0.0, 0) is None
    bucket.settle(0, 5, 0.0, 0.0)
    assert (bucket.remaining(0.0, 0.0), bucket.reset_after(0.0, 0.0)) == (0, 0.0)


def test_a_short_burst_holds_less_and_refills_as_fast() -> None:
    """600 a minute judged over one second: ten at once."""
    bucket = Bucket(minute(600, burst=1.0))
    assert ask(bucket, 0.0, 10) is None
    assert ask(bucket, 0.0, 1) == 0.1
    assert ask(bucket, 0.1, 1) is None


def test_a_burst_always_holds_at_least_one() -> None:
    assert ask(Bucket(minute(6, burst=1.0)), 0.0, 1) is None


def test_another_limit_keeps_the_fill_fraction() -> None:
    bucket = Bucket(minute(60))
    ask(bucket, 0.0, 45)
    bucket.reshape(minute(600), 0.0)
    assert bucket.remaining(0.0, 0.0) == 150
    bucket.reshape(minute(60), 15.0)
    assert bucket.remaining(15.0, 0.0) == 30
    bucket.reshape(minute(0), 15.0)
    bucket.reshape(minute(60), 15.0)
    assert bucket.remaining(15.0, 0.0) == 60


def test_another_limit_counts_the_time_before_it_at_the_old_rate() -> None:
    bucket = Bucket(minute(60))
    ask(bucket, 0.0, 60)
    bucket.reshape(minute(6_000), 30.0)
    assert bucket.remaining(30.0, 0.0) == 3_000


def test_debt_keeps_its_fraction_too() -> None:
    bucket = Bucket(minute(60))
    bucket.settle(0, 90, 0.0, 0.0)
    bucket.reshape(minute(120), 0.0)
    assert ask(bucket, 0.0, 1) == 30.5


def test_a_bucket_is_idle_once_it_is_full_again() -> None:
    bucket = Bucket(minute(60))
    assert bucket.idle(0.0, 0.0)
    ask(bucket, 0.0, 2)
    assert not bucket.idle(1.0, 0.0)
    assert bucket.idle(2.0, 0.0)


@settings(deadline=None)
@given(
    st.integers(1, 3_000_000),
    st.floats(0.5, 120.0),
    st.floats(0.0, 1e7),
    st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(1, 5_000_000)), max_size=20),
)
def test_the_wait_named_is_enough_and_a_second_less_is_not(
    limit: int, burst: float, now: float, calls: list[tuple[float, int]]
) -> None:
    bucket = Bucket(minute(limit, burst))
    for gap, amount in calls:
        now += gap
        wait = ask(bucket, now, amount)
        assert wait is None or wait > 0.0
        if wait is not None and wait > 1.0:
            assert bucket.objection(now + wait - 1.0, 0.0, amount) is not None
        if wait is not None:
            now += wait
            assert ask(bucket, now, amount) is None


@settings(deadline=None)
@given(st.integers(1, 100_000), st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 500)), max_size=40))
def test_no_more_passes_than_the_burst_and_the_rate_allow(limit: int, calls: list[tuple[float, int]]) -> None:
    """However often a bucket is asked, rounding gives nobody a token."""
    bucket = Bucket(minute(limit))
    now = passed = 0.0
    for gap, amount in calls:
        now += gap
        size = min(amount, limit)
        if ask(bucket, now, size) is None:
            passed += size
        assert passed <= limit + now * limit / 60 + 1e-3


def test_a_level_is_taken_and_returned_whatever_was_used() -> None:
    level = Level(places(2))
    assert ask(level, 0.0, 1) is None
    assert ask(level, 0.0, 1) is None
    assert ask(level, 0.0, 1) == SOON
    assert (level.remaining(0.0, 0.0), level.reset_after(0.0, 0.0), level.idle(0.0, 0.0)) == (0, SOON, False)
    level.settle(1, 1, 0.0, 0.0)
    assert level.remaining(0.0, 0.0) == 1
    level.settle(1, 0, 0.0, 0.0)
    assert (level.remaining(0.0, 0.0), level.reset_after(0.0, 0.0), level.idle(0.0, 0.0)) == (2, 0.0, True)


def test_more_at_once_than_a_level_has_is_never() -> None:
    assert ask(Level(places(0)), 0.0, 1) == math.inf


def test_a_lowered_level_shows_no_negative_remainder_and_admits_again_below_it() -> None:
    level = Level(places(3))
    for _ in range(3):
        ask(level, 0.0, 1)
    level.reshape(places(1))
    assert level.remaining(0.0, 0.0) == 0
    level.settle(1, 1, 0.0, 0.0)
    level.settle(1, 1, 0.0, 0.0)
    assert ask(level, 0.0, 1) == SOON
    level.settle(1, 1, 0.0, 0.0)
    assert ask(level, 0.0, 1) is None
