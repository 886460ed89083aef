"""Minutes of everything at once: whole and streamed calls, faults, stalls, clients that hang up, spikes.

What must hold afterwards: memory is flat, every descriptor is given back, and every concurrency slot is free. The last is seen
from outside: a healthy provider and exactly as many calls at once as there are slots, each longer than a call waits for
one; a single leaked slot is a refusal.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from attrs import define, field, frozen

from bench import arrivals, process
from bench.arrivals import Segment
from bench.load import Limits, Load
from bench.process import Command, running
from bench.target import Plan
from bench.targets import trioproxy
from bench.workload import Endpoint, Mix, Shape, parse

MiB = 1024 * 1024
SAMPLE = 2.0
NOISE = 2 * MiB
SLOTS = 256  # of each of the two channels
SLOT_TIMEOUT = 1.0
# One breaker trip would turn a minute of the soak into refusals, which leak nothing.
PATIENT_BREAKER = (
    "\n[defaults]\nheaders_timeout = 3.0\ngate_timeout = 3.0\nidle_timeout = 3.0\nbreaker = { failures = 1000000 }\n"
)
# What costs something at every call and keeps something afterwards: a ledger, limits that nobody reaches, health checks.
EVERYTHING = """
[state]
path = "{where}/ledger.db"
spool_size = 1_048_576

[probes]
every = 5
failures = 0

[organization]
limits = {{ requests_per_minute = 10_000_000, tokens_per_minute = 1_000_000_000, concurrency = 100_000 }}
"""
FAULTS = (
    "status=503 share=0.02",
    "status=429 share=0.002",  # both channels have one provider: what cools one cools the other soon
    "stall share=0.002",
    "error=0 share=0.01",
    "error=3 share=0.01",
    "cut=0 share=0.005",
    "cut=2 share=0.005",
    "reset=2 share=0.005",
)
MIX = tuple(
    map(
        parse,
        (
            "name=whole weight=40",
            "name=big weight=5 size=40000",
            "name=stream weight=20 stream chunks=20 every=0.02",
            "name=burst weight=10 stream chunks=100 burst",
            "name=left-early weight=5 wait=2 leave=0.1",
            "name=left-midway weight=10 stream chunks=100 every=0.02 leave=0.3",
            "name=left-at-once weight=5 leave=0",
        ),
    )
)


@frozen
class Soak:
    """How long and how hard: a steady rate with a spike each minute."""

    minutes: float = 5.0
    rate: float = 60.0
    spike: float = 3.0  # times the rate

    def profile(self) -> tuple[Segment, ...]:
        """Minutes of 55 s at the rate and 5 s at the spike; a shorter soak is one shorter minute."""
        seconds = min(60.0, self.minutes * 60)
        minute = (
            Segment(self.rate, self.rate, seconds * 11 / 12),
            Segment(self.rate * self.spike, self.rate * self.spike, seconds / 12),
        )
        return minute * max(1, round(self.minutes))


@define(eq=False)
class Watch:
    """Samples of one process while the load runs: (seconds, resident bytes, descriptors)."""

    pid: int
    samples: list[tuple[float, int, int]] = field(factory=list)

    def take(self, load: Load) -> None:
        """Sample now and plan the next."""
        now = time.perf_counter()
        self.samples.append((max(0.0, now - load.started), process.read(self.pid).rss, process.descriptors(self.pid)))
        load.reactor.at(now + SAMPLE, lambda: self.take(load))

    def growth(self) -> float:
        """Resident bytes an hour over the second half, by least squares; 0 for too few samples."""
        half = self.samples[len(self.samples) // 2 :]
        if len(half) < 3:
            return 0.0
        return statistics.linear_regression([at for at, _, _ in half], [rss for _, rss, _ in half]).slope * 3600

    def flat(self) -> bool:
        """Whether memory has stopped growing: less than 1 MiB a minute, or than the noise of an allocator in a short soak."""
        hours = (self.samples[-1][0] - self.samples[0][0]) / 2 / 3600
        return self.growth() < 60 * MiB or self.growth() * hours < NOISE


def config(plan: Plan) -> Command:
    """Trioproxy with a ledger, limits and health checks, few slots, and a breaker that never opens."""
    command = trioproxy.command(plan)
    path = plan.where / "trioproxy.toml"
    text = path.read_text().replace(
        "max_concurrency = 20000", f"max_concurrency = {SLOTS}\nslot_timeout = {SLOT_TIMEOUT}"
    )
    path.write_text(text + PATIENT_BREAKER + EVERYTHING.format(where=plan.where))
    return command


def run(soak: Soak, where: Path, progress: Callable[[str], None]) -> tuple[str, bool]:
    """The soak; a Markdown report, and whether everything held."""
    seconds = arrivals.length(soak.profile())
    upstream, port = process.free_port(), process.free_port()
    faults = [word for fault in FAULTS for word in ("--fault", f"0-{seconds + 5:g} {fault}")]
    provider = Command((sys.executable, "-m", "bench", "upstream", "--port", str(upstream), *faults), upstream)
    with (
        running(provider, where / "upstream.log"),
        running(config(Plan(where, port, upstream)), where / "output.log") as pid,
    ):
        endpoint = Endpoint(port)
        watch = Watch(pid)
        load = Load(endpoint, Mix.of(MIX, endpoint), Limits(0.0, warmup=0.0, patience=30.0))
        load.reactor.at(0.0, lambda: watch.take(load))
        load.reactor.at(0.0, lambda: report_progress(load, watch, progress))
        before = process.descriptors(pid)
        tally = load.run_open(soak.profile(), "poisson")
        progress("resting, then filling every slot")
        time.sleep(12.0)
        after = process.descriptors(pid)
        # Callers' connections are gone; those to the provider may rest in the pool.
        full = Load(
            endpoint, Mix.of((Shape("slot", wait=2 * SLOT_TIMEOUT),), endpoint), Limits(3 * SLOT_TIMEOUT, warmup=0.0)
        )
        slots = full.run_closed(2 * SLOTS)
    held = not slots.failures and watch.flat()
    summary = (soak.minutes, tally.sent, tally.complete, tally.left)
    lines = [
        "### Soak: {:g} minutes, {} calls, {} complete, {} left by the client".format(*summary),
        "",
        f"- failures seen by clients (expected: the faults after commit): {dict(tally.failures)}",
        f"- resident MiB at {span(watch)}; growth over the second half {watch.growth() / MiB:.1f} MiB/h",
        f"- descriptors: {before} before, at most {max(fds for _, _, fds in watch.samples)}, {after} after a rest",
        f"- {2 * SLOTS} calls at once on {2 * SLOTS} slots: {dict(slots.failures) or 'all answered'}",
        f"- **{'held' if held else 'did not hold'}**",
    ]
    return "\n".join(lines), held


def span(watch: Watch) -> str:
    """Resident size at the beginning, each quarter and the end."""
    last = len(watch.samples) - 1
    picked = [watch.samples[last * quarter // 4] for quarter in range(5)]
    return ", ".join(f"{at:.0f} s: {rss / MiB:.0f}" for at, rss, _ in picked)


def report_progress(load: Load, watch: Watch, progress: Callable[[str], None]) -> None:
    """Say where it stands, each second."""
    now = time.perf_counter()
    rss = watch.samples[-1][1] / MiB if watch.samples else 0.0
    progress(f"{now - load.started:.0f} s, {load.tally.sent} sent, {load.tally.failures.total()} failed, {rss:.0f} MiB")
    load.reactor.at(now + 1.0, lambda: report_progress(load, watch, progress))
