"""What goes back downstream: a status, header lines, and a body that is whole or still coming.

The same for a door and for an embedder. Whatever goes wrong after the first byte is said inside the body, in the dialect
of the endpoint: `receive` never raises for an upstream's fault.
"""

from typing import Protocol

from attrs import define, field

from trioproxy.errors import TrioproxyError


class Source(Protocol):
    """Where the rest of a body comes from."""

    ended: bool

    @property
    def ready(self) -> bool:
        """Whether `receive` has something to give at once."""

    async def receive(self) -> bytes:
        """The next bytes, b"" once ended."""

    def interrupt(self) -> None:
        """End soon, with a word about why: the gateway goes down. What is being awaited is awaited no more."""


@define(eq=False)
class Answer:
    """`lines` are encoded header lines without framing; `error` is why it is not the model's answer, where it is not."""

    status: int
    lines: bytes
    _body: bytes = field(default=b"", repr=False)
    _source: Source | None = None
    error: TrioproxyError | None = None
    drain: float = 0.0  # seconds that the answer may go on without its reader; 0: not at all
    overhead: float = 0.0  # seconds until it began in which no channel had the call
    lost: bool = field(init=False, default=False)  # a door sets it when the downstream connection broke
    on_its_way: bool = field(init=False, default=False)  # a door sets it while it holds bytes that are not sent yet
    sent: int = field(init=False, default=0)  # bytes of the body handed out

    @property
    def whole(self) -> bool:
        """The body is complete and its length known."""
        return self._source is None

    @property
    def ready(self) -> bool:
        """Whether bytes of the body are there; where not, the head need not wait for them."""
        return bool(self._body) or self._source is None or self._source.ready

    @property
    def ended(self) -> bool:
        return not self._body and (self._source is None or self._source.ended)

    @property
    def delivered(self) -> bool:
        """The reader has all of it."""
        return self.ended and not self.lost and not self.on_its_way

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The header lines as pairs, names in lower case."""
        pairs = (line.partition(b":") for line in self.lines.split(b"\r\n") if line)
        return [(name.decode("latin-1").lower(), value.strip().decode("latin-1")) for name, _, value in pairs]

    async def receive(self) -> bytes:
        """The next bytes of the body, b"" at its end. One task at a time; a cancelled call loses nothing."""
        data, self._body = self._body, b""
        if not data and self._source is not None:
            data = await self._source.receive()
        self.sent += len(data)
        return data

    def interrupt(self) -> None:
        """End a body that is still coming, with a truthful error in its dialect: the gateway goes down."""
        if self._source is not None:
            self._source.interrupt()

    async def read(self) -> bytes:
        """The whole body."""
        parts = []
        while not self.ended:
            parts.append(await self.receive())
        return b"".join(parts)
