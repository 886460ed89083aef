"""The head of an answer: status and header lines, for the model's answer and for every way of not having one.

A provider's own headers pass as far as hygiene lets them; what this gateway decided is told in `x-trioproxy-*`. An error has
the dialect of the endpoint that was called, a real status, and `x-should-retry`, so that an SDK does not try again what
three channels have just tried.
"""

import math

import trio

from trioproxy.answer import Answer, Source
from trioproxy.call import Call
from trioproxy.codec.frame import Dialect
from trioproxy.codec.problem import Problem, problem_of
from trioproxy.errors import Refusal
from trioproxy.http.headers import relayable, safe_value
from trioproxy.phases.allowance import QUEUE
from trioproxy.phases.attempt import Attempt
from trioproxy.phases.problems import degraded, problem
from trioproxy.phases.walk import Walk

_JSON = b"content-type: application/json\r\n"
# `x-accel-buffering` tells nginx not to collect a stream.
_STREAM = b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
_OURS = frozenset({b"content-type", b"content-encoding", b"cache-control", b"x-accel-buffering"})


def refusal(error: Refusal, dialect: Dialect, request_id: str, *, allow: str = "") -> Answer:
    """The answer to a request that no channel was asked for. `allow`: the methods, where another one was used."""
    problem = problem_of(error)
    lines = b"%bx-request-id: %b\r\n%b%b" % (_JSON, request_id.encode(), _retry_lines(problem), error.lines)
    if problem.status == 401:
        lines += b"www-authenticate: Bearer\r\n"  # RFC 9110, 15.5.2: a 401 without it is none
    elif problem.status == 405:
        lines += b"allow: %b\r\n" % allow.encode()
    # Its traceback holds the frame that will hold the answer: a cycle, with the request's body in it.
    error = error.with_traceback(None)
    return Answer(problem.status, lines, dialect.render_error(problem, request_id), error=error)


def answer(call: Call, walk: Walk, early: Source | None) -> Answer:
    """The answer of a walk that has decided, or of one that goes on behind keep-alives (`early`)."""
    attempt, spent = walk.committed, overhead(call, walk)
    if attempt is not None:
        return _committed(call, walk, attempt, spent)
    if early is not None:
        lines = b"%bx-request-id: %b\r\n" % (_STREAM, call.request_id.encode())
        return Answer(200, lines, source=early, drain=_drain(call), overhead=spent)
    assert walk.error is not None, "a walk ends with an answer or an error"
    told = problem(call, walk, walk.error)
    said = degraded(call, walk, told, walk.error)
    if said is not None:
        form = _STREAM if call.facts.stream else _JSON
        lines = b"%b%bx-trioproxy-degraded: answer\r\n" % (form, _told(call, walk, None, spent))
        return Answer(200, lines, said, error=walk.error, overhead=spent)
    lines = b"%b%b%b" % (_JSON, _told(call, walk, None, spent), _retry_lines(told))
    body = call.endpoint.dialect.render_error(told, call.request_id)
    return Answer(told.status, lines, body, error=walk.error, overhead=spent)


def _committed(call: Call, walk: Walk, attempt: Attempt, spent: float) -> Answer:
    head = attempt.exchange.head
    assert head is not None
    theirs = relayable([pair for pair in head.headers if pair[0] not in _OURS])
    told = _told(call, walk, attempt, spent)
    if attempt.relay is not None:
        lines = b"%b%b%b" % (_STREAM, told, theirs)
        return Answer(200, lines, source=attempt.relay, drain=_drain(call), overhead=spent)
    return Answer(200, b"%b%b%b" % (_JSON, told, theirs), attempt.body, overhead=spent)


def _drain(call: Call) -> float:
    return call.policy.drain_timeout if call.policy.on_disconnect == "drain" else 0.0


def _told(call: Call, walk: Walk, attempt: Attempt | None, spent: float) -> bytes:
    """What this gateway decided: who answered, after how many attempts, and what it took of the time itself."""
    lines = b"x-request-id: %b\r\nx-trioproxy-attempts: %d\r\nx-trioproxy-overhead-ms: %.2f\r\n" % (
        call.request_id.encode(),
        len(walk.records) + (attempt is not None),
        spent * 1000,
    )
    if walk.admission is not None:
        lines += walk.admission.lines()
    if walk.arm:
        lines += b"x-trioproxy-arm: %b\r\n" % walk.arm.encode()
    if (queued := walk.queued) is not None:
        lines += QUEUE % (queued * 1000)
    if attempt is None:
        return lines
    if walk.stand_in:
        lines += b"x-trioproxy-fallback: %b\r\n" % safe_value(walk.stand_in)
    return b"%bx-trioproxy-channel: %b\r\nx-trioproxy-model: %b\r\n" % (
        lines,
        safe_value(attempt.channel.name),
        safe_value(attempt.model),
    )


def overhead(call: Call, walk: Walk) -> float:
    """Seconds of the time so far that no channel had the call: our own work, and waiting for a slot."""
    return max(0.0, trio.current_time() - call.started - walk.upstream_time)


def _retry_lines(problem: Problem) -> bytes:
    lines = b""
    if problem.should_retry is not None:
        lines = b"x-should-retry: %b\r\n" % (b"true" if problem.should_retry else b"false")
    if problem.retry_after is not None:
        wait = max(1, math.ceil(problem.retry_after))
        lines += b"retry-after: %d\r\n" % wait
    return lines
