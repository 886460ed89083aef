"""The comparison as one HTML page: the tables, and plots drawn into it as SVG."""

import html
import io
import re
import statistics
from collections.abc import Callable

import matplotlib as mpl
from matplotlib import pyplot as plt

from bench.case import CASES
from bench.compare import Comparison
from bench.histogram import Histogram

mpl.use("svg")

MILLI = 1e3
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #1c2733; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; }
td, th { border-bottom: 1px solid #d5dde5; padding: .25em .7em; text-align: right; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; }
.wide { overflow-x: auto; }
svg { max-width: 100%; height: auto; }
"""


def page(found: Comparison, report: str) -> str:
    """The whole page; `report` is the Markdown."""
    plots = [draw(lambda: costs(found)), draw(lambda: tails(found))]
    if found.steps:
        plots.append(draw(lambda: rungs(found)))
    body = "\n".join([*plots, tables(report)])
    head = f'<meta charset="utf-8"><title>Gateway comparison</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def draw(plot: Callable[[], None]) -> str:
    """What a function draws, as an SVG element."""
    out = io.StringIO()
    plot()
    plt.savefig(out, format="svg", bbox_inches="tight")
    plt.close()
    svg = out.getvalue()
    return svg[svg.index("<svg") :]


def costs(found: Comparison) -> None:
    """CPU for each call or chunk, cheapest first: the median as a bar, least and most as a whisker.

    The axis is logarithmic: targets differ by a factor of a thousand, and each is to be seen.
    """
    cases = list(dict.fromkeys(window.case for window in found.windows))
    targets = list(dict.fromkeys(window.target for window in found.windows))
    colours = {target: f"C{number % 10}" for number, target in enumerate(targets)}
    rows = (len(cases) + 1) // 2
    _, axes = plt.subplots(rows, 2, figsize=(13, (0.32 * len(targets) + 1.1) * rows), squeeze=False)
    plt.subplots_adjust(hspace=0.45, wspace=0.28)
    for axis, case in zip(axes.flat, cases, strict=False):
        per = CASES[case].per
        found_values = {target: values_of(found, case, target) for target in targets}
        ranked = sorted((target for target in targets if found_values[target]), key=lambda t: -middle(found_values[t]))
        for target in ranked:
            values = found_values[target]
            whisker = [[middle(values) - min(values)], [max(values) - middle(values)]]
            axis.barh(target, middle(values), xerr=whisker, capsize=3, color=colours[target])
            axis.annotate(f"  {middle(values):,.0f}", (max(values), target), va="center", fontsize=9)
        axis.set(xscale="log", title=f"{case}: CPU µs for a {per}")
        axis.margins(x=0.12)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in list(axes.flat)[len(cases) :]:
        axis.set_visible(False)


def values_of(found: Comparison, case: str, target: str) -> list[float]:
    """What each window that counts says of a target's CPU."""
    per = CASES[case].per
    return [w.per(per) for w in found.windows if (w.case, w.target) == (case, target) and not w.void]


def middle(values: list[float]) -> float:
    return statistics.median(values)


def tails(found: Comparison) -> None:
    """Latency by quantile, up to the last nines."""
    every = list(dict.fromkeys(window.case for window in found.windows))
    cases = [case for case in every if case.startswith("unary")] or every[:1]
    _, axes = plt.subplots(1, len(cases), figsize=(6.4 * len(cases), 3.6), squeeze=False)
    for axis, case in zip(axes[0], cases, strict=True):
        for target in dict.fromkeys(window.target for window in found.windows):
            whole = Histogram()
            for window in found.windows:
                if (window.case, window.target) == (case, target) and not window.void:
                    whole.add(window.latency)
            # The last point would be at infinity: the share of slower calls is 0 there.
            points = [(1 / (1 - share), duration * MILLI) for duration, share in whole.curve() if share < 1]
            axis.plot(*zip(*points, strict=True), label=target) if points else None
        axis.set(xscale="log", yscale="log", title=f"{case}: latency by quantile", xlabel="quantile", ylabel="ms")
        axis.set_xticks([2, 10, 100, 1000, 10_000], ["50 %", "90 %", "99 %", "99.9 %", "99.99 %"])
        axis.grid(visible=True, which="major", alpha=0.3)
        axis.legend(fontsize=8)


def rungs(found: Comparison) -> None:
    """The tail against the offered rate."""
    _, axis = plt.subplots(figsize=(8, 3.6))
    for target in dict.fromkeys(step.target for step in found.steps):
        steps = [step for step in found.steps if step.target == target and not step.failures]
        axis.plot([step.rate for step in steps], [step.p99 * MILLI for step in steps], marker="o", label=target)
    axis.set(xscale="log", yscale="log", xlabel="offered calls/s, Poisson", ylabel="p99 ms", title="Tail against load")
    axis.grid(visible=True, which="major", alpha=0.3)
    axis.legend(fontsize=8)


def tables(report: str) -> str:
    """The Markdown of our own reports as HTML: headings, tables, paragraphs, list items."""
    out = []
    for block in report.split("\n\n"):
        lines = block.strip().splitlines()
        if not lines:
            continue
        if lines[0].startswith("|"):
            out.append(f'<div class="wide"><table>{"".join(map(row, lines))}</table></div>')
        elif lines[0].startswith("#"):
            level = len(lines[0]) - len(lines[0].lstrip("#"))
            out.append(f"<h{level}>{html.escape(lines[0].lstrip('# '))}</h{level}>")
            out += [f"<p>{html.escape(line)}</p>" for line in lines[1:]]
        else:
            out += [f"<p>{html.escape(line)}</p>" for line in lines]
    return "\n".join(out)


def row(line: str) -> str:
    """One line of a Markdown table; nothing for the rule under its head."""
    cells = [html.escape(cell.strip()) for cell in line.strip("| \n").split(" | ")]
    if all(re.fullmatch(r"-+", cell) for cell in cells):
        return ""
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
