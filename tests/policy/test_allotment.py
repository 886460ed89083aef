"""One limit of a provider: exact waits, whose word counts and for how long, and bounds that always hold."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.allotment import Allotment
from trioproxy.policy.meter import Meter


def heard(
    limit: int | None, remaining: int | None, reset: float | None, *, configured: float | None = None
) -> Allotment:
    allotment = Allotment("requests_per_minute", configured)
    allotment.observe(0.0, 0, (limit, remaining, reset))
    return allotment


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
    allotment = heard(*told)
    assert allotment.wait(0.0, amount) == pytest.approx(wait)
    if wait:
        assert allotment.wait(wait - 0.01, amount) > 0
        assert allotment.wait(wait + 1e-6, amount) == 0


def test_a_window_that_ended_is_whole_and_counts_on() -> None:
    allotment = heard(60, 0, 3.0)
    assert allotment.left(3.0) == 60
    allotment.take(3.0, 60)
    assert allotment.wait(3.0, 1) == pytest.approx(1.0)


def test_what_was_sent_after_a_call_began_is_not_in_its_providers_word() -> None:
    allotment = heard(60, 30, 30.0)
    allotment.take(1.0, 1)
    mark = allotment.taken
    allotment.take(1.0, 5)
    allotment.observe(1.0, mark, (60, 29, 31.0))
    assert allotment.left(1.0) == 24


def test_a_stale_answer_changes_nothing() -> None:
    allotment = heard(60, 30, 30.0)
    allotment.take(1.0, 1)
    older = allotment.taken
    allotment.take(1.0, 1)
    allotment.observe(2.0, allotment.taken, (30, 10, 40.0))
    allotment.observe(2.1, older, (60, 59, 1.0))
    assert (allotment.announced, allotment.left(2.0)) == (30, 10)


def test_what_was_never_sent_is_given_back() -> None:
    allotment = heard(60, 30, 30.0)
    allotment.take(0.0, 4)
    allotment.give_back(0.0, 4)
    assert (allotment.left(0.0), allotment.meter.reading(0.0)) == (30, 0)


def test_after_a_minute_without_a_word_one_call_asks_again() -> None:
    allotment = heard(60, 0, 86_400.0)
    assert allotment.wait(59.9, 1) == pytest.approx(0.1)
    assert allotment.wait(60.0, 1) == 0
    allotment.take(60.0, 1)
    assert allotment.wait(60.0, 1) == pytest.approx(5.0)
    assert allotment.wait(65.0, 1) == 0


def test_an_old_word_that_said_yes_makes_nobody_wait() -> None:
    allotment = heard(60, 60, 0.0)
    for _ in range(10):
        assert allotment.wait(3600.0, 1) == 0
        allotment.take(3600.0, 1)


def test_a_limit_that_the_provider_raises_is_followed_where_nothing_is_configured() -> None:
    allotment = heard(60, 0, 60.0)
    for _ in range(50):
        allotment.take(0.0, 1)
    assert allotment.refused(0.0, 1, 1.0)
    assert allotment.allowance == pytest.approx(0.7 * 49)
    allotment.observe(1.0, allotment.taken, (200, 199, 0.3))
    assert allotment.ceiling == 200
    assert allotment.allowance == pytest.approx(0.7 * 49)
    for second in range(600):
        allotment.take(second, 10)
        allotment.answered(second)
    assert allotment.allowance == 200
    assert allotment.aimd is None


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
    allotment, now = Allotment("tokens_per_minute", configured), 0.0
    for verb, later, amount, told in moves:
        now += later
        match verb:
            case "observe":
                allotment.observe(now, max(0, allotment.taken - amount), told)
            case "refused":
                allotment.refused(now, amount, later)
            case "answered":
                allotment.answered(now)
            case "wait":
                assert 0 <= allotment.wait(now, amount) <= 60 * 750 or allotment.aimd is not None
            case "give_back":
                allotment.give_back(now, min(amount, allotment.taken))
            case _:
                allotment.take(now, amount)
        bounds = [bound for bound in (configured, allotment.announced) if bound is not None]
        if bounds:
            assert allotment.allowance is not None
            assert 0 < allotment.allowance <= min(bounds)
        assert allotment.meter.reading(now) >= 0
        left = allotment.left(now)
        assert left is None or 0 <= left <= (math.inf if allotment.announced is None else allotment.announced)
        assert math.isfinite(allotment.wait(now, amount))
