"""One thread, one epoll: sockets call back and timers call back.

The fake provider and the load generator share two cores with what they measure, so they do without an async library: a call
costs the generator about as much as its system calls. Nothing here is meant for use outside the bench.
"""

import contextlib
import errno
import heapq
import itertools
import select
import socket
import struct
import time
from collections.abc import Callable

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
BROKEN = select.EPOLLERR | select.EPOLLHUP
READ_SIZE = 131_072
# epoll counts its timeout in whole milliseconds, select in microseconds; nearer than this the finer clock is used.
FINE = 0.004
# A signal's handler runs but does not end a wait (PEP 475): this bounds how long `stop` from a handler takes.
PATIENCE = 0.25


class Reactor:
    """Callbacks by file descriptor and by time. Times are `time.perf_counter` seconds."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.handlers: dict[int, tuple[socket.socket, Callable[[int], None]]] = {}
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.ticket = itertools.count()
        self.running = False

    def watch(self, sock: socket.socket, events: int, handler: Callable[[int], None]) -> None:
        """Call `handler(events)` whenever the socket is ready."""
        self.handlers[sock.fileno()] = (sock, handler)
        self.epoll.register(sock.fileno(), events)

    def change(self, sock: socket.socket, events: int) -> None:
        """Wait for other events on a socket that is watched already."""
        self.epoll.modify(sock.fileno(), events)

    def forget(self, sock: socket.socket) -> None:
        """Stop watching. A closed or unknown socket is no error."""
        if self.handlers.pop(sock.fileno(), None):
            with contextlib.suppress(OSError):
                self.epoll.unregister(sock.fileno())

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call once, at `when` or as soon after it as possible. Cannot be taken back."""
        heapq.heappush(self.timers, (when, next(self.ticket), call))

    def stop(self) -> None:
        """Let `run` return after the current callback."""
        self.running = False

    def close(self) -> None:
        """Close every socket that is watched, and the reactor."""
        for sock, _ in self.handlers.values():
            sock.close()
        self.handlers.clear()
        self.epoll.close()

    def run(self) -> None:
        """Serve callbacks until `stop`, or until there is nothing left to wait for."""
        self.running = True
        while self.running and (self.timers or self.handlers):
            timeout = min(PATIENCE, self.timers[0][0] - time.perf_counter() if self.timers else PATIENCE)
            for fd, events in self.ready(timeout):
                watched = self.handlers.get(fd)
                if watched:
                    watched[1](events)
            self.fire()

    def fire(self) -> None:
        """Call what is due."""
        while self.running and self.timers and self.timers[0][0] <= time.perf_counter():
            heapq.heappop(self.timers)[2]()

    def ready(self, timeout: float) -> list[tuple[int, int]]:
        """The descriptors that are ready within `timeout` seconds."""
        if timeout >= FINE:
            return self.epoll.poll(timeout - FINE / 2)
        if timeout > 0:
            select.select((self.epoll,), (), (), timeout)
        return self.epoll.poll(0)


class Line:
    """A non-blocking connection in a reactor. What the kernel does not take at once is sent when it has room."""

    __slots__ = ("end", "on_close", "on_data", "reactor", "sock", "unsent")

    def __init__(self, reactor: Reactor, sock: socket.socket) -> None:
        self.reactor = reactor
        self.sock = sock
        self.unsent = b""
        self.end = "closed"  # how the peer ended it, once `on_close` was called: or the name of the error
        self.on_data: Callable[[bytes], None] = lambda _: None
        self.on_close: Callable[[], None] = lambda: None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reactor.watch(sock, READABLE, self.on_ready)

    @property
    def closed(self) -> bool:
        """Whether it was closed, by either side."""
        return self.sock.fileno() < 0

    def dial(self, host: str, port: int) -> None:
        """Begin to connect; what is sent meanwhile goes out once connected."""
        self.sock.connect_ex((host, port))

    def send(self, data: bytes) -> None:
        """Send now what fits, the rest later. A broken connection is reported by `on_close`, from the reactor."""
        if self.closed:
            return
        if self.unsent:
            self.unsent += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.end = name(error)
            return  # the reactor sees the hang-up and calls on_close
        if sent < len(data):
            self.unsent = data[sent:]
            self.reactor.change(self.sock, READABLE | WRITABLE)

    def on_ready(self, events: int) -> None:
        """The reactor's callback."""
        if events & WRITABLE and self.unsent:
            self.flush()
        if events & (READABLE | BROKEN):
            self.read()

    def flush(self) -> None:
        """Send what waited."""
        data, self.unsent = self.unsent, b""
        self.reactor.change(self.sock, READABLE)
        self.send(data)

    def read(self) -> None:
        """Hand on what came, or report the end."""
        try:
            data = self.sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self.end = name(error)
            data = b""
        if data:
            self.on_data(data)
        elif not self.closed:
            self.close()
            self.on_close()

    def close(self, *, reset: bool = False) -> None:
        """Close without calling back; with `reset` the peer sees a reset instead of an end. Idempotent."""
        if self.closed:
            return
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.reactor.forget(self.sock)
        self.sock.close()


def name(error: OSError) -> str:
    """The error's short name, as in errno.h."""
    return errno.errorcode.get(error.errno or 0, "failed")


def listen(reactor: Reactor, host: str, port: int, accept: Callable[[Line], None]) -> int:
    """Accept connections on host:port (shared with other processes that do the same); the port that was bound."""
    server = socket.create_server((host, port), backlog=4096, reuse_port=True)
    server.setblocking(False)

    def on_ready(_: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                accept(Line(reactor, server.accept()[0]))

    reactor.watch(server, READABLE, on_ready)
    bound: int = server.getsockname()[1]
    return bound
