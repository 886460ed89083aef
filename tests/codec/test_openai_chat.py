"""The dialect's verbs over whole answers: usage, and whose fault it is when a 200 is no answer."""

import json

import pytest

from tests.codec.chunks import REPORT, ROLE, STOP, token
from trioproxy.codec.frame import Dialect
from trioproxy.codec.openai_chat import CHAT
from trioproxy.codec.problem import Problem
from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.journal import Usage

ANSWER = b'{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}'


def judged(body: bytes, status: int = 200) -> Fault | None:
    return CHAT.fault_of(status, [], body, 0.0)


def test_it_is_a_dialect() -> None:
    dialect: Dialect = CHAT
    assert dialect.name == "openai"
    assert dialect.reader(drop_usage=True, choices=1, rewrite_model=None).follow(token()) == token()


@pytest.mark.parametrize(
    "body",
    [
        ANSWER,
        b"\n\n  \r\n" + ANSWER,
        b'{"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{}]}}]}',
        b'{"choices":[{"text":"Hi","index":0}]}',
        b'{"choices":[{"message":{"content":"\\ud83d"},"logprobs":NaN}]}',
    ],
)
def test_an_answer_with_choices_is_no_fault(body: bytes) -> None:
    assert judged(body) is None


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", FaultKind.EMPTY),
        (b" \n", FaultKind.EMPTY),
        (b'{"choices":null}', FaultKind.EMPTY),
        (b'{"choices":[]}', FaultKind.EMPTY),
        (b'{"choices":[null,{"index":0}]}', FaultKind.EMPTY),
        (b"{}", FaultKind.NOT_AN_ANSWER),
        (b"[]", FaultKind.NOT_AN_ANSWER),
        (b'{"choices":[{"mess', FaultKind.NOT_AN_ANSWER),
        (b"<html>502</html>", FaultKind.NOT_AN_ANSWER),
        (token(), FaultKind.NOT_AN_ANSWER),
        (token() + b'data: {"error":{"message":"x","code":502}}\n\ndata: [DONE]\n\n', FaultKind.SERVER_ERROR),
        (b'{"error":\n{"message":"x","code":502}}\n\ndata: [DONE]\n\n', FaultKind.SERVER_ERROR),
        (b'{"choices":[{"message":{"role":"assistant","content":"\xff"}}]}', FaultKind.NOT_AN_ANSWER),
        (b"upstream connect error", FaultKind.NOT_AN_ANSWER),
        (b'{"error":{"message":"ResourceExhausted","code":502}}', FaultKind.SERVER_ERROR),
        (b'[{"error":{"message":"x","code":503}}]', FaultKind.SERVER_ERROR),
        (b'{"choices":[{"message":{"content":""},"error":{"code":502,"message":"x"}}]}', FaultKind.SERVER_ERROR),
        (b'{"choices":[{"message":{"content":"x"},"finish_reason":"error"}]}', FaultKind.SERVER_ERROR),
    ],
)
def test_a_200_that_is_no_answer_is_the_providers_fault(body: bytes, kind: FaultKind) -> None:
    fault = judged(body)
    assert fault is not None
    assert (fault.kind, fault.blame, fault.retry, fault.counts) == (kind, Blame.PROVIDER, True, True)
    assert "<html" not in fault.message


def test_a_stream_where_one_answer_was_asked_for_may_tell_a_throttle() -> None:
    fault = judged(b'event: error\ndata: {"error":{"code":"rate_limit_exceeded"}}\n\n')
    assert fault is not None
    assert (fault.kind, fault.blame, fault.retry, fault.counts) == (FaultKind.RATE_LIMITED, Blame.RATE, True, False)


def test_a_wait_that_comes_with_a_200_is_kept_where_waiting_helps() -> None:
    for body, waits in ((b"<html>", 7.0), (b'{"error":{"code":429}}', 7.0), (b'{"error":{"code":401}}', None)):
        fault = CHAT.fault_of(200, [(b"retry-after", b"7")], body, 0.0)
        assert fault is not None
        assert fault.cooldown == waits
    assert CHAT.fault_of(200, [(b"retry-after", b"7")], ANSWER, 0.0) is None


def test_the_clients_fault_inside_a_200_is_the_clients() -> None:
    fault = judged(b'{"error":{"message":"too long","code":"context_length_exceeded"}}')
    assert fault is not None
    assert (fault.kind, fault.blame, fault.retry) == (FaultKind.CONTEXT_LENGTH, Blame.CLIENT, False)


def test_other_statuses_are_classified_as_errors() -> None:
    for status in (500, 301, 103):
        fault = judged(b"", status)
        assert fault is not None
        assert (fault.kind, fault.status, fault.retry) == (FaultKind.SERVER_ERROR, status, True)


def test_usage_of_a_whole_answer() -> None:
    assert CHAT.read_answer(json.dumps({"usage": REPORT}).encode(), 200, 0.0)[1] == Usage(input=9, output=3)
    assert CHAT.read_answer(ANSWER, 200, 0.0) == (None, None)
    assert CHAT.read_answer(b"<html>", 200, 0.0)[1] is None


def test_errors_are_rendered_in_the_dialect() -> None:
    problem = Problem(502, "server_error", "upstream_unavailable", "no")
    assert json.loads(CHAT.render_error(problem, ""))["error"]["message"] == "no"
    assert CHAT.error_frame(problem).startswith(b'data: {"error":')


def test_either_form_is_turned_into_the_other() -> None:
    whole = CHAT.answer_from_stream(ROLE + token("Hi") + STOP)
    assert whole is not None
    assert judged(whole) is None
    stream = CHAT.stream_from_answer(ANSWER, False)
    assert stream is not None
    assert CHAT.reader(drop_usage=False, choices=1, rewrite_model=None).follow(stream) == stream
