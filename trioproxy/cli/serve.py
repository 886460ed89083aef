"""`trioproxy serve FILE`: the sidecar."""

import os
from typing import TYPE_CHECKING, TypeVar

import click
import trio

if TYPE_CHECKING:
    from trioproxy.config.model import Config

E = TypeVar("E", bound=Exception)


@click.command("serve", short_help="Run the gateway.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def command(file: str) -> None:
    """Run the gateway that FILE describes, until SIGTERM or Ctrl-C.

    The first signal drains: no new connection is taken, open answers may end (`[listen] drain_timeout`). A second
    one stops at once.

    \b
    Exit code: 0 drained, 1 a faulty file, or nowhere to listen or to keep the state, 2 there is no such file.

    \b
    Examples:
      trioproxy serve gateway.toml
      trioproxy check gateway.toml && trioproxy serve gateway.toml
    """  # noqa: D301 - click reads the backspace
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
    except* ConfigError as found:
        for fault in first(found).faults:
            click.echo(f"{file}: {fault}", err=True)
        raise SystemExit(1) from None
    except* OSError as group:
        why = first(group)
        of_control = why.filename is not None and why.filename == config.control.socket
        where, key = (why.filename, "[control] socket") if of_control else (config.listen.data, "[listen] data")
        click.echo(f"cannot listen on {where!r}: {why.strerror or why}; choose another {key}", err=True)
        raise SystemExit(1) from None


def first(group: BaseExceptionGroup[E]) -> E:
    """The error inside, however many nurseries it came through."""
    inner = group.exceptions[0]
    return first(inner) if isinstance(inner, BaseExceptionGroup) else inner


async def _serve(config: "Config", credentials: dict[str, str]) -> None:
    from trioproxy.app import serve

    await serve(config, credentials=credentials)
