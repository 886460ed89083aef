"""The comparison of two arms: what is worse, what is well, and when nothing may be said."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.comparison import Arm, Outcome, Tolerance, Verdict, compare, excess, worse

TOLERANCE = Tolerance(sample=100)


def arm(calls: int, refused: int = 0, failed: int = 0, seconds: float | None = 1.0, cost: int | None = 100) -> Arm:
    made = Arm()
    for number in range(calls):
        made.note(Outcome(number < refused, number < failed, seconds, cost))
    return made


@pytest.mark.parametrize(("candidate", "baseline"), [(0, 0), (99, 1000), (1000, 99)])
def test_nothing_is_said_of_few_calls_however_bad_they_are(candidate: int, baseline: int) -> None:
    verdict, why = compare(arm(candidate, refused=candidate), arm(baseline), TOLERANCE)
    assert verdict is Verdict.TOO_FEW
    assert why == f"not enough data: {candidate} calls of the candidate and {baseline} of the baseline, of 100 each"


@pytest.mark.parametrize("what", ["refused", "failed"])
def test_a_candidate_that_is_surely_worse_is_said_to_be(what: str) -> None:
    candidate, baseline = arm(100, **{what: 20}), arm(900, **{what: 9})
    told = f"20 of 100 calls {what}, 9 of 900 at the baseline"
    assert compare(candidate, baseline, TOLERANCE) == (Verdict.WORSE, told)
    assert worse(candidate, baseline, TOLERANCE) == told


def test_what_may_be_chance_is_neither_worse_nor_well() -> None:
    verdict, why = compare(arm(100, failed=6), arm(900, failed=9), TOLERANCE)
    assert (verdict, why) == (Verdict.UNSURE, "6 of 100 calls failed, 9 of 900 at the baseline: that may be chance")


def test_as_bad_as_the_baseline_is_well() -> None:
    assert compare(arm(200, failed=60, refused=20), arm(200, failed=60, refused=20), TOLERANCE)[0] is Verdict.WELL


def test_a_threshold_that_is_not_set_asks_nothing() -> None:
    careless = Tolerance(None, None, None, None, sample=1)
    assert compare(arm(100, 100, 100, 9.0, 900), arm(100), careless) == (Verdict.WELL, "")


def test_a_slower_candidate_is_told_by_its_p95() -> None:
    verdict, why = compare(arm(100, seconds=2.0), arm(100, seconds=1.0), TOLERANCE)
    assert (verdict, why) == (Verdict.DEARER, "p95 latency is 2.18 s, 2.00 times the baseline's")
    assert compare(arm(100, seconds=1.4), arm(100, seconds=1.0), TOLERANCE)[0] is Verdict.WELL


def test_a_dearer_candidate_is_told_by_its_mean() -> None:
    tolerance = evolve(TOLERANCE, cost=1.25)
    verdict, why = compare(arm(100, cost=150), arm(100), tolerance)
    assert (verdict, why) == (Verdict.DEARER, "a call costs 150 micro-USD, 1.50 times the baseline's")
    assert compare(arm(100, cost=125), arm(100), tolerance)[0] is Verdict.WELL
    assert compare(arm(100, cost=None), arm(100), tolerance)[0] is Verdict.WELL  # unknown is not dear


def test_the_interval_is_agresti_and_caffo_s() -> None:
    """(20+1)/(100+2) - (9+1)/(900+2) and three standard errors, by another program."""
    low, high = excess((20, 100), (9, 900))
    assert (low, high) == pytest.approx((0.074233, 0.315359), abs=1e-6)


counts = st.integers(0, 500).flatmap(lambda calls: st.tuples(st.integers(0, calls), st.just(calls)))


@given(counts, counts)
def test_the_interval_has_the_difference_in_its_middle_and_turns_with_the_arms(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    low, high = excess(one, other)
    assert low < high
    assert excess(other, one) == pytest.approx((-high, -low))


@given(st.lists(st.floats(0.001, 600), min_size=1, max_size=200))
def test_p95_is_a_bucket_s_width_at_most_above_the_exact_one(seconds: list[float]) -> None:
    made = Arm()
    for each in seconds:
        made.note(Outcome(seconds=each))
    exact = sorted(seconds)[-(-95 * len(seconds) // 100) - 1]
    assert made.p95 is not None
    assert exact <= made.p95 * (1 + 1e-9)
    assert made.p95 <= exact * 2 ** (1 / 8) * (1 + 1e-9)


def test_an_arm_without_figures_has_none() -> None:
    assert (Arm().p95, Arm().mean_cost) == (None, None)


@given(
    st.lists(
        st.builds(Outcome, st.booleans(), st.booleans(), st.none() | st.floats(0, 600), st.none() | st.integers(0))
    )
)
def test_an_arm_survives_its_snapshot(outcomes: list[Outcome]) -> None:
    made = Arm()
    for outcome in outcomes:
        made.note(outcome)
    back = Arm.restore(made.snapshot())
    assert back.snapshot() == made.snapshot()
    assert (back.p95, back.mean_cost) == (made.p95, made.mean_cost)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {**Arm().snapshot(), "calls": "7"},
        {**Arm().snapshot(), "buckets": 7},
        {**Arm().snapshot(), "buckets": {"x": 1}},
    ],
)
def test_what_is_no_snapshot_is_refused(told: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Arm.restore(told)


def test_a_tolerance_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^-1 is too little"):
        Tolerance(refusals=-1)
