"""What flows along the line: a `Request` as it came, the `Caller` behind it, the `Call` it means.

Each phase takes one of these and returns the next; none is filled in along the way.
"""

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec
import trio
from attrs import field, frozen

from trioproxy.codec.frame import Dialect, Facts
from trioproxy.config.model import ClassPolicy
from trioproxy.policy.deadlines import Deadlines


@frozen
class Request:
    """One request, read whole. `path` is canonical (see `canonical_path`) and without a query; header names are lower case.

    `started` is when its first byte came, seconds on Trio's clock; deadlines count from it. Where it is not given it is the
    moment in which the request is made, which must be inside a Trio run.
    """

    method: str
    path: str
    headers: Mapping[bytes, bytes] = field(factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    started: float = field(factory=trio.current_time)

    @classmethod
    def post(cls, path: str, payload: object, headers: Mapping[str, str] | None = None) -> "Request":
        """A request as an embedder writes it: `payload` is anything that JSON can say. Make it when it is to be sent.

        Raises `ValueError` for a header that would be more than one line.
        """
        for name, value in (headers or {}).items():
            if not (name + value).isprintable():
                raise ValueError(f"the header {name!r} has control characters in it")
        lines = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in (headers or {}).items()}
        return cls("POST", canonical_path(path), lines, msgspec.json.encode(payload))


@frozen
class Caller:
    """An authenticated key and what it may use; patterns take "*"."""

    key_id: str
    tenant: str
    models: tuple[str, ...] = ("*",)
    classes: tuple[str, ...] = ("*",)
    endpoints: tuple[str, ...] = ("*",)


@frozen
class Endpoint:
    """One way in: the path that callers use, what is appended to a channel's base URL, and the dialect spoken there."""

    name: str
    path: str
    suffix: str
    dialect: Dialect


class Call(msgspec.Struct, frozen=True):
    """A request that was understood and may be tried."""

    request_id: str
    endpoint: Endpoint
    caller: Caller
    facts: Facts
    body: bytes
    traffic_class: str
    policy: ClassPolicy
    deadlines: Deadlines
    started: float
    forwarded: bytes = b""  # header lines that a provider may see
    traceparent: str = ""
    session: str = ""  # the conversation that it belongs to, where the caller says so

    def __repr__(self) -> str:
        """Without the prompt and the headers."""
        return f"Call({self.request_id!r}, {self.endpoint.name!r}, {self.caller!r}, {self.facts!r})"


def canonical_path(target: str) -> str:
    """The one form of a path that both authorisation and routing use: decoded once, without query and trailing slash.

    Raises `ValueError` for what has no business in a path: dot segments, empty segments, control characters.
    """
    path = unquote(target.split("?", 1)[0].split("#", 1)[0], errors="strict")
    if not path.startswith("/") or any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in path):
        raise ValueError(target)
    segments = path.rstrip("/").split("/")[1:]
    if any(segment in ("", ".", "..") for segment in segments):
        raise ValueError(target)
    return "/" + "/".join(segments)
