"""What a door says by itself: requests that broke HTTP, came too slowly or were too large, and our own bugs.

These never become a call. Each answer closes the connection, because what follows on it cannot be trusted or is not wanted.
"""

from http import HTTPStatus

from trioproxy.codec.problem import Problem, render
from trioproxy.config.model import Listen
from trioproxy.http.message import MessageError

_STATUS_LINES = {status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status


class Rejected(Exception):
    """A request that is answered without having been understood."""

    def __init__(self, status: int, code: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds, where asking again helps
        self.status = status
        self.code = code
        self.message = message

    @property
    def problem(self) -> Problem:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        retry = self.retry_after is not None
        return Problem(self.status, kind, self.code, self.message, None, self.retry_after, retry)


def encoded(rejected: Rejected, date: bytes) -> bytes:
    """The whole answer, ready to send."""
    body = render(rejected.problem, "")
    hint = b"false" if rejected.retry_after is None else b"true\r\nretry-after: %d" % rejected.retry_after
    lines = b"content-type: application/json\r\nx-should-retry: %b\r\nconnection: close\r\n" % hint
    start = status_line(rejected.status)
    return b"%b%bcontent-length: %d\r\ndate: %b\r\n\r\n%b" % (start, lines, len(body), date, body)


def broken(error: MessageError) -> Rejected:
    return Rejected(error.status, "bad_http", f"the request is not valid HTTP/1.1: {error}")


def too_slow(what: str, seconds: float) -> Rejected:
    return Rejected(408, "request_timeout", f"the request's {what} did not arrive within {seconds:g} s")


def too_large(limits: Listen) -> Rejected:
    message = f"the request's body is over the limit of {limits.max_body} bytes; make it smaller or split the request"
    return Rejected(413, "request_too_large", message)


def repeated(name: bytes) -> Rejected:
    return Rejected(400, "duplicate_header", f"the header {name.decode('latin-1')!r} may come only once")


def bad_target() -> Rejected:
    return Rejected(400, "bad_path", "the request's path has empty or dot segments, or characters that no path has")


def full(limits: Listen) -> Rejected:
    return Rejected(503, "too_many_connections", f"this gateway serves {limits.max_connections} connections at once")


def going_down() -> Rejected:
    message = "this gateway is being stopped; ask again, and another one answers"
    return Rejected(503, "shutting_down", message, retry_after=1)


def internal() -> Rejected:
    return Rejected(500, "internal_error", "a fault of this gateway ended the request; it has been logged")
