"""Asking one upstream: a request out, a head and a body back, and every foreign error turned into a `Fault`.

An `Exchange` owns its connection from the first byte to `close`, which is synchronous and may be called at any point: a
connection whose reply was read whole goes back to the pool, any other is closed.

A reply that does not come on a kept-alive connection is retried once, on a fresh one, and only if not one byte of it
came: the provider closed the idle connection while our request was on its way (RFC 9112 9.3.1). That is no evidence.
"""

import contextlib
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

import trio
from attrs import define, field, frozen

from trioproxy.errors import AttemptError, Blame, Fault, FaultKind
from trioproxy.http.encoding import Decoder, EncodingError
from trioproxy.http.headers import get
from trioproxy.http.message import (
    DEFAULT_LIMITS,
    END,
    Event,
    Limits,
    MessageError,
    ResponseHead,
    ResponseReader,
    ResponseSource,
)
from trioproxy.http.pool import Connection, Pool
from trioproxy.http.silence import SilenceWatch
from trioproxy.http.wire import Dial, WireBroken

# What a kernel takes without waiting, by any default. Only what is longer is sent while we listen, which costs a task.
AT_ONCE = 65_536


@frozen
class Origin:
    """Where a channel is: what to dial, and the path and query that its base URL brings along."""

    host: str
    port: int
    tls: bool
    path: str
    query: str = ""

    @classmethod
    def from_url(cls, url: str) -> "Origin":
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
        return cls(parts.hostname or "", port, tls, parts.path.rstrip("/"), parts.query)

    @property
    def authority(self) -> str:
        """The Host header: the port only where it is not the scheme's own (RFC 9110 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


@define(eq=False)
class Upstream:
    """One channel's client: its origin, its pool and its way to connect."""

    origin: Origin
    dial: Dial
    pool: Pool
    tls: ssl.SSLContext | None = None
    connect_timeout: float = 5.0
    max_answer: int = 1 << 26
    reader: Callable[[Limits], ResponseSource] = ResponseReader
    silence: SilenceWatch = field(factory=SilenceWatch)

    async def connect(self) -> Connection:
        """A fresh connection. Raises `AttemptError`; nothing was sent if it does."""
        with trio.move_on_after(self.connect_timeout) as scope:
            try:
                wire = await self.dial(self.origin.host, self.origin.port, self.tls)
            except (OSError, WireBroken) as exc:
                raise AttemptError(_broken(FaultKind.CONNECT, "could not connect to the upstream")) from exc
            return Connection(wire, self.reader(DEFAULT_LIMITS))
        assert scope.cancelled_caught
        raise AttemptError(_broken(FaultKind.CONNECT, f"no connection within {self.connect_timeout:g} s"))


@define(eq=False)
class Exchange:
    """One request and its reply. One task at a time.

    Cancellation: after a cancelled `open` only `close` makes sense; a cancelled `receive` loses nothing.
    """

    upstream: Upstream
    reused: bool = field(init=False, default=False)
    head: ResponseHead | None = field(init=False, default=None)
    _connection: Connection | None = field(init=False, default=None)
    _sent: bool = field(init=False, default=False)  # the request, to its end
    _whole: bool = field(init=False, default=False)
    _decoder: Decoder | None = field(init=False, default=None)
    _ahead: Event | None = field(init=False, default=None)  # an event that `whole` looked at

    async def open(self, request: bytes) -> ResponseHead:
        """Send `request` and read the reply's head. Raises `AttemptError`."""
        connection = self.upstream.pool.take(trio.current_time())
        if connection is not None:
            self._connection, self.reused = connection, True
            head = await self._ask(connection, request)
            if head is not None:
                return head
            connection.close()
            self._connection, self.reused = None, False
        connection = self._connection = await self.upstream.connect()
        head = await self._ask(connection, request)
        if head is None:
            raise AttemptError(_broken(FaultKind.CUT, "the upstream closed the connection without an answer"))
        return head

    async def _ask(self, connection: Connection, request: bytes) -> ResponseHead | None:
        """The reply's head; None if the connection ended without one byte of a reply."""
        if len(request) <= AT_ONCE:
            await self._send(connection, request)
            return await self._head(connection)
        # A provider may refuse a long request (413, 401) before it has read all of it, and read no further.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, connection, request)
            try:
                said: ResponseHead | AttemptError | None = await self._head(connection)
            except AttemptError as exc:
                said = exc
            if not isinstance(said, ResponseHead) or said.status >= 300:
                nursery.cancel_scope.cancel("nobody will read the rest")
        if isinstance(said, AttemptError):
            raise said
        return said

    async def _send(self, connection: Connection, request: bytes) -> None:
        self._sent = False
        with contextlib.suppress(WireBroken):  # it may have answered and closed: what there is to read tells
            await connection.wire.send(request)
            self._sent = True

    async def _head(self, connection: Connection) -> ResponseHead | None:
        while True:
            try:
                data = await connection.wire.receive()
                connection.reader.feed(data)
                event = connection.reader.next_event()
            except (WireBroken, MessageError) as exc:
                if not connection.reader.started and isinstance(exc, WireBroken):
                    return None
                raise AttemptError(_broken(FaultKind.CUT, "the upstream's answer ended before its headers")) from exc
            if isinstance(event, ResponseHead):
                self.head = event
                self._unpack(event)
                return event
            if not data:
                return None

    async def receive(self) -> bytes:
        """The next bytes of the body, b"" at its end. Raises `AttemptError` where it ends early."""
        connection = self._connection
        assert connection is not None, "receive comes after open"
        while not self._whole:
            event, self._ahead = self._ahead or connection.reader.next_event(), None
            if event is END:
                self._whole = True
            elif isinstance(event, bytes):
                if self._decoder is None:
                    return event
                if unpacked := self._unpacked(self._decoder, event):
                    return unpacked
            else:
                await self._read_more(connection)
        return b""

    async def _read_more(self, connection: Connection) -> None:
        try:
            connection.reader.feed(await connection.wire.receive())
        except (WireBroken, MessageError, trio.ClosedResourceError) as exc:
            raise AttemptError(_broken(FaultKind.CUT, "the upstream's answer was cut")) from exc

    def _unpack(self, head: ResponseHead) -> None:
        """Take a coding off that the provider put on although we asked for none."""
        coding = get(head.headers, b"content-encoding")
        if coding is not None:
            try:
                self._decoder = Decoder(coding, self.upstream.max_answer)
            except EncodingError as exc:
                raise AttemptError(_broken(FaultKind.NOT_AN_ANSWER, f"the upstream's answer: {exc}")) from exc

    def _unpacked(self, decoder: Decoder, data: bytes) -> bytes:
        try:
            return decoder.feed(data)
        except EncodingError as exc:
            raise AttemptError(_broken(FaultKind.NOT_AN_ANSWER, f"the upstream's answer: {exc}")) from exc

    def whole(self) -> bool:
        """Whether the reply has been read to its end, as far as can be told without waiting."""
        if self._whole or self._connection is None:
            return self._whole
        if self._ahead is None:
            self._ahead = self._connection.reader.next_event()
        self._whole = self._ahead is END
        return self._whole

    @property
    def unanswered(self) -> bool:
        """Whether the request was sent to its end and no head of a reply came."""
        return self._sent and self.head is None

    def abort(self) -> None:
        """Close the connection under whoever reads it; `receive` says that it was cut. `close` must still follow."""
        if self._connection is not None:
            self._connection.wire.close()

    def close(self, now: float) -> None:
        """Give the connection back if the reply was read whole and may be followed by another; else close it."""
        whole, head = self.whole(), self.head
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if whole and self._sent and head is not None and head.keep_alive and not connection.reader.surplus:
            connection.reader.reset()
            self.upstream.pool.give_back(connection, now)
        else:
            connection.close()


def _broken(kind: FaultKind, message: str) -> Fault:
    return Fault(kind, Blame.PROVIDER, message, retry=True, counts=True)
