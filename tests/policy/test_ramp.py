"""How fast traffic may grow, and what stops it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.ramp import Ramp, RampPolicy, Signals, Thresholds, Warmup

POLICY = RampPolicy(floor=100.0)
FAR = 1e12


def test_a_cold_channel_is_allowed_the_floor() -> None:
    assert Ramp(POLICY).allowed(0.0, FAR) == 100.0


def test_the_cap_is_never_exceeded() -> None:
    ramp = Ramp(POLICY)
    ramp.used(0.0, 500.0)
    assert ramp.allowed(0.0, 300.0) == 300.0


def test_a_rate_may_grow_by_half_in_fifteen_minutes() -> None:
    ramp = Ramp(POLICY)
    ramp.used(0.0, 1000.0)
    assert ramp.allowed(0.0, FAR) == pytest.approx(1000.0)
    assert ramp.allowed(450.0, FAR) == pytest.approx(1000.0 * 1.5**0.5)
    assert ramp.allowed(900.0, FAR) == pytest.approx(1500.0)


def test_a_peak_is_forgotten_after_its_period() -> None:
    ramp = Ramp(POLICY)
    ramp.used(0.0, 1000.0)
    ramp.used(600.0, 300.0)
    assert ramp.allowed(901.0, FAR) == pytest.approx(300.0 * 1.5 ** (301 / 900))
    assert ramp.allowed(2000.0, FAR) == 100.0


@given(st.lists(st.floats(1, 400), min_size=1, max_size=60))
def test_nobody_outgrows_the_ramp_however_he_times_it(pauses: list[float]) -> None:
    """Using all that is allowed whenever it pleases compounds to no more than the growth itself."""
    ramp, now = Ramp(POLICY), 0.0
    for pause in pauses:
        ramp.used(now, ramp.allowed(now, FAR))
        now += pause
        assert ramp.allowed(now, FAR) <= 100.0 * 1.5 ** (now / 900) * (1 + 1e-9)
    assert len(ramp._peaks) <= len(pauses)


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(0, 1e6)), max_size=60))
def test_what_was_reached_within_the_period_stays_allowed(history: list[tuple[float, float]]) -> None:
    ramp, now, reached = Ramp(POLICY), 0.0, list[tuple[float, float]]()
    for pause, rate in history:
        now += pause
        ramp.used(now, rate)
        reached.append((now, rate))
        recent = [rate for when, rate in reached if when > now - 900]
        assert ramp.allowed(now, FAR) >= max([100.0, *recent]) * (1 - 1e-9)


def test_a_pause_holds_the_level_and_growth_goes_on_from_there() -> None:
    ramp = Ramp(POLICY)
    ramp.used(0.0, 1000.0)
    ramp.pause(450.0, "429s")
    level = 1000.0 * 1.5**0.5
    assert ramp.allowed(5000.0, FAR) == pytest.approx(level)
    ramp.pause(6000.0, "queue")
    assert "queue" in str(ramp.paused)
    ramp.resume(9000.0)
    assert not ramp.paused
    assert ramp.allowed(9000.0, FAR) == pytest.approx(level)
    assert ramp.allowed(9900.0, FAR) == pytest.approx(level * 1.5)


def test_resuming_what_is_not_paused_changes_nothing() -> None:
    ramp = Ramp(POLICY)
    ramp.used(0.0, 1000.0)
    ramp.resume(450.0)
    assert ramp.allowed(900.0, FAR) == pytest.approx(1500.0)


def test_a_pause_does_not_hold_a_channel_above_a_lower_cap() -> None:
    ramp = Ramp(POLICY)
    ramp.used(0.0, 1000.0)
    ramp.pause(0.0, "429s")
    assert ramp.allowed(1.0, 250.0) == 250.0


@pytest.mark.parametrize(
    "age, share", [(-1.0, 0.1), (0.0, 0.1), (6.0, 0.1), (30.0, 0.5), (59.9, 59.9 / 60), (60.0, 1.0), (1e9, 1.0)]
)
def test_a_channel_warms_up_linearly(age: float, share: float) -> None:
    assert Warmup().share(age) == pytest.approx(share)


def test_aggression_grows_faster_at_first() -> None:
    assert Warmup(aggression=2.0).share(15.0) == pytest.approx(0.5)


CALM = Signals(calls=100)
THRESHOLDS = Thresholds(rate_limited=0.05, fallbacks=0.1, queued=50, p95=2.0)


@pytest.mark.parametrize("seen", [CALM, CALM._replace(rate_limited=5, fallbacks=10, queued=50, p95=2.0), Signals()])
def test_what_is_at_a_threshold_has_not_passed_it(seen: Signals) -> None:
    assert THRESHOLDS.breach(seen) is None


@pytest.mark.parametrize(
    "seen, words",
    [
        (CALM._replace(rate_limited=6), "6 of 100 calls were refused by the provider, more than 5%"),
        (CALM._replace(fallbacks=11), "11 of 100 calls were answered by a fallback, more than 10%"),
        (CALM._replace(queued=51), "51 calls are waiting, more than 50"),
        (CALM._replace(p95=2.5), "p95 latency is 2.50 s, more than 2.00 s"),
        (Signals(queued=51), "51 calls are waiting, more than 50"),
    ],
)
def test_a_passed_threshold_is_named_with_both_figures(seen: Signals, words: str) -> None:
    assert THRESHOLDS.breach(seen) == words


def test_shares_of_a_few_calls_mean_nothing() -> None:
    assert THRESHOLDS.breach(Signals(calls=19, rate_limited=19, fallbacks=19, p95=99.0)) is None


def test_a_threshold_that_is_not_set_asks_nothing() -> None:
    assert Thresholds(None, None).breach(Signals(1000, 1000, 1000, 1000, 1000.0)) is None
