"""The data door: where applications come in. TCP or a Unix socket, one task per connection.

Two nurseries: connections live in the outer one, the accept loop in the inner one. To drain, the inner one stops, idle
connections close, and open answers have until the deadline.
"""

import contextlib
from collections.abc import Callable
from email.utils import formatdate

import trio
from attrs import define, field

from trioproxy.config.model import Listen
from trioproxy.doors.connection import Connection
from trioproxy.doors.listener import Listener, bind
from trioproxy.doors.patience import Patience
from trioproxy.doors.rejection import encoded, full
from trioproxy.gateway import Gateway
from trioproxy.http.message import Limits, RequestSource, readers
from trioproxy.http.wire import HangupWatch, SocketWire, Wire, WireBroken

LAST_WORDS = 1.0  # seconds in which a slow reader may take the word that its stream ends


@define(eq=False)
class DataDoor:
    """One listening address. `wall` is Unix seconds; `report` takes a fault of our own."""

    gateway: Gateway
    listen: Listen
    wall: Callable[[], float]
    report: Callable[[Exception], None]
    _hangups: HangupWatch = field(init=False, factory=HangupWatch)
    patience: Patience[Connection] = field(init=False)
    _reader: Callable[[Limits], RequestSource] = field(init=False)
    _connections: set[Connection] = field(init=False, factory=set)
    _accepting: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    _empty: trio.Event = field(init=False, factory=trio.Event)
    _date: tuple[int, bytes] = field(init=False, default=(0, b""))

    def __attrs_post_init__(self) -> None:
        self._reader = readers(self.listen.http)[0]
        self.patience = Patience(self.listen.idle_timeout, Connection.give_up)

    async def run(self, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `drain` or `stop`; reports the addresses it is bound to. Raises `OSError` where it cannot bind."""
        listeners = await bind(self.listen.data)
        try:
            async with trio.open_nursery() as connections:
                connections.start_soon(self._hangups.run)
                connections.start_soon(self.patience.run)
                with self._accepting:
                    async with trio.open_nursery() as accepting:
                        for listener in listeners:
                            accepting.start_soon(self._accept, listener, connections)
                        task_status.started([listener.address for listener in listeners])
                _close(listeners)  # whoever comes now is refused, and may go elsewhere
                await self._drained()
                connections.cancel_scope.cancel("drained")
        finally:
            self._hangups.close()
            _close(listeners)

    def drain(self) -> None:
        """Take no more connections; let the open answers end, for `drain_timeout` seconds at most."""
        self._accepting.cancel("drain")

    def stop(self) -> None:
        """End at once."""
        self._accepting.cancel("stop")
        for connection in tuple(self._connections):
            connection.cut()

    async def serve(self, wire: Wire) -> None:
        """Serve one connection, however it came about."""
        if len(self._connections) >= self.listen.max_connections:
            with contextlib.suppress(WireBroken):
                wire.send_now(encoded(full(self.listen), self.date()))
            wire.close()
            return
        limits = Limits(self.listen.max_head, self.listen.max_headers)
        connection = Connection(
            wire, self.gateway, self.listen, self._reader(limits), self.date, self.report, self.patience
        )
        self._connections.add(connection)
        if self._accepting.cancel_called:  # accepted just before the drain began, and not there when it told the others
            connection.leave()
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            if not self._connections:
                self._empty.set()

    async def _accept(self, listener: Listener, nursery: trio.Nursery) -> None:
        while True:
            for sock in await listener.crowd():
                nursery.start_soon(self.serve, SocketWire(sock, self._hangups))

    async def _drained(self) -> None:
        for connection in tuple(self._connections):
            connection.leave()
        with trio.move_on_after(self.listen.drain_timeout):
            await self._wait_empty()
        for connection in tuple(self._connections):
            connection.interrupt()
        with trio.move_on_after(LAST_WORDS):
            await self._wait_empty()
        for connection in tuple(self._connections):
            connection.cut()
        await self._wait_empty()

    async def _wait_empty(self) -> None:
        """Wait until the last connection is gone."""
        while self._connections:
            self._empty = trio.Event()
            await self._empty.wait()

    def date(self) -> bytes:
        """The Date header's value, made once a second (RFC 9110, 6.6.1)."""
        now = int(self.wall())
        if self._date[0] != now:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]


def _close(listeners: list[Listener]) -> None:
    for listener in listeners:
        listener.close()
