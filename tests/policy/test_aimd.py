"""A limit found by trying: exact steps, and bounds that always hold."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.aimd import Aimd, AimdPolicy, shortfall

POLICY = AimdPolicy(configured=1000.0, floor=10.0)


def test_it_begins_at_what_is_configured() -> None:
    assert Aimd(POLICY).limit == 1000.0


@pytest.mark.parametrize(
    "used, remaining, limit",
    [
        (600.0, None, 420.0),
        (600.0, 0.0, 420.0),
        (600.0, 5.0, 510.0),
        (4000.0, None, 700.0),
        (1.0, None, 10.0),
        (-1.0, None, 10.0),
    ],
)
def test_a_refusal_lowers_it_from_what_was_used(used: float, remaining: float | None, limit: float) -> None:
    """Not from a limit that nobody reached; and never from more than the limit."""
    aimd = Aimd(POLICY)
    assert aimd.refused(0.0, used, quiet=1.0, remaining=remaining)
    assert aimd.limit == pytest.approx(limit)


def test_a_burst_of_refusals_is_one_piece_of_news() -> None:
    aimd = Aimd(POLICY)
    assert [aimd.refused(at, 1000.0, quiet=2.0) for at in (0.0, 0.5, 1.9, 2.0, 3.9)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert aimd.limit == pytest.approx(490.0)


def test_it_climbs_by_a_hundredth_a_second_while_it_is_used() -> None:
    aimd = Aimd(POLICY)
    aimd.refused(0.0, 500.0, quiet=0.0)
    for tenth in range(101):
        aimd.answered(tenth / 10, 0.8)
    assert aimd.limit == pytest.approx(350.0 + 10 * 10.0)


def test_idle_time_earns_nothing() -> None:
    aimd = Aimd(POLICY)
    aimd.refused(0.0, 500.0, quiet=0.0)
    aimd.answered(0.0, 0.9)
    aimd.answered(3600.0, 0.9)  # an hour without a call is one second at most
    assert aimd.limit == pytest.approx(360.0)
    aimd.answered(3600.5, 0.79)
    aimd.answered(3601.0, 0.9)
    assert aimd.limit == pytest.approx(360.0)


def test_the_providers_limit_caps_it_and_a_higher_one_does_not_raise_it() -> None:
    aimd = Aimd(POLICY)
    aimd.announced(200.0)
    assert aimd.limit == 200.0
    aimd.announced(5000.0)
    for second in range(500):
        aimd.answered(float(second), 1.0)
    assert aimd.limit == 1000.0


def test_an_announced_limit_below_the_floor_is_obeyed() -> None:
    aimd = Aimd(POLICY)
    aimd.announced(3.0)
    assert aimd.limit == 3.0


@pytest.mark.parametrize("limit", [None, math.nan, math.inf, 0.0, -5.0])
def test_no_sensible_limit_is_no_limit(limit: float | None) -> None:
    aimd = Aimd(POLICY)
    aimd.announced(200.0)
    aimd.announced(limit)
    aimd.answered(0.0, 1.0)
    aimd.answered(1.0, 1.0)
    assert aimd.limit == pytest.approx(210.0)


steps = st.one_of(
    st.tuples(st.just("refused"), st.floats(0, 1e6), st.floats(0, 60)),
    st.tuples(st.just("answered"), st.floats(0, 2), st.just(0.0)),
    st.tuples(st.just("announced"), st.floats(1, 1e6), st.just(0.0)),
)


@given(st.lists(st.tuples(st.floats(0, 100), steps), max_size=60))
def test_it_never_exceeds_what_is_configured_or_announced(
    history: list[tuple[float, tuple[str, float, float]]],
) -> None:
    aimd, now, ceiling = Aimd(POLICY), 0.0, 1000.0
    for pause, (what, value, quiet) in history:
        now += pause
        if what == "refused":
            before = aimd.limit
            aimd.refused(now, value, quiet=quiet)
            assert aimd.limit <= before or before < POLICY.floor
        elif what == "answered":
            aimd.answered(now, value)
        else:
            aimd.announced(value)
            ceiling = min(1000.0, value)
        assert min(POLICY.floor, ceiling) <= aimd.limit <= ceiling


@pytest.mark.parametrize(
    "need, remaining, held, per_minute, seconds",
    [
        (100, 500, 0, 6000, 0.0),
        (100, 500, 450, 6000, 0.5),
        (600, 0, 0, 6000, 6.0),
        (600, 0, 100, 6000, 7.0),
        (6001, 0, 0, 6000, math.inf),
        (1, 0, 0, 0, math.inf),
        (0, 0, 0, 0, 0.0),
    ],
)
def test_the_wait_is_for_what_is_missing_and_not_for_a_full_bucket(
    need: float, remaining: float, held: float, per_minute: float, seconds: float
) -> None:
    assert shortfall(need, remaining, held, per_minute) == pytest.approx(seconds)
