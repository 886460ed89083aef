"""A wire: one byte stream to a peer, with exactly the verbs the byte path needs.

Trio's own `SocketStream` yields to the scheduler on every send that did not have to wait; at 20,000 chunks a second that is
most of the bill (3.7 µs a checkpoint, measured). A `SocketWire` sends at once and only waits when the kernel's
buffer is full; it always waits for readability before it reads, so a loop that relays yields once a chunk.

`close` is synchronous: cleanup that cannot be cancelled cannot leak.
"""

import contextlib
import ipaddress
import select
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import trio
from attrs import define, field

READ_SIZE = 65_536
RESOLVERS = 4  # look-ups of one host at once
ADDRESS_PATIENCE = 1.0  # seconds for an address while there is another: IPv6 without a route is the usual case


class WireBroken(Exception):
    """The peer is gone, or the connection cannot carry bytes any more."""


class Wire(Protocol):
    """One connection. One task may send while another receives, never two in the same direction.

    Cancellation: `receive` loses no byte when cancelled; after a cancelled `send` the wire is only good for closing.
    """

    def send_now(self, data: bytes) -> int:
        """How many of these bytes could be sent without waiting. Raises `WireBroken`."""

    async def send(self, data: bytes) -> None:
        """Send all of it. Raises `WireBroken`. Waits only while the peer does not take more."""

    async def receive(self) -> bytes:
        """Some bytes, or b"" when the peer has sent its last. Raises `WireBroken` on a reset."""

    def close(self) -> None:
        """Close at once. Idempotent; wakes whoever is waiting with `trio.ClosedResourceError`."""

    def stale(self) -> bool:
        """Whether an idle wire is no good any more: the peer closed it, or sent what nobody asked for."""

    def watch_hangup(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` once, from the scheduler, when the peer goes away; None to stop watching."""


Dial = Callable[[str, int, ssl.SSLContext | None], Awaitable[Wire]]
"""Opens a wire to host and port, with TLS where a context is given. Raises `OSError` or `WireBroken`."""


@define(eq=False)
class HangupWatch:
    """Tells at once when a peer goes away, at no cost per call and without a task per connection.

    All sockets sit in one epoll of our own that asks only for the peer's FIN or reset; Trio watches that epoll's single
    descriptor. A parked reader task per exchange would cost 12 µs a call instead (measured). Where the system has
    no epoll, every half second each watched socket is peeked at. A peer that closes its sending half while it waits for an
    answer counts as gone, as in nginx.
    """

    _watched: dict[int, tuple[socket.socket, Callable[[], None]]] = field(init=False, factory=dict)
    _epoll: "select.epoll | None" = field(
        init=False, factory=lambda: select.epoll() if hasattr(select, "epoll") else None
    )

    def add(self, sock: socket.socket, callback: Callable[[], None]) -> None:
        if self._epoll is not None and sock.fileno() not in self._watched:
            self._epoll.register(sock, select.EPOLLRDHUP | select.EPOLLONESHOT)
        self._watched[sock.fileno()] = (sock, callback)

    def discard(self, sock: socket.socket) -> None:
        if self._watched.pop(sock.fileno(), None) is not None and self._epoll is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(sock)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            for number in await self._wait():
                if number in self._watched:
                    sock, callback = self._watched[number]
                    self.discard(sock)  # told once; whoever asks again begins anew
                    callback()

    async def _wait(self) -> list[int]:
        if self._epoll is not None:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            return [number for number, _ in self._epoll.poll(0)]
        await trio.sleep(0.5)
        return [number for number, (sock, _) in self._watched.items() if _peeked(sock) == b""]

    def close(self) -> None:
        if self._epoll is not None:
            self._epoll.close()
        self._watched.clear()


@define(eq=False)
class SocketWire:
    """A wire over a connected, non-blocking TCP or Unix socket. Owns the socket."""

    _sock: socket.socket
    _hangups: HangupWatch | None = None
    _closed: bool = field(init=False, default=False)

    def send_now(self, data: bytes) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise WireBroken(str(exc)) from exc

    async def send(self, data: bytes) -> None:
        sent = self.send_now(data)
        if sent < len(data):
            await self._send_rest(memoryview(data)[sent:])

    async def _send_rest(self, rest: memoryview) -> None:
        while rest:
            await trio.lowlevel.wait_writable(self._sock)
            try:
                rest = rest[self._sock.send(rest) :]
            except BlockingIOError:
                continue
            except OSError as exc:
                raise WireBroken(str(exc)) from exc

    async def receive(self) -> bytes:
        while True:
            await trio.lowlevel.wait_readable(self._sock)
            try:
                return self._sock.recv(READ_SIZE)
            except BlockingIOError:
                continue
            except OSError as exc:
                raise WireBroken(str(exc)) from exc

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._hangups is not None:
            self._hangups.discard(self._sock)
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()

    def stale(self) -> bool:
        return _peeked(self._sock) is not None

    def watch_hangup(self, callback: Callable[[], None] | None) -> None:
        if self._hangups is None:
            return
        if callback is None:
            self._hangups.discard(self._sock)
        else:
            self._hangups.add(self._sock, callback)


@define(eq=False)
class TlsWire:
    """A wire over TLS. Closes without `close_notify`: the framing above tells a whole message from a cut one.

    Nothing can be sent without waiting: what TLS makes of it is not ours to hand to the kernel.
    """

    _stream: "trio.SSLStream[trio.SocketStream]"
    _raw: SocketWire

    def send_now(self, data: bytes) -> int:
        return 0

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError as exc:
            raise WireBroken(str(exc.__cause__ or exc)) from exc

    async def receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ_SIZE))
        except trio.BrokenResourceError as exc:
            raise WireBroken(str(exc.__cause__ or exc)) from exc

    def close(self) -> None:
        self._raw.close()

    def stale(self) -> bool:
        return self._raw.stale()

    def watch_hangup(self, callback: Callable[[], None] | None) -> None:
        self._raw.watch_hangup(callback)


def _peeked(sock: socket.socket) -> bytes | None:
    """What lies unread on a socket: None for nothing, b"" for a peer that has gone."""
    try:
        return sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def adopt(stream: trio.SocketStream, hangups: HangupWatch | None = None) -> SocketWire:
    """Take over the socket of a Trio stream; the stream is dead afterwards. `TCP_NODELAY` was set by Trio."""
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    return SocketWire(sock, hangups)


@define(eq=False)
class Dialer:
    """The real `Dial`: `TCP_NODELAY`, verified TLS with the host's name, addresses tried in the resolver's order.

    A look-up runs in a thread that cannot be stopped. Each host has a few threads of its own, so that one zone whose servers
    are silent never keeps another channel from connecting.
    """

    _resolvers: dict[str, trio.CapacityLimiter] = field(init=False, factory=dict)

    async def __call__(self, host: str, port: int, tls: ssl.SSLContext | None) -> Wire:
        wire = adopt(await self._connect(host, port))
        return wire if tls is None else await secure(wire, tls, server_hostname=host)

    async def _connect(self, host: str, port: int) -> trio.SocketStream:
        addresses = await self._addresses(host, port)
        for address in addresses[:-1]:
            with trio.move_on_after(ADDRESS_PATIENCE), contextlib.suppress(OSError):
                return await trio.open_tcp_stream(address, port)
        return await trio.open_tcp_stream(addresses[-1], port)

    async def _addresses(self, host: str, port: int) -> list[str]:
        """The host's addresses, at least one. Raises `OSError`."""
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        limiter = self._resolvers.setdefault(host, trio.CapacityLimiter(RESOLVERS))
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await trio.to_thread.run_sync(look_up, abandon_on_cancel=True, limiter=limiter)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def dial(host: str, port: int, tls: ssl.SSLContext | None) -> Wire:
    """One connection, for whoever needs no second one."""
    return await Dialer()(host, port, tls)


async def secure(wire: SocketWire, tls: ssl.SSLContext, *, server_hostname: str | None = None) -> TlsWire:
    """Put TLS on a wire; as the server where no `server_hostname` is given. Closes the wire where the handshake fails."""
    sock = trio.socket.from_stdlib_socket(wire._sock)  # noqa: SLF001 - the same file's own class
    stream = trio.SSLStream(
        trio.SocketStream(sock),
        tls,
        server_hostname=server_hostname,
        server_side=server_hostname is None,
        https_compatible=True,
    )
    secured = False
    try:
        await stream.do_handshake()
        secured = True
    except trio.BrokenResourceError as exc:
        raise WireBroken(f"TLS handshake failed: {exc.__cause__ or exc}") from exc
    finally:
        if not secured:
            wire.close()
    return TlsWire(stream, wire)
