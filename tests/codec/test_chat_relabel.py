"""A stream where an answer was asked for, and the other way round: the same content either way."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codec.chunks import DONE, ERROR, REPORT, ROLE, STOP, USAGE, chunk, frame, token
from trioproxy.codec.chat_relabel import answer_from_frames, stream_from_answer
from trioproxy.codec.chat_stream import ChatStream
from trioproxy.codec.openai_chat import CHAT


def answer(*frames: bytes) -> dict[str, Any]:
    body = answer_from_frames(b"".join(frames))
    assert body is not None
    assert CHAT.fault_of(200, [], body, 0.0) is None
    value: dict[str, Any] = json.loads(body)
    return value


def message(*deltas: dict[str, Any]) -> Any:
    return answer(*(frame(chunk(delta)) for delta in deltas), STOP)["choices"][0]["message"]


def test_a_stream_becomes_one_answer() -> None:
    assert answer(b": ping\n\n", ROLE, token("Hi"), token(" there"), STOP, USAGE, DONE, token("late")) == {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "usage": REPORT,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi there"}, "finish_reason": "stop"}],
    }


def test_tool_calls_are_put_together_by_index() -> None:
    said = message(
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{"}}]},
        {"tool_calls": [{"index": 0, "id": "", "function": {"name": "f", "arguments": '{"x":1'}}, None]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}, {"index": 1, "function": {"arguments": "}"}}]},
    )
    assert said["content"] is None
    assert said["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_tool_calls_without_an_index_go_by_id_and_order() -> None:
    said = message(
        {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]},
        {"tool_calls": [{"id": "b", "function": "odd"}]},
        {"tool_calls": [{"function": {"name": "g", "arguments": "{}"}}]},
        {"tool_calls": [{"id": "c", "function": {"name": "h", "arguments": None}}]},
    )
    assert said["tool_calls"][0] == {"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}
    assert [call["id"] for call in said["tool_calls"]] == ["a", "b", "c"]


def test_everything_else_that_a_model_says_is_kept() -> None:
    said = message(
        {"role": "assistant", "content": "a", "reasoning_content": "hm", "audio": {"id": "x", "data": "AA"}},
        {"role": "", "reasoning_content": "m", "refusal": "no", "audio": {"data": "BB", "expires_at": 1}},
        {"function_call": {"name": "f", "arguments": "{"}, "reasoning_details": [1], "other": 7},
        {"function_call": {"arguments": "}"}, "reasoning_details": [2], "content": None},
    )
    assert said == {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "hmm",
        "refusal": "no",
        "audio": {"id": "x", "data": "AABB", "expires_at": 1},
        "function_call": {"name": "f", "arguments": "{}"},
        "reasoning_details": [1, 2],
        "other": 7,
    }


def test_content_in_parts_stays_in_parts() -> None:
    part = {"type": "thinking", "thinking": "hm"}
    assert message({"content": [part]}, {"content": [part]})["content"] == [part, part]
    assert message({"content": "Hi"}, {"content": [part]})["content"] == [{"type": "text", "text": "Hi"}, part]


def test_choices_and_their_log_probabilities_are_kept_apart() -> None:
    one = chunk({"content": "a"}, index=1)
    one["choices"][0]["logprobs"] = {"content": [{"token": "a"}], "refusal": None}
    more = chunk({"content": "b"}, "stop", index=1)
    more["choices"][0] |= {"logprobs": {"content": [{"token": "b"}]}, "native_finish_reason": "STOP", "x": None}
    last = chunk({"content": "z"}, "length")
    last["choices"][0]["logprobs"] = None
    result = answer(frame(one), frame(last), frame(more))
    first, second = result["choices"]
    assert (first["index"], first["message"]["content"], first["finish_reason"]) == (0, "z", "length")
    assert second["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}]}
    assert (second["message"]["content"], second["native_finish_reason"]) == ("ab", "STOP")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        token("cut"),
        token("cut") + DONE,
        token() + ERROR,
        token() + b"event: error\ndata: {}\n\n",
        token() + b"data: {brok\n\n",
        b"data: 1\n\n",
        frame({"choices": [None]}),
        frame(chunk(finish="stop")) + frame(chunk({"content": "x"}, index=1)),
    ],
)
def test_what_is_no_complete_answer_is_none(body: bytes) -> None:
    assert answer_from_frames(body) is None


def complete(said: dict[str, Any], **choice: Any) -> bytes:
    first = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop", **choice}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "model": "m", "choices": [first], "usage": REPORT}
    ).encode()


def test_an_answer_becomes_a_stream_that_reads_well() -> None:
    body = stream_from_answer(
        complete({"content": "Hi", "refusal": None}, logprobs={"content": []}, x=1), wants_usage=True
    )
    assert body is not None
    stream = ChatStream()
    frames = stream.feed(body)
    assert [f.kind.value for f in frames] == ["content", "finish", "neutral", "end"]
    assert (stream.finished, stream.ended, stream.usage is not None) == (True, True, True)
    first, second = (json.loads(f.raw[6:]) for f in frames[:2])
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "Hi"}
    assert second["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop", "x": 1}


def test_usage_comes_only_if_it_was_asked_for() -> None:
    body = stream_from_answer(complete({"content": "Hi"}), wants_usage=False)
    assert body is not None
    assert b"usage" not in body


def test_a_finish_that_was_not_told_is_taken_from_what_was_said() -> None:
    for said, finish in (({"content": "Hi"}, "stop"), ({"tool_calls": [{"id": "a"}, 3]}, "tool_calls")):
        body = stream_from_answer(complete(said, finish_reason=None, index=None), wants_usage=False)
        assert body is not None
        assert json.loads(body.split(b"\n\n")[1][6:])["choices"][0]["finish_reason"] == finish


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"choices":[]}', b'{"choices":null}', b'{"choices":[{"text":"x"}]}', b'{"error":{"message":"x"}}'],
)
def test_what_is_no_answer_becomes_no_stream(body: bytes) -> None:
    assert stream_from_answer(body, wants_usage=True) is None


fields = st.fixed_dictionaries(
    {"content": st.text(min_size=1)},
    optional={
        "reasoning_content": st.text(min_size=1),
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {
                    "id": st.uuids().map(str),
                    "type": st.just("function"),
                    "function": st.fixed_dictionaries({"name": st.just("f"), "arguments": st.text(min_size=1)}),
                }
            ),
            min_size=1,
            max_size=3,
        ),
    },
)


@given(fields)
def test_there_and_back_again_nothing_is_lost(said: dict[str, Any]) -> None:
    there = stream_from_answer(complete(said), wants_usage=True)
    assert there is not None
    back = answer_from_frames(there)
    assert back is not None
    assert json.loads(back) == json.loads(complete(said))
