"""The smallest completion: how it is asked for in each channel's words, and what is an answer to it."""

import json
from typing import Any

import pytest

from trioproxy.codec.chat_probe import question, verdict
from trioproxy.codec.frame import Shape
from trioproxy.errors import Blame, FaultKind
from trioproxy.journal import Usage

WALL = 1_764_000_000.0
USED = {"prompt_tokens": 8, "completion_tokens": 1, "total_tokens": 9}


@pytest.mark.parametrize(
    ("shape", "limit", "sent"),
    [
        (Shape(), "max_tokens", {"max_tokens": 1}),
        (Shape(), "max_completion_tokens", {"max_completion_tokens": 1}),
        (Shape(rename={"max_tokens": "max_completion_tokens"}), "max_tokens", {"max_completion_tokens": 1}),
        (Shape(rename={"max_completion_tokens": "max_tokens"}), "max_completion_tokens", {"max_tokens": 1}),
        (Shape(allow=frozenset({"max_tokens"})), "max_tokens", {"max_tokens": 1}),
        (Shape(allow=frozenset({"top_p"})), "max_tokens", {}),
    ],
)
def test_it_asks_for_one_token_by_the_channels_own_word(shape: Shape, limit: str, sent: dict[str, int]) -> None:
    asked = {"model": "x/y", "messages": [{"role": "user", "content": "hi"}]}
    assert json.loads(question("x/y", shape, limit, 1)) == asked | sent


def answer(message: dict[str, Any] | None, finish: str | None = "length", **rest: Any) -> bytes:
    choice = {"index": 0, "finish_reason": finish} | ({} if message is None else {"message": message})
    return json.dumps({"id": "1", "object": "chat.completion", "choices": [choice], "usage": USED} | rest).encode()


@pytest.mark.parametrize(
    "body",
    [
        answer({"role": "assistant", "content": "Hello"}),
        answer({"role": "assistant", "content": "Hello"}, "stop"),
        answer({"role": "assistant", "content": None, "reasoning_content": "The"}),
        answer({"role": "assistant", "content": "", "reasoning": "The"}),
        answer({"role": "assistant", "content": None, "refusal": "No"}, "stop"),
        answer({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, "tool_calls"),
        answer({"role": "assistant", "content": ""}),  # its one token was a thought that is not shown
        answer({"role": "assistant", "content": None}),
    ],
)
def test_text_thought_refusal_and_call_are_content_and_so_is_a_token_that_is_not_shown(body: bytes) -> None:
    assert verdict(200, [], body, WALL) == (None, Usage(8, 0, 1))


@pytest.mark.parametrize(
    "body",
    [
        answer({"role": "assistant", "content": ""}, "stop"),
        answer({"role": "assistant", "content": None}, None),
        answer({"role": "assistant", "content": ""}, usage={"prompt_tokens": 8, "completion_tokens": 0}),
        answer({"role": "assistant", "content": ""}, usage=None),
        answer({"role": "assistant", "tool_calls": []}, "stop"),
        answer(None, choices=[]),
        b"",
        b"{}",
        b"<html>welcome</html>",
        b'{"status":"ok"}',
    ],
)
def test_what_has_no_content_is_no_health_whatever_its_status(body: bytes) -> None:
    fault, _ = verdict(200, [], body, WALL)
    assert fault is not None
    assert (fault.blame, fault.counts) == (Blame.PROVIDER, True)
    assert fault.message


def test_an_answer_without_usage_is_estimated() -> None:
    body = answer({"role": "assistant", "content": "Hello"}, usage=None)
    assert verdict(200, [], body, WALL) == (None, Usage(8, 0, 1, estimated=True))


def said(message: str, code: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code}}).encode()


def test_a_model_that_could_not_finish_its_thought_was_at_work() -> None:
    message = "Could not finish the message because max_tokens or model output limit was reached. Please try again."
    assert verdict(400, [], said(message), WALL) == (None, Usage(8, 0, 1, estimated=True))
    assert verdict(500, [], said(message), WALL)[0] is not None


@pytest.mark.parametrize(
    ("status", "body", "kind", "counts"),
    [
        (500, b"", FaultKind.SERVER_ERROR, True),
        (400, said("max_tokens is not supported", "unsupported_parameter"), FaultKind.PARAMETER, False),
        (401, said("bad key", "invalid_api_key"), FaultKind.AUTH, False),
        (429, said("slow down", "rate_limit_exceeded"), FaultKind.RATE_LIMITED, False),
    ],
)
def test_errors_are_what_they_are_for_any_call(status: int, body: bytes, kind: FaultKind, counts: bool) -> None:
    fault, usage = verdict(status, [], body, WALL)
    assert fault is not None
    assert (fault.kind, fault.counts, usage) == (kind, counts, Usage())
