"""What a comparison says, for people (Markdown) and for machines (JSON, CSV).

Every figure is min / median / max over rounds, void windows left out and counted. Ratios are taken inside one round, then the
median of them is shown: both sides of a ratio saw the same machine in the same minute.
"""

import csv
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.case import CASES
from bench.compare import Comparison, Window

MILLI = 1e3
MiB = 1024 * 1024
BOUNDS = (0.005, 0.010, 0.020, 0.050)
Figure = Callable[[Window], float]


def spread(values: Sequence[float], digits: int = 0) -> str:
    """`min / median / max`."""
    if not values:
        return "void"
    three = (min(values), statistics.median(values), max(values))
    return " / ".join(f"{value:,.{digits}f}" for value in three)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Reader:
    """Windows of one case, looked up by target and round."""

    def __init__(self, found: Comparison, case: str) -> None:
        self.case = CASES[case]
        self.shown = "first" if self.case.shape.every else "latency"  # a paced stream's length is the provider's
        self.windows = [window for window in found.windows if window.case == case]
        self.targets = list(dict.fromkeys(window.target for window in self.windows))
        self.valid = {(window.target, window.number): window for window in self.windows if not window.void}

    def values(self, target: str, figure: Figure) -> list[float]:
        """A figure in every valid round."""
        return [figure(window) for (name, _), window in self.valid.items() if name == target]

    def against(self, target: str, base: str, join: Callable[[float, float], float], figure: Figure) -> list[float]:
        """A figure joined with that of `base` in the same round."""
        pairs = [(window, self.valid.get((base, n))) for (name, n), window in self.valid.items() if name == target]
        return [join(figure(window), figure(other)) for window, other in pairs if other]

    def row(self, target: str) -> list[str]:
        """The target's line in the table of this case."""
        per: Figure = lambda window: window.per(self.case.per)  # noqa: E731
        ratios = self.against(target, "relay", lambda a, b: a / b, per)
        void = [window for window in self.windows if window.target == target and window.void]
        cells = [target, spread(self.values(target, per)), f"{statistics.median(ratios):.2f}" if ratios else "-"]
        cells.append(spread(self.values(target, lambda window: window.complete / window.seconds)))
        cells += [spread(self.values(target, quantile(self.shown, share)), 3) for share in (0.5, 0.9, 0.99)]
        added = [self.against(target, "direct", lambda a, b: a - b, quantile(*one)) for one in self.added()]
        cells += [spread(values, 3) for values in added]
        said = "; ".join(f"round {window.number + 1}: {window.failures}" for window in void)
        return [*cells, f"{len(void)} void {said}" if void else "0"]

    def added(self) -> list[tuple[str, float]]:
        """Which differences to `direct` this case is for."""
        if self.case.shape.stream:
            return [("first", 0.5), ("first", 0.99), ("gap", 0.99)] if self.case.shape.every else [("first", 0.5)]
        return [("latency", share) for share in (0.5, 0.9, 0.99)] if self.case.concurrency == 1 else []

    def markdown(self) -> str:
        """Title and table."""
        added = [f"added {name} p{share * 100:g} ms" for name, share in self.added()]
        head = [
            "target",
            f"CPU µs/{self.case.per}",
            "x relay",
            "calls/s",
            f"{self.shown} p50 ms",
            "p90 ms",
            "p99 ms",
            *added,
            "failed windows",
        ]
        others = statistics.median(window.others / window.seconds for window in self.windows)
        title = f"### {self.case.name}: {self.case.concurrency} callers; processes of others took {others:.2f} cores"
        return f"{title}\n\n{table(head, [self.row(target) for target in self.targets])}\n"


def quantile(name: str, share: float) -> Figure:
    """A figure: one quantile of one of a window's histograms, in milliseconds."""
    return lambda window: getattr(window, name).quantile(share) * MILLI


def memory(found: Comparison) -> str:
    """Resident sizes and start-up."""
    rows = [
        [
            one.target.name,
            *(f"{size / MiB:.0f}" for size in (one.idle, one.loaded, one.recovered)),
            f"{one.started_in:.2f}",
        ]
        for one in found.running
        if one.target.name != "direct"
    ]
    return (
        "### Resident MiB, seconds to listen\n\n"
        + table(["target", "idle", "loaded", "recovered", "start s"], rows)
        + "\n"
    )


def ladder(found: Comparison) -> str:
    """The highest offered rate whose p99 stayed under each bound."""
    rows = []
    for target in dict.fromkeys(step.target for step in found.steps):
        steps = [step for step in found.steps if step.target == target]
        cells = [target]
        for bound in BOUNDS:
            held = [step.rate for step in steps if step.p99 <= bound and not step.failures]
            cells.append(f"{max(held):,.0f}" if held else "-")
        lag = max(step.late for step in steps if step is steps[0] or step.p99 <= BOUNDS[-1])
        rows.append([*cells, f"{lag * MILLI:.1f}", str(sum(sum(step.failures.values()) for step in steps))])
    head = ["target", *(f"p99 ≤ {bound * MILLI:.0f} ms" for bound in BOUNDS), "generator lag p99 ms", "failures"]
    return "### Calls/s at a tail bound, open loop, Poisson\n\n" + table(head, rows) + "\n"


def markdown(found: Comparison, machine: dict[str, str]) -> str:
    """The whole report."""
    parts = ["## Comparison", ", ".join(f"{name} {value}" for name, value in machine.items()) + "\n"]
    parts += [Reader(found, case).markdown() for case in dict.fromkeys(window.case for window in found.windows)]
    parts.append(memory(found))
    if found.steps:
        parts.append(ladder(found))
    parts += [f"- **{name} did not run**: {reason}" for name, reason in found.absent.items()]
    return "\n".join(parts)


def plain(window: Window) -> dict[str, object]:
    """One window as flat values. Times in seconds."""
    values: dict[str, object] = {
        "target": window.target,
        "case": window.case,
        "round": window.number + 1,
        "void": window.void,
        "seconds": window.seconds,
        "complete": window.complete,
        "frames": window.frames,
        "cpu": window.cpu,
        "cpu_us": window.per(CASES[window.case].per),
        "rss": window.rss,
        "generator_cpu": window.generator,
        "others_cpu": window.others,
        "failures": json.dumps(window.failures),
    }
    for name in ("latency", "first", "gap"):
        histogram = getattr(window, name)
        values |= {f"{name}_{share}": value for share, value in histogram.summary().items()} if histogram.total else {}
    return values


def write(found: Comparison, machine: dict[str, str], where: Path) -> None:
    """`comparison.json` and `comparison.csv` in `where`."""
    where.mkdir(parents=True, exist_ok=True)
    windows = [plain(window) for window in found.windows]
    steps = [
        {"target": s.target, "rate": s.rate, "p50": s.p50, "p99": s.p99, "late": s.late, "failures": s.failures}
        for s in found.steps
    ]
    sizes = {
        one.target.name: {"idle": one.idle, "loaded": one.loaded, "recovered": one.recovered} for one in found.running
    }
    whole = {"machine": machine, "windows": windows, "ladder": steps, "rss": sizes, "absent": found.absent}
    (where / "comparison.json").write_text(json.dumps(whole, indent=1))
    columns = list(dict.fromkeys(name for window in windows for name in window))
    with (where / "comparison.csv").open("w", newline="") as out:
        rows = csv.DictWriter(out, columns)
        rows.writeheader()
        rows.writerows(windows)
