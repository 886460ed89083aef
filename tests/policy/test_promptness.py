"""What counts as silence: never a caller's short deadline, always a channel that keeps quiet longer than it ever does."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.promptness import Promptness, Tally


def prompt(seconds: float, count: int, *, streamed: bool, silence: float = 10.0) -> Promptness:
    """A channel whose answers in this form all took so long, long ago."""
    subject = Promptness(silence)
    for _ in range(count):
        subject.answered(seconds, 0.0, streamed=streamed)
    return subject


@pytest.mark.parametrize(
    ("subject", "streamed", "patience"),
    [
        (Promptness(10.0), True, 10.0),
        (Promptness(10.0), False, 30.0),  # nobody knows yet how long whole answers take
        (prompt(0.5, 20, streamed=True), True, 10.0),
        (prompt(0.5, 20, streamed=False), False, 10.0),
        (prompt(0.5, 20, streamed=True), False, 30.0),  # the other form teaches nothing
        (prompt(40.0, 19, streamed=False), False, 30.0),  # too few to tell
        (prompt(40.0, 20, streamed=False), False, 80.0),
        (prompt(8.0, 20, streamed=True), True, 16.0),
        (Promptness(0.0), True, math.inf),
        (prompt(1.0, 20, streamed=True, silence=0.0), True, math.inf),
    ],
)
def test_patience(subject: Promptness, streamed: bool, patience: float) -> None:
    """Never less than `silence`; a quantile is told at most a tenth above the exact one."""
    told = subject.patience(streamed=streamed)
    assert patience <= told <= patience * 1.1 or told == patience


def test_only_what_lasted_as_long_as_patience_is_silence() -> None:
    subject = Promptness(10.0)
    assert not subject.swallowed(100.0, 109.9, streamed=True)
    assert subject.swallowed(100.0, 110.0, streamed=True)


def test_while_others_hear_from_the_channel_it_is_not_silent() -> None:
    subject = prompt(0.5, 20, streamed=True)
    subject.heard = 105.0
    assert not subject.swallowed(100.0, 160.0, streamed=True)
    assert subject.swallowed(106.0, 160.0, streamed=True)


@given(st.lists(st.floats(0.001, 600.0), max_size=60), st.booleans(), st.floats(0.0, 9.999))
def test_a_deadline_below_silence_is_never_evidence(times: list[float], streamed: bool, waited: float) -> None:
    subject = Promptness(10.0)
    for seconds in times:
        subject.answered(seconds, 0.0, streamed=streamed)
    assert not subject.swallowed(1.0, 1.0 + waited, streamed=streamed)


@given(st.lists(st.floats(0.001, 600.0), min_size=20, max_size=60), st.booleans())
def test_what_is_usual_at_the_channel_is_never_evidence(times: list[float], streamed: bool) -> None:
    subject = Promptness(10.0)
    for seconds in times:
        subject.answered(seconds, 0.0, streamed=streamed)
    assert not subject.swallowed(1.0, 1.0 + sorted(times)[len(times) // 2], streamed=streamed)


def test_p95_is_told_in_seconds_and_not_before_anything_is_known() -> None:
    assert Promptness().p95(streamed=True) is None
    assert prompt(2.0, 5, streamed=True).p95(streamed=True) == pytest.approx(2.0, rel=0.1)
    assert prompt(2.0, 5, streamed=True).p95(streamed=False) is None


def test_a_success_rate_needs_something_to_be_a_rate_of() -> None:
    assert Tally().success_rate is None
    assert Tally(3, 1).success_rate == 0.75
