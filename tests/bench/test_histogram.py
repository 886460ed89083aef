"""The histogram: quantiles as exact as it promises, whatever the range, and sums that equal one histogram of all."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.histogram import Histogram, bucket, middle

durations = st.lists(st.floats(min_value=0.0, max_value=1000.0), min_size=1, max_size=200)


def exact(values: list[float], share: float) -> float:
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


@given(values=durations, share=st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.999, 1.0]))
def test_a_quantile_is_right_to_one_part_in_a_thousand(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    assert histogram.quantile(share) == pytest.approx(exact(values, share), rel=1 / 1024, abs=2e-9)


@given(left=durations, right=durations)
def test_histograms_add_up(left: list[float], right: list[float]) -> None:
    whole, part, other = Histogram(), Histogram(), Histogram()
    for value in left:
        whole.record(value)
        part.record(value)
    for value in right:
        whole.record(value)
        other.record(value)
    part.add(other)
    assert (part.counts, part.total, part.highest) == (whole.counts, whole.total, whole.highest)


@given(value=st.integers(min_value=0, max_value=10**13))
def test_buckets_rise_with_values_and_hold_them(value: int) -> None:
    assert bucket(value) <= bucket(value + 1)
    assert middle(bucket(value)) == pytest.approx(value, rel=1 / 1024, abs=0.5)


def test_an_empty_histogram_has_no_quantiles() -> None:
    assert math.isnan(Histogram().quantile(0.5))


def test_a_curve_ends_with_everything() -> None:
    histogram = Histogram()
    for value in (0.1, 0.2, 0.3):
        histogram.record(value)
    shares = [share for _, share in histogram.curve()]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
