"""A scripted upstream on a real socket: speaks OpenAI chat, and breaks on request.

`POST /break?mode=503&for=30` makes every chat call fail in that mode for 30 seconds (without `for`, until the next order);
`mode=ok` mends it. `GET /` says how it is. What it does is decided by its `Manner` and its mode alone: every run is the same.

Whoever hangs up ends only its own connection; a stalled call ends when its client leaves.
"""

import contextlib
import enum
import itertools
import json
import math
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import trio
from attrs import define, field, frozen

from trioproxy.http.message import END, Event, MessageError, RequestHead, RequestReader
from trioproxy.http.wire import Wire, WireBroken, adopt
from trioproxy.sim import answers

HTML = b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"


class Mode(enum.Enum):
    """How chat calls fare. Values are what `/break?mode=` takes."""

    OK = "ok"
    ERROR_500 = "500"
    ERROR_503 = "503"
    RATE_429 = "429"
    STALL = "stall"  # takes the call and never answers
    CUT = "cut"  # answers half, then closes
    ERROR_IN_STREAM = "error-in-stream"  # a 200 whose stream, or body, is an error
    HTML = "html"  # a 200 that is some proxy's page


ERRORS = {
    Mode.ERROR_500: (500, "the server had an error", "server_error"),
    Mode.ERROR_503: (503, "the engine is overloaded, try again later", "overloaded_error"),
    Mode.RATE_429: (429, "rate limit reached for requests", "rate_limit_exceeded"),
}


@frozen
class Manner:
    """How an upstream is when nothing breaks it. Seconds to the first token and between tokens; every `trips`-th chat
    call fails with 503, 0 for none.
    """

    first: float = 0.2
    every: float = 0.03
    trips: int = 0


@frozen
class Question:
    """One request, read whole."""

    head: RequestHead
    body: bytes

    @property
    def method(self) -> str:
        return self.head.method.decode("ascii")

    @property
    def path(self) -> str:
        return urlsplit(self.head.target.decode("latin-1")).path

    @property
    def query(self) -> dict[str, str]:
        query = urlsplit(self.head.target.decode("latin-1")).query
        return {name: values[-1] for name, values in parse_qs(query).items()}


@define(eq=False)
class ScriptedUpstream:
    """One provider. `calls` counts chat calls, `answered` those that went well."""

    name: str
    models: tuple[str, ...]
    manner: Manner = field(factory=Manner)
    calls: int = field(init=False, default=0)
    answered: int = field(init=False, default=0)
    _mode: Mode = field(init=False, default=Mode.OK)
    _until: float = field(init=False, default=math.inf)
    _ids: Iterator[int] = field(init=False, factory=lambda: itertools.count(1))

    def break_down(self, mode: Mode, seconds: float = math.inf) -> None:
        """Be in this mode for so long, from now."""
        self._mode = mode
        self._until = trio.current_time() + seconds

    def mode(self) -> Mode:
        """The mode at the moment."""
        return self._mode if trio.current_time() < self._until else Mode.OK

    async def run(self, host: str = "127.0.0.1", port: int = 0, *, task_status: trio.TaskStatus[int]) -> None:
        """Serve until cancelled. Reports the port once it listens; raises `OSError` where it cannot."""
        listeners = await trio.open_tcp_listeners(port, host=host)
        task_status.started(listeners[0].socket.getsockname()[1])
        await trio.serve_listeners(self._accept, listeners)

    async def _accept(self, stream: trio.SocketStream) -> None:
        await self.serve(adopt(stream))

    async def serve(self, wire: Wire) -> None:
        """Answer one connection until it ends."""
        reader = RequestReader()
        try:
            while (question := await _read(wire, reader)) is not None and await self._answer(question, wire):
                pass
        except MessageError as exc:
            with trio.move_on_after(1):
                await _refuse(wire, exc)
        except WireBroken:
            pass  # the client left
        finally:
            wire.close()

    async def _answer(self, question: Question, wire: Wire) -> bool:
        """Answer one request. Whether the connection may serve another."""
        match question.method, question.path:
            case "POST", "/v1/chat/completions":
                return await self._chat(question, wire) and question.head.keep_alive
            case "GET", "/v1/models":
                await _reply(wire, 200, answers.models(self.models, self.name))
            case "POST", "/break":
                await _reply(wire, *self._obey(question.query))
            case "GET", "/":
                await _reply(wire, 200, self._state())
            case method, path:
                await _reply(wire, 404, answers.error_body(f"unknown: {method} {path}", "invalid_request_error"))
        return question.head.keep_alive

    def _obey(self, order: dict[str, str]) -> tuple[int, bytes]:
        try:
            mode, seconds = Mode(order.get("mode", "503")), float(order.get("for", "inf"))
        except ValueError:
            modes = ", ".join(mode.value for mode in Mode)
            return 400, answers.error_body(f"mode is one of {modes}; for is seconds", "invalid_request_error")
        self.break_down(mode, seconds)
        return 200, self._state()

    def _state(self) -> bytes:
        left = self._until - trio.current_time() if self.mode() is not Mode.OK else 0.0
        state = {"upstream": self.name, "mode": self.mode().value, "calls": self.calls, "answered": self.answered}
        return json.dumps(state | {"seconds_left": round(left, 1) if math.isfinite(left) else None}).encode() + b"\n"

    async def _chat(self, question: Question, wire: Wire) -> bool:
        self.calls += 1
        mode = self.mode()
        if mode is Mode.OK and self.manner.trips and self.calls % self.manner.trips == 0:
            mode = Mode.ERROR_503
        if mode in ERRORS:
            status, message, type_ = ERRORS[mode]
            retry = ((b"retry-after", b"5"),) if mode is Mode.RATE_429 else ()
            await _reply(wire, status, answers.error_body(f"{self.name}: {message}", type_), *retry)
            return True
        if mode is Mode.HTML:
            await _reply(wire, 200, HTML, (b"content-type", b"text/html"))
            return True
        if mode is Mode.STALL:
            while await wire.receive():
                pass
            return False
        return await self._say(question, wire, mode)

    async def _say(self, question: Question, wire: Wire, mode: Mode) -> bool:
        try:
            script = answers.script_for(question.body, self.name)
        except answers.BadQuestion as exc:
            await _reply(wire, 400, answers.error_body(str(exc), "invalid_request_error"))
            return True
        id_ = f"chatcmpl-{self.name}-{next(self._ids)}"
        if json.loads(question.body).get("stream"):
            whole = await self._stream(wire, [*answers.frames(script, id_, created=0)], mode)
        else:
            whole = await self._unary(wire, answers.completion(script, id_, created=0), mode)
        self.answered += mode is Mode.OK
        return whole

    async def _unary(self, wire: Wire, body: bytes, mode: Mode) -> bool:
        await trio.sleep(self.manner.first)
        if mode is Mode.ERROR_IN_STREAM:
            body = self._inner_error()
        if mode is Mode.CUT:
            await wire.send(_head(200, (b"content-length", b"%d" % len(body))) + body[: len(body) // 2])
            return False
        await _reply(wire, 200, body)
        return True

    async def _stream(self, wire: Wire, frames: list[bytes], mode: Mode) -> bool:
        if mode is Mode.ERROR_IN_STREAM:
            frames = [frames[0], b"data: " + self._inner_error() + b"\n\n", answers.DONE]
        if mode is Mode.CUT:
            frames = frames[: len(frames) // 2]
        await wire.send(_head(200, (b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked")))
        await trio.sleep(self.manner.first)
        for frame in frames:
            await wire.send(b"%x\r\n%b\r\n" % (len(frame), frame))
            await trio.sleep(self.manner.every)
        if mode is Mode.CUT:
            return False
        await wire.send(b"0\r\n\r\n")
        return True

    def _inner_error(self) -> bytes:
        return answers.error_body(f"{self.name}: the engine failed", "server_error", 502)


async def _read(wire: Wire, reader: RequestReader) -> Question | None:
    """The next request, or None at the end. Raises `MessageError` and `WireBroken`."""
    head: RequestHead | None = None
    body = bytearray()
    while (event := await _event(wire, reader)) is not END:
        if event is None:
            return None
        if isinstance(event, RequestHead):
            head = event
            if event.expects_continue:
                await wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        else:
            assert isinstance(event, bytes), "a request has no other events"
            body += event
    assert head is not None, "END comes after a head"
    return Question(head, bytes(body))


async def _event(wire: Wire, reader: RequestReader) -> Event | None:
    while (event := reader.next_event()) is None:
        data = await wire.receive()
        reader.feed(data)
        if not data:
            return None
    return event


async def _refuse(wire: Wire, fault: MessageError) -> None:
    with contextlib.suppress(WireBroken):  # who speaks no HTTP need not hear it
        await _reply(wire, fault.status, answers.error_body(str(fault), "invalid_request_error"))


def _head(status: int, *headers: tuple[bytes, bytes]) -> bytes:
    lines = [b"HTTP/1.1 %d Scripted" % status, *(b"%b: %b" % header for header in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _reply(wire: Wire, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    names = {name for name, _ in headers}
    kind = () if b"content-type" in names else ((b"content-type", b"application/json"),)
    await wire.send(_head(status, *kind, *headers, (b"content-length", b"%d" % len(body))) + body)
