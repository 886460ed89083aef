"""What the report says of windows that we made up: spreads, ratios inside a round, void windows shown as void."""

import csv
import json
from pathlib import Path

import pytest
from attrs import evolve

from bench import page, report
from bench.compare import Comparison, Running, Step, Window
from bench.histogram import Histogram
from bench.target import Target, load, names
from bench.workload import Endpoint

MiB = 1024 * 1024


def timed(*milliseconds: float) -> Histogram:
    histogram = Histogram()
    for value in milliseconds:
        histogram.record(value / 1000)
    return histogram


def window(target: str, number: int, *, cpu: float, latency: float) -> Window:
    """A window of 1,000 calls."""
    return Window(
        target=target,
        case="unary-c1",
        number=number,
        seconds=2.0,
        complete=1000,
        frames=0,
        cpu=cpu,
        rss=0,
        generator=0.1,
        others=0.5,
        latency=timed(latency),
        first=Histogram(),
        gap=Histogram(),
        failures={},
    )


def comparison() -> Comparison:
    found = Comparison()
    for number, drift in enumerate((1.0, 2.0, 3.0)):
        found.windows.append(window("direct", number, cpu=0.01 * drift, latency=1.0 * drift))
        found.windows.append(window("relay", number, cpu=0.1 * drift, latency=1.5 * drift))
        found.windows.append(window("trioproxy", number, cpu=0.15 * drift, latency=1.0 * drift + 0.25))
    found.steps = [Step("relay", rate, 0.001, p99, 0.0, {}) for rate, p99 in ((100, 0.004), (200, 0.015), (300, 0.3))]
    target = Target("relay", command=lambda _: None)
    found.running = [Running(target, Endpoint(1), 1, 1, idle=30 * MiB, loaded=40 * MiB, recovered=35 * MiB)]
    return found


def cells(text: str, target: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {target} |"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_figures_are_least_median_and_most() -> None:
    assert cells(report.markdown(comparison(), {}), "relay")[1] == "100 / 200 / 300"


def test_ratios_and_differences_are_taken_inside_a_round() -> None:
    """The machine drifts threefold over the rounds; the ratio and the added latency do not."""
    row = cells(report.markdown(comparison(), {}), "trioproxy")
    assert row[2] == "1.50"
    assert [float(value) for value in row[7].split(" / ")] == pytest.approx([0.25] * 3, abs=0.004)


def test_a_window_with_a_failure_is_void_and_says_so() -> None:
    found = comparison()
    found.windows[1] = evolve(found.windows[1], failures={"status 500": 1})
    row = cells(report.markdown(found, {}), "relay")
    assert row[1] == "200 / 250 / 300"
    assert "1 void round 1: {'status 500': 1}" in row[-1]


def test_a_target_that_is_void_throughout_shows_no_figure() -> None:
    found = comparison()
    found.windows = [evolve(one, failures={"timeout": 1}) if one.target == "relay" else one for one in found.windows]
    text = report.markdown(found, {})
    assert cells(text, "relay")[1] == "void"
    assert cells(text, "trioproxy")[2] == "-"


def test_the_ladder_names_the_highest_rate_under_each_bound() -> None:
    text = report.ladder(comparison())
    assert cells(text, "relay")[1:5] == ["100", "100", "200", "200"]


def test_who_did_not_run_is_named_with_the_reason() -> None:
    found = comparison()
    found.absent["litellm"] = "no wheel"
    assert "**litellm did not run**: no wheel" in report.markdown(found, {"processor": "x"})


def test_raw_figures_hold_every_window(tmp_path: Path) -> None:
    report.write(comparison(), {"processor": "x"}, tmp_path)
    raw = json.loads((tmp_path / "comparison.json").read_text())
    with (tmp_path / "comparison.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(raw["windows"]) == len(rows) == 9
    assert float(rows[1]["cpu_us"]) == pytest.approx(100.0)


def test_the_page_has_the_tables_and_the_plots() -> None:
    found = comparison()
    text = page.page(found, report.markdown(found, {"processor": "a & b"}))
    assert text.count("<svg") == 3
    assert text.count("<table>") == 3
    assert "a &amp; b" in text


def test_every_adapter_is_found_by_its_name() -> None:
    assert {"direct", "relay", "structured", "trioproxy"} <= set(names())
    assert [load(name).name for name in names()] == names()
    with pytest.raises(ValueError, match="no target 'nobody'"):
        load("nobody")
