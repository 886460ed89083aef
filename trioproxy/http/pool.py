"""Kept-alive connections to one channel, the most recently used first.

One pool per channel: a dead provider's connections never stand in another's way. The pool holds idle connections only; a
connection in use belongs to its exchange. Everything here is synchronous.
"""

from attrs import define, field

from trioproxy.http.message import ResponseSource
from trioproxy.http.wire import Wire


@define(eq=False)
class Connection:
    """A wire and the reader of what comes back on it. `idle_since` is seconds on the caller's clock."""

    wire: Wire
    reader: ResponseSource
    idle_since: float = 0.0

    def close(self) -> None:
        """Be done with both. Nothing may be read afterwards."""
        self.wire.close()
        self.reader.close()


@define(eq=False)
class Pool:
    """Idle connections of one channel. `keepalive` is how long one may lie idle, seconds."""

    keepalive: float
    limit: int = 256
    _idle: list[Connection] = field(init=False, factory=list)
    _closed: bool = field(init=False, default=False)

    def take(self, now: float) -> Connection | None:
        """A connection that still looks alive, or None. What looks dead on the way is closed."""
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < self.keepalive and not connection.wire.stale():
                return connection
            connection.close()
        return None

    def give_back(self, connection: Connection, now: float) -> None:
        """Keep a connection whose last exchange ended cleanly."""
        if self._closed or len(self._idle) >= self.limit:
            connection.close()
            return
        connection.idle_since = now
        self._idle.append(connection)

    def sweep(self, now: float) -> None:
        """Close what has been idle too long or was closed by the provider."""
        kept = []
        for connection in self._idle:
            if now - connection.idle_since < self.keepalive and not connection.wire.stale():
                kept.append(connection)
            else:
                connection.close()
        self._idle = kept

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def __len__(self) -> int:
        return len(self._idle)
