"""Whose fault is it? One row per provider's way of saying it, and what follows from it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.faults import classify, classify_error_object
from trioproxy.errors import Blame, Fault, FaultKind

NOON = 1_796_040_000.0  # 12:00 UTC: half a day before midnight
HOUR = 3600.0
HALF_DAY = 43_200.0


def fault(status: int, body: object = b"", *headers: tuple[str, str]) -> Fault:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return classify(status, [(a.encode(), b.encode()) for a, b in headers], raw, wall=NOON)


def openai(code: str | int | None = None, type_: str | None = None, message: str = "no", **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": None, "code": code, **more}}


def anthropic(type_: str, message: str = "no", code: str | None = None) -> dict[str, Any]:
    details = {"details": {"error_code": code}} if code else {}
    return {"type": "error", "error": {"type": type_, "message": message, **details}, "request_id": "req_1"}


def gemini(code: int, status: str, *details: dict[str, Any], message: str = "no") -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


def openrouter(code: int, error_type: str, **metadata: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": "no", "metadata": {"error_type": error_type, **metadata}}}


CLIENT = [
    (400, openai("invalid_value", "invalid_request_error"), FaultKind.BAD_REQUEST),
    (400, openai(None, "invalid_request_error"), FaultKind.BAD_REQUEST),
    (400, openai("unsupported_value", "invalid_request_error"), FaultKind.BAD_REQUEST),
    (400, openai("context_length_exceeded", "invalid_request_error"), FaultKind.CONTEXT_LENGTH),
    (
        400,
        openai(400, "BadRequestError", "This model's maximum context length is 8192 tokens"),
        FaultKind.CONTEXT_LENGTH,
    ),
    (
        400,
        {"object": "error", "message": "maximum context length is 8192", "type": "BadRequestError", "code": 400},
        FaultKind.CONTEXT_LENGTH,
    ),
    (400, anthropic("invalid_request_error", "prompt is too long: 300000 tokens"), FaultKind.CONTEXT_LENGTH),
    (400, openai("content_policy_violation", "invalid_request_error"), FaultKind.CONTENT_FILTER),
    (400, openai("content_filter", innererror={"code": "ResponsibleAIPolicyViolation"}), FaultKind.CONTENT_FILTER),
    (403, openrouter(403, "permission_denied", reasons=["violence"], flagged_input="x"), FaultKind.CONTENT_FILTER),
    (400, openrouter(400, "token_limit_exceeded"), FaultKind.CONTEXT_LENGTH),
    (422, {"detail": [{"loc": ["body", "x"], "msg": "bad"}]}, FaultKind.BAD_REQUEST),
    (413, anthropic("request_too_large"), FaultKind.TOO_LARGE),
    (413, b"<html>nginx</html>", FaultKind.TOO_LARGE),
    (405, b"", FaultKind.BAD_REQUEST),
    (415, b"", FaultKind.BAD_REQUEST),
    (418, b"", FaultKind.BAD_REQUEST),
    (400, gemini(400, "INVALID_ARGUMENT"), FaultKind.BAD_REQUEST),
    (400, [gemini(400, "INVALID_ARGUMENT")], FaultKind.BAD_REQUEST),
    (400, {"message": "no", "__type": "ValidationException"}, FaultKind.BAD_REQUEST),
]


@pytest.mark.parametrize(("status", "body", "kind"), CLIENT)
def test_the_clients_fault_is_answered_once_and_counts_for_nobody(status: int, body: object, kind: FaultKind) -> None:
    found = fault(status, body, ("retry-after", "9"))
    assert (found.kind, found.blame, found.status) == (kind, Blame.CLIENT, status)
    assert (found.retry, found.counts, found.cooldown, found.park) == (False, False, None, None)


KEY = [
    (401, openai("invalid_api_key", "invalid_request_error"), FaultKind.AUTH, 300.0),
    (401, {"statusCode": 401, "message": "Access denied due to invalid subscription key"}, FaultKind.AUTH, 300.0),
    (401, anthropic("authentication_error"), FaultKind.AUTH, 300.0),
    (401, b"", FaultKind.AUTH, 300.0),
    (400, gemini(400, "INVALID_ARGUMENT", {"reason": "API_KEY_INVALID"}), FaultKind.AUTH, 300.0),
    (400, [gemini(400, "INVALID_ARGUMENT", message="API key not valid. Pass a valid one.")], FaultKind.AUTH, 300.0),
    (402, b"", FaultKind.BILLING, HOUR),
    (402, openai(None, None, "Insufficient Balance"), FaultKind.BILLING, HOUR),
    (429, openai("insufficient_quota", "insufficient_quota"), FaultKind.BILLING, HOUR),
    (429, openai("project_spend_limit_exceeded", "insufficient_quota"), FaultKind.BILLING, HOUR),
    (429, anthropic("rate_limit_error", code="enforced_spend_limit_reached"), FaultKind.BILLING, HOUR),
    (400, anthropic("invalid_request_error", code="organization_on_hold"), FaultKind.BILLING, HOUR),
    (
        400,
        anthropic("invalid_request_error", "You have reached your specified API usage limits. You will regain access"),
        FaultKind.BILLING,
        HOUR,
    ),
    (403, openai("unsupported_country_region_territory"), FaultKind.FORBIDDEN, 600.0),
    (403, b"", FaultKind.FORBIDDEN, 600.0),
    (403, gemini(403, "PERMISSION_DENIED"), FaultKind.FORBIDDEN, 600.0),
    (403, openrouter(403, "permission_denied"), FaultKind.FORBIDDEN, 600.0),
    (400, gemini(400, "FAILED_PRECONDITION"), FaultKind.FORBIDDEN, 600.0),
    (400, {"error": {"message": "no", "param": "service_tier"}}, FaultKind.FORBIDDEN, 600.0),
    (
        429,
        gemini(429, "RESOURCE_EXHAUSTED", {"violations": [{"quotaId": "RequestsPerDayPerModel"}]}),
        FaultKind.RATE_LIMITED,
        HALF_DAY,
    ),
    (429, openrouter(429, "rate_limit_exceeded", limit_source="free-models-per-day"), FaultKind.RATE_LIMITED, HALF_DAY),
    (429, openai(429, None, "Rate limit exceeded: free-models-per-day"), FaultKind.RATE_LIMITED, HALF_DAY),
]


@pytest.mark.parametrize(("status", "body", "kind", "park"), KEY)
def test_our_keys_fault_parks_the_channel_and_fails_over(
    status: int, body: object, kind: FaultKind, park: float
) -> None:
    found = fault(status, body)
    assert (found.kind, found.blame, found.retry, found.counts) == (kind, Blame.KEY, True, False)
    assert (found.park, found.cooldown, found.body) == (park, None, b"")


def test_a_low_credit_balance_counts_against_the_channel_as_well() -> None:
    found = fault(400, anthropic("invalid_request_error", "Your credit balance is too low to access the API."))
    assert (found.kind, found.blame, found.retry, found.counts, found.park) == (
        FaultKind.BILLING,
        Blame.KEY,
        True,
        True,
        HOUR,
    )


def test_a_stated_reset_of_a_daily_limit_is_believed() -> None:
    body = openai(429, None, "Daily limit reached")
    assert fault(429, body, ("retry-after", "120")).park == 120.0
    assert classify_error_object(body).park == HOUR


RATE = [
    (429, openai("rate_limit_exceeded", "requests"), FaultKind.RATE_LIMITED),
    (429, openai("insufficient_quota", None, "Throttling.AllocationQuota: try later"), FaultKind.RATE_LIMITED),
    (429, openai("Throttling.RateQuota", "insufficient_quota"), FaultKind.RATE_LIMITED),
    (429, {"code": "Throttling", "type": "insufficient_quota", "message": "x"}, FaultKind.RATE_LIMITED),
    (429, openai("slow_down", "rate_limit_error"), FaultKind.RAMP),
    (429, anthropic("rate_limit_error", code="ramp_limit_exceeded"), FaultKind.RAMP),
    (429, b"", FaultKind.RATE_LIMITED),
    (429, {"object": "error", "message": "no", "type": None, "code": "1300"}, FaultKind.RATE_LIMITED),
    (498, openai("capacity_exceeded"), FaultKind.RATE_LIMITED),
    (
        413,
        openai("rate_limit_exceeded", "tokens", "Request too large for model on tokens per minute"),
        FaultKind.RATE_LIMITED,
    ),
    (429, gemini(429, "RESOURCE_EXHAUSTED", {"violations": [{"quotaId": "PerMinute"}]}), FaultKind.RATE_LIMITED),
]


@pytest.mark.parametrize(("status", "body", "kind"), RATE)
def test_throttling_cools_the_channel_and_never_counts(status: int, body: object, kind: FaultKind) -> None:
    found = fault(status, body)
    assert (found.kind, found.blame, found.retry, found.counts) == (kind, Blame.RATE, True, False)
    assert (found.cooldown, found.park) == (None, None)  # the standing has its own backoff
    assert fault(status, body, ("Retry-After", "7")).cooldown == 7.0
    assert fault(status, body, ("retry-after", "999999")).cooldown == 600.0
    assert fault(status, body, ("retry-after", "-1")).cooldown == 0.0


def test_geminis_retry_delay_is_a_hint_within_bounds() -> None:
    body = gemini(429, "RESOURCE_EXHAUSTED", {"retryDelay": "4.5s"})
    assert fault(429, body).cooldown == 4.5
    assert fault(429, body, ("retry-after", "2")).cooldown == 2.0
    assert classify_error_object(body).cooldown == 4.5
    assert fault(429, gemini(429, "RESOURCE_EXHAUSTED", {"retryDelay": "9h"})).cooldown == 600.0
    assert fault(429, gemini(429, "RESOURCE_EXHAUSTED", {"retryDelay": "soon"})).cooldown is None


@pytest.mark.parametrize("header", ["ThrottlingException", "ThrottlingException:http://internal.amazon.com/x"])
def test_bedrock_says_it_in_a_header(header: str) -> None:
    found = fault(400, {"message": "Too many tokens"}, ("X-Amzn-ErrorType", header))
    assert (found.kind, found.message) == (FaultKind.RATE_LIMITED, "Too many tokens")
    assert fault(400, {"Message": "no"}, ("x-amzn-errortype", "ServiceQuotaExceededException")).blame is Blame.RATE
    assert fault(403, {"message": "no"}, ("x-amzn-errortype", "AccessDeniedException")).kind is FaultKind.FORBIDDEN


SERVER = [
    (500, openai(None, "server_error"), FaultKind.SERVER_ERROR, True),
    (500, b"", FaultKind.SERVER_ERROR, True),
    (502, b"<html>bad gateway</html>", FaultKind.SERVER_ERROR, True),
    (503, {"error": {"message": "no channel (request id: 1)", "type": "one_api_error"}}, FaultKind.SERVER_ERROR, True),
    (500, openai("bad_response_status_code", "upstream_error", param="500"), FaultKind.SERVER_ERROR, True),
    (503, openai("server_is_overloaded", "service_unavailable_error"), FaultKind.OVERLOADED, True),
    (503, openai(None, None, "Server overloaded, please retry"), FaultKind.OVERLOADED, True),
    (529, anthropic("overloaded_error"), FaultKind.OVERLOADED, True),
    (529, b"", FaultKind.OVERLOADED, True),
    (503, {"error": "over_capacity"}, FaultKind.OVERLOADED, True),
    (429, {"object": "error", "message": "Service tier capacity exceeded", "code": "3505"}, FaultKind.OVERLOADED, True),
    (408, b"", FaultKind.SERVER_ERROR, True),
    (424, b"", FaultKind.SERVER_ERROR, True),
    (409, b"", FaultKind.SERVER_ERROR, False),
    (425, b"", FaultKind.SERVER_ERROR, False),
    (499, b"", FaultKind.SERVER_ERROR, False),
    (403, b"<!DOCTYPE html><title>Just a moment...</title>", FaultKind.NOT_AN_ANSWER, True),
    *((status, b"<html>cloud</html>", FaultKind.SERVER_ERROR, True) for status in (504, 520, 522, 524, 526)),
]


@pytest.mark.parametrize(("status", "body", "kind", "counts"), SERVER)
def test_the_providers_fault_fails_over(status: int, body: object, kind: FaultKind, counts: bool) -> None:
    found = fault(status, body)
    assert (found.kind, found.blame, found.retry, found.counts) == (kind, Blame.PROVIDER, True, counts)
    assert (found.cooldown, found.park, found.body) == (None, None, b"")
    assert fault(status, body, ("retry-after", "3")).cooldown == 3.0
    assert "<" not in found.message


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, openai("model_not_found", "invalid_request_error")),
        (404, openai("DeploymentNotFound")),
        (404, b"<html>not here</html>"),
        (410, b""),
        (400, openai("model_not_found")),
        (404, {"message": "no", "__type": "ResourceNotFoundException"}),
    ],
)
def test_an_unknown_model_is_a_matter_of_the_channel(status: int, body: object) -> None:
    found = fault(status, body)
    assert (found.kind, found.blame, found.retry, found.counts) == (FaultKind.MODEL_NOT_FOUND, Blame.KEY, True, False)
    assert (found.park, found.cooldown) == (None, None)


@pytest.mark.parametrize(
    "body",
    [
        openai("unsupported_parameter", "invalid_request_error", param="max_tokens"),
        openai(None, "invalid_request_error", "`temperature` is deprecated for this model", param="x"),
        openai(None, "invalid_request_error", "Unrecognized request argument supplied: foo"),
        anthropic("invalid_request_error", "foo: Extra inputs are not permitted"),
    ],
)
def test_a_parameter_that_the_channel_does_not_take_is_our_adapters(body: dict[str, Any]) -> None:
    found = fault(400, body)
    assert (found.kind, found.blame, found.retry, found.counts) == (FaultKind.PARAMETER, Blame.ADAPTER, True, False)
    assert json.loads(found.body) == body


def test_a_body_in_the_dialect_is_kept_for_the_client_as_it_came() -> None:
    raw = b'{ "error" : {"message":"too long","code":"context_length_exceeded","x":1} }'
    found = fault(400, raw)
    assert (found.body, found.message, found.code) == (raw, "too long", "context_length_exceeded")


def test_a_body_in_another_form_is_not_relayed() -> None:
    for body in (b"plain text", b"<html>", {"detail": "no"}, [openai()], {"error": "no"}, {"error": {"code": 1}}):
        assert fault(400, body).body == b""


def test_words_of_an_error_are_kept() -> None:
    found = fault(400, {"error": {"message": "m", "type": "t", "param": "p", "code": 17}})
    assert (found.message, found.type, found.param, found.code) == ("m", "t", "p", "17")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"msg": "said"}, "said"),
        ({"err": "said"}, "said"),
        ({"error_msg": "said"}, "said"),
        ({"header": {"message": "said"}}, "said"),
        ({"response": {"error": {"message": "said"}}}, "said"),
        ({"error": "said"}, "said"),
        ({"error": {"type": "x"}, "message": "said"}, "said"),
        ({"object": "error", "message": {"detail": [1]}}, '{"detail":[1]}'),
        (b"  said\n plainly ", "said plainly"),
        (b"{broken", "the provider answered 500"),
        (b'{"x":"' + b"y" * 70_000 + b'"}', "the provider answered 500"),
        ([1, 2], "the provider answered 500"),
        ({"error": {"details": [1], "metadata": {}, "code": True}}, "the provider answered 500"),
    ],
)
def test_a_message_is_found_wherever_it_is(body: object, message: str) -> None:
    assert fault(500, body).message == message


def test_a_message_is_short_and_shows_no_secret() -> None:
    found = fault(
        401, openai(message="Incorrect API key provided: sk-proj-abc123. See https://host/keys " + "x" * 1000)
    )
    assert "sk-proj" not in found.message
    assert "host" not in found.message
    assert len(found.message) <= 500


# Errors inside a stream or a 200


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (openai(None, "server_error"), FaultKind.SERVER_ERROR, 0),
        (openai(502), FaultKind.SERVER_ERROR, 502),
        (openai("429"), FaultKind.RATE_LIMITED, 429),
        (openai("rate_limit_exceeded"), FaultKind.RATE_LIMITED, 0),
        (openai(None, "invalid_request_error"), FaultKind.BAD_REQUEST, 0),
        (openai(None, "service_unavailable_error"), FaultKind.OVERLOADED, 0),
        (openai("what_is_this"), FaultKind.SERVER_ERROR, 0),
        (openai("bad_response_status_code", "upstream_error", param="429"), FaultKind.RATE_LIMITED, 429),
        (openai("bad_response_status_code", "upstream_error", param="x"), FaultKind.SERVER_ERROR, 0),
        (openai(200), FaultKind.SERVER_ERROR, 0),
        (gemini(429, "RESOURCE_EXHAUSTED"), FaultKind.RATE_LIMITED, 429),
        (anthropic("overloaded_error"), FaultKind.OVERLOADED, 0),
        ({"error": "over_capacity"}, FaultKind.OVERLOADED, 0),
        ({"code": 401, "message": "no"}, FaultKind.AUTH, 401),
        ("nothing readable", FaultKind.SERVER_ERROR, 0),
        ({"error": {"errors": [{"reason": "rateLimitExceeded"}]}}, FaultKind.RATE_LIMITED, 0),
    ],
)
def test_an_error_inside_an_answer_is_judged_by_code_and_word(error: object, kind: FaultKind, status: int) -> None:
    found = classify_error_object(error, wall=NOON)
    assert (found.kind, found.status) == (kind, status)
    assert found.message


def test_a_given_status_comes_before_one_inside() -> None:
    assert classify_error_object(openai(400), status=503).status == 503


def test_the_clients_error_inside_an_answer_keeps_the_error_only() -> None:
    found = classify_error_object({"id": "x", "choices": [], **openai(400, message="no")})
    assert json.loads(found.body) == openai(400, message="no")
    assert classify_error_object({"message": "no", "code": 400}).body == b""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["insufficient_quota", "400"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "details", "metadata", "status", "innererror", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(st.integers(100, 599), json_values | st.binary(max_size=20))
def test_no_body_is_an_exception_and_every_fault_hangs_together(status: int, body: object) -> None:
    found = fault(status, body)
    assert found.status == status
    assert found.retry == (found.blame is not Blame.CLIENT)
    assert found.park is None or found.blame is Blame.KEY
    assert found.blame is not Blame.RATE or not found.counts
    assert classify_error_object(body).message
