"""One limit of a provider: exact waits, whose word counts and for how long, and bounds that always hold."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.lane import Lane
from trioproxy.policy.meter import Meter


def heard(limit: int | None, remaining: int | None, reset: float | None, *, configured: float | None = None) -> Lane:
    lane = Lane("requests_per_minute", configured)
    lane.observe(0.0, 0, (limit, remaining, reset))
    return lane


def test_a_steady_rate_reads_as_itself_and_fades() -> None:
    meter = Meter()
    for second in range(600):
        meter.add(second, 2)
    assert meter.reading(599) == pytest.approx(121, abs=0.01)
    assert meter.reading(599 + 60) == pytest.approx(121 / math.e, abs=0.01)
    assert meter.wait(599, 60.5) == pytest.approx(60 * math.log(2), abs=0.01)
    assert (meter.wait(599, 200), meter.wait(599, 0)) == (0, math.inf)
    meter.add(700, -1e9)
    assert meter.reading(700) == 0


@pytest.mark.parametrize(
    "told, amount, wait",
    [
        ((60, 0, 60.0), 1, 1.0),  # a bucket: one is back after a second, not after the reset
        ((60, 10, 50.0), 12, 2.0),
        ((60, 0, 3.0), 1, 3.0),  # a window: nothing is back until it ends
        ((600, 0, 1200.0), 1, 2.0),  # slower than its name says: 600 in 1200 s
        ((60, 0, None), 2, 2.0),  # no reset: its rate
        ((None, 0, 7.0), 1, 7.0),
        ((60, 0, 60.0), 1000, 60.0),  # more than the whole: when all of it is there
        ((60, 1, 59.0), 1, 0.0),
        ((60, 500, 1.0), 60, 0.0),  # more than the limit is the limit
        ((None, 0, None), 1, 0.0),  # nobody knows until when
        ((0, 0, 30.0), 1, 0.0),  # a limit of nothing would not have answered
        ((None, 0, 86_400.0), 1, 60.0),  # nobody is believed for longer than a minute
    ],
)
def test_the_wait_is_until_what_is_needed_is_back(
    told: tuple[int | None, int | None, float | None], amount: int, wait: float
) -> None:
    lane = heard(*told)
    assert lane.wait(0.0, amount) == pytest.approx(wait)
    if wait:
        assert lane.wait(wait - 0.01, amount) > 0
        assert lane.wait(wait + 1e-6, amount) == 0


def test_a_window_that_ended_is_whole_and_counts_on() -> None:
    lane = heard(60, 0, 3.0)
    assert lane.left(3.0) == 60
    lane.take(3.0, 60)
    assert lane.wait(3.0, 1) == pytest.approx(1.0)


def test_what_was_sent_after_a_call_began_is_not_in_its_providers_word() -> None:
    lane = heard(60, 30, 30.0)
    lane.take(1.0, 1)
    mark = lane.taken
    lane.take(1.0, 5)
    lane.observe(1.0, mark, (60, 29, 31.0))
    assert lane.left(1.0) == 24


def test_a_stale_answer_changes_nothing() -> None:
    lane = heard(60, 30, 30.0)
    lane.take(1.0, 1)
    older = lane.taken
    lane.take(1.0, 1)
    lane.observe(2.0, lane.taken, (30, 10, 40.0))
    lane.observe(2.1, older, (60, 59, 1.0))
    assert (lane.announced, lane.left(2.0)) == (30, 10)


def test_what_was_never_sent_is_given_back() -> None:
    lane = heard(60, 30, 30.0)
    lane.take(0.0, 4)
    lane.give_back(0.0, 4)
    assert (lane.left(0.0), lane.meter.reading(0.0)) == (30, 0)


def test_after_a_minute_without_a_word_one_call_asks_again() -> None:
    lane = heard(60, 0, 86_400.0)
    assert lane.wait(59.9, 1) == pytest.approx(0.1)
    assert lane.wait(60.0, 1) == 0
    lane.take(60.0, 1)
    assert lane.wait(60.0, 1) == pytest.approx(5.0)
    assert lane.wait(65.0, 1) == 0


def test_an_old_word_that_said_yes_makes_nobody_wait() -> None:
    lane = heard(60, 60, 0.0)
    for _ in range(10):
        assert lane.wait(3600.0, 1) == 0
        lane.take(3600.0, 1)


def test_a_limit_that_the_provider_raises_is_followed_where_nothing_is_configured() -> None:
    lane = heard(60, 0, 60.0)
    for _ in range(50):
        lane.take(0.0, 1)
    assert lane.refused(0.0, 1, 1.0)
    assert lane.allowance == pytest.approx(0.7 * 49)
    lane.observe(1.0, lane.taken, (200, 199, 0.3))
    assert lane.ceiling == 200
    assert lane.allowance == pytest.approx(0.7 * 49)
    for second in range(600):
        lane.take(second, 10)
        lane.answered(second)
    assert lane.allowance == 200
    assert lane.aimd is None


AMOUNT = st.integers(0, 10**16)
TOLD = st.tuples(st.none() | AMOUNT, st.none() | AMOUNT, st.none() | st.floats(0, 86_400))


@given(
    st.none() | st.integers(1, 10**6),
    st.lists(
        st.tuples(
            st.sampled_from(["take", "give_back", "observe", "refused", "answered", "wait"]),
            st.floats(0, 200),
            AMOUNT,
            TOLD,
        ),
        max_size=40,
    ),
)
def test_it_never_allows_more_than_is_configured_and_never_less_than_nothing(
    configured: int | None,
    moves: list[tuple[str, float, int, tuple[int | None, int | None, float | None]]],
) -> None:
    lane, now = Lane("tokens_per_minute", configured), 0.0
    for verb, later, amount, told in moves:
        now += later
        match verb:
            case "observe":
                lane.observe(now, max(0, lane.taken - amount), told)
            case "refused":
                lane.refused(now, amount, later)
            case "answered":
                lane.answered(now)
            case "wait":
                assert 0 <= lane.wait(now, amount) <= 60 * 750 or lane.aimd is not None
            case "give_back":
                lane.give_back(now, min(amount, lane.taken))
            case _:
                lane.take(now, amount)
        bounds = [bound for bound in (configured, lane.announced) if bound is not None]
        if bounds:
            assert lane.allowance is not None
            assert 0 < lane.allowance <= min(bounds)
        assert lane.meter.reading(now) >= 0
        left = lane.left(now)
        assert left is None or 0 <= left <= (math.inf if lane.announced is None else lane.announced)
        assert math.isfinite(lane.wait(now, amount))
