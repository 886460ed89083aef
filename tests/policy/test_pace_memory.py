"""What was learned of a provider's limits, kept and taken up again: with its age, and never above what is configured."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.governor import Ceiling, Governor
from trioproxy.policy.limits import Need
from trioproxy.policy.pace import Pace, Sent
from trioproxy.policy.ramp import Ramp, RampPolicy, Warmup
from trioproxy.policy.throttle import Short

CALL = Need(1, 100, 0, 100)
TOLD = [
    (b"x-ratelimit-limit-requests", b"60"),
    (b"x-ratelimit-remaining-requests", b"2"),
    (b"x-ratelimit-reset-requests", b"58s"),
]


def again(pace: Pace, now: float, *, new: Pace | None = None, at: float = 0.0, age: float = 0.0) -> Pace:
    """Through a store and back: `at` is the new process's clock."""
    restored = new or Pace("openai", pace.configured)
    restored.restore(json.loads(json.dumps(pace.snapshot(now))), at, age)
    return restored


def sent(pace: Pace, now: float) -> Sent:
    entered = pace.enter("m", CALL, now, alone=True)
    assert isinstance(entered, Sent), entered
    return entered


def test_a_restart_does_not_ask_a_provider_that_has_said_how_little_is_left() -> None:
    pace = Pace("openai")
    pace.heard("m", sent(pace, 100.0), TOLD, now=100.0, wall=0.0)
    sent(pace, 100.0), sent(pace, 100.0)
    assert isinstance(pace.enter("m", CALL, 100.0, alone=True), Short)
    after = again(pace, 100.0, at=5.0)
    short = after.enter("m", CALL, 5.0, alone=True)
    assert isinstance(short, Short)
    assert (short.rule, short.name) == ("provider", "requests_per_minute")
    assert short.wait == pytest.approx(1.0, abs=0.01)


def test_what_has_refilled_meanwhile_is_there() -> None:
    pace = Pace("openai")
    pace.heard("m", sent(pace, 100.0), TOLD, now=100.0, wall=0.0)
    sent(pace, 100.0), sent(pace, 100.0)
    after = again(pace, 100.0, at=-7.0, age=3.0)
    for _ in range(3):
        sent(after, -7.0)
    assert isinstance(after.enter("m", CALL, -7.0, alone=True), Short)


def test_what_a_refusal_has_taught_is_not_learned_by_another_one() -> None:
    pace = Pace("other", {"requests_per_minute": 100.0})
    calls = [sent(pace, 50.0) for _ in range(41)]
    (change,) = pace.refused("m", calls[-1], 50.0, None)
    assert change.limit == pytest.approx(28.0)
    after = again(pace, 50.0, at=1000.0)
    (reading,) = after.statistics(1000.0).lanes
    assert (reading.tried, reading.allowance) == (change.limit, change.limit)
    assert isinstance(after.enter("m", CALL, 1000.0, alone=True), Short)  # 40 are in this minute already
    sent(after, 1060.0)


def test_a_lower_limit_of_ours_bounds_what_is_remembered() -> None:
    pace = Pace("other", {"requests_per_minute": 100.0})
    calls = [sent(pace, 50.0) for _ in range(81)]
    pace.refused("m", calls[-1], 50.0, None)
    after = again(pace, 50.0, new=Pace("other", {"requests_per_minute": 10.0}))
    assert after.statistics(0.0).lanes[0].allowance == 10.0


def test_nothing_learned_is_nothing_kept() -> None:
    pace = Pace("openai", {"requests_per_minute": 100.0})
    sent(pace, 0.0)
    assert pace.snapshot(1.0) == {"learned": {}, "grown": None}
    assert again(Pace("openai"), 0.0).free


@pytest.mark.parametrize(
    "told", [{}, {"learned": {"m": [["requests_per_minute", "", {}]]}, "grown": None}, {"learned": 1}]
)
def test_what_is_no_snapshot_is_refused(told: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Pace("openai").restore(told, 0.0, 0.0)


def growing() -> Governor:
    ramp = Ramp(RampPolicy(floor=10.0, growth=2.0, period=60.0))
    return Governor((Ceiling("requests_per_minute", 0, ramp),), Warmup(window=100.0, least=0.1))


def test_a_channel_that_was_warming_up_goes_on_from_where_it_was() -> None:
    pace = Pace("other", {}, growing())
    governor = pace.governor
    assert governor is not None
    governor.recovered(100.0)
    assert governor.share(140.0) == pytest.approx(0.4)
    after = again(pace, 140.0, new=Pace("other", {}, growing()), at=3.0, age=500.0).governor
    assert after is not None
    assert after.share(3.0) == pytest.approx(0.4)
    assert after.share(63.0) == 1.0


@given(st.floats(0, 50), st.floats(0, 100), st.floats(-1e6, 1e6))
def test_growth_goes_on_from_what_was_reached_as_if_the_process_had_lived(used: float, age: float, at: float) -> None:
    pace = Pace("other", {}, growing())
    governor = pace.governor
    assert governor is not None
    governor.ceilings[0].ramp.used(100.0, used)
    after = again(pace, 130.0, new=Pace("other", {}, growing()), at=at, age=age).governor
    assert after is not None
    lived = governor.ceilings[0].ramp.allowed(130.0 + age, 1e9)
    assert after.ceilings[0].ramp.allowed(at, 1e9) == pytest.approx(lived, rel=1e-6)
    assert after.ceilings[0].limit == pytest.approx(lived, rel=1e-6)
