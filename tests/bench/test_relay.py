"""The baselines as processes between provider and load: they pass everything on, whole and in order."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import process
from bench.load import Limits, Load
from bench.process import Command, StartFailed, running
from bench.tally import Tally
from bench.target import Plan, load
from bench.workload import Endpoint, Mix, Shape

SHAPES = (
    Shape("unary"),
    Shape("large", size=300_000),
    Shape("burst", stream=True, chunks=200, burst=True),
    Shape("paced", stream=True, chunks=5, every=0.001),
)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = process.free_port()
    argv = (sys.executable, "-m", "bench", "upstream", "--port", str(port), "--fault", "reset=0 model=broken")
    with running(Command(argv, port), tmp_path_factory.mktemp("provider") / "log"):
        yield port


def through(name: str, provider: int, where: Path, shapes: tuple[Shape, ...]) -> Tally:
    plan = Plan(where, process.free_port(), provider)
    command = load(name).command(plan)
    assert command is not None
    with running(command, where / "log") as pid:
        tally = Load(Endpoint(plan.port), Mix.of(shapes, Endpoint(plan.port)), Limits(10.0, 0.0, calls=40)).run_closed(
            4
        )
        reading = process.read(pid)
    assert reading.cpu > 0
    assert reading.rss > 1024 * 1024
    return tally


@pytest.mark.parametrize("name", ["relay", "structured"])
def test_a_relay_passes_everything_on(name: str, provider: int, tmp_path: Path) -> None:
    tally = through(name, provider, tmp_path, SHAPES)
    assert not tally.failures
    assert tally.sent == 40


@pytest.mark.parametrize("name", ["relay", "structured"])
def test_a_relay_whose_provider_breaks_off_closes_and_lives_on(name: str, provider: int, tmp_path: Path) -> None:
    tally = through(name, provider, tmp_path, (Shape(model="broken"),))
    assert tally.complete == 0
    assert tally.failures.total() == 40


def test_a_target_that_does_not_listen_fails_with_what_it_said(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "raise SystemExit('no licence')")
    with pytest.raises(StartFailed, match="no licence"), running(Command(argv, process.free_port()), tmp_path / "log"):
        pass


def test_a_process_group_ends_with_its_block(tmp_path: Path) -> None:
    port = process.free_port()
    argv = (sys.executable, "-m", "bench", "upstream", "--port", str(port), "--processes", "2")
    with running(Command(argv, port), tmp_path / "log") as pid:
        members = len(process.tree(pid))
    assert members == 2
    assert process.tree(pid) == []
