"""JSON at the limit of what can be nested: refused or passed over, and never a fault of our own."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.codec.chunks import STOP, frame
from trioproxy.codec import jsonread
from trioproxy.codec.chat_chunk import judge
from trioproxy.codec.chat_relabel import answer_from_frames, stream_from_answer
from trioproxy.codec.chat_stream import ChatStream
from trioproxy.codec.faults import classify, classify_error_object
from trioproxy.codec.frame import Shape
from trioproxy.codec.openai_chat import CHAT
from trioproxy.codec.sse import parse
from trioproxy.errors import Refusal

T = TypeVar("T")
DEPTHS = (*range(1, 20), *range(700, 1001, 4), 5000, 100_000)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def deep_object(depth: int, tail: bytes = b"1") -> bytes:
    return b'{"error":' * depth + tail + b"}" * depth


def deeper(frames: int, call: Callable[[], T]) -> T:
    """Call from a stack that is so many frames deeper."""
    return call() if frames == 0 else deeper(frames - 1, call)


@pytest.mark.parametrize("place", [b"x", b"n", b"max_tokens", b"stream_options", b"user", b"model"])
def test_a_request_is_read_or_refused_at_any_depth(place: bytes) -> None:
    seen = set()
    for depth in DEPTHS:
        head = b"" if place == b"model" else b'"model":"m",'
        body = b"{" + head + b'"' + place + b'":' + nested(depth) + b',"messages":[{"role":"user"}]}'
        try:
            seen.add(CHAT.facts(body).model)
        except Refusal as exc:
            seen.add(exc.kind.value)
    assert "invalid_request" in seen


def test_a_request_that_was_read_is_refused_where_the_stack_is_deeper() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":null,"x":' + nested(700) + b"}]}"
    facts = CHAT.facts(body)
    assert CHAT.request(body, facts, Shape(null_content="empty"), "m") == body.replace(b"null", b'""')
    # Python 3.12 counts C's depth apart from Python's, so there it may still be read.
    outcomes = set()
    for frames in (0, 300):
        try:
            outcomes.add(deeper(frames, lambda: CHAT.request(body, facts, Shape(null_content="empty"), "m")))
        except Refusal as exc:
            outcomes.add(exc.message.encode())
    assert outcomes <= {body.replace(b"null", b'""'), b"the request body is nested too deeply; flatten it"}


def test_an_error_body_is_classified_at_any_depth() -> None:
    for depth in DEPTHS:
        for body in (nested(depth), deep_object(depth), b'{"error":{"message":' + nested(depth) + b"}}"):
            assert classify(400, [], body, wall=0.0).status == 400
            assert CHAT.fault_of(200, [], body, 0.0) is not None
            assert judge(parse(b"data: " + body + b"\n\n")) is not None


def test_an_error_object_that_cannot_be_written_again_is_told_without_it() -> None:
    value, _ = jsonread.read(b'{"error":{"code":400,"message":"no","x":' + nested(700) + b"}}")
    assert classify_error_object(value).body
    assert deeper(300, lambda: classify_error_object(value)).message == "no"
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="deep"):
        jsonread.write(endless)


def test_streams_and_answers_are_read_or_dropped_at_any_depth() -> None:
    for depth in DEPTHS:
        said = b'{"choices":[{"message":{"content":' + nested(depth) + b'},"finish_reason":"stop"}]}'
        for turned in (stream_from_answer(said, wants_usage=True), answer_from_frames(frame(said.decode()) + STOP)):
            assert turned is None or b"stop" in turned
        body = b'data: {"model":"m","choices":[{"delta":{"content":"a"}}],"x":' + nested(depth) + b"}\n\n"
        assert ChatStream(rewrite_model="p").follow(body) in {body, body.replace(b'"m"', b'"p"')}
