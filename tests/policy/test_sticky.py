"""Places: the same for ever, spread evenly, and never lost as a share grows."""

from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.sticky import PLACES, place, within

shares = st.floats(0, 1)


@given(st.text(), st.text())
def test_a_place_is_one_of_ten_thousand_and_stays(subject: str, key: str) -> None:
    assert 0 <= place(subject, key) < PLACES
    assert place(subject, key) == place(subject, key)


def test_a_place_is_the_same_in_every_process() -> None:
    assert [place("fast-chat", f"session {n}") for n in range(4)] == [
        2474,
        3036,
        6712,
        8822,
    ]  # as coreutils' b2sum has it


@given(st.text(), st.text(), shares, shares)
def test_a_key_never_leaves_as_the_share_grows(subject: str, key: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert not within(place(subject, key), low) or within(place(subject, key), high)


@given(st.integers(0, PLACES - 1))
def test_nobody_is_in_at_nothing_and_everybody_at_all(where: int) -> None:
    assert not within(where, 0.0)
    assert within(where, 1.0)


def test_the_share_of_many_keys_is_the_share_that_was_asked_for() -> None:
    """20,000 keys: five standard deviations are 1.8 points at one half."""
    places = [place("rollout", f"user {n}") for n in range(20_000)]
    for share in (0.01, 0.1, 0.5, 0.9):
        found = sum(within(each, share) for each in places) / len(places)
        assert abs(found - share) < 5 * (share * (1 - share) / len(places)) ** 0.5


def test_another_subject_shuffles_anew() -> None:
    both = sum(within(place("one", str(n)), 0.1) and within(place("two", str(n)), 0.1) for n in range(20_000))
    assert 120 < both < 280  # 200 where the two have nothing to do with each other; 2,000 where they are the same
