"""`trioproxy ledger FILE`: what was used and what it cost, from the store of a gateway, also while it runs."""

import csv
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trioproxy.cli.reading import FILE, read_or_leave, tell
from trioproxy.config.secrets import database_url
from trioproxy.errors import ConfigError
from trioproxy.store import queries
from trioproxy.store.database import Database, DatabaseTrouble
from trioproxy.store.opening import open_reader

MONEY = ("cost", "detour", "preferred_cost")
SPAN = re.compile(r"(\d+)([dhm])")
SECONDS = {"d": 86_400, "h": 3600, "m": 60}


def _names(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
    names = [name for name in value.split(",") if name]
    for name in names:
        if name not in queries.BY:
            raise click.BadParameter(f"{name!r} is none of {', '.join(queries.BY)}")
    return names


def _pairs(_context: click.Context, _parameter: click.Parameter, value: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in value:
        name, sign, wanted = text.partition("=")
        if not sign or name not in queries.BY:
            raise click.BadParameter(f"{text!r}: write NAME=VALUE, with NAME one of {', '.join(queries.BY)}")
        pairs.append((name, wanted))
    return pairs


def _moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """A day, a time, or so long ago."""
    if value is None:
        return None
    if span := SPAN.fullmatch(value):
        return time.time() - int(span[1]) * SECONDS[span[2]]  # noqa: TID251 - a ledger is in the world's time
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        known = "a day (2030-01-31), a time (2030-01-31T12:00Z), or 7d, 12h, 30m ago"
        raise click.BadParameter(f"{value!r}: give {known}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@click.command("ledger")
@click.argument("file", type=FILE)
@click.option("--by", default="model", callback=_names, help="Group by these, with commas. Default: model.")
@click.option(
    "--since", callback=_moment, help="From then on: a day, a time (UTC without a zone), or 7d, 12h, 30m ago."
)
@click.option("--until", callback=_moment, help="Before then.")
@click.option("--where", multiple=True, callback=_pairs, help="NAME=VALUE; give it again for more.")
@click.option("--call", "call_", metavar="REQUEST_ID", help="Show this one call with its attempts.")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
def command(  # noqa: PLR0913 - click gives each option as a parameter
    file: Path,
    *,
    by: list[str],
    since: float | None,
    until: float | None,
    where: list[tuple[str, str]],
    call_: str | None,
    form: str,
) -> None:
    """Tell what was used and what it cost, from the store that FILE names.

    It reads beside a gateway that runs. Cost is USD; `detour` is what calls cost more than they would have at the
    channel of first choice, and `unpriced` counts those whose channel has no price.

    \b
    Exit code: 0 shown, 1 no such call, a faulty file or no ledger that can be read, 2 the file cannot be read.

    \b
    Examples:
      trioproxy ledger gateway.toml --by day,tenant --since 30d
      trioproxy ledger gateway.toml --by key --where tenant=acme --format csv
      trioproxy ledger gateway.toml --call req_0123456789abcdef01234567
    """  # noqa: D301 - click reads the backspace
    database = _opened(file)
    try:
        if call_ is not None:
            _show_call(queries.call(database, call_, since or 0.0), call_, form)
            return
        selection = queries.Selection(since, until, tuple(where))
        rows = [_usd(row) for row in queries.usage(database, by, selection)]
    except DatabaseTrouble as trouble:
        click.echo(f"the ledger cannot be read: {trouble.why}", err=True)
        raise click.exceptions.Exit(1) from trouble
    finally:
        database.close()
    _show(rows, [*by, *queries.SUMS], form)


def _opened(file: Path) -> Database:
    config = read_or_leave(file)
    try:
        return open_reader(config.state, database_url(config, os.environ))
    except ConfigError as exc:
        tell(file, "fault", exc.faults)
        raise click.exceptions.Exit(1) from exc


def _show(rows: list[dict[str, Any]], names: list[str], form: str) -> None:
    if form == "json":
        click.echo(json.dumps(rows, indent=2))
    elif form == "csv":
        writer = csv.DictWriter(sys.stdout, names)
        writer.writeheader()
        writer.writerows(rows)
    elif not rows:
        click.echo("no calls")
    else:
        _table(rows, names)


def _table(rows: list[dict[str, Any]], names: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name in queries.SUMS else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{row[name]:.6f}" if name in MONEY else str(row[name]) for name in names))
    # A pipe has no width, and half a figure is worse than a long line.
    console = Console() if sys.stdout.isatty() else Console(width=1000)
    console.print(table, soft_wrap=not sys.stdout.isatty())


def _show_call(calls: list[tuple[dict[str, Any], list[dict[str, Any]]]], request_id: str, form: str) -> None:
    found = [{**_usd(_timed(call)), "tries": [_timed(attempt) for attempt in attempts]} for call, attempts in calls]
    if not found:
        click.echo(f"there is no call {request_id!r} in the ledger", err=True)
        raise click.exceptions.Exit(1)
    if form == "json":
        click.echo(json.dumps(found, indent=2))
        return
    if form == "csv":
        raise click.UsageError("a call with its attempts is no table: give --format json")
    for call in found:
        _tell_call(call)


def _tell_call(call: dict[str, Any]) -> None:
    for name, value in call.items():
        if name not in {"tries", "spool", "position"} and value not in {"", None}:
            click.echo(f"{name:18} {f'{value:.6f}'.rstrip('0').rstrip('.') if isinstance(value, float) else value}")
    for attempt in call["tries"]:
        fault = f"{attempt['fault']} ({attempt['status']}): {attempt['message']}" if attempt["fault"] else "answered"
        click.echo(f"  {attempt['number']}. {attempt['channel']} {attempt['duration']:.3f} s  {fault}")


def _usd(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value / 1e6 if name in MONEY and value is not None else value for name, value in row.items()}


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    """Times as people and spreadsheets read them."""
    return {
        name: datetime.fromtimestamp(value, UTC).isoformat() if name in {"started", "ended"} else value
        for name, value in row.items()
    }
