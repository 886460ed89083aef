"""The same workloads against several targets, in interleaved rounds on one machine, with one provider.

In each round every target takes every workload once, and the order turns from round to round, so drift of the machine hits all
alike. A window in which any call failed is void: its figures are shown to nobody and its failures are.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

from attrs import define, evolve, field, frozen

from bench import process
from bench.arrivals import Segment
from bench.case import Case
from bench.histogram import Histogram
from bench.load import Limits, Load
from bench.process import Command, Reading, StartFailed, running
from bench.target import Plan, Target
from bench.workload import Endpoint, Mix, Shape

MICRO = 1e6
LADDER = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
FEW = 30  # with fewer complete calls than this, those under way at a window's ends weigh too much: measure again,
LONG = 20.0  # for so many seconds
SETTLE = 3.0  # seconds at rest before a resident size is read as idle or recovered


@frozen
class Window:
    """What one window measured. Seconds and bytes, CPU of the target's process tree."""

    target: str
    case: str
    number: int  # the round
    seconds: float
    complete: int
    frames: int
    cpu: float
    rss: int
    generator: float  # CPU seconds of the load generator: near `seconds`, it was the bottleneck
    others: float  # CPU seconds of processes that have no part in this: they blur latency and throughput
    latency: Histogram
    first: Histogram
    gap: Histogram
    failures: dict[str, int]

    @property
    def void(self) -> bool:
        """Whether the window says nothing: a call failed, or none completed."""
        return bool(self.failures) or not self.complete

    def per(self, what: str) -> float:
        """CPU microseconds per call or per chunk."""
        return self.cpu * MICRO / max(1, self.frames if what == "chunk" else self.complete)


@frozen
class Step:
    """One rung of the ladder: an offered rate and the latency it met."""

    target: str
    rate: float
    p50: float
    p99: float
    late: float  # p99 of the generator's own lag
    failures: dict[str, int]


@frozen
class Course:
    """What a comparison runs. `ladder` is the seconds for each rung of the open-loop ladder, 0 for none."""

    cases: tuple[Case, ...]
    rounds: int = 3
    ladder: float = 0.0


@define(eq=False)
class Running:
    """A target under measurement."""

    target: Target
    endpoint: Endpoint
    pid: int
    provider: int  # the fake provider's process
    idle: int = 0
    loaded: int = 0
    recovered: int = 0
    started_in: float = 0.0


@frozen
class Mark:
    """CPU seconds of everybody at one moment."""

    target: Reading
    generator: float
    parties: float  # target, provider and generator together
    machine: float

    @classmethod
    def now(cls, one: Running) -> "Mark":
        """Read them."""
        target, generator = process.read(one.pid), process.own_cpu()
        provider = 0.0 if one.pid == one.provider else process.read(one.provider).cpu
        return cls(target, generator, target.cpu + generator + provider, process.machine_cpu())


@define(eq=False)
class Comparison:
    """Everything that one comparison found."""

    windows: list[Window] = field(factory=list)
    steps: list[Step] = field(factory=list)
    absent: dict[str, str] = field(factory=dict)  # target to the reason why it did not run
    running: list[Running] = field(factory=list)


def upstream_command(port: int) -> Command:
    """The provider: prompts say how they want to be answered."""
    return Command((sys.executable, "-m", "bench", "upstream", "--port", str(port)), port)


@contextlib.contextmanager
def started(targets: list[Target], where: Path, found: Comparison) -> Generator[list[Running]]:
    """The provider and every target that can be started; the rest is noted in `found.absent`."""
    upstream = process.free_port()
    with contextlib.ExitStack() as stack:
        provider = stack.enter_context(running(upstream_command(upstream), where / "upstream.log"))
        for target in targets:
            home = where / target.name
            home.mkdir(parents=True, exist_ok=True)
            plan = Plan(home, process.free_port(), upstream)
            try:
                target.install(home)
                command = target.command(plan)
                begun = time.perf_counter()
                pid = stack.enter_context(running(command, home / "output.log")) if command else provider
            except (StartFailed, subprocess.CalledProcessError) as error:
                detail = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
                found.absent[target.name] = f"{error} {detail[-500:]}".strip()
                continue
            found.running.append(
                Running(target, target.endpoint(plan), pid, provider, started_in=time.perf_counter() - begun)
            )
        yield found.running


def measure(one: Running, case: Case, number: int) -> Window:
    """One window of one target."""
    marks: dict[str, Mark] = {}

    def mark(name: str) -> None:
        marks[name] = Mark.now(one)

    limits = Limits(case.seconds, warmup=case.warmup)
    load = Load(one.endpoint, Mix.of((case.shape,), one.endpoint), limits, mark)
    tally = load.run_closed(case.concurrency, spread=case.spread)
    if tally.complete < FEW and not tally.failures and case.seconds < LONG:
        return measure(one, evolve(case, seconds=LONG, warmup=LONG / 4), number)
    opened, closed = marks["open"], marks["close"]
    one.loaded = max(one.loaded, closed.target.rss)
    group = tally.groups.get(case.shape.name)
    return Window(
        target=one.target.name,
        case=case.name,
        number=number,
        seconds=tally.closed - tally.opened,
        complete=tally.complete,
        frames=tally.frames,
        cpu=closed.target.cpu - opened.target.cpu,
        rss=closed.target.rss,
        generator=closed.generator - opened.generator,
        others=(closed.machine - closed.parties) - (opened.machine - opened.parties),
        latency=group.latency if group else Histogram(),
        first=group.first if group else Histogram(),
        gap=group.gap if group else Histogram(),
        failures=dict(tally.failures),
    )


def climb(one: Running, capacity: float, seconds: float) -> list[Step]:
    """Open-loop Poisson load at rising shares of a target's closed-loop throughput."""
    shape = Shape("unary")
    steps = []
    for share in LADDER:
        rate = capacity * share
        load = Load(one.endpoint, Mix.of((shape,), one.endpoint), Limits(seconds, patience=10.0, connections=256))
        tally = load.run_open((Segment(rate, rate, seconds + load.limits.warmup),), "poisson")
        group = tally.groups.get(shape.name)
        latency = group.latency if group else Histogram()
        late = tally.late.quantile(0.99)
        steps.append(
            Step(one.target.name, rate, latency.quantile(0.5), latency.quantile(0.99), late, dict(tally.failures))
        )
    return steps


def rest(found: list[Running]) -> dict[str, int]:
    """Resident bytes of every target after a while without calls."""
    time.sleep(SETTLE)
    return {one.target.name: process.read(one.pid).rss for one in found}


def touch(one: Running) -> dict[str, int]:
    """A few calls before anything is measured; the failures among them."""
    load = Load(
        one.endpoint, Mix.of((Shape(), Shape(stream=True)), one.endpoint), Limits(0.2, warmup=0.2, patience=20.0)
    )
    return dict(load.run_closed(1).failures)


def compare(targets: list[Target], plan: Course, *, where: Path, progress: Callable[[str], None]) -> Comparison:
    """Run it; peers are installed and log under `where`."""
    found = Comparison()
    progress("installing and starting")
    with started(targets, where, found) as live:
        for one in live:
            failures = touch(one)
            if failures:
                found.absent[one.target.name] = f"its first calls failed: {failures}"
        live[:] = [one for one in live if one.target.name not in found.absent]
        for one in live:
            one.idle = rest([one])[one.target.name] if one is live[0] else process.read(one.pid).rss
        for number in range(plan.rounds):
            for case in plan.cases:
                for one in live[number % len(live) :] + live[: number % len(live)]:
                    progress(f"round {number + 1}/{plan.rounds} {case.name} {one.target.name}")
                    found.windows.append(measure(one, case, number))
        if plan.ladder:
            for one in live:
                progress(f"ladder {one.target.name}")
                found.steps += climb(one, capacity(found, one.target.name), plan.ladder)
        sizes = rest(live)
        for one in live:
            one.recovered = sizes[one.target.name]
    return found


def capacity(found: Comparison, target: str) -> float:
    """The best closed-loop throughput seen for a target, calls a second."""
    rates = [
        w.complete / w.seconds
        for w in found.windows
        if w.target == target and w.case.startswith("unary") and not w.void
    ]
    return max(rates, default=100.0)
