"""When an alert is told: once per matter and period, and its end once."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioproxy.journal import AlertCause, AlertTold
from trioproxy.policy.alerting import BEYOND, LONGEST, MOST, SEVERITIES, SEVERITY, Matters, Rhythm

OPEN, BUDGET = AlertCause.BREAKER_OPEN, AlertCause.BUDGET_NEARING
RHYTHM = Rhythm(every=100.0, remind=1000.0, calm=10.0)


def matters(rhythm: Rhythm = RHYTHM) -> Matters:
    return Matters(rhythm)


def said(alerts: list[AlertTold]) -> list[tuple[str, str, int]]:
    return [(alert.subject, alert.state, alert.count) for alert in alerts]


def test_a_matter_is_told_at_the_next_tick_and_its_end_when_it_stays_away() -> None:
    book = matters()
    book.begin(OPEN, "a", "it is open", 5.0)
    assert book.tick(5.5) == [AlertTold(OPEN, "a", "warning", "raised", "it is open", 1, 5.0, 5.5)]
    book.end(OPEN, "a", 20.0)
    assert book.tick(29.999) == []
    assert book.tick(30.0) == [AlertTold(OPEN, "a", "warning", "recovered", "it is open", 0, 5.0, 30.0)]
    assert book.tick(31.0) == []


def test_what_comes_back_within_the_calm_is_the_same_matter() -> None:
    book = matters()
    book.begin(OPEN, "a", "", 0.0)
    assert len(book.tick(0.0)) == 1
    for now in (5.0, 14.0, 23.0):
        book.end(OPEN, "a", now)
        assert book.tick(now + 4) == []
        book.begin(OPEN, "a", "", now + 5)
        assert book.tick(now + 5) == []
    book.end(OPEN, "a", 40.0)
    assert said(book.tick(50.0)) == [("a", "recovered", 3)]


def test_what_comes_again_in_the_period_is_told_when_the_period_is_over_if_it_lasts() -> None:
    book = matters()
    book.begin(OPEN, "a", "", 0.0)
    book.tick(0.0)
    book.end(OPEN, "a", 1.0)
    assert said(book.tick(11.0)) == [("a", "recovered", 0)]
    book.begin(OPEN, "a", "", 50.0)
    assert book.tick(99.999) == []
    (alert,) = book.tick(100.0)
    assert (alert.state, alert.count, alert.since) == ("raised", 1, 50.0)


def test_what_came_and_went_in_the_period_is_counted_in_the_next() -> None:
    book = matters()
    for now in (0.0, 10.0, 20.0, 30.0):
        book.begin(BUDGET, "k", "", now, lasting=False)
        book.tick(now)
    assert book.tick(100.0) == []
    book.begin(BUDGET, "k", "", 150.0, lasting=False)
    assert said(book.tick(150.0)) == [("k", "raised", 4)]


def test_what_lasts_is_reminded_of() -> None:
    book = matters()
    book.begin(OPEN, "a", "", 0.0)
    told = [now for now in range(2500) if book.tick(float(now))]
    assert told == [0, 1000, 2000]


def test_what_does_not_last_has_no_end() -> None:
    book = matters()
    book.begin(BUDGET, "k", "", 0.0, lasting=False)
    assert said([alert for now in range(500) for alert in book.tick(float(now))]) == [("k", "raised", 1)]


def test_what_ended_between_two_ticks_is_told_all_the_same() -> None:
    book = matters()
    book.begin(OPEN, "a", "", 0.1)
    book.end(OPEN, "a", 0.2)
    assert said(book.tick(1.0)) == [("a", "raised", 1)]
    assert said(book.tick(10.2)) == [("a", "recovered", 0)]


def test_a_quiet_end_tells_nothing() -> None:
    book = matters()
    book.begin(OPEN, "a", "", 0.0)
    book.tick(0.0)
    book.end(OPEN, "a", 1.0, quietly=True)
    assert [alert for now in range(500) for alert in book.tick(float(now))] == []


def test_the_end_of_what_never_began_is_nothing() -> None:
    book = matters()
    book.end(OPEN, "a", 0.0)
    assert book.tick(1.0) == []


def test_a_flood_of_subjects_is_one_matter_more() -> None:
    book = matters()
    for number in range(10 * MOST):
        book.begin(OPEN, f"name-{number}", "", 0.0)
    told = book.tick(0.0)
    assert len(told) == MOST + 1
    assert (told[-1].subject, told[-1].count) == (BEYOND, 9 * MOST)
    for number in range(10 * MOST):
        book.end(OPEN, f"name-{number}", 1.0)
    assert {alert.state for alert in book.tick(11.0)} == {"recovered"}
    book.tick(100_000.0)
    assert len(book._open) == 0, "what is over is forgotten"


def test_a_long_subject_is_cut_and_still_ends() -> None:
    book = matters()
    book.begin(OPEN, "x" * 10_000, "", 0.0)
    assert len(book.tick(0.0)[0].subject) == LONGEST
    book.end(OPEN, "x" * 10_000, 1.0)
    assert [alert.state for alert in book.tick(11.0)] == ["recovered"]


def test_every_cause_has_a_severity() -> None:
    assert {SEVERITY[cause] for cause in AlertCause} == set(SEVERITIES)


@pytest.mark.parametrize("field", ["every", "remind"])
def test_a_rhythm_without_a_pause_is_no_rhythm(field: str) -> None:
    with pytest.raises(ValueError, match="must be > 0"):
        Rhythm(**{field: 0.0})


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "moment", "end", "quiet", "wait"]),
        st.sampled_from(["a", "b"]),
        st.floats(0, 60, allow_nan=False),
    ),
    max_size=120,
)


@settings(max_examples=300)
@given(STEPS, st.sampled_from([RHYTHM, Rhythm(30.0, 5.0, 0.0), Rhythm(1.0, 1.0, 100.0)]))
def test_in_any_order_one_alert_a_period_and_every_end_after_its_beginning(
    steps: list[tuple[str, str, float]], rhythm: Rhythm
) -> None:
    book, now = matters(rhythm), 0.0
    last, owing = {"a": -math.inf, "b": -math.inf}, {"a": False, "b": False}
    lasts = {"a": False, "b": False}
    for verb, subject, seconds in [*steps, ("end", "a", 0.0), ("end", "b", 0.0), ("wait", "a", 1e4)]:
        if verb in {"begin", "moment"}:
            book.begin(OPEN, subject, "", now, lasting=verb == "begin")
            lasts[subject] = verb == "begin"
        elif verb in {"end", "quiet"}:
            book.end(OPEN, subject, now, quietly=verb == "quiet")
            lasts[subject] = False
        now += seconds
        for alert in book.tick(now):
            if alert.state == "raised":
                assert now - last[alert.subject] >= rhythm.every
                assert alert.count >= 1 or lasts[alert.subject], "what is told has happened, or lasts"
                last[alert.subject], owing[alert.subject] = now, True
            else:
                assert owing[alert.subject], "an end follows a beginning, and only once"
                assert not lasts[alert.subject]
                owing[alert.subject] = False
            assert alert.since <= alert.now == now
    assert not any(matter.owed for matter in book._open.values()), "no end is forgotten"
