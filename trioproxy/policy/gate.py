"""The gate: holds a stream's first frames until one of them decides.

Content → commit, and the held frames go out as they came. Error → everything held is discarded and the next channel
is asked. Nothing decisive → hold, until the stream ends (an empty answer is a failure) or a bound is reached: a slow
model is not an error. Comments are keep-alives: they neither open the gate nor count, and are dropped while held.
"""

import enum
from collections.abc import Iterable

from attrs import define, field

from trioproxy.codec.frame import Frame, Kind
from trioproxy.errors import Blame, Fault, FaultKind

# Past this a stream that says nothing decisive is let through. It bounds what one stream may hold; their number is no bound,
# because some keep-alives are events (`event: ping`) and must not open the gate.
MAX_BYTES = 262_144

EMPTY = Fault(FaultKind.EMPTY, Blame.PROVIDER, "the upstream's answer ended without content", retry=True, counts=True)
UNREADABLE = Fault(
    FaultKind.NOT_AN_ANSWER, Blame.PROVIDER, "the upstream's stream could not be read", retry=True, counts=True
)


class Verdict(enum.Enum):
    HOLD = "hold"
    COMMIT = "commit"
    FAIL = "fail"


@define(eq=False)
class Gate:
    """One attempt's gate. `held` are the bytes to release on commit; `fault` is set once the verdict is FAIL."""

    held: list[bytes] = field(init=False, factory=list)
    fault: Fault | None = field(init=False, default=None)
    size: int = field(init=False, default=0)  # bytes that were held without judgement
    _bytes: int = field(init=False, default=0)
    _suspect: bool = field(init=False, default=False)

    def feed(self, frames: Iterable[Frame]) -> Verdict:
        """Judge frames in order. All of them are held, also those behind the one that commits."""
        verdict = Verdict.HOLD
        for frame in frames:
            if verdict is Verdict.HOLD:
                verdict = self._judge(frame)
                if verdict is Verdict.FAIL:
                    self.held.clear()
                    return verdict
            if not frame.usage_only and not (frame.raw.startswith(b":") and verdict is Verdict.HOLD):
                self.held.append(frame.raw)
        return verdict

    def hold(self, frames: Iterable[Frame]) -> None:
        """Hold frames that need no judgement any more."""
        for frame in frames:
            if not frame.usage_only:
                self.held.append(frame.raw)
                self.size += len(frame.raw)

    def end(self) -> Verdict:
        """The stream ended while it was held."""
        return self._fail(UNREADABLE if self._suspect else EMPTY)

    def expire(self) -> Verdict:
        """The gate's time or room is used up: let a slow model through, but not what could not be read."""
        return self._fail(UNREADABLE) if self._suspect else Verdict.COMMIT

    def _judge(self, frame: Frame) -> Verdict:
        if frame.kind is Kind.ERROR:
            return self._fail(frame.fault or UNREADABLE)
        if frame.content or frame.kind in (Kind.CONTENT, Kind.FINISH):
            return Verdict.COMMIT
        if frame.kind is Kind.END:  # [DONE] is no proof of success
            return self.end()
        if frame.kind is Kind.SUSPECT:
            self._suspect = True
        if not frame.raw.startswith(b":"):
            self._bytes += len(frame.raw)
        return self.expire() if self._bytes > MAX_BYTES else Verdict.HOLD

    def _fail(self, fault: Fault) -> Verdict:
        self.fault = fault
        return Verdict.FAIL
