"""The plan of intended send times: as many as the profile says, where it says, whatever the spacing."""

import random
from itertools import pairwise

import pytest

from bench import arrivals
from bench.arrivals import Segment, Spacing


def test_a_profile_is_segments_of_rate_and_time() -> None:
    assert arrivals.parse("100x10, 100-500x20") == (Segment(100, 100, 10), Segment(100, 500, 20))


@pytest.mark.parametrize("profile", ["", "100", "x10", "100x", "1-2-3x4", "100x0"])
def test_a_wrong_profile_is_named(profile: str) -> None:
    with pytest.raises(ValueError, match="no segment"):
        arrivals.parse(profile)


def test_constant_spacing_is_even() -> None:
    times = list(arrivals.schedule(arrivals.parse("10x1"), "constant", random.Random(1)))
    assert times == pytest.approx([n / 10 for n in range(10)])


def test_a_ramp_puts_its_calls_where_the_rate_is() -> None:
    """From 0 to 100 calls a second in 2 s: 100 calls, a quarter of them in the first half."""
    times = list(arrivals.schedule(arrivals.parse("0-100x2"), "constant", random.Random(1)))
    assert len(times) == 100
    assert sum(time < 1.0 for time in times) == 25


@pytest.mark.parametrize("spacing", ["constant", "poisson"])
@pytest.mark.parametrize("profile", ["200x5", "0-400x5", "400-0x5", "50x2,2000x0.4,50x2"])
def test_times_rise_inside_the_profile_and_are_as_many_as_it_expects(profile: str, spacing: Spacing) -> None:
    segments = arrivals.parse(profile)
    times = list(arrivals.schedule(segments, spacing, random.Random(7)))
    expected = sum(segment.calls for segment in segments)
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert times[0] >= 0
    assert times[-1] <= arrivals.length(segments)
    assert len(times) == pytest.approx(expected, rel=0.15 if spacing == "poisson" else 0.002)


def test_poisson_gaps_have_the_spread_of_their_mean() -> None:
    times = list(arrivals.schedule(arrivals.parse("100x100"), "poisson", random.Random(3)))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.1)
