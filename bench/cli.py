"""The commands of `python -m bench`."""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import trio
from rich.console import Console

from bench import (
    arrivals,
    distribution,
    faults,
    machine,
    process,
    relay,
    report,
    soak,
    streams,
    target,
    upstream,
    workload,
)
from bench.arrivals import Spacing
from bench.case import CASES
from bench.compare import Course, compare
from bench.exam.command import exam_command
from bench.load import Limits, Load
from bench.workload import Endpoint, Mix

DESCRIPTORS = 20_000
RESULTS = Path(__file__).parent / "results"
EXAMPLES = """\b
python -m bench compare                                          direct, both relays, trioproxy
python -m bench upstream --port 9001 --first lognormal:0.3,0.5 --every 0.02
python -m bench load --port 9001 --profile 100x10,100-500x20 --shape "stream chunks=50 every=0.02"
"""
UPSTREAM_WORDS = """\b
Distributions: 0.05, uniform:0.01,0.03, lognormal:MEDIAN,SIGMA, exponential:MEAN
Faults:        "10-20 status=503 share=0.5", "stall model=a", "cut=3", "reset=3", "error=2",
               "tpm=60000 key=sk-a", "0-60 slow=2.0"
A prompt may overrule it: "bench 0000002a chunks=200 every=0.05 burst=1 wait=0.3"
"""
LOAD_WORDS = """\b
python -m bench load --concurrency 32 --seconds 5
python -m bench load --profile 200x10,1000x1,200x10 --shape "name=chat weight=3 stream chunks=50 every=0.02" \\
    --shape "name=bulk size=4000 class=batch key=sk-b"
Words of a shape: name model weight stream chunks every burst wait leave size key class dialect (openai, anthropic)
"""
COMPARE_WORDS = """\b
python -m bench compare --rounds 5
python -m bench compare direct relay trioproxy nginx --case unary-c32 --ladder 2
"""


def checked(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, str], str]:
    """A callback that refuses, in click's own way, what `parse` does not take; the command parses it again."""

    def callback(_context: click.Context, _parameter: click.Parameter, value: str | tuple[str, ...] | None) -> Any:
        for text in (value,) if isinstance(value, str) else value or ():
            try:
                parse(text)
            except ValueError as error:
                raise click.BadParameter(str(error)) from error
        return value

    return callback


@click.group(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def main() -> None:
    """Load, measure and compare LLM gateways on this machine."""
    process.raise_descriptors(DESCRIPTORS)


@main.command("upstream", epilog=UPSTREAM_WORDS)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=9001, show_default=True)
@click.option("--processes", default=1, show_default=True, help="They share the port.")
@click.option(
    "--wait", callback=checked(distribution.parse), default="0", help="Distribution of seconds before a whole answer."
)
@click.option(
    "--first",
    callback=checked(distribution.parse),
    default="0",
    help="Distribution of seconds to a stream's first content.",
)
@click.option(
    "--every", callback=checked(distribution.parse), default="0", help="Distribution of seconds between content frames."
)
@click.option(
    "--chunks", callback=checked(distribution.parse), default="10", help="Distribution of content frames in a stream."
)
@click.option("--burst", is_flag=True, help="A whole stream in one write.")
@click.option(
    "--fault", multiple=True, callback=checked(faults.parse), help="A line of the fault script, see below; repeatable."
)
def upstream_command(
    host: str, port: int, processes: int, *, burst: bool, fault: tuple[str, ...], **draws: str
) -> None:
    """Serve as a fake provider: OpenAI chat, Anthropic messages and Gemini, whole or streamed."""
    script = faults.Script(tuple(faults.parse(line) for line in fault))
    drawn = {name: distribution.parse(text) for name, text in draws.items()}
    upstream.serve(upstream.Manner(**drawn, burst=burst, script=script), host=host, port=port, processes=processes)


@main.command("relay")
@click.option("--port", default=9100, show_default=True)
@click.option("--upstream", "upstream_port", default=9001, show_default=True)
@click.option("--structured", is_flag=True, help="A nursery, a deadline and a JSON decode for each request.")
def relay_command(port: int, upstream_port: int, *, structured: bool) -> None:
    """Serve as the baseline: a Trio relay without any feature."""
    trio.run(relay.serve, port, upstream_port, structured)


@main.command("load", epilog=LOAD_WORDS)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=9001, show_default=True)
@click.option("--path", default="/v1/chat/completions", show_default=True)
@click.option("--model", help="Instead of the shapes' own.")
@click.option("--key", default="sk-bench", show_default=True)
@click.option(
    "--shape",
    multiple=True,
    callback=checked(workload.parse),
    default=("name=call",),
    help="One kind of call; repeat for a mix.",
)
@click.option(
    "--profile",
    callback=checked(arrivals.parse),
    help="Open loop: RATExSECONDS or FROM-TOxSECONDS, with commas between.",
)
@click.option("--spacing", type=click.Choice(["poisson", "constant"]), default="poisson", show_default=True)
@click.option("--concurrency", default=1, show_default=True, help="Closed loop, without --profile: so many callers.")
@click.option("--seconds", default=10.0, show_default=True, help="Closed loop: the window.")
@click.option("--warmup", default=0.5, show_default=True)
@click.option("--patience", default=60.0, show_default=True, help="Seconds until a call is given up.")
@click.option(
    "--connections", default=1000, show_default=True, help="At most so many; further calls wait, and that counts."
)
@click.option("--calls", default=10_000_000, help="At most so many calls.")
def load_command(
    *, shape: tuple[str, ...], profile: str | None, spacing: Spacing, concurrency: int, **options: str
) -> None:
    """Load a server on this machine and report as JSON what came back complete and correct."""
    endpoint = Endpoint(**{name: options[name] for name in ("host", "port", "path", "model", "key")})  # type: ignore[arg-type]
    bounds = {name: options[name] for name in ("seconds", "warmup", "patience", "connections", "calls")}
    mix = Mix.of(tuple(workload.parse(text) for text in shape), endpoint)
    load = Load(endpoint, mix, Limits(**bounds))  # type: ignore[arg-type]  # click gives them the types of Limits
    with Console(stderr=True).status("starting") as status:
        show(load, status.update)
        tally = load.run_open(arrivals.parse(profile), spacing) if profile else load.run_closed(concurrency)
    click.echo(json.dumps(tally.summary(), indent=1))


def show(load: Load, update: Callable[[str], None]) -> None:
    """Keep a line of progress up to date."""

    def tick() -> None:
        waiting, failed = len(load.backlog), load.tally.failures.total()
        update(f"{load.tally.sent} sent, {len(load.busy)} under way, {waiting} waiting, {failed} failed")
        load.reactor.at(time.perf_counter() + 0.5, tick)

    load.reactor.at(0.0, tick)


@main.command("compare", epilog=COMPARE_WORDS)
@click.argument("targets", nargs=-1, callback=checked(target.load))
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="Repeatable; all by default.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--ladder", default=0.0, help="Seconds for each rung of the open-loop ladder; 0: none.")
@click.option("--where", type=click.Path(path_type=Path), help="Keep installed peers here for the next time.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def compare_command(
    targets: tuple[str, ...], *, cases: tuple[str, ...], rounds: int, ladder: float, **paths: Path | None
) -> None:
    """Compare TARGETS (by default: direct relay trioproxy) on the standing workloads."""
    chosen = [target.load(name) for name in targets or ("direct", "relay", "structured", "trioproxy")]
    course = Course(tuple(CASES[name] for name in cases or CASES), rounds, ladder)
    about = machine.describe()
    where = paths["where"] or Path(tempfile.mkdtemp(prefix="bench-"))
    where.mkdir(parents=True, exist_ok=True)
    with Console(stderr=True).status("starting") as status:
        found = compare(chosen, course, where=where, progress=status.update)
    results = (paths["results"] or RESULTS) / time.strftime("%Y%m%d-%H%M%S")
    said = report.markdown(found, about)
    report.write(found, about, results)
    from bench import page  # drawing takes a second to import and is optional to have

    (results / "comparison.html").write_text(page.page(found, said))
    click.echo(said)
    click.echo(f"raw figures and plots: {results}", err=True)


@main.command("streams")
@click.argument("targets", nargs=-1, callback=checked(target.load))
@click.option("--count", default=9_500, show_default=True)
@click.option("--every", default=2.0, show_default=True, help="Seconds between content frames.")
@click.option("--ramp", default=30.0, show_default=True, help="Seconds in which they begin.")
@click.option("--hold", default=10.0, show_default=True, help="Seconds that all stay open.")
def streams_command(targets: tuple[str, ...], *, count: int, every: float, ramp: float, hold: float) -> None:
    """Hold very many streams open through TARGETS (by default: relay trioproxy) and weigh them."""
    chosen = [target.load(name) for name in targets or ("relay", "trioproxy")]
    crowd = streams.Crowd(count, every, ramp, hold)
    with Console(stderr=True).status("starting") as status:
        said = streams.run(chosen, crowd, Path(tempfile.mkdtemp(prefix="bench-")), status.update)
    click.echo(said)


@main.command("soak")
@click.option("--minutes", default=5.0, show_default=True)
@click.option(
    "--rate", default=60.0, show_default=True, help="Calls a second; each minute has a spike of three times that."
)
def soak_command(minutes: float, rate: float) -> None:
    """Soak trioproxy in mixed traffic with faults and hang-ups; fails when memory grows or a slot is lost."""
    with Console(stderr=True).status("starting") as status:
        said, held = soak.run(soak.Soak(minutes, rate), Path(tempfile.mkdtemp(prefix="bench-")), status.update)
    click.echo(said)
    if not held:
        raise SystemExit(1)


@main.command("steps")
@click.option("--calls", default=200, show_default=True, help="Of each kind, one after the other.")
def steps_command(calls: int) -> None:
    """Count the task steps and checkpoints that one call costs trioproxy, whatever the machine's speed."""
    from bench import steps  # brings the whole gateway along, which a baseline must not carry

    click.echo(steps.table(trio.run(steps.measure, calls)))


main.add_command(exam_command)
