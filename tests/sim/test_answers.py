"""A scripted model is the same for the same question, and its stream says what its unary answer says."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.sim.answers import DONE, BadQuestion, completion, frames, script_for

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
                    "days": {"type": "integer"},
                },
                "required": ["city", "unit"],
            },
        },
    },
    {"type": "function", "function": {"name": "get_time"}},
]


def ask(content: str = "hello there", **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **more}).encode()


def joined(body: bytes) -> tuple[str, str, str | None]:
    """Content, tool arguments and finish reason of choice 0, put together from a stream."""
    content = arguments = ""
    finish = None
    for frame in frames(script_for(body, "sim"), "id", 0):
        if frame == DONE:
            break
        for choice in json.loads(frame[5:])["choices"]:
            if choice["index"] == 0:
                content += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls", []):
                    arguments += call["function"]["arguments"]
                finish = choice["finish_reason"] or finish
    return content, arguments, finish


def whole(body: bytes) -> Any:
    return json.loads(completion(script_for(body, "sim"), "id", 0))


@given(content=st.text(), cap=st.none() | st.integers(1, 30), tools=st.booleans(), choices=st.integers(1, 3))
def test_a_stream_says_what_its_unary_twin_says(content: str, cap: int | None, tools: bool, choices: int) -> None:
    more = {"tools": TOOLS, "tool_choice": "required"} if tools else {}
    body = ask(content, max_tokens=cap, n=choices, **more)
    choice = whole(body)["choices"][0]
    calls = choice["message"].get("tool_calls", [])
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert joined(body) == (choice["message"]["content"] or "", arguments, choice["finish_reason"])


def test_it_names_itself_and_repeats_the_question() -> None:
    answer = whole(ask("ping"))
    assert "sim" in answer["choices"][0]["message"]["content"]
    assert "ping" in answer["choices"][0]["message"]["content"]
    assert answer["model"] == "m"


def test_usage_adds_up_and_comes_on_a_stream_only_where_asked_for() -> None:
    usage = whole(ask())["usage"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    plain = [*frames(script_for(ask(), "sim"), "id", 0)]
    asked = [*frames(script_for(ask(stream_options={"include_usage": True}), "sim"), "id", 0)]
    assert not any(b'"usage"' in frame for frame in plain)
    assert json.loads(asked[-2][5:])["usage"] == usage
    assert json.loads(asked[-2][5:])["choices"] == []
    assert asked[-1] == plain[-1] == DONE


def test_a_cap_cuts_the_answer_and_says_length() -> None:
    answer = whole(ask(max_tokens=2))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("content", "choice", "called"),
    [
        ("please get_time now", None, "get_time"),
        ("nothing of the kind", "required", "get_weather"),
        ("get_weather", {"type": "function", "function": {"name": "get_time"}}, "get_time"),
        ("nothing of the kind", None, None),
        ("get_time", "none", None),
    ],
)
def test_a_tool_is_called_where_it_is_mentioned_required_or_named(
    content: str, choice: Any, called: str | None
) -> None:
    answer = whole(ask(content, tools=TOOLS, tool_choice=choice))["choices"][0]
    names = [call["function"]["name"] for call in answer["message"].get("tool_calls", [])]
    assert names == ([called] if called else [])
    assert answer["finish_reason"] == ("tool_calls" if called else "stop")


def test_arguments_are_the_least_that_the_schema_asks_for() -> None:
    call = whole(ask("get_weather", tools=TOOLS))["choices"][0]["message"]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"city": "example", "unit": "celsius"}


def test_a_tools_result_is_answered_with_text() -> None:
    messages = [{"role": "user", "content": "get_time"}, {"role": "tool", "tool_call_id": "c", "content": "noon"}]
    answer = whole(json.dumps({"messages": messages, "tools": TOOLS, "tool_choice": "required"}).encode())
    assert "noon" in answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"messages":[]}',
        b'{"messages":[1]}',
        ask(n="x"),
        ask(max_tokens="10"),
        ask(tools=5),
        ask(tools=[{"function": {}}]),
    ],
)
def test_what_is_no_chat_request_is_told_so(body: bytes) -> None:
    with pytest.raises(BadQuestion):
        completion(script_for(body, "sim"), "id", 0)
