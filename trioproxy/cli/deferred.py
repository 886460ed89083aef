"""`trioproxy deferred`: which calls were put off, what became of one, and taking back one that waits."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import time as wall_clock  # noqa: TID251 - what is stored has the world's time

import click
import msgspec

from trioproxy.cli.reading import FILE, read_or_leave, tell
from trioproxy.config.secrets import database_url
from trioproxy.errors import ConfigError
from trioproxy.store import deferred
from trioproxy.store.database import Database, DatabaseTrouble, transaction
from trioproxy.store.opening import open_reader, open_writer


@click.group("deferred")
def command() -> None:
    """Look at calls that were put off, in the store that FILE names. The gateway may run, or not.

    \b
    Exit code: 0 done, 1 no such call, a faulty file, or no store that can be used, 2 the file cannot be read.

    \b
    Examples:
      trioproxy deferred list gateway.toml
      trioproxy deferred show gateway.toml dfr_0123456789abcdef01234567
      trioproxy deferred cancel gateway.toml dfr_0123456789abcdef01234567
    """  # noqa: D301 - click reads the backspace


@command.command("list", short_help="All that are stored.")
@click.argument("file", type=FILE)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def list_(file: Path, *, form: str) -> None:
    """All that are stored, oldest first; without what was asked and answered.

    \b
    Examples:
      trioproxy deferred list gateway.toml --format json
    """  # noqa: D301 - click reads the backspace
    with _opened(file) as database:
        found = [each.at(wall_clock()) for each in deferred.listed(database)]
    if form == "json":
        shown = [{**each.told(), "tenant": each.tenant, "key": each.key_id} for each in found]
        click.echo(msgspec.json.format(msgspec.json.encode([{**each, "result": None} for each in shown]), indent=2))
        return
    if not found:
        click.echo("no deferred calls")
    for each in found:
        since = datetime.fromtimestamp(each.accepted, UTC).isoformat(timespec="seconds")
        runs = f"{each.runs} runs" if each.runs != 1 else "1 run"
        click.echo(f"{each.id}  {each.status:9}  {since}  {each.tenant}  {each.model}  {each.traffic_class}  {runs}")


@command.command("show", short_help="One of them, with its result.")
@click.argument("file", type=FILE)
@click.argument("id_", metavar="ID")
def show(file: Path, id_: str) -> None:
    """One of them as its caller would get it, the result included, as JSON.

    \b
    Examples:
      trioproxy deferred show gateway.toml dfr_0123456789abcdef01234567
    """  # noqa: D301 - click reads the backspace
    with _opened(file) as database:
        _print(deferred.find(database, id_), id_)


@command.command("cancel", short_help="Take back one that has not begun.")
@click.argument("file", type=FILE)
@click.argument("id_", metavar="ID")
def cancel(file: Path, id_: str) -> None:
    """Take back one that has not begun, and show it. One that is over, or runs, stays as it is: exit code 1.

    \b
    Examples:
      trioproxy deferred cancel gateway.toml dfr_0123456789abcdef01234567
    """  # noqa: D301 - click reads the backspace
    with _opened(file, writing=True) as database, transaction(database):
        found = deferred.cancel(database, id_, None, wall_clock())
    _print(found, id_)
    if found is not None and found.status != deferred.CANCELLED:
        click.echo(f"{id_} cannot be cancelled: it is {found.status}", err=True)
        raise click.exceptions.Exit(1)


def _print(found: deferred.Deferred | None, id_: str) -> None:
    if found is None:
        click.echo(f"there is no deferred call {id_!r}", err=True)
        raise click.exceptions.Exit(1)
    shown = {**found.at(wall_clock()).told(), "tenant": found.tenant, "key": found.key_id}
    click.echo(msgspec.json.format(msgspec.json.encode(shown), indent=2))


@contextmanager
def _opened(file: Path, *, writing: bool = False) -> Generator[Database]:
    config = read_or_leave(file)
    try:
        url = database_url(config, os.environ)
        database = (open_writer if writing else open_reader)(config.state, url)
    except ConfigError as exc:
        tell(file, "fault", exc.faults)
        raise click.exceptions.Exit(1) from exc
    try:
        yield database
    except DatabaseTrouble as trouble:
        click.echo(f"the store cannot be used: {trouble.why}", err=True)
        raise click.exceptions.Exit(1) from trouble
    finally:
        database.close()
