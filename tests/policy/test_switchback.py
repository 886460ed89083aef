"""The way back: who has come back stays, shares grow as said, growth stops for trouble, and going out again begins anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.chain import Candidate, Chain, build
from trioproxy.policy.switchback import Return, Returning, SwitchBackPolicy

POLICY = SwitchBackPolicy(over=300.0, least=0.1)


def returning(policy: SwitchBackPolicy = POLICY, *channels: str, at: float = 0.0) -> Returning:
    made = Returning("m", policy)
    for channel in channels:
        made.left(channel)
        made.begin(channel, at)
    return made


def chain(names: str) -> Chain:
    return build([Candidate(name, f"{name}-model", "listed") for name in names], lambda _each: None, len(names))


def asked(made: Returning, names: str, key: str, now: float, limit: int = 9) -> str:
    cut = made.cut(made.order(chain(names), key, now), limit)
    return "".join(step.channel for step in cut.steps) + "|" + "".join(step.channel for step in cut.beyond)


def test_the_share_grows_in_a_straight_line_from_the_least_to_all() -> None:
    made = returning(POLICY, "a")
    assert [made.share("a", now) for now in (0, 29, 60, 150, 299, 300)] == [0.1, 0.1, 0.2, 0.5, 299 / 300, 1.0]
    assert made.share("b", 0) is None


@given(st.text(), st.lists(st.floats(0, 400), max_size=20))
def test_who_has_come_back_stays(key: str, times: list[float]) -> None:
    made = returning(POLICY, "a")
    back = [asked(made, "ab", key, now).startswith("a") for now in sorted(times)]
    assert back == sorted(back)


@given(st.text(), st.lists(st.tuples(st.floats(0, 50), st.sampled_from(["", "rate", "failed"])), max_size=60))
def test_who_has_come_back_stays_through_pauses(key: str, noted: list[tuple[float, str]]) -> None:
    made = returning(SwitchBackPolicy(300.0, 0.1, sample=2), "a")
    now, back = 0.0, []
    for wait, fault in noted:
        now += wait
        back.append(asked(made, "ab", key, now).startswith("a"))
        if "a" in made.channels:
            made.channels["a"].note(now, fault)
    assert back == sorted(back)


@given(st.floats(0, 299), st.floats(0, 60))
def test_no_step_is_larger_than_its_time(now: float, wait: float) -> None:
    """The share that comes within so many seconds is that time's part of the whole."""
    made = Return(POLICY)
    made.begin(0.0)
    assert 0 <= made.share(now + wait) - made.share(now) <= wait / 300 + 1e-9


def test_the_others_have_it_last_and_can_still_fail_over_to_it() -> None:
    made = returning(POLICY, "a")
    answers = {asked(made, "abcd", str(n), 150.0, limit=3) for n in range(200)}
    assert answers == {"abc|d", "bca|d"}


@given(st.sets(st.sampled_from("abcdef")), st.text(), st.floats(0, 299), st.integers(1, 6))
def test_nobody_is_lost_and_the_others_keep_their_order(out: set[str], key: str, now: float, limit: int) -> None:
    steps, _, beyond = asked(returning(POLICY, *sorted(out)), "abcdef", key, now, limit).partition("|")
    assert sorted(steps + beyond) == list("abcdef")
    assert len(steps) == limit
    assert [name for name in steps if name not in out] == sorted(name for name in steps if name not in out)


def test_a_chain_of_one_has_no_place_for_who_waits() -> None:
    made = returning(POLICY, "a")
    assert {asked(made, "ab", str(n), 150.0, limit=1) for n in range(200)} == {"a|b", "b|a"}


def test_where_nobody_stands_in_the_order_is_as_it_was() -> None:
    made = returning(POLICY, "a", "b")
    assert {asked(made, "ab", str(n), 0.0) for n in range(200)} == {"ab|"}
    assert {asked(made, "a", str(n), 0.0) for n in range(200)} == {"a|"}


def test_two_on_their_way_come_back_each_by_its_own_places() -> None:
    made = returning(POLICY, "a", "b")
    assert {asked(made, "abc", str(n), 150.0) for n in range(400)} == {"abc|", "acb|", "bca|", "cab|"}


def test_a_chain_says_who_is_on_the_way_and_how_far() -> None:
    made = returning(POLICY, "a")
    ordered = next(each for n in range(99) if (each := made.order(chain("ab"), str(n), 60.0)).steps[0].channel == "b")
    assert ordered.steps[1].reason == "listed; on its way back, 20% of the callers have it"


def test_when_all_are_back_nothing_is_left_of_it() -> None:
    made = returning(POLICY, "a")
    assert asked(made, "ab", "x", 300.0) == "ab|"
    assert made.channels == {}


def test_going_out_again_begins_anew() -> None:
    made = returning(POLICY, "a")
    made.left("a")
    assert made.share("a", 200.0) is None
    assert made.begin("a", 200.0)
    assert not made.begin("a", 250.0)
    assert made.share("a", 260.0) == 0.2


def test_without_a_time_there_is_no_way_back_to_go() -> None:
    made = returning(SwitchBackPolicy(), "a")
    assert made.channels == {}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("failed", "3 of 20 calls were answered by a fallback, more than 10%"),
        ("rate", "2 of 20 calls were refused by the provider, more than 5%"),
    ],
)
def test_growth_stops_for_trouble_and_goes_on_from_there(fault: str, why: str) -> None:
    made = Return(POLICY)
    made.begin(0.0)
    count = int(why[0])
    told = [made.note(90.0, fault if n < count else "") for n in range(20)]
    assert told == [None] * 19 + [why]
    assert (made.paused, made.share(500.0)) == (why, 0.3)
    assert made.note(150.0, "") == ""  # what was seen is a minute old
    assert (made.paused, made.share(150.0), made.share(180.0)) == ("", 0.3, 0.4)


def test_trouble_that_goes_on_is_told_once() -> None:
    made = Return(POLICY)
    made.begin(0.0)
    told = [made.note(1.0, "failed") for _ in range(40)]
    assert [each for each in told if each is not None] == ["20 of 20 calls were answered by a fallback, more than 10%"]


def test_few_attempts_stop_nothing() -> None:
    made = Return(POLICY)
    made.begin(0.0)
    assert [made.note(1.0, "failed") for _ in range(19)] == [None] * 19


def test_a_restart_goes_on_where_it_was() -> None:
    before = returning(POLICY, "a")
    before.left("b")
    after = returning()
    after.restore(before.snapshot(150.0), 1000.0)
    assert Return(POLICY).share(0.0) == 0.0
    at_once = returning(SwitchBackPolicy())
    at_once.restore(before.snapshot(150.0), 1000.0)
    assert at_once.channels == {}
    assert (after.share("a", 1000.0), after.share("a", 1030.0), after.share("b", 1000.0)) == (0.5, 0.6, None)
