"""Retry-After: grammar, sign, unit, bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.retry_hint import date, duration, retry_after

NOW = 1_796_018_400.0  # Mon, 30 Nov 2026 06:00:00 GMT


def hint(*values: tuple[str, str]) -> float | None:
    return retry_after([(name.encode(), value.encode("latin-1")) for name, value in values], NOW, cap=600.0)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("-1", 0.0),
        ("1.5", 1.5),
        (" 2 ", 2.0),
        ("0", 0.0),
        ("Mon, 30 Nov 2026 05:00:00 GMT", 0.0),
        ("Mon, 30 Nov 2026 06:00:30 GMT", 30.0),
        ("Monday, 30-Nov-26 06:00:30 GMT", 30.0),
        ("Mon Nov 30 06:00:30 2026", 30.0),
        ("Sun Nov  6 08:49:37 1994", 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
        ("999999999", 600.0),
        ("6m0s", 360.0),
        ("abc", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("Mon, 31 Foo 2026 06:00:30 GMT", None),
        ("Mon, 31 Nov 2026 06:00:30 GMT", None),
        ("Mon, 30 Nov 2026 26:00:30 GMT", None),
        ("Monday, 31-Nov-26 06:00:30 GMT", None),
        ("Mon, 30 Nov 0000 06:00:30 GMT", None),
    ],
)
def test_every_form_of_the_header(value: str, seconds: float | None) -> None:
    assert hint(("Retry-After", value)) == seconds


def test_milliseconds_come_first_and_are_bounded_too() -> None:
    assert hint(("retry-after", "9"), ("Retry-After-Ms", "1500")) == 1.5
    assert hint(("retry-after-ms", "274579000")) == 600.0
    assert hint(("retry-after", "9"), ("retry-after-ms", "soon")) == 9.0


def test_of_duplicates_the_most_restrictive_counts() -> None:
    assert hint(("retry-after", "3"), ("retry-after", "x"), ("retry-after", "8"), ("retry-after", "5")) == 8.0


def test_no_header_is_no_hint() -> None:
    assert hint() is None
    assert hint(("x-retry", "5")) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("750ms", 0.75),
        ("1m2.5s", 62.5),
        ("2h", 7200.0),
        ("1d1s", 86_401.0),
        ("7.66s", 7.66),
        ("12", 12.0),
        ("-3", 0.0),
        ("", None),
        ("1x", None),
        ("s", None),
        ("1s2", None),
        ("1 s", None),
    ],
)
def test_durations_as_providers_write_them(text: str, seconds: float | None) -> None:
    assert duration(text) == (None if seconds is None else pytest.approx(seconds))


def test_two_digit_years_are_near_the_present() -> None:
    assert date("Monday, 30-Nov-26 06:00:00 GMT", NOW) == NOW
    assert date("Monday, 30-Nov-77 06:00:00 GMT", NOW) == pytest.approx(NOW - 49 * 365.25 * 86_400, abs=86_400)


@given(st.binary(max_size=40), st.floats(0, 2e9))
def test_no_header_value_is_an_exception_or_out_of_bounds(value: bytes, wall: float) -> None:
    for name in (b"retry-after", b"retry-after-ms"):
        wait = retry_after([(name, value)], wall, cap=600.0)
        assert wait is None or 0.0 <= wait <= 600.0
