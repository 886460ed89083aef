"""The operators' door: a Unix socket that only its owner may use, one JSON order per line, one answer per line.

It is no way into the data plane: a few connections at once, each with a deadline, and a fault in one is reported and ends that one
alone.
"""

import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from attrs import define, field

from trioproxy.doors.listener import Listener, bind_unix

MAX_ORDER = 65_536  # bytes of a line
MOST = 16  # connections at once; another one waits
PATIENCE = 30.0  # seconds for an order to come, or its answer to go


@define(eq=False)
class ControlDoor:
    """`answer` follows one order; `report` takes a fault of our own."""

    path: Path
    answer: Callable[[bytes], Awaitable[bytes]]
    report: Callable[[Exception], None]
    _places: trio.CapacityLimiter = field(init=False, factory=lambda: trio.CapacityLimiter(MOST))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises `OSError`, naming the socket, where it cannot bind."""
        try:
            listener = bind_unix(self.path)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, str(self.path)) from exc
        try:
            async with trio.open_nursery() as nursery:
                task_status.started()
                await self._accept(listener, nursery)
        finally:
            listener.close()

    async def _accept(self, listener: Listener, nursery: trio.Nursery) -> None:
        while True:
            for sock in await listener.crowd():
                nursery.start_soon(self._serve, sock)

    async def _serve(self, sock: socket.socket) -> None:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        try:
            async with self._places:
                with contextlib.suppress(trio.BrokenResourceError):  # its reader has left
                    await self._converse(stream)
        except Exception as exc:  # noqa: BLE001 - the boundary: a fault here ends this connection alone
            self.report(exc)
        finally:
            stream.socket.close()

    async def _converse(self, stream: trio.SocketStream) -> None:
        waiting = b""
        while True:
            with trio.move_on_after(PATIENCE) as scope:
                while b"\n" not in waiting:
                    data = await stream.receive_some()
                    if not data or len(waiting) + len(data) > MAX_ORDER:
                        return
                    waiting += data
                line, _, waiting = waiting.partition(b"\n")
                await stream.send_all(await self.answer(line) + b"\n")
            if scope.cancelled_caught:
                return
