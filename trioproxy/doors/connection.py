"""One downstream connection: requests in, answers out, one after the other, for as long as both sides want.

The caller's presence is a cancel scope around all of it: when the peer goes away, whatever is under way for it is cancelled
on the spot, also while the upstream is still thinking. While the rest of a request is awaited the same scope carries the
deadline of that, and `_late` is what to say when it passes. Bytes that come ahead of their turn (pipelining) stay in the
reader and are answered in order.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import trio
from attrs import define, field

from trioproxy.answer import Answer
from trioproxy.call import Request, canonical_path
from trioproxy.config.model import Listen
from trioproxy.doors.patience import Patience
from trioproxy.doors.rejection import (
    Rejected,
    bad_target,
    broken,
    encoded,
    going_down,
    internal,
    repeated,
    status_line,
    too_large,
    too_slow,
)
from trioproxy.gateway import Gateway
from trioproxy.http.message import END, Event, MessageError, RequestHead, RequestSource
from trioproxy.http.wire import Wire, WireBroken
from trioproxy.journal import EndReason, ExchangeEnded

# A body may take `body_timeout` plus the time its bytes need at this rate: a big upload on a slow line is fine, a byte a
# second is not.
MIN_RATE = 32_768
PIECE = 65_536
# After a rejection what the peer is still sending is read and dropped for a moment: closing with unread bytes would reset the
# connection and take the answer along (RFC 9112, 9.6).
LINGER = 1.0

LAST_CHUNK = b"0\r\n\r\n"
# What says who asks, or for how long, may come once only: two readers of one request must not choose differently.
_SINGLE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"x-api-key",
        b"x-request-id",
        b"x-request-timeout",
        b"x-stainless-timeout",
        b"x-trioproxy-class",
        b"x-trioproxy-user",
    }
)


@define(eq=False)
class Connection:
    """One connection's life. `date` gives a Date header's value; `report` takes a fault of our own."""

    wire: Wire
    gateway: Gateway
    limits: Listen
    reader: RequestSource
    date: Callable[[], bytes]
    report: Callable[[Exception], None]
    patience: "Patience[Connection]"
    _leaving: bool = field(init=False, default=False)
    _stopped: bool = field(init=False, default=False)
    _busy: bool = field(init=False, default=False)
    _unread: bool = field(init=False, default=False)  # the rest of a request's body is still coming
    _begun: bool = field(init=False, default=False)  # a byte of the present answer has gone out
    _started: float = field(init=False, default=0.0)
    _late: Rejected | None = field(init=False, default=None)
    _fault: MessageError | None = field(init=False, default=None)  # what the peer broke, told in its turn
    _answer: Answer | None = field(init=False, default=None)
    _presence: trio.CancelScope = field(init=False, factory=trio.CancelScope)

    async def run(self) -> None:
        """Serve until either side has had enough. Raises nothing but a cancellation from outside."""
        try:
            with self._presence:
                self.wire.watch_hangup(self._hung_up)
                while await self._serve_one():
                    pass
            if self._late is not None and trio.current_time() >= self._presence.deadline:
                self._note(self._late)
                self._say_now(self._late)
            elif self._stopped and self._busy and not self._begun:
                self._say_now(going_down())
        except WireBroken:
            pass
        except Exception as bug:  # noqa: BLE001 - the boundary: a bug ends this exchange, and no other
            self.report(bug)
            if not self._begun:
                self._say_now(internal())
        finally:
            self.patience.end(self)
            self.wire.close()
            self.reader.close()

    def leave(self) -> None:
        """End after the present answer; at once where there is none."""
        self._leaving = True
        if not self._busy:
            self.cut()

    def interrupt(self) -> None:
        """A drain's deadline has passed: end soon, and say so where a stream is on its way."""
        if self._answer is None or self._answer.whole:
            self.cut()
        else:
            self._answer.interrupt()

    def cut(self) -> None:
        """End now."""
        self._presence.cancel("drain")
        self._stopped = True

    def give_up(self) -> None:
        """End without a word: no request has come for as long as is borne."""
        self._presence.cancel("idle")

    def _hung_up(self) -> None:
        answer = self._answer
        if answer is not None and answer.drain and not answer.delivered:
            answer.lost = True
            self._presence.deadline = trio.current_time() + answer.drain
        else:
            self._presence.cancel("client went away")

    async def _serve_one(self) -> bool:
        """One request and its answer; whether another may follow."""
        self._begun = self._busy = False
        self._answer = None
        try:
            head = await self._read_head()
            if head is None:
                return False
            path, headers = _path(head.target), _headers(head)
            body = await self._read_body(head, headers)
            request = Request(head.method.decode("latin-1"), path, headers, body, self._started)
        except (MessageError, Rejected) as exc:
            await self._reject(broken(exc) if isinstance(exc, MessageError) else exc)
            return False
        async with self.gateway.dispatch(request) as answer:
            self._answer = answer
            await self._send_answer(answer, head)
        if self._unread:
            await self._linger()
        return head.keep_alive and not self._leaving and not answer.lost

    # In

    async def _read_head(self) -> RequestHead | None:
        """The next request's head; None where the peer has no further request."""
        self._started = trio.current_time()
        event = self._next()
        if event is None and self.reader.in_message:  # its first bytes came with the request before it
            self._expect("head", self.limits.head_timeout)
        elif event is None:
            self.patience.begin(self, self._started)
        while event is None:
            data = await self.wire.receive()
            if not data:
                return None
            begins = not self.reader.in_message
            self._feed(data)
            event = self._next()
            if begins and (event is not None or self.reader.in_message):
                self.patience.end(self)
                self._started = trio.current_time()
                if event is None:
                    self._expect("head", self.limits.head_timeout)
        self._busy = True
        if self._late is not None:
            self._arrived()
        assert isinstance(event, RequestHead), "a message begins with its head"
        return event

    async def _read_body(self, head: RequestHead, headers: Mapping[bytes, bytes]) -> bytes:
        if head.length is not None and head.length > self.limits.max_body:
            raise too_large(self.limits)
        first = self._next()
        if first is END:
            return b""
        if isinstance(first, bytes) and len(first) == head.length:
            self.reader.next_event()  # its END, which came with the last byte
            return first
        if not self.gateway.recognises(headers):  # it will be told so; its body is not taken in before
            self._leaving = self._unread = True
            return b""
        return await self._read_long_body(head, first if isinstance(first, bytes) else b"")

    async def _read_long_body(self, head: RequestHead, first: bytes) -> bytes:
        parts, size = [first], len(first)
        self._expect("body", self.limits.body_timeout)
        patience = self._presence.deadline
        if head.expects_continue and not first:
            await self.wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while size <= self.limits.max_body and (event := self._next()) is not END:
            if isinstance(event, bytes):
                parts.append(event)
                size += len(event)
                self._presence.deadline = patience + size / MIN_RATE
            else:
                self._feed(await self.wire.receive())
        if size > self.limits.max_body:
            raise too_large(self.limits)
        self._arrived()
        return b"".join(parts)

    def _feed(self, data: bytes) -> None:
        try:
            self.reader.feed(data)
        except MessageError as exc:
            self._fault = exc

    def _next(self) -> Event | None:
        """The next event. A fault is told in its turn: what came whole before it is answered first."""
        event = self.reader.next_event()
        if event is None and self._fault is not None:
            raise self._fault
        return event

    def _expect(self, what: str, seconds: float) -> None:
        """Wait no longer than this for the rest of a request."""
        self._late = too_slow(what, seconds)
        self._presence.deadline = trio.current_time() + seconds

    def _arrived(self) -> None:
        self._late = None
        self._presence.deadline = math.inf

    # Out

    async def _send_answer(self, answer: Answer, head: RequestHead) -> None:
        answer.on_its_way = True
        try:
            if answer.whole:
                await self._send_whole(answer, head)
            else:
                await self._send_stream(answer, head)
            answer.on_its_way = False
        except WireBroken:
            answer.lost = True
            self._hung_up()
        while answer.lost and answer.drain and not answer.ended:  # for what the provider says of usage at the end
            await answer.receive()

    async def _send_whole(self, answer: Answer, head: RequestHead) -> None:
        body = await answer.receive()
        framing = b"content-length: %d\r\n" % len(body)
        start = self._head(answer.status, answer.lines, framing, head)
        await self._send(start if head.method == b"HEAD" else start + body)

    async def _send_stream(self, answer: Answer, head: RequestHead) -> None:
        """Chunks as they come. A peer of HTTP/1.0 gets the bytes as they are, until the connection closes."""
        chunked = head.version != "1.0"
        head.keep_alive = head.keep_alive and chunked  # what has no framing ends with its connection
        framing = b"transfer-encoding: chunked\r\n" if chunked else b""
        out = self._head(answer.status, answer.lines, framing, head)
        if not answer.ready:
            await self._send(out)
            out = b""
        while True:
            data = await answer.receive()
            parts = [out]  # joined once: a burst of 50 KB is copied once, not three times
            if data:
                parts += (b"%x\r\n" % len(data), data, b"\r\n") if chunked else (data,)
            if answer.ended and chunked:
                parts.append(LAST_CHUNK)
            if answer.lost:
                return
            await self._send(b"".join(parts))
            if answer.ended:
                return
            out = b""

    def _head(self, status: int, lines: bytes, framing: bytes, head: RequestHead) -> bytes:
        close = b""
        if not head.keep_alive or self._leaving:
            close = b"connection: close\r\n"
        elif head.version == "1.0":
            close = b"connection: keep-alive\r\n"
        return b"%b%b%b%bdate: %b\r\n\r\n" % (status_line(status), lines, framing, close, self.date())

    async def _send(self, data: bytes) -> None:
        """Send; wait only where the kernel's buffer is full, and then piece by piece, each in its own time."""
        self._begun = True
        taken = self.wire.send_now(data)
        while taken < len(data):
            with trio.move_on_after(self.limits.write_timeout) as scope:
                await self.wire.send(data[taken : taken + PIECE])
            if scope.cancelled_caught:
                raise WireBroken(f"the client took nothing for {self.limits.write_timeout:g} s")
            taken += PIECE

    # Rejections

    async def _reject(self, rejected: Rejected) -> None:
        """Say why, and let the peer read it before the connection goes."""
        self._arrived()
        self._note(rejected)
        await self._send(encoded(rejected, self.date()))
        await self._linger()

    async def _linger(self) -> None:
        with trio.move_on_after(LINGER), contextlib.suppress(WireBroken):
            while await self.wire.receive():
                pass

    def _note(self, rejected: Rejected) -> None:
        duration = trio.current_time() - self._started
        self.gateway.journal.emit(
            ExchangeEnded(
                "",
                EndReason.REFUSED_REQUEST,
                rejected.status,
                "",
                started=self._started,
                duration=duration,
                overhead=duration,
                note=rejected.code,
            )
        )

    def _say_now(self, rejected: Rejected) -> None:
        with contextlib.suppress(WireBroken):
            self.wire.send_now(encoded(rejected, self.date()))


@lru_cache(maxsize=256)  # callers use a handful of paths; a hostile one only evicts
def _path(target: bytes) -> str:
    text = target.decode("latin-1")
    if text.lower().startswith(("http://", "https://")):  # absolute form, which a server must take (RFC 9112, 3.2.2)
        text = "/" + text.split("://", 1)[1].partition("?")[0].partition("/")[2]
    elif text == "*":
        return text
    try:
        return canonical_path(text)
    except ValueError:
        raise bad_target() from None


def _headers(head: RequestHead) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in head.headers:
        if name not in headers:
            headers[name] = value
        elif name in _SINGLE:
            raise repeated(name)
        else:
            headers[name] = b"%b, %b" % (headers[name], value)
    return headers
