"""The chain: cheapest first or as listed, skipped channels take no place, and every step says why it is there."""

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.chain import Candidate, bind, blended, build, order_links


@frozen
class Link:
    channel: str
    model: str = "m"


@frozen
class Price:
    input: float
    output: float


def names(candidates: tuple[Candidate, ...]) -> list[str]:
    return [candidate.channel for candidate in candidates]


def test_cost_is_blended_three_to_one() -> None:
    assert blended(Price(1.0, 5.0)) == 2.0


def test_cheapest_first_and_unknown_last_each_with_its_reason() -> None:
    prices = {"dear": Price(2.5, 10), "cheap": Price(0.27, 1.1), "mid": Price(1, 1)}
    ordered = order_links([Link("none"), Link("dear"), Link("cheap"), Link("mid")], prices, "cost")
    assert [(each.channel, each.reason) for each in ordered] == [
        ("cheap", "cheapest: 0.27 in / 1.10 out USD per Mtok"),
        ("mid", "second by cost: 1.00 in / 1.00 out USD per Mtok"),
        ("dear", "third by cost: 2.50 in / 10.00 out USD per Mtok"),
        ("none", "price unknown: last"),
    ]
    assert ordered[0].price == pytest.approx(0.4775)
    assert ordered[-1].price is None


def test_a_free_channel_is_cheapest_and_not_unknown() -> None:
    assert names(order_links([Link("b"), Link("a")], {"a": Price(0, 0), "b": Price(1, 1)}, "cost")) == ["a", "b"]


def test_as_listed_prices_do_not_matter() -> None:
    ordered = order_links([Link(name) for name in "dcba"], {"a": Price(0, 0)}, "listed")
    assert [(each.channel, each.reason) for each in ordered] == [
        ("d", "listed first"),
        ("c", "listed second"),
        ("b", "listed third"),
        ("a", "listed 4th"),
    ]


prices = st.dictionaries(st.sampled_from("abcdef"), st.none() | st.builds(Price, st.integers(0, 2), st.integers(0, 2)))


@given(st.permutations("abcdef"), prices)
def test_ordering_by_cost_is_a_stable_sort(listed: list[str], table: dict[str, Price | None]) -> None:
    ordered = order_links([Link(name) for name in listed], table, "cost")
    assert sorted(names(ordered)) == sorted(listed)
    costs = [(each.price is None, each.price or 0, listed.index(each.channel)) for each in ordered]
    assert costs == sorted(costs)


def test_a_wildcards_capture_goes_where_the_star_is() -> None:
    candidates = order_links([Link("a", "*"), Link("b", "vendor/*:free"), Link("c", "fixed")], {}, "listed")
    assert [each.model for each in bind(candidates, "gpt-4o")] == ["gpt-4o", "vendor/gpt-4o:free", "fixed"]
    assert bind(candidates, None) is candidates


def test_a_skipped_channel_does_not_use_up_a_place() -> None:
    candidates = order_links([Link(name) for name in "abcde"], {}, "listed")
    chain = build(candidates, lambda one: {"a": "breaker open", "c": "parked"}.get(one.channel), 2)
    assert names(chain.steps) == ["b", "d"]
    assert chain.skipped == (("a", "breaker open"), ("c", "parked"))
    assert names(chain.beyond) == ["e"]


def test_a_chain_may_be_empty_and_says_why() -> None:
    chain = build(order_links([Link("a")], {}, "cost"), lambda _one: "no key", 3)
    assert chain.steps == ()
    assert chain.skipped == (("a", "no key"),)


@given(st.lists(st.sampled_from("abcdef"), max_size=8), st.sets(st.sampled_from("abcdef")), st.integers(1, 4))
def test_every_candidate_ends_in_exactly_one_place_in_order(listed: list[str], out: set[str], limit: int) -> None:
    chain = build(
        order_links([Link(name) for name in listed], {}, "listed"),
        lambda one: "out" if one.channel in out else None,
        limit,
    )
    placed = names(chain.steps) + [name for name, _ in chain.skipped] + names(chain.beyond)
    assert sorted(placed) == sorted(listed)
    assert names(chain.steps) == [name for name in listed if name not in out][:limit]
    assert not chain.beyond or len(chain.steps) == limit


def test_nobody_is_asked_whether_it_may_be_skipped_once_the_chain_is_full() -> None:
    asked: list[str] = []
    build(order_links([Link(name) for name in "abc"], {}, "listed"), lambda one: asked.append(one.channel), 1)
    assert asked == ["a"]
