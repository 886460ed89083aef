"""What an attempt waits for, and until when.

One cancel scope serves the deadlines of an attempt one after the other: headers (the wait for a slot included), the gate, and the
gaps of what is held to its end. What is waited for and how long are set together, so that when time runs out the
blame is right: the caller's own deadline is no evidence, the others are.
"""

import enum

import trio
from attrs import define, field

from trioproxy.config.model import ClassPolicy
from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.phases.relay import STALLED, again


class Wait(enum.Enum):
    """Whose clock it is that runs."""

    HEADERS = "headers"
    CONTENT = "content"
    END = "end"


@define(eq=False)
class Waiting:
    """The present wait. `start` is the call's own deadline for an answer to begin, seconds on Trio's clock."""

    policy: ClassPolicy
    start: float
    scope: trio.CancelScope
    what: Wait = field(init=False, default=Wait.HEADERS)

    def begin(self, what: Wait, seconds: float) -> None:
        """Wait for this from now on, so many seconds."""
        self.what = what
        self.scope.deadline = min(trio.current_time() + seconds, self.start)

    def shorten(self, what: Wait, seconds: float) -> None:
        """Wait for this, but no longer than was allowed already."""
        self.what = what
        self.scope.deadline = min(self.scope.deadline, trio.current_time() + seconds)

    def ran_out(self, now: float) -> Fault | None:
        """Why the wait is over; None where running out of time decides nothing (the plain gate)."""
        if now >= self.start:
            return Fault(FaultKind.DEADLINE, Blame.CLIENT, "the deadline passed before an answer began")
        if self.what is Wait.END:
            return again(STALLED)
        if self.what is Wait.HEADERS:
            message = f"no answer from the upstream within {self.policy.headers_timeout:g} s"
            return Fault(FaultKind.HEADERS_TIMEOUT, Blame.PROVIDER, message, retry=True, counts=True)
        if self.policy.on_gate_timeout == "failover":
            message = f"no content from the upstream within {self.policy.gate_timeout:g} s"
            return Fault(FaultKind.FIRST_CONTENT_TIMEOUT, Blame.PROVIDER, message, retry=True, counts=True)
        return None
