"""What a tokenized head means: how its message ends, and whether the connection outlives it.

Pure judgement, shared by every implementation of the seam in `http.message`: llhttp and h11 tokenize and cut bodies,
and this says what is refused. Invariant: a head whose framing two parsers could read differently is refused, never
repaired (RFC 9112, 6.3 and 11.2).
"""

import re

from attrs import define

Fields = list[tuple[bytes, bytes]]

MAX_LENGTH_DIGITS = 18  # fits 63 bits; no body comes near
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_JUDGED = frozenset({b"connection", b"content-length", b"expect", b"host", b"transfer-encoding"})


class MessageError(Exception):
    """The peer broke HTTP. `status` is what a server should answer before it closes: 400, 414, 431, 501 or 505."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@define
class RequestHead:
    """Names are lower-case, values without surrounding blanks. `length` is None if chunked or not given."""

    method: bytes
    target: bytes
    headers: Fields
    keep_alive: bool
    expects_continue: bool
    length: int | None
    chunked: bool
    version: str = "1.1"


@define
class ResponseHead:
    """As `RequestHead`. Neither `length` nor `chunked`: the body ends where the connection does."""

    status: int
    reason: bytes
    headers: Fields
    keep_alive: bool
    length: int | None
    chunked: bool


@define
class _Framing:
    version: str
    length: int | None = None
    chunked: bool = False
    close: bool = False
    keep: bool = False
    hosts: int = 0
    expects_continue: bool = False

    @property
    def keep_alive(self) -> bool:
        return not self.close and (self.keep or self.version == "1.1")


def _framing(version: str, headers: Fields) -> _Framing:
    """What the head says about the message's end and the connection's. Raises `MessageError`."""
    if version not in ("1.1", "1.0"):
        raise MessageError(f"HTTP version {version} is not spoken here", 505)
    framing = _Framing(version)
    for name, value in headers:
        if name not in _JUDGED:
            continue
        if name == b"host":
            framing.hosts += 1
        elif name == b"content-length":
            if framing.length is not None:
                raise MessageError("more than one Content-Length")
            if not value.isdigit() or len(value) > MAX_LENGTH_DIGITS:
                raise MessageError(f"bad Content-Length {value[:40]!r}")
            framing.length = int(value)
        elif name == b"transfer-encoding":
            if framing.chunked or value.lower() != b"chunked":
                raise MessageError(f"Transfer-Encoding {value[:40]!r}: only one 'chunked' is understood", 501)
            framing.chunked = True
        elif name == b"expect":
            framing.expects_continue = version == "1.1" and value.lower() == b"100-continue"
        else:
            options = [option.strip(b" \t") for option in value.lower().split(b",")]
            framing.close |= b"close" in options
            framing.keep |= b"keep-alive" in options
    if framing.chunked and framing.length is not None:
        raise MessageError("both Content-Length and Transfer-Encoding")
    return framing


def request_head(method: bytes, target: bytes, *, version: str, headers: Fields) -> RequestHead:
    """Judge a tokenized request. Raises `MessageError`."""
    framing = _framing(version, headers)
    if framing.hosts != 1 and (framing.hosts or version == "1.1"):
        raise MessageError(f"{framing.hosts} Host headers where one is needed")
    if framing.chunked and version == "1.0":  # RFC 9112, 6.1: such framing is faulty
        raise MessageError("Transfer-Encoding in an HTTP/1.0 request")
    if target[:1] != b"/" and target != b"*" and b"://" not in target and method != b"CONNECT":
        raise MessageError(f"bad request target {target[:40]!r}")
    return RequestHead(
        method, target, headers, framing.keep_alive, framing.expects_continue, framing.length, framing.chunked, version
    )


def response_head(status: int, reason: bytes, *, version: str, headers: Fields) -> ResponseHead | None:
    """Judge a tokenized response; None for an interim one (1xx). Raises `MessageError`."""
    framing = _framing(version, headers)
    if _CONTROL.search(reason):
        raise MessageError("control character in the reason phrase")
    if status < 200:
        if status in (100, 102, 103) and not framing.length and not framing.chunked:
            return None
        raise MessageError(f"unusable interim response {status}")
    length, chunked, keep_alive = framing.length, framing.chunked, framing.keep_alive
    if status in (204, 304):  # never a body, whatever the head says (RFC 9112, 6.3)
        length, chunked = 0, False
    elif chunked:
        keep_alive = keep_alive and version == "1.1"  # RFC 9112, 6.1: close after a chunked 1.0 message
    elif length is None:
        keep_alive = False
    return ResponseHead(status, reason, headers, keep_alive, length, chunked)
