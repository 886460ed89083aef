"""After commit: what the upstream sends goes downstream as it came, until it ends well or has to be told that it did not.

The held frames come first. From then on the reader passes whole frames only, so that an error frame of ours never lands
inside one of theirs. There is no failover any more and nothing is invented: a stream that is cut, stalls or runs out of
time ends with one truthful error frame and no terminator.
"""

import contextlib
import math

import trio
from attrs import define, field

from trioproxy.codec.frame import Dialect, StreamReader
from trioproxy.codec.problem import problem_of
from trioproxy.codec.sse import EventTooLong
from trioproxy.errors import AttemptError, Blame, Fault, FaultKind
from trioproxy.http.client import Exchange
from trioproxy.policy.deadlines import Deadlines

# After the terminator the upstream's last chunk is usually in the same packet or right behind it. Waiting a moment for it
# saves the next call a connection; waiting longer would keep the slot of a provider that never closes.
LINGER = 0.1
# After a finish only the usage frame and the terminator are owed. Every provider sends them with it or right behind.
FINISH_GRACE = 2.0

STALLED = Fault(FaultKind.IDLE_TIMEOUT, Blame.PROVIDER, "the upstream stopped in the middle of its answer", counts=True)
CUT = Fault(FaultKind.CUT, Blame.PROVIDER, "the upstream's answer ended early", counts=True)
TOO_LONG = Fault(
    FaultKind.TOO_LONG, Blame.PROVIDER, "one frame of the upstream's answer is over the limit", counts=True
)
DRAINED = Fault(FaultKind.DRAINED, Blame.ADAPTER, "the gateway was stopped in the middle of the answer")
OUT_OF_TIME = Fault(FaultKind.DEADLINE, Blame.CLIENT, "the deadline passed in the middle of the answer")


@define(eq=False)
class Relay:
    """The body of a committed stream.

    `ended` says that nothing more will come, `fault` why it did not end well. Any byte from the upstream proves that it
    is alive and renews the idle deadline.
    """

    exchange: Exchange
    reader: StreamReader
    deadlines: Deadlines
    idle: float
    dialect: Dialect
    _held: bytes
    complete: bool = False  # what is held is the whole answer, terminator included
    ended: bool = field(init=False, default=False)
    fault: Fault | None = field(init=False, default=None)
    _patience: float = field(init=False, default=math.inf)
    _since: float = field(init=False, default=0.0)  # when the present wait for the upstream began
    _waiting: bool = field(init=False, default=False)
    _late: Fault | None = field(init=False, default=None)

    @property
    def ready(self) -> bool:
        """Whether held bytes are there; a gate that ran out of time may have held none."""
        return bool(self._held)

    async def receive(self) -> bytes:
        """The next bytes for downstream, b"" once ended. Cancelled, it loses nothing."""
        out, self._held = self._held, b""
        if out:
            if self.complete:
                self.ended = True
                return out
            return out + self._look()
        while not self.ended:
            out = await self._step()
            if out:
                return out
        return b""

    async def linger(self) -> None:
        """Give an upstream that has said its last a moment to end the message too."""
        if self.fault is None and self.ended and not self.exchange.whole():
            with trio.move_on_after(LINGER), contextlib.suppress(AttemptError):
                while await self.exchange.receive():
                    pass

    async def _step(self) -> bytes:
        now = self._since = trio.current_time()
        if now >= self.deadlines.total and not self.reader.finished:
            return self._fail(OUT_OF_TIME)
        self._waiting = True
        self._watch(now)
        try:
            data = await self.exchange.receive()
        except AttemptError:
            data = b""
        finally:
            self._waiting = False
        if self._late is not None and not self.reader.finished:
            return self._fail(self._late)
        if not data:  # also where it has said all and forgets to close
            return self._close()
        try:
            out = self.reader.follow(data)
        except EventTooLong:
            return self._fail(TOO_LONG)
        return out + self._look()

    def _watch(self, now: float) -> None:
        """Be watched from the first read on, and again when a finish has made the patience shorter."""
        patience = patience_for(self.reader, self.idle)
        if patience < self._patience:
            self._patience = patience
            self.exchange.upstream.silence.add(self, now)

    def due(self, now: float) -> float:
        """As `Watched.due`. While nobody reads, the time is not the upstream's."""
        if self.ended:
            return math.inf
        total = self.deadlines.total
        if self._waiting:
            return min(self._since + self._patience, total)
        return now + self._patience if total <= now else min(now + self._patience, total)

    def give_up(self, now: float) -> None:
        """As `Watched.give_up`."""
        self._late = OUT_OF_TIME if now >= self.deadlines.total else STALLED
        self.exchange.abort()

    def interrupt(self) -> None:
        """As `Source.interrupt`."""
        self._late = DRAINED
        self.exchange.abort()

    def _look(self) -> bytes:
        """What the reader has seen: an end, an error frame, or nothing yet. Returns what is owed for it."""
        if self.reader.fault is not None:
            self.fault = self.reader.fault
            self.ended = True
        elif self.reader.ended:
            if not self.reader.finished:  # a terminator without a finish is no proof of success
                return self._fail(CUT)
            self.ended = True
        return b""

    def _close(self) -> bytes:
        """The upstream has sent its last byte."""
        out = b"".join(frame.raw for frame in self.reader.close() if not frame.usage_only) + self._look()
        if self.ended:
            return out
        if self.reader.finished:
            self.ended = True
            return out + self.reader.terminator()
        return out + self._fail(CUT)

    def _fail(self, fault: Fault) -> bytes:
        self.fault = fault
        self.ended = True
        return self.dialect.error_frame(problem_of(AttemptError(fault)))


def patience_for(reader: StreamReader, idle: float) -> float:
    """Seconds that a stream may be silent now."""
    return min(idle, FINISH_GRACE) if reader.finished else idle


def again(fault: Fault) -> Fault:
    """The same fault before commit, where another channel may still be asked."""
    return Fault(fault.kind, fault.blame, fault.message, fault.status, retry=True, counts=fault.counts)
