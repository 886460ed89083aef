"""Refusals: an answer that is good by its form and says no, in either form; and that nothing else is one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import steps
from trioproxy.codec.openai_chat import CHAT


def answer(**message: Any) -> bytes:
    finish = message.pop("finish", "stop")
    made = steps.completion("", finish=finish)
    made["choices"][0]["message"] |= message
    return json.dumps(made).encode()


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (answer(content="well"), False),
        (answer(content="well", refusal=None), False),
        (answer(content="well", refusal=""), False),
        (answer(content=None, refusal="no"), True),
        (answer(content="half an", finish="content_filter"), True),
        (answer(content="half an", finish="length"), False),
        (b'{"choices": [{"message": "odd"}, 7]}', False),
        (b'{"choices": {}}', False),
        (b"[]", False),
        (b"", False),
        (b"<html>", False),
    ],
)
def test_a_whole_answer(body: bytes, refused: bool) -> None:
    assert CHAT.refused(body) is refused


@given(st.binary(max_size=200))
def test_anything_can_be_asked_about(body: bytes) -> None:
    assert CHAT.refused(body) in {True, False}


def said(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return steps.frame({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


STREAMS = {
    "well": ([steps.delta("a"), steps.delta("b"), steps.delta(finish="stop")], False),
    "declined": (
        [steps.delta("", role=True), said({"refusal": "I"}), said({"refusal": " can"}), said({}, "stop")],
        True,
    ),
    "declined late": ([steps.delta("a"), steps.delta("b"), said({"refusal": "no"}), said({}, "stop")], True),
    "filtered": ([steps.delta("a"), steps.delta("b"), said({}, "content_filter")], True),
    "the word alone": ([steps.delta("content_filter refusal"), steps.delta(finish="stop")], False),
}


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_before_and_after_commit(name: str, gated: bool) -> None:
    frames, refused = STREAMS[name]
    reader = CHAT.reader(drop_usage=False, choices=1, rewrite_model=None)
    for frame in [*frames, steps.DONE]:
        if gated and not reader.content:
            reader.gated(frame)
        else:
            reader.follow(frame)
    assert reader.refused is refused
