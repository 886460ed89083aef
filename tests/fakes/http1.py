"""A naive HTTP/1.1 reader for the peers in the tests, on purpose not the gateway's own: it keeps what it read as it came."""

from attrs import define, field

from trioproxy.http.wire import Wire


class Cut(Exception):
    """The bytes ended inside a message. `partial` is what had come of it."""

    def __init__(self, partial: bytes) -> None:
        super().__init__(f"cut after {partial!r}")
        self.partial = partial


@define(eq=False)
class Head:
    """Start line and headers as received; names keep their case in `raw` and lose it in `headers`."""

    raw: bytes
    start: str = field(init=False)
    items: list[tuple[str, str]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.start, *lines = self.raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        self.items = [(name.lower(), value.strip()) for name, _, value in pairs]

    @property
    def headers(self) -> dict[str, str]:
        """By lower-case name; of several with one name the last."""
        return dict(self.items)

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "")

    @property
    def length(self) -> int | None:
        value = self.headers.get("content-length")
        return None if value is None else int(value)


@define(eq=False)
class Reader:
    """Reads messages off a wire, one after the other; pipelined bytes are kept for the next."""

    wire: Wire
    buffer: bytearray = field(init=False, factory=bytearray)
    eof: bool = field(init=False, default=False)

    async def head(self) -> Head | None:
        """The next head, or None where the peer ended between messages. Raises `Cut` inside one."""
        while (end := self.buffer.find(b"\r\n\r\n")) < 0:
            if not await self.more():
                if self.buffer:
                    raise Cut(bytes(self.buffer))
                return None
        return Head(self.take(end + 4))

    async def body(self, head: Head, *, until_close: bool = False) -> bytes:
        """The whole body. The `partial` of a `Cut` is all that came."""
        body = Body(self, head, until_close)
        got = b""
        try:
            while (piece := await body.piece()) is not None:
                got += piece
        except Cut as cut:
            raise Cut(got + cut.partial) from cut
        return got

    async def more(self) -> bool:
        if self.eof:
            return False
        data = await self.wire.receive()
        self.eof = not data
        self.buffer += data
        return bool(data)

    async def some(self, most: int) -> bytes:
        if not self.buffer and not await self.more():
            raise Cut(b"")
        return self.take(most)

    async def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            if not await self.more():
                raise Cut(bytes(self.buffer))
        return self.take(size)

    async def line(self) -> bytes:
        while (end := self.buffer.find(b"\r\n")) < 0:
            if not await self.more():
                raise Cut(b"")
        return self.take(end + 2)[:-2]

    def take(self, size: int) -> bytes:
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken


@define(eq=False)
class Body:
    """One message's body, read as it comes: chunk by chunk where it is chunked, else read by read."""

    _reader: Reader
    _head: Head
    _until_close: bool
    _left: int | None = field(init=False)
    _ended: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._left = self._head.length
        if self._left is None and not self._until_close:
            self._left = 0

    async def piece(self) -> bytes | None:
        """The next piece, or None at the end. Raises `Cut` where it ends early."""
        if self._ended:
            return None
        piece = await self._next()
        self._ended = not piece
        return piece or None

    async def _next(self) -> bytes:
        if self._head.chunked:
            return await self._chunk()
        if self._left is None:
            if not self._reader.buffer:
                await self._reader.more()
            return self._reader.take(len(self._reader.buffer))
        piece = await self._reader.some(self._left) if self._left else b""
        self._left -= len(piece)
        return piece

    async def _chunk(self) -> bytes:
        size = int((await self._reader.line()).split(b";")[0], 16)
        if size:
            data = await self._reader.exactly(size)
            await self._reader.line()
            return data
        while await self._reader.line():
            pass  # trailers
        return b""
