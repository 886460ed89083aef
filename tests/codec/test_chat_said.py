"""What is read out of an answer: what a caller could have used, and never an exception."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.chat_said import Said, ToolCall, said_in


def body(message: Any, finish: Any = "stop") -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}]}).encode()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"content": "naïve 東京"}, Said("naïve 東京", finish="stop")),
        ({"content": ""}, Said(finish="stop")),
        ({"content": None}, Said(finish="stop")),
        ({}, Said(finish="stop")),
        ({"content": 7}, Said(finish="stop")),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, 3]}, Said("ab", finish="stop")),
        ({"content": None, "refusal": "I will not"}, Said(refusal="I will not", finish="stop")),
    ],
)
def test_text_and_refusal_in_every_form_they_come_in(message: Any, said: Said) -> None:
    assert said_in(body(message)) == said


def test_an_answer_of_tool_calls_alone_has_no_text() -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city":'}},
        {"function": None},
    ]
    said = said_in(body({"content": None, "tool_calls": calls}, "tool_calls"))
    assert said == Said(finish="tool_calls", calls=(ToolCall("weather", '{"city":'), ToolCall("")))


def test_the_older_form_of_a_call_counts_too() -> None:
    said = said_in(body({"function_call": {"name": "f", "arguments": "{}"}}))
    assert said.calls == (ToolCall("f", "{}"),)


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"[]", b"null", b'{"choices":[]}', b'{"choices":{}}', b'{"choices":[3]}']
)
def test_what_is_no_answer_says_nothing(raw: bytes) -> None:
    assert said_in(raw) == Said()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["choices", "message", "content", "tool_calls", "function", "name", "finish_reason"]), inner)))  # fmt: skip
def test_no_answer_is_odd_enough_to_raise(value: Any) -> None:
    assert isinstance(said_in(json.dumps(value).encode()), Said)
