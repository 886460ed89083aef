"""The gate's decision table for the chat dialect: every row, with the deviations of the field."""

import json
from typing import Any

import pytest

from tests.codec.chunks import REPORT, chunk, frame
from trioproxy.codec.chat_chunk import judge
from trioproxy.codec.frame import Kind
from trioproxy.codec.sse import parse
from trioproxy.errors import Blame, FaultKind
from trioproxy.journal import Usage

EMPTY = {"id": "", "object": "", "created": 0, "model": "", "choices": []}


def kind_of(raw: bytes) -> Kind:
    return judge(parse(raw)).kind


@pytest.mark.parametrize(
    "raw",
    [
        b": OPENROUTER PROCESSING\n\n",
        b"data: \nretry: 3000\n\n",
        b"retry: 3000\n\n",
        b"\n",
        b'event: ping\ndata: {"type":"ping"}\n\n',
        frame(chunk({"role": "assistant"})),
        frame(chunk({"role": "assistant", "content": "", "refusal": None})),
        frame(chunk({"content": None})),
        frame(chunk({"content": []})),
        frame(chunk({"content": [{"type": "text", "text": ""}]})),
        frame(chunk({"reasoning": "", "reasoning_details": []})),
        frame(chunk({"tool_calls": [{"index": 0, "function": {"arguments": ""}}, None]})),
        frame(chunk({"tool_calls": {}, "function_call": {}})),
        frame(chunk({"audio": {"expires_at": 1}})),
        frame({"choices": None}),
        frame({"object": "chat.completion.chunk"}),
        frame({"choices": [None, 3]}),
        frame({"choices": [{"index": 0, "content_filter_results": {}, "finish_reason": None}]}),
        frame({**EMPTY, "prompt_filter_results": [{"prompt_index": 0}]}),
        frame(chunk(x_groq={"id": "req_1"})),
        frame({"id": "c1", "moderation": {"flagged": False}, "choices": []}),
        frame({**EMPTY, "usage": REPORT}),
    ],
)
def test_what_says_nothing_is_neutral(raw: bytes) -> None:
    assert kind_of(raw) is Kind.NEUTRAL


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "Hi"},
        {"content": " "},
        {"content": [{"type": "text", "text": "Hi"}]},
        {"content": ["Hi"]},
        {"refusal": "No"},
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
        {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"function": {"arguments": "{"}}]},
        {"tool_calls": [{"function": {"name": "", "arguments": {"a": 1}}}]},
        {"tool_calls": [{"type": "custom", "custom": {"input": "x"}}]},
        {"function_call": {"name": "f"}},
        {"audio": {"data": "AAAA"}},
        {"audio": {"transcript": "Hi"}},
        {"images": [{"type": "image_url"}]},
    ],
)
def test_what_the_model_said_is_content(delta: dict[str, Any]) -> None:
    verdict = judge(parse(frame(chunk(delta))))
    assert (verdict.kind, verdict.content, verdict.finished) == (Kind.CONTENT, True, ())
    ending = judge(parse(frame(chunk(delta, "stop"))))
    assert (ending.kind, ending.content, ending.finished) == (Kind.FINISH, True, (0,))


def test_legacy_text_and_whole_messages_are_content() -> None:
    assert kind_of(frame({"choices": [{"text": "Hi", "index": 0, "finish_reason": None}]})) is Kind.CONTENT
    assert kind_of(frame({"choices": [{"message": {"content": "Hi"}}]})) is Kind.CONTENT


def test_a_finish_without_content_says_so() -> None:
    for reason in ("stop", "length", "content_filter", "tool_calls", "abort"):
        verdict = judge(parse(frame(chunk(finish=reason, index=1))))
        assert (verdict.kind, verdict.content, verdict.finished) == (Kind.FINISH, False, (1,))
    annotation = frame({"choices": [{"finish_reason": "content_filter", "content_filter_offsets": {}}]})
    assert judge(parse(annotation)).finished == (0,)


@pytest.mark.parametrize("data", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [DONE] \r\n\r\n"])
def test_the_terminator_is_known(data: bytes) -> None:
    assert kind_of(data) is Kind.END


ERRORS = [
    frame({"error": {"message": "boom", "type": "server_error", "param": None, "code": None}}),
    frame({"error": {"object": "error", "message": "boom", "type": "InternalServerError", "code": 500}}),
    frame({"object": "error", "message": "boom", "type": "InternalServerError", "param": None, "code": 500}),
    frame({**chunk({"content": ""}, "error"), "error": {"code": 502, "message": "boom", "metadata": {}}}),
    frame({"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "boom"}}]}),
    frame({"choices": [], "error": {"message": "boom", "code": "502"}}),
    frame({"error": "boom"}),
    frame({"x_groq": {"error": "boom"}, "choices": []}),
    b'event: error\ndata: {"message":"boom"}\n\n',
    b"event: error\ndata: boom\n\n",
    b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"boom"}}\n\n',
    b'{\n  "error": {\n    "code": 500,\n    "message": "boom"\n  }\n}\n\n',
    b'[{\n  "error": {\n    "code": 500,\n    "message": "boom"\n  }\n}\n]\n\n',
    frame([{"error": {"code": 500, "message": "boom"}}]),
    frame({"type": "error", "message": "boom"}),
    frame({"statusCode": 500, "message": "boom"}),
    frame({"code": 500, "msg": "boom"}),
]


@pytest.mark.parametrize("raw", ERRORS)
def test_every_error_shape_is_an_error_with_its_message(raw: bytes) -> None:
    verdict = judge(parse(raw))
    assert verdict.kind is Kind.ERROR
    assert verdict.fault is not None
    assert verdict.fault.message == "boom"
    assert (verdict.fault.blame, verdict.fault.retry, verdict.fault.counts) == (Blame.PROVIDER, True, True)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("error", FaultKind.SERVER_ERROR), ("insufficient_system_resource", FaultKind.OVERLOADED)],
)
def test_a_finish_that_means_failure_is_an_error(reason: str, kind: FaultKind) -> None:
    verdict = judge(parse(frame(chunk({"content": ""}, reason))))
    assert verdict.kind is Kind.ERROR
    assert verdict.fault is not None
    assert (verdict.fault.kind, verdict.fault.blame) == (kind, Blame.PROVIDER)
    assert reason in verdict.fault.message


def test_an_error_code_decides_whose_fault_it_is() -> None:
    for code in (400, "400"):
        fault = judge(parse(frame({"choices": [], "error": {"message": "no", "code": code}}))).fault
        assert fault is not None
        assert (fault.status, fault.blame, fault.retry) == (400, Blame.CLIENT, False)
        assert json.loads(fault.body)["error"]["message"] == "no"


@pytest.mark.parametrize(
    "raw",
    [
        b'data: {"choices":[{"del\n\n',
        b"data: hello\n\n",
        b"data: 1\n\n",
        b"data: null\n\n",
        b"data: []\n\n",
        b"<html>bad gateway</html>\n\n",
        b'{"choices":[{"message":{"content":"unframed"}}]}\n\n',
    ],
)
def test_what_cannot_be_read_is_suspect(raw: bytes) -> None:
    assert kind_of(raw) is Kind.SUSPECT


@pytest.mark.parametrize("message", [{"id": "m"}, ""])
def test_a_message_without_a_code_is_no_flat_error(message: object) -> None:
    assert kind_of(frame({"type": "message_start", "message": message})) is Kind.NEUTRAL


@pytest.mark.parametrize(
    ("value", "only"),
    [
        ({**EMPTY, "usage": REPORT}, True),
        ({"usage": REPORT}, True),
        ({"choices": None, "usage": REPORT, "service_tier": "default"}, True),
        ({"choices": [], "x_groq": {"usage": REPORT}}, True),
        (chunk(usage=REPORT), False),
        (chunk({"content": "Hi"}, usage=REPORT), False),
        (chunk(finish="stop", usage=REPORT), False),
        ({**EMPTY, "usage": REPORT, "prompt_filter_results": []}, False),
        ({**EMPTY, "usage": None}, False),
    ],
)
def test_usage_is_read_from_any_chunk_and_a_frame_of_nothing_else_is_told(value: dict[str, Any], only: bool) -> None:
    verdict = judge(parse(frame(value)))
    expected = None if value.get("usage", 1) is None else Usage(input=9, output=3)
    assert (verdict.usage, verdict.usage_only) == (expected, only)


def test_words_for_numbers_do_not_make_a_frame_suspect() -> None:
    raw = b'data: {"choices":[{"delta":{"content":"NaN"},"logprobs":{"x":[NaN,-Infinity]}}]}\n\n'
    verdict = judge(parse(raw))
    assert verdict.kind is Kind.CONTENT
    assert verdict.strict is not None
    assert json.loads(verdict.strict)["choices"][0] == {"delta": {"content": "NaN"}, "logprobs": {"x": [None, None]}}


def test_half_an_emoji_in_a_chunk_is_content() -> None:
    verdict = judge(parse(b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n'))
    assert (verdict.kind, verdict.strict) == (Kind.CONTENT, None)
