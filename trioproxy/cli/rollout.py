"""`trioproxy rollout`: how far a rollout is and how its arms compare; start it, move it, take it back."""

import json
from pathlib import Path
from typing import Any

import click

from trioproxy.cli.asking import ask
from trioproxy.cli.reading import FILE, read_or_leave


@click.group("rollout")
def command() -> None:
    """See and move the rollouts of the gateway that runs with FILE, over its [control] socket.

    \b
    Exit code: 0 done, 1 not possible or nobody answers, 2 the file cannot be read.

    \b
    Examples:
      trioproxy rollout status gateway.toml
      trioproxy rollout start gateway.toml fast-chat
      trioproxy rollout rollback gateway.toml fast-chat
    """  # noqa: D301 - click reads the backspace


@command.command("status", short_help="Show how far rollouts are, and how their arms compare.")
@click.argument("file", type=FILE)
@click.argument("model", required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(file: Path, model: str | None, *, as_json: bool) -> None:
    """Show how far the rollouts are, or that of MODEL, and how the arms compare.

    \b
    Examples:
      trioproxy rollout status gateway.toml
      trioproxy rollout status gateway.toml fast-chat --json
    """  # noqa: D301 - click reads the backspace
    order = {"do": "rollout.status"} | ({} if model is None else {"model": model})
    rollouts = ask(file, read_or_leave(file), order)
    if as_json:
        click.echo(json.dumps(rollouts, indent=2))
        return
    if not rollouts:
        click.echo(f"{file} has no [[rollouts]]")
    for each in rollouts:
        _show(each)


def _mover(verb: str, what: str) -> None:
    @command.command(
        verb, short_help=what, help=f"{what}\n\n\b\nExamples:\n  trioproxy rollout {verb} gateway.toml fast-chat"
    )
    @click.argument("file", type=FILE)
    @click.argument("model")
    def move(file: Path, model: str) -> None:
        _show(ask(file, read_or_leave(file), {"do": f"rollout.{verb}", "model": model}))


for _verb, _what in {
    "start": "Begin MODEL's rollout at its first step, or go on after a pause.",
    "step": "Go one step on now, whatever the comparison says.",
    "pause": "Stay at this step. Refusals and errors still roll it back.",
    "rollback": "Give everybody the baseline at once.",
}.items():
    _mover(_verb, _what)


def _show(rollout: dict[str, Any]) -> None:
    steps = ", ".join(map(str, rollout["steps"]))
    why = f" ({rollout['why']})" if rollout["why"] else ""
    click.echo(f"{rollout['model']}: {rollout['state']}{why}, {rollout['percent']} % of the callers (steps {steps})")
    if rollout["state"] in {"idle", "rolled_back"}:
        return
    click.echo(f"  held {rollout['held']:.0f} of {rollout['hold']:.0f} s; {rollout['verdict']}")
    rows: list[tuple[str, ...]] = [("arm", "calls", "refused", "failed", "p95", "USD a call")]
    rows += [(arm, *_figures(rollout[arm])) for arm in ("baseline", "candidate")]
    for row in rows:
        click.echo("  " + "  ".join(cell.rjust(10) for cell in row))


def _figures(arm: dict[str, Any]) -> tuple[str, ...]:
    def told(value: float | None, form: str, scale: float = 1.0) -> str:
        return "-" if value is None else form.format(value * scale)

    return (
        str(arm["calls"]),
        told(arm["refused"], "{:.1%}"),
        told(arm["failed"], "{:.1%}"),
        told(arm["p95"], "{:.2f} s"),
        told(arm["mean_cost"], "{:.6f}", 1e-6),
    )
