"""A scripted upstream: what it does to each request is a list of steps, what it saw is there to be asserted.

A step is `async (Exchange) -> None`; the n-th request meets the n-th step and the last step repeats. Ready-made steps are
in `tests.fakes.steps`. A step is cancelled when the other side hangs up, and the moment is kept in `closed_at`.
"""

import gzip
import json
import socket
import struct
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define, field

from tests.fakes.http1 import Cut, Head, Reader
from tests.fakes.network import MemoryWire, Network
from trioproxy.http.wire import HangupWatch, SocketWire, Wire, WireBroken, adopt

Headers = Iterable[tuple[str, str]]
Step = Callable[["Exchange"], Awaitable[None]]


@define(eq=False)
class Received:
    """One request as it came. `arrived` is seconds on Trio's clock, when its last byte was in."""

    head: Head
    body: bytes
    arrived: float
    connection: int  # counts from 1
    complete: bool = True

    @property
    def method(self) -> str:
        return self.head.start.split(" ")[0]

    @property
    def target(self) -> str:
        return self.head.start.split(" ")[1]

    @property
    def headers(self) -> dict[str, str]:
        return self.head.headers

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@define(eq=False)
class Exchange:
    """One request and the verbs to answer it with. `number` counts requests from 1."""

    upstream: "FakeUpstream"
    request: Received
    number: int
    _wire: Wire
    keep: bool = field(init=False, default=True)
    _chunked: bool = field(init=False, default=False)
    _deflate: Any = field(init=False, default=None)

    async def send(self, data: bytes) -> None:
        """These bytes, in one write."""
        await self._wire.send(data)

    async def send_in(self, *pieces: bytes, every: float = 0.05) -> None:
        """Separate writes, `every` seconds apart."""
        for number, piece in enumerate(pieces):
            if number:
                await trio.sleep(every)
            await self.send(piece)

    async def reply(self, status: int, body: object = b"", headers: Headers = (), *, gzipped: bool = False) -> None:
        """A whole answer in one write. A body that is not bytes is sent as JSON. Headers given win over ours."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = list(headers)
        if gzipped:
            raw = gzip.compress(raw)
            given.append(("content-encoding", "gzip"))
        names = {name.lower() for name, _ in given}
        if "content-type" not in names and raw:
            given.append(("content-type", "application/json"))
        if not names & {"content-length", "transfer-encoding"}:
            given.append(("content-length", str(len(raw))))
        self._mind(given)
        await self.send(head_bytes(status, given) + raw)

    async def start(
        self, status: int = 200, headers: Headers = (), *, chunked: bool = True, gzipped: bool = False
    ) -> None:
        """The head of a streamed answer; without `chunked` its end is the end of the connection."""
        given = list(headers)
        if not any(name.lower() == "content-type" for name, _ in given):
            given.append(("content-type", "text/event-stream"))
        if gzipped:
            given.append(("content-encoding", "gzip"))
            self._deflate = zlib.compressobj(wbits=31)
        if chunked:
            given.append(("transfer-encoding", "chunked"))
        self.keep = self.keep and chunked
        self._chunked = chunked
        self._mind(given)
        await self.send(head_bytes(status, given))

    async def write(self, data: bytes) -> None:
        """A piece of the streamed body, in one write and, where chunked, one chunk."""
        if self._deflate is not None:
            data = self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self.send(chunk(data) if self._chunked else data)

    async def end(self) -> None:
        """The regular end of a streamed answer."""
        tail = self._deflate.flush() if self._deflate is not None else b""
        if self._chunked:
            await self.send((chunk(tail) if tail else b"") + b"0\r\n\r\n")
        else:
            await self.send(tail)
            self.fin()

    async def closed(self) -> None:
        """Wait until the other side hangs up; the step ends there."""
        await trio.sleep_forever()

    def fin(self) -> None:
        """Close the connection after what was sent."""
        self.keep = False
        self._wire.close()

    def reset(self) -> None:
        """Close the connection with RST."""
        self.keep = False
        reset(self._wire)

    def _mind(self, headers: Headers) -> None:
        if any(name.lower() == "connection" and value.lower() == "close" for name, value in headers):
            self.keep = False


@define(eq=False)
class FakeUpstream:
    """One upstream. `hits` counts requests whose head came in, `closed_at` the times at which the other side hung up."""

    name: str = "a"
    host: str = field()
    port: int = 80
    requests: list[Received] = field(init=False, factory=list)
    hits: int = field(init=False, default=0)
    connections: int = field(init=False, default=0)
    open: int = field(init=False, default=0)
    closed_at: list[float] = field(init=False, factory=list)
    errors: list[BaseException] = field(init=False, factory=list)
    _steps: list[Step] = field(init=False, factory=list)
    _arrived: trio.Event = field(init=False, factory=trio.Event)

    @host.default
    def _host(self) -> str:
        return f"{self.name}.test"

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"

    def script(self, *steps: Step) -> "FakeUpstream":
        """Do these, one a request, the last for ever; counting begins anew."""
        self._steps = list(steps)
        return self

    def listen(self, network: Network) -> "FakeUpstream":
        """Be reachable in a network in memory."""
        network.listen(self.host, self.port, self.serve)
        return self

    async def wait_hits(self, count: int) -> None:
        """Wait until so many requests are in."""
        while self.hits < count:
            await self._arrived.wait()

    async def serve(self, wire: Wire) -> None:
        """Answer one connection until either side is done with it."""
        self.connections += 1
        self.open += 1
        number = self.connections
        try:
            with trio.CancelScope() as scope:
                wire.watch_hangup(lambda: self._hung_up(scope))
                await self._converse(wire, number)
            wire.watch_hangup(None)
        except (WireBroken, trio.ClosedResourceError) as exc:
            self.errors.append(exc)
        finally:
            self.open -= 1
            wire.close()

    async def _converse(self, wire: Wire, connection: int) -> None:
        reader = Reader(wire)
        while (head := await reader.head()) is not None:
            self.hits += 1
            step = self._next_step()
            number = self.hits
            self._arrived.set()
            self._arrived = trio.Event()
            request = await self._receive(reader, head, connection)
            self.requests.append(request)
            exchange = Exchange(self, request, number, wire)
            exchange.keep = request.complete and request.headers.get("connection", "").lower() != "close"
            await step(exchange)
            if not exchange.keep:
                return

    async def _receive(self, reader: Reader, head: Head, connection: int) -> Received:
        try:
            body, complete = await reader.body(head), True
        except Cut as cut:
            body, complete = cut.partial, False
        return Received(head, body, trio.current_time(), connection, complete)

    def _next_step(self) -> Step:
        assert self._steps, f"upstream {self.name} was asked but has no script"
        return self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]

    def _hung_up(self, scope: trio.CancelScope) -> None:
        self.closed_at.append(trio.current_time())
        scope.cancel("the other side hung up")


def head_bytes(status: int, headers: Headers) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def reset(wire: Wire) -> None:
    """RST, on a wire in memory or on a socket."""
    if isinstance(wire, MemoryWire):
        wire.reset()
    elif isinstance(wire, SocketWire):
        wire._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.close()
    else:
        raise TypeError(f"no reset on {wire!r}")


@asynccontextmanager
async def on_loopback(*upstreams: FakeUpstream) -> AsyncGenerator[None]:
    """Serve these over real sockets on 127.0.0.1; sets each one's `host` and `port`."""
    hangups = HangupWatch()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hangups.run)
            for upstream in upstreams:

                async def handler(stream: trio.SocketStream, upstream: FakeUpstream = upstream) -> None:
                    await upstream.serve(adopt(stream, hangups))

                (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
                upstream.host, upstream.port = listener.socket.getsockname()[:2]
                nursery.start_soon(trio.serve_listeners, handler, [listener])
            yield
            nursery.cancel_scope.cancel("the upstreams' block has ended")
    finally:
        hangups.close()
