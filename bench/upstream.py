"""The fake provider: answers at once or at a pace, whole or in frames, and fails where its script says so.

Pacing is by deadline: content frame k of a stream goes out at start + first + k x interval, however late k-1 was, so a slow
reader or a busy machine does not stretch the stream.
"""

import gc
import itertools
import os
import random
import signal
import time
from collections.abc import Callable

import httptools
from attrs import define, field, frozen

from bench import answers
from bench.answers import MARKER, Order
from bench.distribution import Draw
from bench.faults import Effect, Script
from bench.reactor import Line, Reactor, listen

ERROR = b'{"error":{"message":"scripted fault","type":"server_error","param":null,"code":%d}}'


@frozen
class Manner:
    """How the provider behaves where a prompt does not say otherwise. Times in seconds."""

    wait: Draw  # before a whole answer
    first: Draw  # before a stream's first content
    every: Draw  # between content frames
    chunks: Draw  # content frames in a stream
    burst: bool = False  # the whole stream in one write
    script: Script = field(factory=Script)


@define(eq=False)
class Provider:
    """What all connections of one process share."""

    reactor: Reactor
    manner: Manner
    rng: random.Random = field(factory=random.Random)
    started: float = field(factory=time.perf_counter)
    count: "itertools.count[int]" = field(factory=itertools.count)

    def accept(self, line: Line) -> None:
        """Serve a new connection."""
        Connection(self, line)

    def later(self, delay: float, call: Callable[[], None]) -> None:
        """Call after `delay` seconds; at once for none, which saves a trip through the timers."""
        if delay > 0:
            self.reactor.at(time.perf_counter() + delay, call)
        else:
            call()

    def effect(self, key: str, order: Order) -> Effect | None:
        """What the script does to this call."""
        cost = answers.PROMPT_TOKENS + int(order.wishes.get("chunks", 10))
        now = time.perf_counter() - self.started
        return self.manner.script.effect(now, (key, order.model), cost, self.rng.random())


class Connection:
    """One keep-alive connection. The parser calls the `on_` methods; requests are answered one after another."""

    __slots__ = ("body", "key", "line", "parser", "provider", "url")

    def __init__(self, provider: Provider, line: Line) -> None:
        self.provider = provider
        self.line = line
        self.url = b""
        self.key = ""
        self.body: list[bytes] = []
        self.parser = httptools.HttpRequestParser(self)
        line.on_data = self.on_data

    def on_data(self, data: bytes) -> None:
        """Bytes from the client."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.line.close()

    def on_message_begin(self) -> None:
        """A new request."""
        self.url = b""
        self.key = ""
        self.body = []

    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Only who calls is of interest."""
        if name.lower() in (b"authorization", b"x-api-key", b"x-goog-api-key"):
            self.key = value.decode("latin-1").removeprefix("Bearer ")

    def on_body(self, data: bytes) -> None:
        """A piece of the request body."""
        self.body.append(data)

    def on_message_complete(self) -> None:
        """The request is whole: answer it, or fail as scripted."""
        marker = b"%08x" % (next(self.provider.count) & 0xFFFFFFFF)
        order = answers.read_order(self.url, b"".join(self.body), marker)
        if not self.provider.manner.script.faults:
            self.answer(order, None)
            return
        effect = self.provider.effect(self.key, order)
        match effect:
            case Effect("status", amount):
                self.line.send(answers.reply(f"{amount:.0f} Scripted", ERROR % int(amount)))
            case Effect("tpm", wait):
                header = b"retry-after: %d\r\n" % max(1, round(wait))
                self.line.send(answers.reply("429 Too Many Requests", ERROR % 429, header))
            case Effect("stall", _):
                pass
            case Effect("slow", wait):
                self.provider.later(wait, lambda: self.answer(order, None))
            case _:
                self.answer(order, effect)

    def answer(self, order: Order, effect: Effect | None) -> None:
        """Answer as the order and the provider's manner say; `effect` may end it early."""
        provider, manner, wishes = self.provider, self.provider.manner, order.wishes
        wish = wishes.get("wait")
        if not order.stream:
            wait = manner.wait(provider.rng) if wish is None else wish
            if effect and effect.kind in ("cut", "reset"):
                provider.later(wait, lambda: self.line.close(reset=effect.kind == "reset"))
                return
            whole = answers.unary_template(order.dialect, int(wishes.get("chunks", 10))).replace(MARKER, order.marker)
            provider.later(wait, lambda: self.line.send(whole))
            return
        first = manner.first(provider.rng) if wish is None else wish
        chunks = int(wishes.get("chunks", 0) or manner.chunks(provider.rng))
        if wishes.get("burst", manner.burst) and not effect:
            blob = answers.burst_template(order.dialect, chunks, usage=order.usage).replace(MARKER, order.marker)
            provider.later(first, lambda: self.line.send(blob))
            return
        pace = Pace(self.line, provider, order, chunks, effect)
        provider.later(first, pace.begin)


@define(eq=False)
class Pace:
    """One stream under way."""

    line: Line
    provider: Provider
    order: Order
    chunks: int
    effect: Effect | None
    due: float = field(default=0.0, init=False)
    counter: int = field(default=0, init=False)

    def begin(self) -> None:
        """Send the head and the first content."""
        self.due = time.perf_counter()
        self.line.send(answers.opening_template(self.order.dialect).replace(MARKER, self.order.marker))
        self.step()

    def step(self) -> None:
        """Send the frame that is due and plan the next."""
        if self.line.closed:
            return
        if self.effect and self.counter >= self.effect.amount:
            self.fail(self.effect)
            return
        dialect, marker = self.order.dialect, self.order.marker
        if self.counter >= self.chunks:
            closing = answers.closing_template(dialect, self.chunks, usage=self.order.usage)
            self.line.send(closing.replace(MARKER, marker))
            return
        self.line.send(answers.content_template(dialect, self.counter).replace(MARKER, marker))
        self.counter += 1
        wish = self.order.wishes.get("every")
        self.due += max(0.0, self.provider.manner.every(self.provider.rng) if wish is None else wish)
        self.provider.reactor.at(self.due, self.step)

    def fail(self, effect: Effect) -> None:
        """End the stream as scripted."""
        if effect.kind == "error":
            self.line.send(answers.chunked(b"data: " + ERROR % 500 + b"\n\n") + b"0\r\n\r\n")
        else:
            self.line.close(reset=effect.kind == "reset")


def serve(manner: Manner, *, host: str, port: int, processes: int) -> None:
    """Serve until SIGTERM or SIGINT; with several processes the kernel shares the connections out."""
    children = [pid for pid in (fork(manner, host, port) for _ in range(processes - 1)) if pid]
    reactor = Reactor()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: reactor.stop())
    listen(reactor, host, port, Provider(reactor, manner).accept)
    # Connections are cycles and few; the young generation's default of 700 would scan the templates all the time.
    gc.set_threshold(50_000)
    try:
        reactor.run()
    finally:
        for pid in children:
            os.kill(pid, signal.SIGTERM)


def fork(manner: Manner, host: str, port: int) -> int:
    """Start one more process that serves the same address; its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            serve(manner, host=host, port=port, processes=1)
        finally:
            os._exit(0)
    return pid
