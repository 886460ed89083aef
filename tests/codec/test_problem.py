"""Every error of ours has a status and the dialect's words; none tells about our keys."""

import json

import pytest

from trioproxy.codec.problem import Problem, error_frame, error_table, problem_of, render
from trioproxy.errors import (
    AttemptError,
    Blame,
    ChainExhausted,
    ConfigError,
    Fault,
    FaultKind,
    Refusal,
    RefusalKind,
    TrioproxyError,
)

SDK_RETRIES_THESE = {408, 409, 429, *range(500, 600)}
BLAMES = {
    **dict.fromkeys((FaultKind.BAD_REQUEST, FaultKind.CONTEXT_LENGTH), Blame.CLIENT),
    **dict.fromkeys((FaultKind.CONTENT_FILTER, FaultKind.TOO_LARGE, FaultKind.DEADLINE), Blame.CLIENT),
    **dict.fromkeys((FaultKind.AUTH, FaultKind.BILLING, FaultKind.FORBIDDEN), Blame.KEY),
    FaultKind.MODEL_NOT_FOUND: Blame.KEY,
    **dict.fromkeys((FaultKind.RATE_LIMITED, FaultKind.RAMP, FaultKind.SATURATED), Blame.RATE),
    FaultKind.PARAMETER: Blame.ADAPTER,
}


def failed(kind: FaultKind, status: int = 0, **more: object) -> Fault:
    return Fault(kind, BLAMES.get(kind, Blame.PROVIDER), "why", status=status, **more)  # type: ignore[arg-type]


def exhausted(*faults: Fault, **more: object) -> ChainExhausted:
    return ChainExhausted(faults, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", RefusalKind)
def test_every_refusal_has_its_answer(kind: RefusalKind) -> None:
    problem = problem_of(Refusal(kind, "why", param="p"))
    assert (problem.message, problem.param, problem.should_retry) == ("why", "p", False)
    assert problem.code == kind.value
    assert 400 <= problem.status <= 503
    assert problem_of(Refusal(kind, "why", retry_after=0.2)).retry_after == 1


@pytest.mark.parametrize("kind", FaultKind)
def test_every_fault_has_its_answer_alone_and_as_the_end_of_a_chain(kind: FaultKind) -> None:
    alone = problem_of(AttemptError(failed(kind)))
    assert alone == problem_of(exhausted(failed(kind)))
    assert alone.message
    assert alone.status in {400, 404, 413, 429, 502, 503, 504}
    if alone.status in SDK_RETRIES_THESE:
        assert alone.should_retry is (alone.retry_after is not None)


@pytest.mark.parametrize("status", [401, 402, 403, 400, 429])
def test_our_keys_troubles_are_a_502_without_details(status: int) -> None:
    for kind in (FaultKind.AUTH, FaultKind.BILLING, FaultKind.FORBIDDEN, FaultKind.RATE_LIMITED):
        fault = Fault(kind, Blame.KEY, "key sk-123 of account 7", status=status, park=60.0)
        problem = problem_of(exhausted(fault))
        assert (problem.status, problem.code, problem.should_retry) == (502, "upstream_unavailable", False)
        assert "7" not in problem.message


@pytest.mark.parametrize("kind", [FaultKind.RATE_LIMITED, FaultKind.RAMP])
def test_throttling_is_a_429_with_an_honest_wait(kind: FaultKind) -> None:
    problem = problem_of(exhausted(failed(kind, 429, cooldown=7.2)))
    assert (problem.status, problem.type, problem.code) == (429, "rate_limited", "rate_limit_exceeded")
    assert (problem.retry_after, problem.should_retry) == (8, True)
    assert problem_of(exhausted(failed(kind, 429, cooldown=7.2), retry_after=2.0)).retry_after == 2
    assert problem_of(exhausted(failed(kind, 498, cooldown=0.0))).retry_after == 1
    assert problem_of(exhausted(failed(kind))).retry_after == 1


@pytest.mark.parametrize(("status", "shown"), [(529, 529), (503, 503), (0, 503), (429, 503)])
def test_overload_stays_tellable(status: int, shown: int) -> None:
    problem = problem_of(exhausted(failed(FaultKind.OVERLOADED, status)))
    assert (problem.status, problem.code, problem.should_retry) == (shown, "server_is_overloaded", False)
    waiting = problem_of(exhausted(failed(FaultKind.OVERLOADED, status, cooldown=3.0)))
    assert (waiting.retry_after, waiting.should_retry) == (3, True)


@pytest.mark.parametrize(
    ("status", "shown"), [(500, 500), (502, 502), (503, 503), (504, 504), (520, 502), (524, 502), (408, 502), (0, 502)]
)
def test_the_providers_status_is_kept_where_http_knows_it(status: int, shown: int) -> None:
    problem = problem_of(exhausted(failed(FaultKind.SERVER_ERROR, status)))
    assert (problem.status, problem.code, problem.should_retry) == (shown, "upstream_unavailable", False)


def test_a_wait_that_the_provider_asked_for_is_kept() -> None:
    assert problem_of(exhausted(failed(FaultKind.NOT_AN_ANSWER, 200, cooldown=5.0))).retry_after == 5


def test_our_own_bound_is_an_overload_that_passes() -> None:
    problem = problem_of(exhausted(failed(FaultKind.SATURATED)))
    assert (problem.status, problem.retry_after, problem.should_retry) == (503, 1, True)


def test_timeouts_are_504() -> None:
    for kind in (
        FaultKind.HEADERS_TIMEOUT,
        FaultKind.FIRST_CONTENT_TIMEOUT,
        FaultKind.IDLE_TIMEOUT,
        FaultKind.DEADLINE,
    ):
        assert problem_of(exhausted(failed(kind))).status == 504
    late = problem_of(exhausted(failed(FaultKind.CONNECT), deadline=True))
    assert (late.status, late.code) == (504, "deadline_exceeded")


def test_the_clients_fault_is_relayed_with_status_and_body() -> None:
    body = b'{"error":{"message":"x"}}'
    fault = failed(FaultKind.BAD_REQUEST, 422, body=body, code="c", type="t", param="p")
    problem = problem_of(AttemptError(fault))
    assert (problem.status, problem.type, problem.code, problem.param, problem.should_retry) == (
        422,
        "t",
        "c",
        "p",
        False,
    )
    assert render(problem, "req") == body
    assert problem_of(AttemptError(failed(FaultKind.CONTENT_FILTER, 200))).status == 400


def test_a_parameter_that_nobody_takes_is_the_clients_400() -> None:
    fault = failed(FaultKind.PARAMETER, 400, body=b'{"error":{}}')
    assert render(problem_of(exhausted(fault, fault)), "") == b'{"error":{}}'
    assert problem_of(exhausted(failed(FaultKind.SERVER_ERROR, 500), fault)).status == 500


def test_an_unknown_model_is_a_404_only_if_nothing_else_went_wrong() -> None:
    missing = failed(FaultKind.MODEL_NOT_FOUND, 404)
    problem = problem_of(exhausted(missing, missing))
    assert (problem.status, problem.code, problem.param) == (404, "model_not_found", "model")
    assert problem_of(exhausted(failed(FaultKind.CONNECT), missing)).status == 502


def test_the_last_fault_is_what_the_client_sees() -> None:
    assert problem_of(exhausted(failed(FaultKind.RATE_LIMITED, 429), failed(FaultKind.SERVER_ERROR, 500))).status == 500


def test_a_chain_without_an_attempt_says_so() -> None:
    unknown = problem_of(exhausted())
    assert (unknown.status, unknown.message, unknown.should_retry) == (503, "all channels exhausted", False)
    known = problem_of(exhausted(retry_after=18.5))
    assert (known.status, known.retry_after, known.should_retry) == (503, 19, True)


def test_what_should_never_reach_a_client_is_a_500_without_details() -> None:
    for error in (ConfigError([]), TrioproxyError("secret")):
        problem = problem_of(error)
        assert (problem.status, problem.code) == (500, "internal_error")
        assert "secret" not in problem.message


def test_every_family_is_translated() -> None:
    """A new class of error must be given its words: this list is closed."""
    assert {c.__name__ for c in TrioproxyError.__subclasses__()} == {
        "ConfigError",
        "Refusal",
        "AttemptError",
        "ChainExhausted",
    }


def test_the_envelope_is_the_dialects() -> None:
    problem = Problem(400, "t", None, 'm"', "p")
    assert json.loads(render(problem, "")) == {"error": {"message": 'm"', "type": "t", "param": "p", "code": None}}
    assert json.loads(render(problem, "req_1"))["error"]["message"] == 'm" (request id: req_1)'
    frame = error_frame(problem)
    assert frame.startswith(b"data: {")
    assert frame.endswith(b"}\n\n")
    assert json.loads(frame[6:])["error"]["type"] == "t"


def test_the_documented_table_covers_every_status_we_send() -> None:
    rows = error_table()
    assert rows == sorted(set(rows))
    shown = {status for status, *_ in rows}
    assert {problem_of(Refusal(kind, "")).status for kind in RefusalKind} <= shown
    assert {problem_of(AttemptError(failed(kind))).status for kind in FaultKind} <= shown
    assert all(code and meaning for _, _, code, _, meaning in rows)
    assert {code for _, _, code, again, _ in rows if again} >= {"rate_limit_exceeded", "server_is_overloaded"}
