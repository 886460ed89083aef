"""What is asked: the body's facts, the traffic class, the deadlines and the ids, all checked before anything is held.

Routing fields come from our configuration and our own headers (`x-trioproxy-class`, `x-trioproxy-session`, `x-request-timeout`,
`x-request-id`, `traceparent`), and from the body only its `model`.
"""

import math
import re
from collections.abc import Callable, Mapping

from attrs import define, field

from trioproxy.call import Call, Caller, Endpoint, Request
from trioproxy.config.model import ClassPolicy
from trioproxy.errors import Refusal, RefusalKind
from trioproxy.http.encoding import EncodingError, decoded
from trioproxy.http.headers import forwardable
from trioproxy.policy.access import allows
from trioproxy.policy.deadlines import Deadlines

DEFAULT_CLASS = "default"
SESSION = b"x-trioproxy-session"

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@define(eq=False)
class Classifier:
    """`new_id` gives a fresh request id; randomness is the shell's."""

    defaults: ClassPolicy
    classes: Mapping[str, ClassPolicy]
    max_body: int
    new_id: Callable[[], str] = field(repr=False)

    def request_id(self, headers: Mapping[bytes, bytes]) -> str:
        """The caller's own request id where it is one that can be logged and echoed, else a new one."""
        given = headers.get(b"x-request-id")
        return given.decode() if given is not None and _REQUEST_ID.fullmatch(given) else self.new_id()

    def call(self, request: Request, endpoint: Endpoint, caller: Caller, request_id: str) -> Call:
        """The call that a request means. Raises `Refusal`, naming the value, the limit and what to do."""
        headers = request.headers
        if not allows(caller.endpoints, endpoint.name):
            raise Refusal(RefusalKind.FORBIDDEN_ENDPOINT, f"this API key may not use {endpoint.path}")
        name, policy = self._class(headers, caller)
        facts = endpoint.dialect.facts(body := self._body(request))
        deadlines = Deadlines.of(
            request.started,
            total=policy.total_timeout,
            wanted=_seconds(headers, b"x-request-timeout"),
            first_byte=_sdk_seconds(headers),
        )
        traceparent = headers.get(b"traceparent", b"")
        return Call(
            request_id,
            endpoint,
            caller,
            facts,
            body,
            name,
            policy,
            deadlines,
            request.started,
            _forwarded(headers),
            traceparent.decode() if _TRACEPARENT.fullmatch(traceparent) else "",
            _session(headers),
        )

    def _class(self, headers: Mapping[bytes, bytes], caller: Caller) -> tuple[str, ClassPolicy]:
        given = headers.get(b"x-trioproxy-class")
        name = DEFAULT_CLASS if given is None else given.decode("latin-1")
        policy = self.classes.get(name)
        if policy is None:
            if name != DEFAULT_CLASS:
                known = ", ".join(sorted({DEFAULT_CLASS, *self.classes}))
                message = f"x-trioproxy-class {name[:64]!r} is not a class of this gateway; it has: {known}"
                raise Refusal(RefusalKind.BAD_REQUEST, message, param="x-trioproxy-class")
            policy = self.defaults
        if not allows(caller.classes, name):
            raise Refusal(RefusalKind.FORBIDDEN_CLASS, f"this API key may not use the class {name!r}")
        return name, policy

    def _body(self, request: Request) -> bytes:
        encoding = request.headers.get(b"content-encoding")
        if encoding is None:
            return request.body
        try:
            return decoded(encoding, request.body, limit=self.max_body)
        except EncodingError as exc:
            kind = RefusalKind.TOO_LARGE if exc.too_large else RefusalKind.UNSUPPORTED_ENCODING
            raise Refusal(kind, str(exc)) from exc


def _session(headers: Mapping[bytes, bytes]) -> str:
    """The caller's name for its conversation; what stays together by it must not fall apart unnoticed by a bad one."""
    given = headers.get(SESSION)
    if given is None:
        return ""
    if not _REQUEST_ID.fullmatch(given):
        message = "x-trioproxy-session takes 1 to 128 of the characters A-Z a-z 0-9 . _ : / + = -"
        raise Refusal(RefusalKind.BAD_REQUEST, message, param=SESSION.decode())
    return given.decode()


def _forwarded(headers: Mapping[bytes, bytes]) -> bytes:
    """The lines that a provider may see. The door's reader takes no line end in a value; an embedder has no such reader."""
    lines = forwardable(headers)
    for name, value in lines:
        if _CONTROL.search(value):
            message = f"the header {name.decode()} has control characters in it; send plain text"
            raise Refusal(RefusalKind.BAD_REQUEST, message, param=name.decode())
    return b"".join(b"%b: %b\r\n" % line for line in lines)


def _seconds(headers: Mapping[bytes, bytes], name: bytes) -> float | None:
    """A caller's own deadline: a positive number of seconds."""
    given = headers.get(name)
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        text = given[:32].decode("latin-1")
        raise Refusal(
            RefusalKind.BAD_REQUEST,
            f"{name.decode()} is {text!r}; it takes a positive number of seconds",
            param=name.decode(),
        )
    return seconds


def _sdk_seconds(headers: Mapping[bytes, bytes]) -> float | None:
    """What an SDK says of its own timeout. It is telemetry to the SDK, so what cannot be read is passed over."""
    try:
        return _seconds(headers, b"x-stainless-timeout")
    except Refusal:
        return None
