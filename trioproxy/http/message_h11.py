"""The seam of `http.message` over h11: the pure-Python choice, and the oracle for what llhttp makes of the same bytes.

h11 forgives what must not be forgiven between two parsers (bare LF, folded lines, control characters, repeated
lengths), so a head is held here until it is whole, checked as bytes, and only then given to h11. Every message has an
h11 connection of its own; what is left over from one goes to the next.
"""

import re
from collections import deque

import h11

from trioproxy.http.head import MessageError, RequestHead, ResponseHead, request_head, response_head
from trioproxy.http.message import DEFAULT_LIMITS, END, Event, Limits

_UNSAFE = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r[^\n]|\r\n[ \t]")
_LENGTHS = re.compile(rb"\ncontent-length:[ \t]*([^\r]*?)[ \t]*\r", re.IGNORECASE)


class RequestReader:
    """As `http.message.RequestReader`."""

    __slots__ = ("_parse",)

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._parse = _Parse(limits, responses=False)

    def feed(self, data: bytes) -> None:
        """Take what was received; b"" is the end of the stream. Raises `MessageError`."""
        self._parse.feed(data)

    def next_event(self) -> Event | None:
        """The next event in order, or None when more bytes are needed."""
        events = self._parse.events
        return events.popleft() if events else None

    def close(self) -> None:
        """Be done with: no more may be fed."""

    @property
    def in_message(self) -> bool:
        """Whether a request has begun to arrive and its `END` has not been handed out."""
        return self._parse.begun or bool(self._parse.events)


class ResponseReader:
    """As `http.message.ResponseReader`."""

    __slots__ = ("_limits", "_parse")

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self.reset()

    def feed(self, data: bytes) -> None:
        """Take what was received; b"" is the end of the stream. Raises `MessageError`."""
        self._parse.feed(data)

    def next_event(self) -> Event | None:
        """The next event in order, or None when more bytes are needed."""
        events = self._parse.events
        return events.popleft() if events else None

    def reset(self) -> None:
        """Be ready for the next response on the same connection."""
        self._parse = _Parse(self._limits, responses=True)

    def close(self) -> None:
        """Be done with: no more may be fed."""

    @property
    def started(self) -> bool:
        """Whether any byte of a reply came."""
        return self._parse.started

    @property
    def surplus(self) -> bool:
        """Whether bytes came after the end of the message."""
        return self._parse.surplus


class _Parse:
    """Heads are gathered in `_held`; `_cycle` is the h11 connection that reads the current body, if any."""

    __slots__ = (
        *("events", "over", "started", "surplus"),
        *("_blank", "_checked", "_cycle", "_failed", "_head", "_held", "_limits", "_parts", "_responses"),
    )

    def __init__(self, limits: Limits, *, responses: bool) -> None:
        self.events: deque[Event] = deque()
        self.over = False
        self.started = False
        self.surplus = False
        self._limits, self._responses = limits, responses
        self._failed: MessageError | None = None
        self._head: RequestHead | ResponseHead | None = None
        self._cycle: h11.Connection | None = None
        self._held = bytearray()
        self._blank = 0  # bytes of blank lines before the head
        self._checked = 0  # bytes of `_held` that have been checked
        self._parts: list[bytes] = []

    @property
    def begun(self) -> bool:
        return self._cycle is not None or bool(self._held)

    def feed(self, data: bytes) -> None:
        if self._failed is not None:
            raise self._failed
        try:
            if data:
                self._take(data)
            else:
                self._finish()
        except h11.RemoteProtocolError as exc:
            self._failed = MessageError(f"malformed message: {exc}", exc.error_status_hint)
            raise self._failed from exc
        except MessageError as exc:
            self._failed = exc
            raise
        finally:
            self._flush()

    def _take(self, data: bytes) -> None:
        self.started = True
        rest = data
        while rest:
            if self.over:
                self.surplus = True
                return
            rest = self._take_head(rest) if self._cycle is None else self._take_body(self._cycle, rest)

    def _take_head(self, data: bytes) -> bytes:
        """Add to the head; once it is whole, give it to h11 and return what comes behind it."""
        held, limit = self._held, self._limits.max_head
        if not held:
            stripped = data.lstrip(b"\r\n")  # RFC 9112, 2.2: ignore blank lines before a message
            self._blank += len(data) - len(stripped)
            data = stripped
        held += data
        end = held.find(b"\r\n\r\n", max(0, self._checked - 3)) + 4
        size = end if end > 3 else len(held)
        unsafe = _UNSAFE.search(held, max(0, self._checked - 2), min(size, limit - self._blank))
        if unsafe is not None:
            raise MessageError(f"malformed message: {unsafe.group()!r} in the head")
        self._checked = len(held)
        if self._blank + size > limit:
            if not self._responses and held and b"\r\n" not in held[:limit]:
                raise MessageError(f"request line of more than {limit} bytes", 414)
            raise MessageError(f"head of more than {limit} bytes", 431)
        if end <= 3:
            return b""
        head, rest = bytes(held[:end]), bytes(held[end:])
        held.clear()
        self._blank = self._checked = 0
        self._open(head)
        return rest

    def _open(self, head: bytes) -> None:
        lengths = _LENGTHS.findall(head)
        if len(lengths) > 1 or (lengths and not lengths[0].isdigit()):
            raise MessageError("bad or repeated Content-Length")
        cycle = h11.Connection(h11.CLIENT if self._responses else h11.SERVER, self._limits.max_head)
        if self._responses:  # h11 takes no response without having sent a request
            cycle.send(h11.Request(method="POST", target="/", headers=[("host", "-")]))
            cycle.send(h11.EndOfMessage())
        cycle.receive_data(head)
        self._head = self._judge(cycle.next_event())
        if self._head is not None:
            self._cycle = cycle
            self.events.append(self._head)
            self._pump(cycle)

    def _judge(self, event: object) -> RequestHead | ResponseHead | None:
        assert isinstance(event, h11.Request | h11.Response | h11.InformationalResponse), "the head was whole"
        headers = [(bytes(name), bytes(value)) for name, value in event.headers]
        if len(headers) > self._limits.max_headers:
            raise MessageError(f"more than {self._limits.max_headers} header fields", 431)
        version = bytes(event.http_version).decode()
        if isinstance(event, h11.Request):
            return request_head(bytes(event.method), bytes(event.target), version=version, headers=headers)
        return response_head(event.status_code, bytes(event.reason), version=version, headers=headers)

    def _take_body(self, cycle: h11.Connection, data: bytes) -> bytes:
        cycle.receive_data(data)
        return self._pump(cycle)

    def _pump(self, cycle: h11.Connection) -> bytes:
        """Read on in the body; return what comes behind its end."""
        while True:
            event = cycle.next_event()
            if isinstance(event, h11.Data):
                self._parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._complete()
                return cycle.trailing_data[0]
            else:
                assert event is h11.NEED_DATA, f"{event!r} inside a body"
                return b""

    def _complete(self) -> None:
        self._flush()
        self.events.append(END)
        self._cycle = None
        self.over = self._responses or (self._head is not None and not self._head.keep_alive)

    def _finish(self) -> None:
        if self.over or not (self.begun or (self._responses and self.started)):
            return
        endless = self._head is not None and self._head.length is None and not self._head.chunked
        if self._responses and self._cycle is not None and endless:
            self._complete()
            return
        raise MessageError("the message ended early: the peer closed the connection inside it")

    def _flush(self) -> None:
        if self._parts:
            self.events.append(b"".join(self._parts))
            self._parts.clear()
