"""HTTP/1.1 messages: bytes in any split become events, without I/O.

A message is a head, then bytes, then `END`. A reader is fed what the wire received and hands out events; what one
`feed` brings of a body comes as one event, because a provider's burst of 200 chunks must not cost 200 turns. This is
the byte path: llhttp's callbacks only append to lists.

llhttp tokenizes and cuts bodies; what a head means is judged in `http.head`, whose types belong to this seam too.
Invariant: the same bytes in any split give the same events, whichever implementation reads them.
"""

import enum
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Final, Protocol

import httptools
from attrs import frozen

from trioproxy.http.head import Fields, MessageError, RequestHead, ResponseHead, request_head, response_head

__all__ = [
    "DEFAULT_LIMITS",
    "END",
    "End",
    "Event",
    "Limits",
    "MessageError",
    "RequestHead",
    "RequestReader",
    "RequestSource",
    "ResponseHead",
    "ResponseReader",
    "ResponseSource",
    "readers",
]

_STATUS_OF = (  # what llhttp says (it has no codes that httptools shows) and what a server answers
    ("Invalid HTTP version", 505),
    ("Pause on PRI", 505),
    ("present with", 400),
    ("Transfer-Encoding", 501),
)


@frozen
class Limits:
    """Bounds of one head: bytes of its lines, and number of its fields."""

    max_head: int = 65_536
    max_headers: int = 100


DEFAULT_LIMITS: Final = Limits()


class End(enum.Enum):
    """The message is complete."""

    END = "end"


END: Final = End.END
Event = RequestHead | ResponseHead | bytes | End


class RequestSource(Protocol):
    """The server side of one connection: what `RequestReader` promises, whoever tokenizes."""

    def feed(self, data: bytes) -> None: ...
    def next_event(self) -> Event | None: ...
    def close(self) -> None: ...
    @property
    def in_message(self) -> bool: ...


class ResponseSource(Protocol):
    """The client side of one connection: what `ResponseReader` promises, whoever tokenizes."""

    def feed(self, data: bytes) -> None: ...
    def next_event(self) -> Event | None: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...
    @property
    def started(self) -> bool: ...
    @property
    def surplus(self) -> bool: ...


def readers(name: str) -> tuple[Callable[[Limits], RequestSource], Callable[[Limits], ResponseSource]]:
    """The two readers of an implementation: `httptools`, or `h11` where its tokenizer is preferred."""
    if name == "httptools":
        return RequestReader, ResponseReader
    if name == "h11":
        from trioproxy.http import message_h11  # only loaded where it is chosen

        return message_h11.RequestReader, message_h11.ResponseReader
    raise ValueError(f"no HTTP implementation {name!r}: use 'httptools' or 'h11'")


class RequestReader:
    """The server side of one connection. Pipelined requests queue in order.

    An Upgrade or CONNECT request is an ordinary request: nothing is tunnelled here. Bytes after a request that closes
    the connection are ignored.
    """

    __slots__ = ("_parse",)

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._parse = _Parse(httptools.HttpRequestParser, _tokenized_request, limits)

    def feed(self, data: bytes) -> None:
        """Take what was received; b"" is the end of the stream.

        Raises `MessageError`, and again at every later call. Events from before the fault can still be taken.
        """
        self._parse.feed(data)

    def next_event(self) -> Event | None:
        """The next event in order, or None when more bytes are needed."""
        events = self._parse.events
        return events.popleft() if events else None

    def close(self) -> None:
        """Be done with: no more may be fed."""
        self._parse.unlink()

    @property
    def in_message(self) -> bool:
        """Whether a request has begun to arrive and its `END` has not been handed out. Blank lines are no request."""
        return self._parse.begun or bool(self._parse.events)


class ResponseReader:
    """The client side of one connection: one response, then `reset` for the next. Interim responses are swallowed."""

    __slots__ = ("_limits", "_parse")

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._parse = _Parse(httptools.HttpResponseParser, _tokenized_response, limits)

    def feed(self, data: bytes) -> None:
        """Take what was received; b"" is the end of the stream, and of a body that nothing else ends.

        Raises `MessageError`, and again at every later call; not for an end of stream before any byte of a reply.
        """
        self._parse.feed(data)

    def next_event(self) -> Event | None:
        """The next event in order, or None when more bytes are needed."""
        events = self._parse.events
        return events.popleft() if events else None

    def reset(self) -> None:
        """Be ready for the next response on the same connection."""
        # A new llhttp costs 0.4 µs, and no state of the last message can leak into this one.
        self._parse.unlink()
        self._parse = _Parse(httptools.HttpResponseParser, _tokenized_response, self._limits)

    def close(self) -> None:
        """Be done with: no more may be fed."""
        self._parse.unlink()

    @property
    def started(self) -> bool:
        """Whether any byte of a reply came."""
        return self._parse.started

    @property
    def surplus(self) -> bool:
        """Whether bytes came after the end of the message: the connection must not be used again.

        Blank lines in the same `feed` as the end go unseen; they are no part of a next message either.
        """
        return self._parse.surplus


def _tokenized_request(
    parser: httptools.HttpRequestParser | httptools.HttpResponseParser, target: bytes, headers: Fields
) -> RequestHead:
    assert isinstance(parser, httptools.HttpRequestParser), "chosen together with this function"
    return request_head(parser.get_method(), target, version=parser.get_http_version(), headers=headers)


def _tokenized_response(
    parser: httptools.HttpRequestParser | httptools.HttpResponseParser, reason: bytes, headers: Fields
) -> ResponseHead | None:
    assert isinstance(parser, httptools.HttpResponseParser), "chosen together with this function"
    return response_head(parser.get_status_code(), reason, version=parser.get_http_version(), headers=headers)


_Parser = httptools.HttpRequestParser | httptools.HttpResponseParser


class _Parse:
    """llhttp's callbacks, gathered into events.

    `_spent` counts bytes since something last moved (a head complete, body bytes, a message complete): it bounds a
    head that trickles in, and equally chunk extensions and trailers. A head that begins behind another message in one
    piece is counted from the next piece on, so it may be longer by one piece.
    """

    __slots__ = (
        *("begun", "events", "over", "started", "surplus"),
        *("_callbacks", "_failed", "_fault", "_head", "_headers", "_judge", "_kind", "_limits", "_moved", "_parser"),
        *("_parts", "_primed", "_responses", "_spent", "_text", "_upgrading"),
    )

    def __init__(
        self,
        kind: type[httptools.HttpRequestParser] | type[httptools.HttpResponseParser],
        judge: Callable[[_Parser, bytes, Fields], RequestHead | ResponseHead | None],
        limits: Limits,
    ) -> None:
        self.events: deque[Event] = deque()
        self.begun = False  # inside a message
        self.over = False  # no further message is expected on this parse
        self.started = False
        self.surplus = False
        self._kind, self._judge, self._limits = kind, judge, limits
        self._responses = kind is httptools.HttpResponseParser
        self._failed: MessageError | None = None
        self._fault: MessageError | None = None  # raised in a callback, on its way through llhttp
        self._head: RequestHead | ResponseHead | None = None
        self._headers: Fields = []
        self._parts: list[bytes] = []
        self._text: list[bytes] = []  # the pieces of the target, or of the reason
        self._spent = 0
        self._moved = self._primed = self._upgrading = False
        self._callbacks = SimpleNamespace(
            on_message_begin=self._on_message_begin,
            on_url=self._text.append,
            on_status=self._text.append,
            on_header=self._on_header,
            on_headers_complete=self._on_headers_complete,
            on_body=self._parts.append,
            on_message_complete=self._on_message_complete,
        )
        self._parser: _Parser = kind(self._callbacks)

    def feed(self, data: bytes) -> None:
        if self._failed is not None:
            raise self._failed
        try:
            if data:
                self._take(data)
            else:
                self._finish()
        except MessageError as exc:
            self._failed = exc
            raise
        finally:
            if self._parts:
                self._flush()

    def unlink(self) -> None:
        """Be done with: without this, each parse would leave a cycle for the garbage collector."""
        del self._parser, self._callbacks

    def _take(self, data: bytes) -> None:
        self.started = True
        while data:
            if self.over:
                self.surplus = True
                return
            piece = data[: self._limits.max_head - self._spent]  # all of it, nearly always
            if not piece:
                raise self._too_large()
            self._moved = False
            had = len(self._parts)
            self._run(piece)
            self._spent = 0 if self._moved or len(self._parts) != had else self._spent + len(piece)
            data = data[len(piece) :]

    def _run(self, piece: bytes) -> None:
        while piece:
            try:
                self._parser.feed_data(piece)
                piece = b""
            except httptools.HttpParserUpgrade as upgrade:
                piece = piece[upgrade.args[0] :]
                self._decline_upgrade()
            except httptools.HttpParserError as exc:
                if self._fault is not None:
                    raise self._fault from None
                if self.over:
                    self.surplus = True
                    return
                status = next((status for words, status in _STATUS_OF if words in str(exc)), 400)
                raise MessageError(f"malformed message: {exc}", status) from exc

    def _decline_upgrade(self) -> None:
        # llhttp stops behind the head of an Upgrade or CONNECT request and forgets its body. A new one, told the same
        # framing without the upgrade, reads on from there.
        head = self._head
        assert isinstance(head, RequestHead), "a response that upgrades is refused with its head"
        framing = b"transfer-encoding: chunked" if head.chunked else b"content-length: %d" % (head.length or 0)
        self._upgrading, self._primed = False, True
        self._parser = self._kind(self._callbacks)
        self._parser.feed_data(b"POST / HTTP/1.1\r\nhost: -\r\n%b\r\n\r\n" % framing)

    def _finish(self) -> None:
        if self.over or not (self.begun or (self._responses and self.started)):
            return
        if self._responses and self._head is not None and self._head.length is None and not self._head.chunked:
            self._complete()
            return
        raise MessageError("the message ended early: the peer closed the connection inside it")

    def _too_large(self) -> MessageError:
        limit = self._limits.max_head
        if self.begun and self._head is not None:
            return MessageError(f"chunk extensions or trailers of more than {limit} bytes")
        # The longest method and the version take less than 32 bytes of the line.
        if not self._responses and not self._headers and sum(map(len, self._text)) > limit - 32:
            return MessageError(f"request line of more than {limit} bytes", 414)
        return MessageError(f"head of more than {limit} bytes", 431)

    def _flush(self) -> None:
        self.events.append(b"".join(self._parts))
        self._parts.clear()

    def _complete(self) -> None:
        if self._parts:
            self._flush()
        self.events.append(END)
        self.begun = False
        self.over = self._responses or (self._head is not None and not self._head.keep_alive)

    def _on_message_begin(self) -> None:
        if self.over:
            raise MessageError("a message after the last one")  # `_run` makes it surplus
        self._text.clear()
        self._headers = []
        if not self._primed:
            self.begun = True
            self._head = None

    def _on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value.rstrip(b" \t")))  # trailers end up here too, and are dropped

    def _on_headers_complete(self) -> None:
        if self._primed:
            self._primed = False
            return
        self._moved = True
        try:
            self._head = self._judged()
        except MessageError as exc:
            self._fault = exc
            raise
        self._headers = []
        if self._head is not None:
            self.events.append(self._head)
        self._upgrading = self._parser.should_upgrade()

    def _judged(self) -> RequestHead | ResponseHead | None:
        if len(self._headers) > self._limits.max_headers:
            raise MessageError(f"more than {self._limits.max_headers} header fields", 431)
        return self._judge(self._parser, b"".join(self._text), self._headers)

    def _on_message_complete(self) -> None:
        self._moved = True
        if self._head is None:  # interim
            self.begun = False
        elif not self._upgrading:
            self._complete()
