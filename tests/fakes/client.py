"""A raw HTTP/1.1 client for the data door, over any wire: what it got, byte for byte, and when.

It sends what it is told and judges nothing: pipelining, halves of requests and sudden death are one call each.
"""

import json
from typing import Any

import trio
from attrs import define, field

from tests.fakes.http1 import Body, Cut, Head, Reader
from tests.fakes.upstream import Headers, reset
from trioproxy.http.wire import Wire, WireBroken


@define(eq=False)
class Reply:
    """A whole answer, or what came of one: `complete` is False where it was cut."""

    status: int
    head: Head
    body: bytes
    complete: bool = True

    @property
    def headers(self) -> dict[str, str]:
        return self.head.headers

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@define(eq=False)
class Stream:
    """An answer read frame by frame. `complete` is None while it runs, False where it was cut."""

    status: int
    head: Head
    arrived: float
    _body: Body
    frames: list[bytes] = field(init=False, factory=list)
    times: list[float] = field(init=False, factory=list)
    complete: bool | None = field(init=False, default=None)
    _buffer: bytes = field(init=False, default=b"")

    @property
    def headers(self) -> dict[str, str]:
        return self.head.headers

    @property
    def raw(self) -> bytes:
        """All bytes of the body so far."""
        return b"".join(self.frames) + self._buffer

    async def frame(self) -> bytes | None:
        """The next event with its blank line, or None at the end; what is left without a blank line comes last."""
        while True:
            cut = _event_end(self._buffer)
            if cut is not None:
                return self._give(self._buffer[:cut])
            piece = await self._piece()
            if piece is None:
                return self._give(self._buffer) if self._buffer else None
            self._buffer += piece

    async def rest(self) -> list[bytes]:
        """All frames, to the end."""
        while await self.frame() is not None:
            pass
        return self.frames

    def text(self) -> str:
        """The content of the chat chunks so far, joined."""
        return "".join(
            choice.get("delta", {}).get("content") or ""
            for payload in self.payloads()
            for choice in payload.get("choices") or []
        )

    def payloads(self) -> list[Any]:
        """The JSON of the data frames so far, `[DONE]` and comments left out."""
        lines = [line[5:].strip() for line in b"".join(self.frames).splitlines() if line.startswith(b"data:")]
        return [json.loads(line) for line in lines if line and line != b"[DONE]"]

    def _give(self, event: bytes) -> bytes:
        self._buffer = self._buffer[len(event) :]
        self.frames.append(event)
        self.times.append(trio.current_time())
        return event

    async def _piece(self) -> bytes | None:
        if self.complete is False:
            return None
        try:
            piece = await self._body.piece()
        except (Cut, WireBroken) as exc:
            self.complete = False
            self._buffer += exc.partial if isinstance(exc, Cut) else b""
            return None
        if piece is None and self.complete is None:
            self.complete = True
        return piece


@define(eq=False)
class Client:
    """One connection to a door."""

    wire: Wire
    host: str = "gateway.test"
    _reader: Reader = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = Reader(self.wire)

    async def post(self, path: str, body: object, headers: Headers = ()) -> Reply:
        """Send a JSON body (or bytes as they are) and wait for the whole answer."""
        await self.wire.send(self.request("POST", path, body, headers))
        return await self.reply()

    async def get(self, path: str, headers: Headers = ()) -> Reply:
        await self.wire.send(self.request("GET", path, None, headers))
        return await self.reply()

    async def stream(self, path: str, body: object, headers: Headers = ()) -> Stream:
        """Send, and come back with the head of the answer; read the rest off the `Stream`."""
        await self.wire.send(self.request("POST", path, body, headers))
        return await self.streamed()

    async def reply(self) -> Reply:
        """Read the next answer; for requests that were sent raw."""
        head = await self._head()
        try:
            body, complete = await self._reader.body(head, until_close=True), True
        except Cut as cut:
            body, complete = cut.partial, False
        except WireBroken:
            body, complete = b"", False
        return Reply(_status(head), head, body, complete)

    async def streamed(self) -> Stream:
        """As `reply`, but come back as soon as the head is there."""
        head = await self._head()
        return Stream(_status(head), head, trio.current_time(), Body(self._reader, head, until_close=True))

    async def ended(self) -> bool:
        """Whether the door closes the connection now, with nothing more said. Waits for it."""
        try:
            return not self._reader.buffer and await self.wire.receive() == b""
        except WireBroken:
            return True

    def close(self) -> None:
        self.wire.close()

    def reset(self) -> None:
        """Die: RST."""
        reset(self.wire)

    def request(self, method: str, path: str, body: object = None, headers: Headers = ()) -> bytes:
        """The bytes of a request. Headers given win over ours."""
        given = list(headers)
        names = {name.lower() for name, _ in given}
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if "host" not in names:
            given.insert(0, ("host", self.host))
        if body is not None and "content-type" not in names:
            given.append(("content-type", "application/json"))
        if body is not None and not names & {"content-length", "transfer-encoding"}:
            given.append(("content-length", str(len(raw))))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + raw

    async def _head(self) -> Head:
        while True:
            head = await self._reader.head()
            if head is None:
                raise Cut(b"")
            if not 100 <= _status(head) < 200:
                return head


def _status(head: Head) -> int:
    return int(head.start.split(" ")[1])


def _event_end(buffer: bytes) -> int | None:
    ends = [at + len(blank) for blank in (b"\n\n", b"\r\n\r\n", b"\r\r") if (at := buffer.find(blank)) >= 0]
    return min(ends, default=None)
