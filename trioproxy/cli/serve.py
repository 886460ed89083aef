"""`trioproxy serve FILE`: the sidecar."""

import os
from typing import TYPE_CHECKING

import click
import trio

if TYPE_CHECKING:
    from trioproxy.config.model import Config


@click.command("serve", short_help="Run the gateway.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def command(file: str) -> None:
    """Run the gateway that FILE describes, until SIGTERM or Ctrl-C.

    The first signal drains: no new connection is taken, open answers may end (`[listen] drain_timeout`). A second
    one stops at once.

    \b
    Examples:
      trioproxy serve gateway.toml
      trioproxy check gateway.toml && trioproxy serve gateway.toml
    """
    from trioproxy.config.load import load_config
    from trioproxy.config.secrets import resolve_all
    from trioproxy.errors import ConfigError

    try:
        config = load_config(file)
        credentials = resolve_all(config, os.environ)
    except ConfigError as exc:
        for fault in exc.faults:
            click.echo(f"{file}: {fault}", err=True)
        raise SystemExit(1) from None
    try:
        trio.run(_serve, config, credentials)
    except* OSError as group:
        click.echo(f"cannot listen on {config.listen.data!r}: {group.exceptions[0]}", err=True)
        raise SystemExit(1) from None


async def _serve(config: "Config", credentials: dict[str, str]) -> None:
    from trioproxy.app import serve

    await serve(config, credentials=credentials)
