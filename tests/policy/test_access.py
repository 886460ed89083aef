"""Patterns and the catalogue: one star, exact first, then the most specific, whatever the order of the file."""

import re
from itertools import permutations

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.access import Catalogue, allows, capture, key_hash, matches, overlap

texts = st.text("ab/", max_size=5)
patterns = st.builds(lambda head, star, tail: head + star + tail, texts, st.sampled_from(["", "*"]), texts)


@frozen
class Thing:
    name: str


@pytest.mark.parametrize(
    "pattern, name, captured",
    [
        ("m", "m", ""),
        ("m", "M", None),
        ("*", "", ""),
        ("*", "anything/at all", "anything/at all"),
        ("openai/*", "openai/gpt-4o", "gpt-4o"),
        ("openai/*", "openai/", ""),
        ("openai/*", "openai", None),
        ("*-mini", "gpt-mini", "gpt"),
        ("a*a", "a", None),
        ("a*a", "aa", ""),
        ("a.c", "abc", None),
        ("[a]*", "[a]b", "b"),
    ],
)
def test_a_star_stands_for_any_characters_and_nothing_else_is_special(
    pattern: str, name: str, captured: str | None
) -> None:
    assert capture(pattern, name) == captured
    assert matches(pattern, name) is (captured is not None)


@given(patterns, texts)
def test_matching_agrees_with_a_regular_expression(pattern: str, name: str) -> None:
    assert matches(pattern, name) is bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name))


@given(patterns, texts)
def test_the_name_is_the_pattern_with_what_was_captured(pattern: str, name: str) -> None:
    captured = capture(pattern, name)
    if captured is not None:
        assert pattern.replace("*", captured) == name


@given(patterns, patterns, texts)
def test_patterns_overlap_exactly_where_one_name_matches_both(one: str, other: str, name: str) -> None:
    assert overlap(one, other) is overlap(other, one)
    if matches(one, name) and matches(other, name):
        assert overlap(one, other)
    if overlap(one, other):
        (head, _, tail), (head2, _, tail2) = one.partition("*"), other.partition("*")
        witness = max(head, head2, key=len) + max(tail, tail2, key=len)
        fixed = next((each for each in (one, other) if "*" not in each), witness)
        assert matches(one, fixed)
        assert matches(other, fixed)


def test_any_allowing_pattern_is_enough_and_none_allows_nothing() -> None:
    assert allows(("x", "openai/*"), "openai/gpt")
    assert not allows(("x", "openai/*"), "gpt")
    assert not allows((), "gpt")


def test_exact_wins_then_the_most_specific_in_any_order_of_the_file() -> None:
    names = ["*", "openai/*", "openai/gpt-*", "*-mini", "openai/gpt-mini"]
    for order in permutations(names):
        catalogue = Catalogue.of(map(Thing, order))
        assert catalogue.find("openai/gpt-mini") == (Thing("openai/gpt-mini"), None)
        assert catalogue.find("openai/gpt-4") == (Thing("openai/gpt-*"), "4")
        assert catalogue.find("openai/x-mini") == (Thing("openai/*"), "x-mini")
        assert catalogue.find("x-mini") == (Thing("*-mini"), "x")
        assert catalogue.find("x") == (Thing("*"), "x")


def test_equally_long_patterns_are_told_apart_by_the_longer_beginning() -> None:
    for order in permutations([Thing("ab*c"), Thing("a*bc")]):
        assert Catalogue.of(order).find("abbc") == (Thing("ab*c"), "b")


def test_an_unknown_name_has_no_model() -> None:
    assert Catalogue.of([Thing("a"), Thing("b/*")]).find("c") is None
    assert Catalogue.of([Thing("b/*")]).find("b") is None


def test_only_exact_names_that_a_key_may_use_are_visible() -> None:
    catalogue = Catalogue.of([Thing("b"), Thing("a"), Thing("c"), Thing("openai/*")])
    assert catalogue.visible(("*",)) == ("a", "b", "c")
    assert catalogue.visible(("c", "openai/*", "a*")) == ("a", "c")
    assert catalogue.visible(()) == ()


def test_a_keys_hash_is_sha256_as_the_configuration_writes_it() -> None:
    assert key_hash("abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
