"""Our errors as the client sees them: one translator from every family to a status and the dialect's words.

Two rules. What is wrong with our key, our account or our bill at a provider is never the client's business: it is a 502 that
says so (never 401, 402 or 403). And a client is told honestly whether a second try can help: `should_retry` is true only
with a wait that is known, because the chain has already tried every other way.
"""

import math
from collections.abc import Sequence

from attrs import asdict, evolve, frozen

from trioproxy.codec import jsonread
from trioproxy.errors import (
    AttemptError,
    Blame,
    ChainExhausted,
    Fault,
    FaultKind,
    Limited,
    Refusal,
    RefusalKind,
    TrioproxyError,
)


@frozen
class Problem:
    """What the client is told. `retry_after` is whole seconds, at least 1. `body` replaces our words by the upstream's.

    `limited` is told along with a 429, so that it says the same whoever refused.
    """

    status: int
    type: str
    code: str | None
    message: str
    param: str | None = None
    retry_after: int | None = None
    should_retry: bool | None = False
    body: bytes = b""
    limited: Limited | None = None


# Status, type, code and what a reader of the documentation should know.
_Words = tuple[int, str, str, str]

_INVALID = "invalid_request_error"
_SERVER = "server_error"
_BUSY = "service_unavailable_error"
_RATE = "rate_limited"  # one schema for every 429, whoever refused
_TIMEOUT = "timeout_error"

REFUSALS: dict[RefusalKind, _Words] = {
    RefusalKind.INVALID_KEY: (401, _INVALID, "invalid_api_key", "the gateway does not know this key"),
    RefusalKind.KEY_EXPIRED: (401, _INVALID, "api_key_expired", "the key is past its expiry date"),
    RefusalKind.FORBIDDEN_CLASS: (403, _INVALID, "class_not_allowed", "the key may not use this traffic class"),
    RefusalKind.FORBIDDEN_ENDPOINT: (403, _INVALID, "endpoint_not_allowed", "the key may not use this endpoint"),
    RefusalKind.MODEL_NOT_FOUND: (404, _INVALID, "model_not_found", "no such model, or the key may not use it"),
    RefusalKind.BAD_REQUEST: (400, _INVALID, "invalid_request", "the request is malformed; `param` names where"),
    RefusalKind.TOO_LARGE: (413, _INVALID, "request_too_large", "the body is over the limit"),
    RefusalKind.UNSUPPORTED_ENCODING: (415, _INVALID, "unsupported_content_encoding", "send the body uncompressed"),
    RefusalKind.NOT_FOUND: (404, _INVALID, "not_found", "no such path"),
    RefusalKind.METHOD_NOT_ALLOWED: (405, _INVALID, "method_not_allowed", "the path takes another method"),
    RefusalKind.RATE_LIMITED: (
        429,
        _RATE,
        "rate_limit_exceeded",
        "a limit of the caller's is used up; `limiter` names it",
    ),
    RefusalKind.OVER_BUDGET: (429, _RATE, "budget_exceeded", "a budget is used up; it begins anew with its period"),
    RefusalKind.QUEUE_FULL: (
        429,
        _RATE,
        "queue_full",
        "as many wait in this class as may; or it has no queue, and others wait for the same",
    ),
    RefusalKind.QUEUE_TIMEOUT: (
        429,
        _RATE,
        "queue_timeout",
        "its class could not serve it within the time it may wait",
    ),
    RefusalKind.CLASS_PAUSED: (429, _RATE, "class_paused", "its class is paused while a channel of the model is down"),
    RefusalKind.OUT_OF_BALANCE: (
        402,
        "billing_error",
        "insufficient_balance",
        "the tenant's prepaid balance is used up",
    ),
    RefusalKind.UNRECORDABLE: (
        503,
        _BUSY,
        "ledger_unavailable",
        "the gateway cannot record what calls cost at the moment, so it takes none",
    ),
    RefusalKind.DEFERRAL_FULL: (
        503,
        _BUSY,
        "deferral_full",
        "no channel answered, and as many calls are stored for later as may",
    ),
    RefusalKind.DEFERRED_BEGUN: (409, _INVALID, "deferred_begun", "a deferred call has begun or is done, and stays"),
}

_UNAVAILABLE: _Words = (502, _SERVER, "upstream_unavailable", "every channel failed; the last one for this reason")
_OUR_KEY: _Words = (502, _SERVER, "upstream_unavailable", "our credential or account at the provider was refused")
_LATE: _Words = (504, _TIMEOUT, "upstream_timeout", "the provider did not answer in time")
_THROTTLED: _Words = (429, _RATE, "rate_limit_exceeded", "the providers throttle us; wait as told")
_OVERLOADED: _Words = (503, _BUSY, "server_is_overloaded", "no capacity at the moment")

FAULTS: dict[FaultKind, _Words] = {
    FaultKind.BAD_REQUEST: (400, _INVALID, "invalid_request", "the provider refuses the request"),
    FaultKind.CONTEXT_LENGTH: (400, _INVALID, "context_length_exceeded", "the prompt is too long for the model"),
    FaultKind.CONTENT_FILTER: (400, _INVALID, "content_filter", "the provider's filter refuses the content"),
    FaultKind.TOO_LARGE: (413, _INVALID, "request_too_large", "the provider refuses a body of this size"),
    FaultKind.MODEL_NOT_FOUND: (404, _INVALID, "model_not_found", "no channel has this model"),
    FaultKind.AUTH: _OUR_KEY,
    FaultKind.BILLING: _OUR_KEY,
    FaultKind.FORBIDDEN: _OUR_KEY,
    FaultKind.RATE_LIMITED: _THROTTLED,
    FaultKind.RAMP: _THROTTLED,
    FaultKind.SATURATED: _OVERLOADED,
    FaultKind.CONNECT: _UNAVAILABLE,
    FaultKind.CUT: _UNAVAILABLE,
    FaultKind.HEADERS_TIMEOUT: _LATE,
    FaultKind.FIRST_CONTENT_TIMEOUT: _LATE,
    FaultKind.IDLE_TIMEOUT: _LATE,
    FaultKind.SERVER_ERROR: _UNAVAILABLE,
    FaultKind.OVERLOADED: _OVERLOADED,
    FaultKind.EMPTY: _UNAVAILABLE,
    FaultKind.NOT_AN_ANSWER: _UNAVAILABLE,
    FaultKind.TOO_LONG: _UNAVAILABLE,
    FaultKind.PARAMETER: (400, _INVALID, "unsupported_parameter", "no channel takes this parameter"),
    FaultKind.DEADLINE: (504, _TIMEOUT, "deadline_exceeded", "the request's own deadline passed"),
    FaultKind.DRAINED: (
        503,
        _BUSY,
        "shutting_down",
        "the gateway is being stopped; ask again, and another one answers",
    ),
}

_EXHAUSTED: _Words = (503, _BUSY, "all_channels_exhausted", "every channel is resting; none was asked")
_BUG: _Words = (500, _SERVER, "internal_error", "a fault of the gateway's own; it was logged")

# Kinds whose status the provider's own may replace, and by which.
_KEPT_STATUSES = {
    FaultKind.SERVER_ERROR: frozenset({500, 502, 503, 504}),
    FaultKind.OVERLOADED: frozenset({503, 529}),
}
# Neither tells why the chain failed, while another fault in it does.
_TELLS_LITTLE = (FaultKind.MODEL_NOT_FOUND, FaultKind.PARAMETER)
# Seconds. The official SDKs wait no longer than this for a Retry-After, and try again at once where they are told more.
LONGEST_WAIT = 60
_WAITABLE = frozenset({429, 503, 529})


def problem_of(error: TrioproxyError) -> Problem:
    """What the client is told."""
    if isinstance(error, Refusal):
        status, type_, code, _ = REFUSALS[error.kind]
        wait = _whole(error.retry_after)
        helps = wait is not None and wait <= LONGEST_WAIT
        return Problem(status, type_, code, error.message, error.param, wait, should_retry=helps, limited=error.limited)
    if isinstance(error, AttemptError):
        return _of_fault(error.fault, None)
    if isinstance(error, ChainExhausted):
        return _of_chain(error)
    status, type_, code, _ = _BUG
    return Problem(status, type_, code, "internal error of the gateway")


def telling(faults: Sequence[Fault]) -> Fault:
    """Which one of a chain's faults says why nobody answered: the last one that is more than a word of ours."""
    return next((fault for fault in reversed(faults) if fault.kind not in _TELLS_LITTLE), faults[-1])


def render(problem: Problem, request_id: str) -> bytes:
    """The answer's body in the OpenAI dialect: the upstream's own where the client may see it, else our envelope."""
    return problem.body or _envelope(problem, request_id)


def error_frame(problem: Problem, request_id: str = "") -> bytes:
    """The same inside a stream that has begun. Any truthy `error` makes the official SDK raise, and nothing follows."""
    return b"data: " + _envelope(problem, request_id) + b"\n\n"


def error_table() -> list[tuple[int, str, str, bool, str]]:
    """The documented table: status, type, code, whether a second try may help, meaning. Sorted, without doubles."""
    words = [*REFUSALS.values(), *FAULTS.values(), _EXHAUSTED, _BUG]
    return sorted({(status, type_, code, status in _WAITABLE, meaning) for status, type_, code, meaning in words})


def _of_chain(error: ChainExhausted) -> Problem:
    if error.deadline:
        status, type_, code, _ = FAULTS[FaultKind.DEADLINE]
        return Problem(status, type_, code, "the request's deadline passed before a channel answered")
    if error.faults:
        return _of_fault(telling(error.faults), error.retry_after)
    wait = _whole(error.retry_after)
    status, type_, code, _ = _EXHAUSTED
    return Problem(status, type_, code, "all channels exhausted", None, wait, should_retry=wait is not None)


def _of_fault(fault: Fault, wait: float | None) -> Problem:
    status, type_, code, meaning = FAULTS[fault.kind]
    if fault.blame is Blame.KEY and fault.kind is not FaultKind.MODEL_NOT_FOUND:
        status, type_, code, _ = _OUR_KEY
        return Problem(status, type_, code, "the provider is not available to the gateway at the moment")
    if fault.kind is FaultKind.MODEL_NOT_FOUND:
        return Problem(status, type_, code, "no channel of the gateway has this model", "model")
    if fault.blame in (Blame.CLIENT, Blame.ADAPTER):
        status = fault.status if 400 <= fault.status < 500 else status
        said = Problem(status, fault.type or type_, fault.code or code, fault.message or meaning, fault.param)
        return evolve(said, body=fault.body)
    if fault.status in _KEPT_STATUSES.get(fault.kind, ()):
        status = fault.status
    seconds = _whole(fault.cooldown if wait is None else wait)
    if seconds is None and (status == 429 or fault.kind is FaultKind.SATURATED):
        seconds = 1
    helps = seconds is not None and status in _WAITABLE
    return Problem(status, type_, code, fault.message or meaning, None, seconds, should_retry=helps)


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, math.ceil(seconds))


def _envelope(problem: Problem, request_id: str) -> bytes:
    message = f"{problem.message} (request id: {request_id})" if request_id else problem.message
    error: dict[str, object] = {"message": message, "type": problem.type, "param": problem.param, "code": problem.code}
    if problem.limited is not None:
        error |= {name: value for name, value in asdict(problem.limited).items() if name != "scope"}
    return jsonread.write({"error": error})
