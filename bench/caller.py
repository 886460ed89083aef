"""The client's end of one connection: sends a call, judges the answer, says how it ended."""

import contextlib
import time
from collections.abc import Callable

import httptools

from bench.reactor import Line
from bench.tally import Exchange, Tally

OK = 200


class Caller:
    """One keep-alive connection with at most one call on it. The parser calls the `on_` methods.

    `settle(caller, exchange, fault)` is called exactly once for each call; the caller is `closed` when it cannot be used again.
    """

    __slots__ = ("body", "exchange", "line", "parser", "settle", "tally")

    def __init__(self, line: Line, tally: Tally, settle: Callable[["Caller", Exchange, str | None], None]) -> None:
        self.line = line
        self.tally = tally
        self.settle = settle
        self.exchange: Exchange | None = None
        self.body: list[bytes] = []
        self.parser = httptools.HttpResponseParser(self)
        line.on_data = self.on_data
        line.on_close = self.on_close

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        return self.line.closed

    def call(self, exchange: Exchange) -> None:
        """Send a call."""
        self.exchange = exchange
        exchange.sent = time.perf_counter()
        self.tally.sent += 1
        self.line.send(exchange.request)

    def abandon(self, fault: str) -> None:
        """Give the call up: close the connection and settle."""
        self.line.close()
        self.finish(fault)

    def leave(self, exchange: Exchange) -> None:
        """Hang up, if this call is still under way; that is neither a failure nor an answer."""
        if self.exchange is exchange:
            self.exchange = None
            self.line.close()
            self.tally.left += 1
            self.settle(self, exchange, None)

    def on_data(self, data: bytes) -> None:
        """Bytes from the server."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.abandon("malformed HTTP")
        self.judge()

    def on_close(self) -> None:
        """The server closed. An answer without a length ends here; the parser knows."""
        with contextlib.suppress(httptools.HttpParserError):
            self.parser.feed_data(b"")
        when = "midway" if self.exchange and self.exchange.latest else "before an answer"
        self.finish(f"{self.line.end} {when}")

    def on_body(self, data: bytes) -> None:
        """A piece of the answer, kept until all of what was read is parsed: a burst is many pieces."""
        self.body.append(data)

    def judge(self) -> None:
        """Have what came judged."""
        data = b"".join(self.body)
        self.body.clear()
        exchange = self.exchange
        if data and exchange:
            frames = exchange.verdict.feed(data)
            if frames:
                self.tally.frame(exchange, frames, time.perf_counter())

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self.exchange is None:
            return
        self.judge()
        status = self.parser.get_status_code()
        fault = f"status {status}" if status != OK else self.exchange.verdict.fault()
        if not self.parser.should_keep_alive():
            self.line.close()
        self.finish(fault)

    def finish(self, fault: str | None) -> None:
        """Settle the call, if there is one."""
        exchange, self.exchange = self.exchange, None
        if exchange:
            self.tally.end(exchange, fault, time.perf_counter())
            self.settle(self, exchange, fault)
