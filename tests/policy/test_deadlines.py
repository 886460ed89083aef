"""Deadlines: the tightest bound wins, an SDK's own timeout bounds the start only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.deadlines import Deadlines


@pytest.mark.parametrize(
    ("wanted", "first_byte", "start", "total"),
    [
        (None, None, 1600.0, 1600.0),
        (10.0, None, 1010.0, 1010.0),
        (9000.0, None, 1600.0, 1600.0),  # a caller cannot ask for more than the class gives
        (None, 20.0, 1020.0, 1600.0),
        (None, 9000.0, 1600.0, 1600.0),
        (10.0, 20.0, 1010.0, 1010.0),
        (20.0, 10.0, 1010.0, 1020.0),
    ],
)
def test_the_tightest_bound_wins(wanted: float | None, first_byte: float | None, start: float, total: float) -> None:
    assert Deadlines.of(1000.0, total=600.0, wanted=wanted, first_byte=first_byte) == Deadlines(start, total)


positive = st.floats(min_value=0.001, max_value=1e6)


@given(positive, st.none() | positive, st.none() | positive)
def test_the_start_is_never_after_the_total_and_no_bound_is_exceeded(
    total: float, wanted: float | None, first_byte: float | None
) -> None:
    deadlines = Deadlines.of(0.0, total=total, wanted=wanted, first_byte=first_byte)
    assert 0 < deadlines.start <= deadlines.total <= total
    assert wanted is None or deadlines.total <= wanted
    assert first_byte is None or deadlines.start <= first_byte
