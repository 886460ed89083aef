"""What can go wrong, and whose fault it is.

Four families, each raised by one side of the gateway and shown by one translator (`codec.problem`):

    TrioproxyError
    ├── ConfigError        the operator's file; every fault at once, with its path
    ├── Refusal            ours to the caller: bad request, unknown key, no quota; carries `retry_after`
    ├── AttemptError       one upstream channel failed; carries the `Fault`
    └── ChainExhausted     no channel answered; carries every attempt's fault

A `Fault` is a value, not an exception: an attempt that fails in an expected way hands one over, so that only bugs cross
a nursery's edge. The caller going away is no error of ours: it is cancellation with a reason.
"""

import enum
from collections.abc import Sequence

from attrs import frozen


class Blame(enum.Enum):
    """Whose fault it is. Decides whom to charge, whether to go on, and what may be shown."""

    CLIENT = "client"
    KEY = "key"  # our credential or account at the provider
    RATE = "rate"  # the channel's rate or capacity; breaker-neutral
    PROVIDER = "provider"
    ADAPTER = "adapter"  # we sent something that this channel does not take


class FaultKind(enum.Enum):
    """The closed set of ways an attempt fails. Values are what logs and metrics show."""

    # the client's
    BAD_REQUEST = "bad_request"
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    TOO_LARGE = "too_large"
    MODEL_NOT_FOUND = "model_not_found"
    # our key or account
    AUTH = "auth"
    BILLING = "billing"
    FORBIDDEN = "forbidden"
    # rate and capacity
    RATE_LIMITED = "rate_limited"
    RAMP = "ramp"
    SATURATED = "saturated"  # our own per-channel concurrency bound
    # the provider
    CONNECT = "connect"
    CUT = "cut"  # the connection or the framing ended early
    HEADERS_TIMEOUT = "headers_timeout"
    FIRST_CONTENT_TIMEOUT = "first_content_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    EMPTY = "empty"  # a 200 that ended without content
    NOT_AN_ANSWER = "not_an_answer"  # HTML, a wrong content type, unreadable JSON
    TOO_LONG = "too_long"  # an answer or one frame of it over our bound
    # ours
    PARAMETER = "parameter"
    DEADLINE = "deadline"  # the caller's or the class's total deadline; never evidence
    DRAINED = "drained"  # the gateway goes down; never evidence


@frozen
class Fault:
    """Why one attempt failed, and what follows from it.

    `status` is the upstream's HTTP status, or the code inside its error body; 0 when nothing was received. `message` is
    free of secrets. `cooldown` and `park` are seconds: a cooldown skips the channel for a moment (throttling), a park
    takes it out until money or a key is there again. `body` is the upstream's own error body where the client may see it
    (its own fault), scrubbed; else empty.
    """

    kind: FaultKind
    blame: Blame
    message: str
    status: int = 0
    retry: bool = False  # worth another channel
    counts: bool = False  # a failure in the breaker's eyes
    cooldown: float | None = None
    park: float | None = None
    code: str | None = None
    type: str | None = None
    param: str | None = None
    body: bytes = b""


class TrioproxyError(Exception):
    """Root of what this package raises on purpose."""


@frozen
class ConfigFault:
    """One fault of a configuration: where, what, and what to do. `line` counts from 1 where the file gives it."""

    path: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"{self.path} (line {self.line})" if self.line else self.path
        return f"{where}: {self.message}"


class ConfigError(TrioproxyError):
    """The configuration cannot be used. `faults` holds all of them, never only the first."""

    def __init__(self, faults: Sequence[ConfigFault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


class RefusalKind(enum.Enum):
    """Why we did not even try. The translator knows the status and the dialect's words for each."""

    INVALID_KEY = "invalid_api_key"
    KEY_EXPIRED = "api_key_expired"
    FORBIDDEN_CLASS = "class_not_allowed"
    FORBIDDEN_ENDPOINT = "endpoint_not_allowed"
    MODEL_NOT_FOUND = "model_not_found"
    BAD_REQUEST = "invalid_request"
    TOO_LARGE = "request_too_large"
    UNSUPPORTED_ENCODING = "unsupported_content_encoding"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    RATE_LIMITED = "rate_limit_exceeded"
    OVER_BUDGET = "budget_exceeded"
    OUT_OF_BALANCE = "insufficient_balance"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    CLASS_PAUSED = "class_paused"
    UNRECORDABLE = "ledger_unavailable"
    DEFERRAL_FULL = "deferral_full"
    DEFERRED_BEGUN = "deferred_begun"


@frozen
class Limited:
    """Which limit stood in the way of a call. Fields but `scope` are told to the caller under their own names.

    `limiter` is rank and dimension, such as "tenant.tokens_per_minute", and `scope` whose it is. `gateway_decision` tells our
    own protection from a provider's 429 that our limits did not foresee.
    """

    limiter: str
    scope: str
    provider: str
    model: str
    provider_model: str
    retry_after_ms: int | None
    tenant_id: str
    api_key_id: str
    request_class: str
    estimated_input_tokens: int
    estimated_output_tokens: int
    gateway_decision: str  # "rejected_before_dispatch" or "admitted_then_provider_rejected"
    fallback_allowed: bool
    trace_id: str


class Refusal(TrioproxyError):
    """Ours to the caller, before any channel was asked.

    `retry_after` is seconds from now, `None` where waiting does not help. `param` names the field at fault. `limited` tells
    about the limit where one refused, and `lines` are header lines about limits that the answer gets.
    """

    def __init__(
        self,
        kind: RefusalKind,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        limited: Limited | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.limited = limited
        self.lines = b""
        self.queued = 0.0  # seconds in the queue of its class


class AttemptError(TrioproxyError):
    """One upstream channel failed. Raised inside an attempt only, and turned into its value at the attempt's edge."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class ChainExhausted(TrioproxyError):
    """No channel answered. `faults` is one per attempt, in order; empty when every channel was skipped.

    `retry_after` is seconds until the first of the skipped channels may be asked again, `None` if unknown.
    """

    def __init__(self, faults: Sequence[Fault], *, retry_after: float | None = None, deadline: bool = False) -> None:
        self.faults = tuple(faults)
        self.retry_after = retry_after
        self.deadline = deadline
        super().__init__(self.faults[-1].message if self.faults else "all channels exhausted")
