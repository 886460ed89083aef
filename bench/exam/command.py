"""`python -m bench exam`: the failover exam from the command line."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
import trio
from rich.console import Console

from bench import machine
from bench.exam import verdicts
from bench.exam.course import Course
from bench.exam.peers import SETUPS

RESULTS = Path(__file__).parent.parent / "results"
EXAMPLES = """\b
python -m bench exam                                                 trioproxy, about half a minute
python -m bench exam trioproxy litellm ferrogw --where /tmp/peers
python -m bench exam trioproxy --scale 1 --only S06 --only S15        in the cases' own seconds
"""


@click.command("exam", epilog=EXAMPLES)
@click.argument("targets", nargs=-1, type=click.Choice(list(SETUPS)))
@click.option(
    "--scale",
    default=0.2,
    show_default=True,
    type=click.FloatRange(0.1, 2.0),
    help="Times every second of the cases and every deadline; below 0.2 a busy machine shows.",
)
@click.option("--only", multiple=True, metavar="CASE", help="S01 to S16; repeatable; all by default.")
@click.option("--where", type=click.Path(path_type=Path), help="Keep installed peers here for the next time.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def exam_command(
    targets: Sequence[str], *, scale: float, only: Sequence[str], where: Path | None, results: Path
) -> None:
    """Let TARGETS (by default: trioproxy) sit the failover exam: a faulty upstream before a healthy one, S01 to S16."""
    logs = Path(tempfile.mkdtemp(prefix="bench-exam-"))
    about = machine.describe()
    with Console(stderr=True).status("starting") as status:
        exam = Course(scale, where or logs / "installed", logs, status.update, frozenset(only))
        trio.run(exam.run, targets or ("trioproxy",))
    found = results / time.strftime("exam-%Y%m%d-%H%M%S")
    verdicts.write(exam, about, found)
    click.echo(verdicts.markdown(exam))
    click.echo(f"table and raw verdicts: {found}", err=True)
