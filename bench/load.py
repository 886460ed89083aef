"""The load generator: open-loop by a plan of intended send times, or closed-loop with a fixed number of callers.

Open-loop latency is free of coordinated omission: a call that had to wait for a connection, or for the generator itself,
counts from when it was meant to be sent. Closed-loop runs are for CPU time per call, not for tails.
A run is bounded: it ends after its window and at most `patience` seconds more, whatever the server does.
"""

import itertools
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator

from attrs import define, field, frozen

from bench import arrivals
from bench.answers import MARKER
from bench.arrivals import Segment, Spacing
from bench.caller import Caller
from bench.reactor import Line, Reactor
from bench.tally import Exchange, Tally
from bench.verdict import ENDS, StreamVerdict, UnaryVerdict
from bench.workload import Endpoint, Mix, Shape

SWEEP = 0.25
PAUSE = 0.01  # after a failure, so that a refusing server does not make the closed loop spin
TOO_MANY = 10_000  # failures after which a run is pointless


@frozen
class Limits:
    """What bounds a run. Seconds; `warmup` comes before the window and is not measured."""

    seconds: float
    warmup: float = 0.5
    patience: float = 60.0
    connections: int = 1000
    calls: int = 10_000_000
    whole: bool = False  # durations of calls that begin in the warm-up count too


def ignore(_: str) -> None:
    """For those who do not care when the window opens and closes."""


@define(eq=False)
class Load:
    """One run against one endpoint. `on_mark` is called with "open" and "close" as the window begins and ends."""

    endpoint: Endpoint
    mix: Mix
    limits: Limits
    on_mark: Callable[[str], None] = ignore
    rng: random.Random = field(factory=random.Random)
    reactor: Reactor = field(factory=Reactor, init=False)
    tally: Tally = field(factory=Tally, init=False)
    idle: list[Caller] = field(factory=list, init=False)
    busy: set[Caller] = field(factory=set, init=False)
    backlog: deque[Exchange] = field(factory=deque, init=False)
    again: Callable[[float], None] | None = field(default=None, init=False)  # closed loop: what follows a finished call
    started: float = field(default=0.0, init=False)
    markers: Iterator[int] = field(init=False)

    @markers.default
    def random_start(self) -> Iterator[int]:
        """Another start in each run: no cache anywhere has seen these prompts."""
        return itertools.count(self.rng.getrandbits(32))

    def run_open(self, segments: tuple[Segment, ...], spacing: Spacing) -> Tally:
        """Send as planned. The window is the profile less the warm-up."""
        plan = arrivals.schedule(segments, spacing, self.rng)
        self.prepare(arrivals.length(segments) - self.limits.warmup)

        def arrive(intended: float) -> None:
            self.launch(intended)
            follow()

        def follow() -> None:
            offset = next(plan, None)
            if offset is not None and self.tally.sent < self.limits.calls:
                intended = self.started + offset
                self.reactor.at(intended, lambda: arrive(intended))

        follow()
        return self.run()

    def run_closed(self, concurrency: int, *, spread: float = 0.0) -> Tally:
        """Keep `concurrency` calls under way. Callers start evenly over `spread` seconds."""
        self.prepare(self.limits.seconds)
        self.again = self.launch
        for number in range(concurrency):
            start = self.started + spread * number / concurrency
            self.reactor.at(start, lambda start=start: self.launch(start))  # type: ignore[misc]
        return self.run()

    def prepare(self, seconds: float) -> None:
        """Set the window and the timers that every run has."""
        self.started = time.perf_counter() + 0.01
        self.tally.opened = self.started + self.limits.warmup
        self.tally.since = self.started if self.limits.whole else self.tally.opened
        self.tally.closed = self.tally.opened + seconds
        self.reactor.at(self.tally.opened, lambda: self.on_mark("open"))
        self.reactor.at(self.tally.closed, self.close_window)
        self.reactor.at(self.started + SWEEP, self.sweep)

    def run(self) -> Tally:
        """Run to the end and close the connections."""
        self.reactor.run()
        self.tally.failures.update({"unfinished": len(self.busy) + len(self.backlog)})
        self.tally.failures = +self.tally.failures
        self.reactor.close()
        return self.tally

    def close_window(self) -> None:
        """Take the window's end; nothing new is launched from here on."""
        self.on_mark("close")
        self.again = None
        self.stop_when_done()

    def stop_when_done(self) -> None:
        """Stop once every call has ended and no other will come: the window is over, or as many as allowed were sent."""
        if self.busy or self.backlog:
            return
        now = time.perf_counter()
        if now >= self.tally.closed:
            self.reactor.stop()
        elif self.tally.sent >= self.limits.calls:
            self.tally.closed = now
            self.on_mark("close")
            self.reactor.stop()

    def launch(self, intended: float) -> None:
        """Send the next call on an idle connection or a new one; with too many of those, it waits for one."""
        if self.tally.sent >= self.limits.calls:
            return
        self.tally.late.record(time.perf_counter() - intended)
        shape, request = self.mix.draw(self.rng)
        marker = b"%08x" % (next(self.markers) & 0xFFFFFFFF)
        exchange = Exchange(shape, request.replace(MARKER, marker), intended, verdict_for(shape, marker))
        while self.idle:
            caller = self.idle.pop()
            if not caller.closed:
                self.send(caller, exchange)
                return
        if len(self.busy) >= self.limits.connections:
            self.backlog.append(exchange)
        else:
            self.send(self.dial(), exchange)

    def send(self, caller: Caller, exchange: Exchange) -> None:
        """Put a call on a connection."""
        self.busy.add(caller)
        caller.call(exchange)
        if exchange.shape.leave is not None:
            self.reactor.at(exchange.sent + exchange.shape.leave, lambda: caller.leave(exchange))

    def dial(self) -> Caller:
        """A new connection, perhaps not up yet."""
        line = Line(self.reactor, socket.socket())
        line.dial(self.endpoint.host, self.endpoint.port)
        return Caller(line, self.tally, self.settle)

    def settle(self, caller: Caller, exchange: Exchange, fault: str | None) -> None:
        """A call ended: reuse its connection, send what waited, and in a closed loop begin the next."""
        self.busy.discard(caller)
        if self.tally.failures.total() > TOO_MANY:
            self.reactor.stop()
        if self.backlog:
            self.send(self.dial() if caller.closed else caller, self.backlog.popleft())
            return
        if not caller.closed:
            self.idle.append(caller)
        now = time.perf_counter()
        if fault and self.again:
            self.reactor.at(now + PAUSE, self.resume)
        elif self.again:
            self.again(now)
        self.stop_when_done()

    def resume(self) -> None:
        """Begin the next call of a closed loop after a failure, unless the window is over."""
        if self.again:
            self.again(time.perf_counter())

    def sweep(self) -> None:
        """Give up on calls that took too long."""
        now = time.perf_counter()
        late = [caller for caller in self.busy if caller.exchange and now - caller.exchange.sent > self.limits.patience]
        for caller in late:
            caller.abandon("timeout")
        if now > self.tally.closed + self.limits.patience:
            self.reactor.stop()
        self.reactor.at(now + SWEEP, self.sweep)


def verdict_for(shape: Shape, marker: bytes) -> UnaryVerdict | StreamVerdict:
    """The judge of one call's answer."""
    return StreamVerdict(marker, shape.chunks, ENDS[shape.dialect]) if shape.stream else UnaryVerdict(marker)
