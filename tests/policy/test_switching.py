"""Switches: what is read of a channel, what a switch changed, and when a limit is one."""

import pytest

from trioproxy.journal import Reading, SwitchWeighed, Usage
from trioproxy.policy.switching import LIMITED, WEIGHED_AFTER, WEIGHED_CALLS, Switching, Totals

WARM, COLD = Usage(200, 800, 100), Usage(1000, 0, 100)


def test_a_reading_is_the_sums_of_its_calls() -> None:
    totals = Totals(0.0)
    totals.note(WARM, 440, 0.5)
    totals.note(COLD, 1100, 1.5)
    totals.note(COLD, None, 1.0)  # of unknown cost: no part of the unit cost
    assert totals.reading() == Reading(3, 800 / 3000, 1.0, 1540 * 1000 / 2200)


def test_nothing_seen_is_nothing_told() -> None:
    assert Switching("m", "a").reading("a", 0.0) == Reading(0, None, None, None)
    assert Switching("m", "a").readings(0.0) == {}


def test_a_reading_looks_back_five_minutes() -> None:
    switching = Switching("m", "a")
    for minute in range(10):
        switching.answered("a", minute * 60.0, 1.0, (WARM, 100))
    assert switching.reading("a", 541.0).calls == 5
    assert switching.reading("a", 700.0).calls == 3  # those of 420, 480 and 540
    assert switching.reading("a", 2000.0) == Reading()


def test_a_switch_is_weighed_after_enough_calls() -> None:
    switching = Switching("m", "a")
    for number in range(50):
        switching.answered("a", float(number), 0.5, (WARM, 440))
    assert switching.move("b", 60.0) is None
    told = [switching.answered("b", 60.0 + number, 2.0, (COLD, 2200)) for number in range(WEIGHED_CALLS)]
    assert told[:-1] == [None] * (WEIGHED_CALLS - 1)
    assert told[-1] == SwitchWeighed(
        "m",
        "a",
        "b",
        Reading(50, 0.8, 0.5, 400.0),
        Reading(WEIGHED_CALLS, 0.0, 2.0, 2000.0),
        59.0 + WEIGHED_CALLS + 2.0,
    )
    assert switching.answered("b", 900.0, 2.0, (COLD, 2200)) is None  # once


def test_or_after_enough_time() -> None:
    switching = Switching("m", "a")
    switching.move("b", 60.0)
    assert switching.answered("b", 70.0, 1.0, (COLD, 1)) is None
    weighed = switching.answered("b", 60.0 + WEIGHED_AFTER, 0.0, (COLD, 1))
    assert weighed is not None
    assert (weighed.before, weighed.after.calls) == (Reading(), 2)


def test_the_next_switch_weighs_the_one_before() -> None:
    switching = Switching("m", "a")
    switching.move("b", 60.0)
    switching.answered("b", 70.0, 1.0, (COLD, 1))
    weighed = switching.move("a", 80.0)
    assert weighed is not None
    assert (weighed.was, weighed.channel, weighed.after.calls) == ("a", "b", 1)
    assert switching.move("b", 90.0) is None  # nothing followed


def test_what_began_before_the_switch_does_not_speak_for_it() -> None:
    switching = Switching("m", "a")
    switching.move("b", 60.0)
    switching.answered("b", 59.0, 30.0, (COLD, 1))
    switching.answered("a", 61.0, 1.0, (COLD, 1))
    assert switching.move("a", 80.0) is None


def test_a_limit_is_a_switch_when_it_stands_in_the_way_for_long_enough() -> None:
    switching = Switching("m", "a")
    assert [switching.asked(limited=True) for _ in range(LIMITED)] == [False] * (LIMITED - 1) + [True]
    switching.move("b", 1.0)
    assert not any(switching.asked(limited=n % 2 == 0) for n in range(51))  # now and then: no change
    assert [switching.asked(limited=False) for _ in range(LIMITED)].index(True) == LIMITED - 1


@pytest.mark.parametrize("calls", [LIMITED - 1, 3])
def test_a_few_calls_that_a_limit_turned_away_are_none(calls: int) -> None:
    switching = Switching("m", "a")
    seen = [switching.asked(limited=limited) for _ in range(20) for limited in [True] * calls + [False]]
    assert not any(seen)
