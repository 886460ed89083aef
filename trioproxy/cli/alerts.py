"""`trioproxy alerts`: do alerts arrive? Better asked on a quiet day than during an outage."""

import os
from collections.abc import Mapping
from pathlib import Path
from time import time as wall_clock  # noqa: TID251 - signatures carry the world's time

import click
import trio

from trioproxy.cli.reading import FILE, read, tell
from trioproxy.config.model import Alerts
from trioproxy.config.secrets import resolve_sinks
from trioproxy.errors import ConfigError


@click.group("alerts")
def command() -> None:
    """See that alerts arrive.

    \b
    Examples:
      trioproxy alerts test gateway.toml
    """  # noqa: D301 - click reads the backspace


@command.command("test", short_help="Send a test alert to every sink.")
@click.argument("file", type=FILE)
def test(file: Path) -> None:
    """Send a test alert to every sink of FILE, once, whatever causes the sink takes, and say what came of it.

    The gateway need not run. No provider key is needed, only the secrets of the sinks.

    \b
    Exit code: 0 all of them took it, 1 one did not, there is none, or a faulty file; 2 the file cannot be read.

    \b
    Examples:
      trioproxy alerts test gateway.toml
    """  # noqa: D301 - click reads the backspace
    try:
        config = read(file)
        secrets = resolve_sinks(config, os.environ)
    except ConfigError as exc:
        tell(file, "fault", exc.faults)
        raise click.exceptions.Exit(1) from exc
    if not config.alerts.sinks:
        click.echo(f"{file}: there are no [[alerts.sinks]]: alerts go to the log alone", err=True)
        raise click.exceptions.Exit(1)
    if not trio.run(_send, config.alerts, secrets):
        raise click.exceptions.Exit(1)


async def _send(alerts: Alerts, secrets: Mapping[str, str]) -> bool:
    """Tell every sink, one after the other. Whether all took it."""
    from trioproxy.http.wire import Dialer
    from trioproxy.ops.alerts import trial, wrapper
    from trioproxy.ops.carriers import carriers
    from trioproxy.ops.couriers import Parcel, tried

    every = True
    body = wrapper(alerts, wall_clock)(trial(trio.current_time()))
    for sink, carrier in carriers(alerts, secrets, Dialer(), wall_clock):
        began = trio.current_time()
        miss = await tried(carrier, Parcel.of(body), sink.timeout)
        took = f"{(trio.current_time() - began) * 1000:.0f} ms"
        click.echo(f"{carrier.name}: {'took it' if miss is None else f'did not: {miss.why}'}, {took}")
        every = every and miss is None
    return every
