"""Every condition, met and not met, and the answers at the edge: empty, tools alone, other alphabets, broken JSON."""

from typing import Any

import pytest

from trioproxy.codec.chat_said import Said, ToolCall
from trioproxy.policy.expect import Check, Expect, Tool, judge, quoted
from trioproxy.policy.refusal import REFUSALS, refusal_in

NOTHING = Said(finish="stop")
CALL = Said(
    finish="tool_calls", calls=(ToolCall("weather", '{"city": "Lisbon", "days": 2, "at": {"x": 1, "y": [1]}}'),)
)
PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
}


def one(expect: Expect, said: Said, tokens: int | None = 5) -> Check:
    (check,) = judge(expect, said, tokens)
    return check


def met(expect: Expect, text: str) -> bool:
    return one(expect, Said(text)).met


def test_what_is_not_asked_is_not_looked_at() -> None:
    assert judge(Expect(), Said("anything"), None) == ()


def test_every_text_and_pattern_is_a_check_of_its_own() -> None:
    checks = judge(Expect(contains=("a", "z"), not_contains=("b",), regex=("^a", "z$")), Said("abc"), 1)
    assert [(check.wanted, check.met) for check in checks] == [
        ('contains "a"', True),
        ('contains "z"', False),
        ('does not contain "b"', False),
        ('matches "^a"', True),
        ('matches "z$"', False),
    ]


def test_case_matters_unless_told_otherwise() -> None:
    assert not met(Expect(contains=("paris",)), "Paris")
    assert met(Expect(contains=("PARIS",), ignore_case=True), "Paris")
    assert met(Expect(contains=("STRASSE",), ignore_case=True), "Straße")
    assert not met(Expect(not_contains=("paris",), ignore_case=True), "Paris")
    assert met(Expect(regex=("^paris$",), ignore_case=True), "Paris")


def test_an_accent_is_the_same_however_it_is_written() -> None:
    assert met(Expect(contains=("caf\u00e9",)), "cafe\u0301 noir")
    assert met(Expect(contains=("cafe\u0301",)), "caf\u00e9 noir")
    assert not met(Expect(not_contains=("cafe\u0301",)), "caf\u00e9")


def test_an_answer_without_text_says_so_instead_of_that_a_word_is_missing() -> None:
    assert one(Expect(contains=("x",)), NOTHING).found == "there is no text"
    assert one(Expect(regex=("x",)), CALL).found == "there is no text, a call of weather instead"
    assert one(Expect(not_contains=("x",)), NOTHING).met


def test_lengths_are_characters_and_their_bounds_are_allowed() -> None:
    assert met(Expect(min_length=2), "東京")
    assert met(Expect(max_length=2), "東京")
    assert not met(Expect(min_length=3), "東京")
    assert one(Expect(max_length=1), Said("東京")) == Check("at most 1 characters", met=False, found="2")
    assert one(Expect(min_length=1), NOTHING) == Check("at least 1 characters", met=False, found="0")


def test_tokens_are_the_providers_figure_and_one_that_tells_none_fails() -> None:
    assert one(Expect(max_tokens=5), Said("x"), 5).met
    assert not one(Expect(max_tokens=5), Said("x"), 6).met
    assert one(Expect(max_tokens=5), Said("x"), None).found == "the provider told no usage"


@pytest.mark.parametrize(
    "said",
    [
        Said(finish="content_filter"),
        Said(refusal="No."),
        Said("I'm sorry, but I can't help with that."),
        Said("I\u2019m unable to do this."),
        Said("I CANNOT ASSIST with it"),
        *(Said(phrase) for phrase in REFUSALS),
    ],
    ids=str,
)
def test_a_refusal_is_known_by_finish_member_or_phrase(said: Said) -> None:
    assert refusal_in(said)
    assert one(Expect(refusal=True), said).met
    assert not one(Expect(refusal=False), said).met


@pytest.mark.parametrize("said", [NOTHING, CALL, Said("Gladly."), Said("x" * 200 + "I cannot assist")], ids=str)
def test_what_is_no_refusal(said: Said) -> None:
    assert not refusal_in(said)
    assert one(Expect(refusal=False), said).met
    assert not one(Expect(refusal=True), said).met


def test_a_set_may_bring_its_own_phrases() -> None:
    (check,) = judge(Expect(refusal=True), Said("Das kann ich nicht tun."), 1, ("kann ich nicht",))
    assert check.met
    assert check.found == 'it says "kann ich nicht"'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"name": "Ada", "age": 36}', ""),
        (' {"name": "東京"}\n', ""),
        ('{"name": 3}', "$.name: 3 is not of type 'string'"),
        ("{}", "$: 'name' is a required property"),
        ("[]", "$: [] is not of type 'object'"),
        ("", "there is no text"),
        ("  \n", "there is no text"),
    ],
)
def test_text_that_is_to_fit_a_schema(text: str, found: str) -> None:
    assert one(Expect(schema=PERSON), Said(text)) == Check("fits the JSON schema", met=not found, found=found)


@pytest.mark.parametrize(
    "text", ['{"name": "A"', "Sure: {}", '{"name": NaN}', '{"name": "a"} {"name": "b"}', "[" * 100_000]
)
def test_text_that_is_no_json_fits_no_schema(text: str) -> None:
    check = one(Expect(schema=PERSON), Said(text))
    assert not check.met
    assert check.found.startswith("it is no JSON: ")


def test_a_fence_is_not_taken_off_and_is_named() -> None:
    check = one(Expect(schema=PERSON), Said('```json\n{"name": "Ada"}\n```'))
    assert not check.met
    assert check.found.endswith("(a Markdown fence stands around it)")


def test_tool_calls_do_not_stand_for_text_that_is_to_fit() -> None:
    assert one(Expect(schema=PERSON), CALL).found == "there is no text, a call of weather instead"


@pytest.mark.parametrize(
    "wanted", [None, {}, {"city": "Lisbon"}, {"days": 2, "at": {"x": 1}}, {"days": 2.0}, {"at": {"y": [1]}}], ids=str
)
def test_a_call_has_the_arguments_that_are_wanted_and_may_have_more(wanted: dict[str, Any] | None) -> None:
    assert one(Expect(tool=Tool("weather", wanted)), CALL).met


@pytest.mark.parametrize(
    "wanted",
    [{"city": "lisbon"}, {"unit": "c"}, {"at": {"x": 2}}, {"at": {"y": []}}, {"at": 1}, {"at": {"x": True}}],
    ids=str,
)
def test_a_call_with_other_arguments_is_not_the_one(wanted: dict[str, Any]) -> None:
    check = one(Expect(tool=Tool("weather", wanted)), CALL)
    assert not check.met
    assert check.found.startswith("it is called with ")


def test_one_call_of_several_is_enough() -> None:
    said = Said(calls=(ToolCall("f", '{"a": 1}'), ToolCall("f", '{"a": 2}')))
    assert one(Expect(tool=Tool("f", {"a": 2})), said).met
    assert not one(Expect(tool=Tool("f", {"a": 3})), said).met


def test_no_call_another_call_and_unreadable_arguments_are_told_apart() -> None:
    wanted = Expect(tool=Tool("f", {"a": 1}))
    assert one(wanted, Said("f")).found == "it calls no tool"
    assert one(wanted, CALL).found == "it calls weather"
    for broken in ("", "{", '{"a": NaN}', "[" * 100_000):
        check = one(wanted, Said(calls=(ToolCall("f", broken),)))
        assert not check.met
        assert check.found.startswith("its arguments are no JSON: ")
    assert one(Expect(tool=Tool("f")), Said(calls=(ToolCall("f", "{"),))).met


def test_what_is_quoted_is_one_short_line() -> None:
    assert quoted("a\n b") == '"a b"'
    assert len(quoted("x" * 1000)) == 62
