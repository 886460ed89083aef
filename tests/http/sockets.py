"""Wires over real sockets, for the tests of what only a kernel can tell."""

import socket
import struct
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager

import trio

from trioproxy.http.wire import HangupWatch, SocketWire, adopt, dial


@contextmanager
def pair(hangups: HangupWatch | None = None) -> Generator[tuple[SocketWire, socket.socket]]:
    """A wire and its peer's bare socket, which blocks nobody."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    wire = SocketWire(near, hangups)
    with closing(wire), closing(far):
        yield wire, far


@asynccontextmanager
async def tcp() -> AsyncGenerator[tuple[SocketWire, SocketWire]]:
    """Two wires over a TCP connection on loopback."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        near = await dial("127.0.0.1", listener.socket.getsockname()[1], None)
        far = adopt(await listener.accept())
    assert isinstance(near, SocketWire)
    with closing(near), closing(far):
        yield near, far


def reset(wire: SocketWire) -> None:
    wire._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()


@asynccontextmanager
async def watching(swept: bool) -> AsyncGenerator[HangupWatch]:
    watch = HangupWatch()
    if swept:
        watch.close()
        watch._epoll = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        yield watch
        nursery.cancel_scope.cancel("the test is over")
    watch.close()
