"""One side of the exam, A or B: an HTTP server whose every desk plays one case's script and keeps count.

A desk is the first part of the path: `/s01-unary/v1/chat/completions`. So one server serves a whole exam, and a case sees only
its own calls. Each desk notes when it was asked what.
"""

import json
import socket
import struct
from collections.abc import Awaitable, Callable

import trio
from attrs import define, field, frozen

from bench.exam.speech import Json
from trioproxy.http.message import END, MessageError, RequestHead, RequestReader

READ_SIZE = 65_536


class HangUp(Exception):
    """The script ends the connection here; `args[0]` says whether with a reset."""


@frozen
class Hit:
    """One call that arrived: when (Trio's clock), and its body."""

    at: float
    asked: Json


@define(eq=False)
class Exchange:
    """One call under way, for the script to answer. `number` counts the desk's calls from 1, `since` is seconds from the first."""

    stream: trio.SocketStream
    asked: Json
    number: int
    since: float

    @property
    def streamed(self) -> bool:
        """Whether a stream was asked for."""
        return bool(self.asked.get("stream"))

    async def whole(self, status: int, body: bytes, *headers: bytes) -> None:
        """A whole JSON answer."""
        await self.stream.send_all(head(status, b"content-type: application/json", *headers, length(body)) + body)

    async def open(self, kind: bytes = b"text/event-stream") -> None:
        """The head of an answer in chunks."""
        await self.stream.send_all(head(200, b"content-type: " + kind, b"transfer-encoding: chunked"))

    async def send(self, *frames: bytes) -> None:
        """Each as one HTTP chunk, all in one write."""
        await self.stream.send_all(b"".join(b"%x\r\n%b\r\n" % (len(data), data) for data in frames))

    async def close(self) -> None:
        """The end of an answer in chunks."""
        await self.stream.send_all(b"0\r\n\r\n")


Step = Callable[[Exchange], Awaitable[None]]


@define(eq=False)
class Desk:
    """What one case has on this side: a script and the calls that came."""

    step: Step
    hits: list[Hit] = field(factory=list, init=False)

    async def serve(self, stream: trio.SocketStream, body: bytes) -> None:
        """Answer one call. Raises `HangUp` where the script says so."""
        asked = json.loads(body)
        self.hits.append(Hit(trio.current_time(), asked))
        await self.step(Exchange(stream, asked, len(self.hits), self.hits[-1].at - self.hits[0].at))


def head(status: int, *headers: bytes) -> bytes:
    """Status line and headers."""
    return b"\r\n".join((b"HTTP/1.1 %d Scripted" % status, *headers, b"", b""))


def length(body: bytes) -> bytes:
    """The header that says how long the body is."""
    return b"content-length: %d" % len(body)


@define(eq=False)
class Provider:
    """All desks of one side."""

    desks: dict[str, Desk]
    port: int = field(default=0, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve on loopback until cancelled, on a port of the system's choice."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self.accept, listeners)

    async def accept(self, stream: trio.SocketStream) -> None:
        """One connection; whoever breaks it ends only that."""
        try:
            await self.converse(stream)
        except HangUp as end:
            if end.args[0]:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (trio.BrokenResourceError, MessageError):
            pass  # the client left, or speaks no HTTP

    async def converse(self, stream: trio.SocketStream) -> None:
        """Requests one after another, until the client closes."""
        reader, asked, body = RequestReader(), None, b""
        while True:
            event = reader.next_event()
            if event is None:
                data = await stream.receive_some(READ_SIZE)
                if not data:
                    return
                reader.feed(data)
            elif isinstance(event, RequestHead):
                asked, body = event, b""
            elif event is END:
                assert asked is not None, "END comes after a head"
                await self.answer(stream, asked, body)
            else:
                assert isinstance(event, bytes), "a request has no other events"
                body += event

    async def answer(self, stream: trio.SocketStream, asked: RequestHead, body: bytes) -> None:
        """By the desk that the path names; anything but a chat call is unknown and not counted."""
        _, name, *rest = asked.target.decode("latin-1").split("/")
        desk = self.desks.get(name)
        if desk is None or rest[-1:] != ["completions"]:
            await stream.send_all(head(404, length(b"{}")) + b"{}")
        else:
            await desk.serve(stream, body)
