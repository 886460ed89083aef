"""A network in memory: wires with bounded buffers, half close and reset, and a dial function to hand to a gateway.

Nothing here owns a clock, a thread or a socket: who waits is parked on an event, so that under a `MockClock` every run takes
the same steps. Semantics are Linux's: buffered bytes arrive before the FIN or the reset behind them, and closing with unread bytes
resets the peer (which is how servers lose their own error pages).
"""

import math
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from trioproxy.http.wire import Wire, WireBroken

BUFFER = 65_536

Handler = Callable[["MemoryWire"], Awaitable[None]]
Address = tuple[str, int]


@define(eq=False)
class Pipe:
    """One direction: at most `capacity` bytes on their way, then the sender waits."""

    capacity: int
    buffer: bytearray = field(init=False, factory=bytearray)
    fin: bool = field(init=False, default=False)
    broken: bool = field(init=False, default=False)
    _moved: trio.Event = field(init=False, factory=trio.Event)

    def moved(self) -> None:
        """Wake both ends: something about this pipe has changed."""
        self._moved.set()
        self._moved = trio.Event()

    async def wait_moved(self) -> None:
        await self._moved.wait()


@define(eq=False)
class MemoryWire:
    """One end of a connection in memory; a `Wire`, with the verbs of a badly behaved peer on top."""

    _outbound: Pipe
    _inbound: Pipe
    _closed: bool = field(init=False, default=False)
    _on_hangup: Callable[[], None] | None = field(init=False, default=None)
    _peer: "MemoryWire | None" = field(init=False, default=None)

    def send_now(self, data: bytes) -> int:
        """As `Wire.send_now`: what there is room for."""
        self._check_open()
        if self._outbound.broken:
            raise WireBroken("connection reset by peer")
        if self._outbound.fin:
            raise WireBroken("broken pipe")
        taken = min(len(data), max(0, self._outbound.capacity - len(self._outbound.buffer)))
        if taken:
            self._outbound.buffer += data[:taken]
            self._outbound.moved()
        return taken

    async def send(self, data: bytes) -> None:
        """As `Wire.send`: without a checkpoint while there is room, as the socket's own."""
        taken = self.send_now(data)
        while taken < len(data):
            await self._outbound.wait_moved()
            taken += self.send_now(data[taken:])

    async def receive(self) -> bytes:
        """As `Wire.receive`: always one checkpoint, and that before any byte is taken."""
        self._check_open()
        await trio.lowlevel.checkpoint()
        while not (self._closed or self._inbound.buffer or self._inbound.fin or self._inbound.broken):
            await self._inbound.wait_moved()
        self._check_open()
        if self._inbound.buffer:
            data = bytes(self._inbound.buffer)
            self._inbound.buffer.clear()
            self._inbound.moved()
            return data
        if self._inbound.broken:
            raise WireBroken("connection reset by peer")
        return b""

    def close(self) -> None:
        """As `Wire.close`; a reset for the peer where bytes of it lie unread, as Linux does."""
        if self._inbound.buffer:
            self.reset()
        elif not self._closed:
            self._closed = True
            self._inbound.broken = True  # what the peer sends from now on goes nowhere
            self.send_eof()

    def reset(self) -> None:
        """Close with RST: the peer reads what is on its way, then breaks."""
        if not self._closed:
            self._closed = True
            self._inbound.broken = self._outbound.broken = True
            self._gone()

    def send_eof(self) -> None:
        """Half close: FIN, and go on receiving."""
        self._outbound.fin = True
        self._gone()

    def stale(self) -> bool:
        return self._closed or bool(self._inbound.buffer) or self._inbound.fin or self._inbound.broken

    def watch_hangup(self, callback: Callable[[], None] | None) -> None:
        self._on_hangup = callback
        if callback is not None and (self._inbound.fin or self._inbound.broken):
            self._hang_up()

    @property
    def peer_gone(self) -> bool:
        """Whether the other end has closed, half or whole."""
        return self._inbound.fin or self._inbound.broken

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this wire was closed")

    def _gone(self) -> None:
        self._inbound.moved()
        self._outbound.moved()
        if self._peer is not None:
            self._peer._hang_up()

    def _hang_up(self) -> None:
        callback, self._on_hangup = self._on_hangup, None
        if callback is not None:
            callback()


def wire_pair(capacity: int = BUFFER) -> tuple[MemoryWire, MemoryWire]:
    """Two ends of one connection."""
    there, back = Pipe(capacity), Pipe(capacity)
    one, two = MemoryWire(there, back), MemoryWire(back, there)
    one._peer, two._peer = two, one
    return one, two


@define(eq=False)
class Network:
    """Listeners by address, and `dial` to reach them. Make one with `open_network`."""

    _arrivals: trio.MemorySendChannel[tuple[Handler, MemoryWire]]
    capacity: int = BUFFER
    dials: list[tuple[str, int, ssl.SSLContext | None]] = field(init=False, factory=list)
    connections: Counter[Address] = field(init=False, factory=Counter)
    _handlers: dict[Address, Handler] = field(init=False, factory=dict)
    _refusals: dict[Address, float] = field(init=False, factory=dict)
    _silent: set[Address] = field(init=False, factory=set)

    def listen(self, host: str, port: int, handler: Handler) -> None:
        """Answer connections to this address with `handler`, one task each. Its `WireBroken` is no error."""
        self._handlers[host, port] = handler

    def refuse(self, host: str, port: int, times: float = math.inf) -> None:
        """Refuse the next `times` connections; 0 accepts again."""
        self._refusals[host, port] = times

    def swallow(self, host: str, port: int) -> None:
        """Let connections to this address hang: neither accepted nor refused."""
        self._silent.add((host, port))

    async def dial(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> Wire:
        """The `Dial` to hand to a gateway. TLS is noted in `dials` and otherwise taken as done."""
        return await self.connect(host, port, tls)

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> MemoryWire:
        """As `dial`, for those who want the verbs of a `MemoryWire`."""
        address = (host, port)
        self.dials.append((host, port, tls))
        await trio.lowlevel.checkpoint()
        if address in self._silent:
            await trio.sleep_forever()
        if self._refusals.get(address, 0) > 0 or address not in self._handlers:
            self._refusals[address] = self._refusals.get(address, 0) - 1
            raise ConnectionRefusedError(f"{host}:{port} refused the connection")
        near, far = wire_pair(self.capacity)
        self.connections[address] += 1
        self._arrivals.send_nowait((self._handlers[address], far))
        return near


async def _answer(handler: Handler, wire: MemoryWire) -> None:
    try:
        await handler(wire)
    except WireBroken:
        pass  # the other side left, as it may
    finally:
        wire.close()


@asynccontextmanager
async def open_network(capacity: int = BUFFER) -> AsyncGenerator[Network]:
    """A network whose listeners live inside the block; what they still do at its end is cancelled."""
    arrivals, accepted = trio.open_memory_channel[tuple[Handler, MemoryWire]](math.inf)

    async def accept() -> None:
        async with trio.open_nursery() as connections:
            async for handler, wire in accepted:
                connections.start_soon(_answer, handler, wire)

    with arrivals, accepted:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            yield Network(arrivals, capacity)
            nursery.cancel_scope.cancel("the network's block has ended")
