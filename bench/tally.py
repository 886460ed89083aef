"""What a load run found: complete answers, failures by reason, and durations, for each shape of call.

Latency counts from the *intended* send time, and every call that was meant to be sent inside the window counts, however
late it ended. Throughput counts what was completed inside the window.
"""

from collections import Counter

from attrs import define, field

from bench.histogram import Histogram
from bench.verdict import Verdict
from bench.workload import Shape


@define(eq=False)
class Exchange:
    """One call under way. Times are the reactor's; 0 means not yet."""

    shape: Shape
    request: bytes
    intended: float
    verdict: Verdict
    sent: float = 0.0
    first: float = 0.0
    latest: float = 0.0  # the last content frame
    widest: float = 0.0  # the widest gap between two content frames


@define(eq=False)
class Group:
    """The figures of one shape."""

    latency: Histogram = field(factory=Histogram)
    first: Histogram = field(factory=Histogram)  # intended send to first content frame
    gap: Histogram = field(factory=Histogram)  # widest gap of each stream
    complete: int = 0

    def add(self, other: "Group") -> None:
        """Count what another group counted."""
        self.latency.add(other.latency)
        self.first.add(other.first)
        self.gap.add(other.gap)
        self.complete += other.complete

    def summary(self) -> dict[str, object]:
        """Plain values, seconds."""
        times = {"latency": self.latency, "first": self.first, "gap": self.gap}
        return {"complete": self.complete, **{name: one.summary() for name, one in times.items() if one.total}}


@define(eq=False)
class Tally:
    """Counts of one run. The window is set by `opened` and `closed`, reactor times; durations may count from before, `since`."""

    since: float = float("inf")
    opened: float = float("inf")
    closed: float = float("inf")
    groups: dict[str, Group] = field(factory=dict)
    failures: Counter[str] = field(factory=Counter)
    sent: int = 0
    left: int = 0  # calls that we broke off on purpose
    complete: int = 0  # inside the window
    frames: int = 0  # content frames inside the window
    late: Histogram = field(
        factory=Histogram
    )  # the generator's own lag: when it came to a call that was meant to be sent

    def frame(self, exchange: Exchange, frames: int, now: float) -> None:
        """Content frames of a stream came."""
        if exchange.first:
            exchange.widest = max(exchange.widest, now - exchange.latest)
        else:
            exchange.first = now
        exchange.latest = now
        if self.opened <= now < self.closed:
            self.frames += frames

    def end(self, exchange: Exchange, fault: str | None, now: float) -> None:
        """A call is over, complete when `fault` is None. A failure counts whenever it happens."""
        if fault:
            self.failures[fault] += 1
            return
        if self.opened <= now < self.closed:
            self.complete += 1
        if not self.since <= exchange.intended < self.closed:
            return
        group = self.groups.setdefault(exchange.shape.name, Group())
        group.complete += 1
        group.latency.record(now - exchange.intended)
        if exchange.first:
            group.first.record(exchange.first - exchange.intended)
            group.gap.record(exchange.widest)

    def everything(self) -> Group:
        """All shapes together."""
        whole = Group()
        for group in self.groups.values():
            whole.add(group)
        return whole

    def summary(self) -> dict[str, object]:
        """Everything as plain values for JSON; times in seconds."""
        seconds = self.closed - self.opened
        return {
            "seconds": seconds,
            "sent": self.sent,
            "complete": self.complete,
            "calls_per_second": self.complete / seconds,
            "left": self.left,
            "frames": self.frames,
            "failures": dict(self.failures),
            "late": self.late.summary(),
            "shapes": {name: group.summary() for name, group in self.groups.items()},
        }
