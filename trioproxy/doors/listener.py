"""Where a door listens: TCP or a Unix socket, and who has come.

A crowd that arrives at once is accepted in one go: with one connection per pass through the scheduler, 9,500 clients in
15 s overran the kernel's queue and were told nothing (measured).
"""

import errno
import os
import socket
import stat
from pathlib import Path

import trio
from attrs import define

BACKLOG = 4096  # the kernel cuts it to its own bound (net.core.somaxconn)
CROWD = 256  # connections accepted before others get a turn
# No descriptor or memory for another connection: those that are open go on, and the next try comes a moment later.
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
PAUSE = 0.1


@define(eq=False)
class Listener:
    """One listening, non-blocking socket. Owns it; a Unix socket's file as well."""

    sock: socket.socket
    path: Path | None = None

    @property
    def address(self) -> str:
        """As a client writes it."""
        if self.path is not None:
            return f"unix:{self.path}"
        host, port = self.sock.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def crowd(self) -> list[socket.socket]:
        """Wait for connections; those that are there, not blocking and without Nagle's delay."""
        await trio.lowlevel.wait_readable(self.sock)
        accepted: list[socket.socket] = []
        while len(accepted) < CROWD:
            try:
                sock, _ = self.sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as exc:
                if exc.errno not in _EXHAUSTED:
                    raise
                if not accepted:
                    await trio.sleep(PAUSE)
                break
            sock.setblocking(False)
            if self.path is None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.append(sock)
        return accepted

    def close(self) -> None:
        """Listen no more. Idempotent."""
        if self.sock.fileno() < 0:
            return
        trio.lowlevel.notify_closing(self.sock)
        self.sock.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


async def bind(address: str) -> list[Listener]:
    """Listen on `host:port`, on every address the host has, or on `unix:/path`. Raises `OSError`."""
    if address.startswith("unix:"):
        return [bind_unix(Path(address.removeprefix("unix:")))]
    host, _, port = address.rpartition(":")
    listeners = await trio.open_tcp_listeners(int(port), host=host.strip("[]") or None, backlog=BACKLOG)
    sockets = [socket.socket(fileno=listener.socket.detach()) for listener in listeners]
    for sock in sockets:
        sock.setblocking(False)
    return [Listener(sock) for sock in sockets]


def bind_unix(path: Path) -> Listener:
    """A Unix socket only its owner may use. What a dead process left behind is replaced, a live one is not."""
    _unlink_dead(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(str(path))
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(mask)
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return Listener(sock, path)


def _unlink_dead(path: Path) -> None:
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a live one whose queue is full would keep us waiting
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except OSError:
            pass  # busy, or not ours to ask: to bind will say so
