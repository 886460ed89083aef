"""`trioproxy chain`: the exact chain behind a public name, and why it is in that order; by the file, or as it is now."""

import json
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from trioproxy.cli.asking import ask
from trioproxy.cli.reading import FILE, read_or_leave
from trioproxy.config.model import Config, Model
from trioproxy.policy.access import Catalogue
from trioproxy.policy.chain import Candidate, Chain, behind, bind, build, order_links

FALLING = {"queue": "its class cannot serve it in time", "exhausted": "no channel answers"}


@click.command("chain")
@click.argument("file", type=FILE)
@click.argument("model")
@click.option("--live", is_flag=True, help="As it is now: ask the gateway that runs with FILE.")
@click.option("--session", help="With --live: the chain of this session.")
@click.option("--tenant", default="default", show_default=True, help="Whose session it is.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(  # noqa: PLR0913 - click's options
    file: Path, model: str, session: str | None, tenant: str, *, live: bool, as_json: bool
) -> None:
    """Show which channels of FILE answer for MODEL, in which order, and why.

    This is what the file says. While the gateway runs, channels that are out are skipped and the next ones move up, and those that
    are on their way back come last for a part of the callers: --live shows that, over the [control] socket.

    \b
    Exit code: 0 shown, 1 no such model, a faulty file or, with --live, nobody who answers, 2 the file cannot be read.

    \b
    Examples:
      trioproxy chain gateway.toml deepseek-chat
      trioproxy chain gateway.toml openai/gpt-4o --json
      trioproxy chain gateway.toml deepseek-chat --live --session 4711
    """  # noqa: D301 - click reads the backspace
    config = read_or_leave(file)
    if live:
        order = {"do": "chain", "model": model} | ({"session": session, "tenant": tenant} if session else {})
        told = ask(file, config, order)
        click.echo(json.dumps(told, indent=2)) if as_json else _show_live(model, told)
        return
    found = Catalogue.of(config.models).find(model)
    if found is None:
        click.echo(f"{file}: no model answers to {model!r}; {_nearest(model, config)}", err=True)
        raise click.exceptions.Exit(1)
    chosen, captured = found
    prices = {channel.name: channel.price for channel in config.channels}
    baseline = order_links(chosen.channels, prices, chosen.order)
    chain = build(bind(baseline, captured), lambda _channel: None, chosen.chain_max)
    rollout = next((each for each in config.rollouts if each.model == chosen.name), None)
    other = None
    if rollout is not None:
        links = behind(order_links(rollout.candidate, prices, "listed"), baseline)
        other = build(bind(links, captured), lambda _channel: None, chosen.chain_max)
    if as_json:
        plain = _plain(model, chosen, chain)
        click.echo(json.dumps(plain | ({} if other is None else {"candidate": _plain(model, chosen, other)}), indent=2))
        return
    _show(model, chosen, chain)
    if rollout is not None and other is not None:
        click.echo(f"candidate, for {', '.join(map(str, rollout.steps))} % of the callers step by step:")
        _rows(other)


def _show_live(name: str, told: dict[str, Any]) -> None:
    for arm, chain in told.items():
        click.echo(f"{name}, {arm}:" if arm else f"{name}:")
        rows = [(str(place), *_cells(step)) for place, step in enumerate(chain["steps"], 1)]
        rows += [("-", channel, "", why) for channel, why in chain["skipped"]]
        rows += [("-", *_cells(step)) for step in chain["beyond"]]
        _print(rows)


def _cells(step: dict[str, Any]) -> tuple[str, str, str]:
    return step["channel"], step["model"], step["reason"]


def _nearest(name: str, config: Config) -> str:
    names = [model.name for model in config.models]
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(sorted(names))}"


def _plain(name: str, model: Model, chain: Chain) -> dict[str, object]:
    def told(steps: tuple[Candidate, ...], first: int) -> list[dict[str, object]]:
        return [
            {
                "position": place,
                "channel": step.channel,
                "model": step.model,
                "price": step.price,
                "reason": step.reason,
            }
            for place, step in enumerate(steps, first)
        ]

    return {
        "model": name,
        "matched": model.name,
        "order": model.order,
        "chain_max": model.chain_max,
        "chain": told(chain.steps, 1),
        "beyond": told(chain.beyond, len(chain.steps) + 1),
        "fallback": [
            {"model": each.model, "classes": list(each.classes), "on": list(each.on)} for each in model.fallback
        ],
    }


def _show(name: str, model: Model, chain: Chain) -> None:
    _steps(name, model, chain)
    for each in model.fallback:
        when = " or ".join(FALLING[on] for on in each.on)
        click.echo(f"where {when}: {each.model}, for calls of class {', '.join(each.classes)}")


def _steps(name: str, model: Model, chain: Chain) -> None:
    by = "cheapest first" if model.order == "cost" else "as listed"
    matched = f" (by {model.name})" if model.name != name else ""
    click.echo(f"{name}{matched}: {by}, at most {model.chain_max} attempts")
    _rows(chain)


def _rows(chain: Chain) -> None:
    late = "; only while one above is out"
    rows = [(str(place), step.channel, step.model, step.reason) for place, step in enumerate(chain.steps, 1)]
    rows += [("-", step.channel, step.model, step.reason + late) for step in chain.beyond]
    _print(rows)


def _print(rows: list[tuple[str, str, str, str]]) -> None:
    heads = ("#", "channel", "provider's model", "why here")
    if sys.stdout.isatty():
        _table(heads, rows)
        return
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(3)]
    for row in (heads, *rows):
        click.echo("  ".join((*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3])))


def _table(heads: tuple[str, ...], rows: list[tuple[str, str, str, str]]) -> None:
    from rich.console import Console  # its import takes longer than the rest of the command
    from rich.table import Table
    from rich.text import Text

    table = Table(*heads)
    for row in rows:
        table.add_row(*map(Text, row), style="dim" if row[0] == "-" else None)
    Console().print(table)
