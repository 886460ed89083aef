"""The baseline: the least a Trio relay can do, httptools on both sides, no features.

It parses both messages, keeps upstream connections, frames the answer anew and looks at nothing. What a gateway on Trio costs
above this is what its features cost; ratios to it hold on any machine where absolute figures do not.

With `structured`, each request also has its own nursery, a deadline and its body decoded as JSON: the floor for a gateway that
promises structured concurrency and looks at what it relays, still without a feature.
"""

import json

import httptools
import trio
from attrs import define, field

READ_SIZE = 65_536
DEADLINE = 240.0  # trioproxy's own for response headers
HOP_BY_HOP = (b"connection", b"keep-alive", b"transfer-encoding")


@define(eq=False)
class Message:
    """What httptools said about one message so far."""

    url: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(factory=list)
    body: list[bytes] = field(factory=list)
    headed: bool = False
    done: bool = False

    def reset(self) -> None:
        """Begin with the next message."""
        self.url = b""
        self.headers = []
        self.body = []
        self.headed = self.done = False

    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self.headed = True

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self.body.append(data)

    def on_message_complete(self) -> None:
        """The message is whole."""
        self.done = True

    def take(self) -> bytes:
        """The body bytes that came since the last call."""
        data = b"".join(self.body)
        self.body.clear()
        return data


@define(eq=False)
class Upstream:
    """One connection to the provider."""

    stream: trio.SocketStream
    message: Message
    parser: httptools.HttpResponseParser

    @classmethod
    async def open(cls, port: int) -> "Upstream":
        """Connect. Raises `OSError`."""
        sock = trio.socket.socket()
        await sock.connect(("127.0.0.1", port))
        message = Message()
        return cls(trio.SocketStream(sock), message, httptools.HttpResponseParser(message))

    async def read(self) -> None:
        """Parse what comes next. Raises `trio.BrokenResourceError` when nothing does."""
        data = await self.stream.receive_some(READ_SIZE)
        if not data:
            raise trio.BrokenResourceError("the provider closed")
        self.parser.feed_data(data)


@define(eq=False)
class Relay:
    """Relays to one provider on this machine."""

    upstream_port: int
    structured: bool = False
    idle: list[Upstream] = field(factory=list, init=False)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One downstream connection, until either side goes away."""
        message = Message()
        parser = httptools.HttpRequestParser(message)
        try:
            while True:
                while not message.done:
                    data = await stream.receive_some(READ_SIZE)
                    if not data:
                        return
                    parser.feed_data(data)
                if self.structured:
                    await self.exchange_structured(stream, message)
                else:
                    await self.exchange(stream, message)
                message.reset()
        except* (trio.BrokenResourceError, httptools.HttpParserError, ValueError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def exchange_structured(self, stream: trio.SocketStream, request: Message) -> None:
        """The same in a nursery of its own, under a deadline, with the body decoded."""
        json.loads(b"".join(request.body) or b"{}")
        async with trio.open_nursery():
            with trio.move_on_after(DEADLINE):
                await self.exchange(stream, request)

    async def exchange(self, stream: trio.SocketStream, request: Message) -> None:
        """One request and its answer. The upstream connection is kept only when the answer ended well."""
        upstream = self.idle.pop() if self.idle else await Upstream.open(self.upstream_port)
        try:
            await upstream.stream.send_all(request_bytes(request))
            await relay_answer(upstream, stream)
        except BaseException:
            await trio.aclose_forcefully(upstream.stream)
            raise
        upstream.message.reset()
        self.idle.append(upstream)


async def relay_answer(upstream: Upstream, stream: trio.SocketStream) -> None:
    """Pass the answer on as it comes: one write for each read."""
    answer = upstream.message
    while not answer.headed:
        await upstream.read()
    sized = any(name == b"content-length" for name, _ in answer.headers)
    out = b"HTTP/1.1 %d OK\r\n%s%s\r\n" % (
        upstream.parser.get_status_code(),
        header_bytes(answer),
        b"" if sized else b"transfer-encoding: chunked\r\n",
    )
    while True:
        data = answer.take()
        out += data if sized or not data else b"%x\r\n%s\r\n" % (len(data), data)
        if answer.done:
            break
        if data:
            await stream.send_all(out)
            out = b""
        await upstream.read()
    await stream.send_all(out if sized else out + b"0\r\n\r\n")


def request_bytes(request: Message) -> bytes:
    """The request as the provider gets it."""
    return b"POST %s HTTP/1.1\r\n%s\r\n%s" % (request.url, header_bytes(request), request.take())


def header_bytes(message: Message) -> bytes:
    """A message's headers less those that belong to one connection."""
    return b"".join([b"%s: %s\r\n" % header for header in message.headers if header[0] not in HOP_BY_HOP])


async def serve(port: int, upstream_port: int, structured: bool) -> None:
    """Relay until cancelled."""
    await trio.serve_tcp(Relay(upstream_port, structured).serve, port, host="127.0.0.1", backlog=4096)
