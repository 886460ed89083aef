"""The facts of a chat request, and every refusal before a channel is asked."""

import json
from typing import Any

import pytest

from trioproxy.codec.openai_chat import CHAT
from trioproxy.errors import Refusal, RefusalKind

MESSAGES = [{"role": "user", "content": "Hi"}]


def body(**members: Any) -> bytes:
    return json.dumps({"model": "m", "messages": MESSAGES, **members}).encode()


def refused(text: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        CHAT.facts(text)
    assert caught.value.kind is RefusalKind.BAD_REQUEST
    return caught.value


def test_facts_of_a_small_request() -> None:
    facts = CHAT.facts(body())
    assert (facts.model, facts.stream, facts.wants_usage, facts.output_cap) == ("m", False, False, None)
    assert (facts.user, facts.choices) == (None, 1)


def test_facts_of_a_full_request_with_the_span_of_every_member() -> None:
    text = body(stream=True, stream_options={"include_usage": True}, max_tokens=5, user="u", n=3, x=[1, {"y": "}"}])
    facts = CHAT.facts(text)
    assert (facts.stream, facts.wants_usage, facts.output_cap, facts.user, facts.choices) == (True, True, 5, "u", 3)
    assert {key: json.loads(text[a:b]) for key, (a, b) in facts.members.items()} == json.loads(text)


def test_escaped_keys_mean_what_they_say() -> None:
    facts = CHAT.facts(b'{"m\\u006fdel":"a","mess\\u0061ges":[{"r\\u006fle":"user"}],"str\\u0065am":true}')
    assert (facts.model, facts.stream) == ("a", True)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"hello",
        b"[]",
        b"null",
        b'{"model":"m",}',
        b'{"model":"m","x":NaN}',
        b'{"model":"\xff","messages":[{"role":"user"}]}',
        b'{"model":"m","messages":[{"role":"user"}],"x":"\xff"}',
        b'{"model":"m","messages":[{"role":"user"}],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_no_readable_json_object_is_refused(text: bytes) -> None:
    assert "JSON" in refused(text).message


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("model", b'{"model":"a","model":"b","messages":[{"role":"user"}]}'),
        ("model", b'{"model":"a","m\\u006fdel":"a","messages":[{"role":"user"}]}'),
        ("stream", b'{"model":"a","stream":false,"messages":[{"role":"user"}],"str\\u0065am":true}'),
        ("tools", b'{"model":"a","tools":[],"messages":[{"role":"user"}],"tools":[1]}'),
    ],
)
def test_a_key_that_comes_twice_is_refused_by_name(key: str, text: bytes) -> None:
    error = refused(text)
    assert error.param == key
    assert f"'{key}' comes twice" in error.message


@pytest.mark.parametrize("model", [None, "", 7, ["m"], "m" * 257, "a\nb", "a\x00", "a\x7f"])
def test_a_model_must_be_a_plain_name(model: object) -> None:
    assert refused(body(model=model)).param == "model"


def test_a_model_of_the_longest_length_passes() -> None:
    assert CHAT.facts(body(model="京" * 256)).model == "京" * 256


@pytest.mark.parametrize(
    "messages", [None, [], {}, "Hi", [1], [{}], [{"role": 1}], [{"role": "user"}, {"content": "x"}], [None]]
)
def test_messages_must_be_objects_with_a_role(messages: object) -> None:
    error = refused(body(messages=messages))
    assert error.param == "messages"


def test_missing_members_are_named() -> None:
    assert refused(b'{"messages":[{"role":"user"}]}').param == "model"
    assert refused(b'{"model":"m"}').param == "messages"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (-1, "-1"), ("10", '"10"'), (True, "true"), (2.5, "2.5"), ([], "a list"), ({}, "an object")],
)
def test_a_cap_that_is_no_count_is_refused_with_value_and_limit(name: str, value: object, shown: str) -> None:
    error = refused(body(**{name: value}))
    assert error.param == name
    assert f"{name} is {shown}; it must be a whole number, at least 1" == error.message


def test_a_long_value_is_shown_short() -> None:
    assert len(refused(body(max_tokens="9" * 5000)).message) < 150


def test_a_cap_may_be_absent_null_or_huge() -> None:
    assert CHAT.facts(body(max_tokens=None)).output_cap is None
    assert CHAT.facts(body(max_tokens=None, max_completion_tokens=7)).output_cap == 7
    assert CHAT.facts(body(max_tokens=999_999_999)).output_cap == 999_999_999


def test_two_caps_must_agree() -> None:
    assert CHAT.facts(body(max_tokens=5, max_completion_tokens=5)).output_cap == 5
    error = refused(body(max_tokens=5, max_completion_tokens=6))
    assert "5" in error.message
    assert "6" in error.message


@pytest.mark.parametrize("n", [0, 129, -1, 1.0, True, "1"])
def test_n_is_bounded(n: object) -> None:
    error = refused(body(n=n))
    assert error.param == "n"
    assert "between 1 and 128" in error.message


def test_n_at_its_bounds() -> None:
    assert [CHAT.facts(body(n=n)).choices for n in (1, 128, None)] == [1, 128, 1]


@pytest.mark.parametrize("stream", [1, "true", [], 0])
def test_stream_is_true_or_false(stream: object) -> None:
    assert refused(body(stream=stream)).param == "stream"
    assert CHAT.facts(body(stream=None)).stream is False


def test_stream_options_need_a_stream_and_an_object() -> None:
    assert refused(body(stream_options={})).param == "stream_options"
    assert refused(body(stream=True, stream_options=True)).param == "stream_options"
    bad = refused(body(stream=True, stream_options={"include_usage": "yes"}))
    assert bad.param == "stream_options.include_usage"
    for options in (None, {}, {"include_usage": None}, {"include_usage": False}):
        assert CHAT.facts(body(stream=True, stream_options=options)).wants_usage is False


def test_a_user_that_is_no_string_is_the_providers_to_judge() -> None:
    assert CHAT.facts(body(user=7)).user is None
