"""Very many open streams at once: do they all live, and what does one cost in memory and in CPU?

The streams begin evenly over a ramp, all stay open together for a while, and every one is checked to its end. Provider, gateway
and generator are processes of their own; the gateway needs two descriptors for each stream.
"""

import math
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

from bench import process
from bench.compare import SETTLE, Comparison, Running, rest, started
from bench.load import Limits, Load
from bench.process import Reading
from bench.target import Target
from bench.workload import Mix, Shape

MiB = 1024 * 1024
KiB = 1024
SPARE = 200  # descriptors that a gateway needs for other things than streams


@frozen
class Crowd:
    """How many streams, how they come and how long they stay together. Seconds."""

    count: int = 9_500
    every: float = 2.0  # between content frames; at 1.0 the frames alone fill most of a core
    ramp: float = 30.0
    hold: float = 10.0

    def shape(self) -> Shape:
        """A stream that outlasts ramp and hold."""
        chunks = math.ceil((self.ramp + self.hold) / self.every) + 1
        return Shape("crowd", stream=True, chunks=chunks, every=self.every)


@frozen
class Gathering:
    """What one target made of a crowd. Bytes, seconds."""

    target: str
    open: int  # streams with content, all open at one moment
    complete: int
    failures: dict[str, int]
    idle: int
    full: int
    recovered: int
    cpu: float  # share of one core while all were open
    chunk: float  # CPU seconds per content frame meanwhile
    first: float  # p99 from the intended start to the first content
    gap: float  # p99 of each stream's widest gap, less the interval


def gather(one: Running, crowd: Crowd) -> Gathering:
    """One target, one crowd."""
    idle = rest([one])[one.target.name]
    marks: list[tuple[Reading, int]] = []
    limits = Limits(crowd.hold, warmup=crowd.ramp, connections=crowd.count, whole=True)
    load = Load(one.endpoint, Mix.of((crowd.shape(),), one.endpoint), limits)
    load.on_mark = lambda _: marks.append((process.read(one.pid), alive(load)))
    tally = load.run_closed(crowd.count, spread=crowd.ramp - 1.0)
    (before, _), (after, together) = marks
    group = tally.everything()
    return Gathering(
        target=one.target.name,
        open=together,
        complete=group.complete,
        failures=dict(tally.failures),
        idle=idle,
        full=after.rss,
        recovered=rest([one])[one.target.name],
        cpu=(after.cpu - before.cpu) / crowd.hold,
        chunk=(after.cpu - before.cpu) / max(1, tally.frames),
        first=group.first.quantile(0.99),
        gap=group.gap.quantile(0.99) - crowd.every,
    )


def alive(load: Load) -> int:
    """How many streams have had content and not ended."""
    return sum(1 for caller in load.busy if caller.exchange and caller.exchange.first)


def run(targets: list[Target], crowd: Crowd, where: Path, progress: Callable[[str], None]) -> str:
    """The crowd on each target in turn; a Markdown table."""
    wanted = 2 * crowd.count + SPARE
    if process.raise_descriptors(wanted) < wanted:
        raise ValueError(f"{crowd.count} streams take {wanted} descriptors and this process may have fewer: ulimit -n")
    found = Comparison()
    gatherings = []
    with started(targets, where, found) as live:
        for one in live:
            progress(
                f"{crowd.count} streams through {one.target.name}, {crowd.ramp + crowd.hold + SETTLE:.0f} s and more"
            )
            gatherings.append(gather(one, crowd))
    return markdown(gatherings, crowd, found.absent)


def markdown(gatherings: list[Gathering], crowd: Crowd, absent: dict[str, str]) -> str:
    """The table."""
    head = "| target | open at once | complete | failures | idle MiB | full MiB | recovered MiB | KiB/stream | CPU of one core "
    head += "| CPU µs/chunk | first p99 ms | gap over interval p99 ms |\n" + "| --- " * 12 + "|"
    lines = [
        f"### {crowd.count} streams, a frame each {crowd.every:g} s, {crowd.ramp:g} s to come, {crowd.hold:g} s together",
        "",
        head,
    ]
    for one in gatherings:
        sizes = " | ".join(f"{size / MiB:.0f}" for size in (one.idle, one.full, one.recovered))
        each = (one.full - one.idle) / max(1, one.open) / KiB
        times = f"{one.cpu:.0%} | {one.chunk * 1e6:.0f} | {one.first * 1e3:.1f} | {one.gap * 1e3:.1f}"
        lines.append(
            f"| {one.target} | {one.open} | {one.complete} | {one.failures or 0} | {sizes} | {each:.1f} | {times} |"
        )
    lines += [f"- **{name} did not run**: {reason}" for name, reason in absent.items()]
    return "\n".join(lines)
