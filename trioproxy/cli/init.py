"""`trioproxy init`: a first configuration from the provider keys that the environment has."""

import os
from pathlib import Path

import click

from trioproxy.config.starter import found, starter


@click.command("init")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path), default="gateway.toml")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(path: Path, *, force: bool) -> None:
    """Write a first configuration to PATH (gateway.toml), with a channel for every provider key in the environment.

    The file names the environment variables; no key is written.

    \b
    Exit code: 0 written, 1 the file is there already, or cannot be written.

    \b
    Examples:
      trioproxy init
      DEEPSEEK_API_KEY=... trioproxy init my.toml --force
    """  # noqa: D301 - click reads the backspace
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(starter(os.environ))
    except FileExistsError:
        click.echo(f"{path} is already there: choose another name, or replace it with --force", err=True)
        raise click.exceptions.Exit(1) from None
    except OSError as exc:
        raise click.FileError(str(path), exc.strerror or "it cannot be written") from exc
    names = ", ".join(f"{provider.name} ({provider.variable})" for provider in found(os.environ))
    click.echo(f"{path}: written with {names or 'a local channel; no provider key was found in the environment'}")
    click.echo(f"Next: trioproxy check {path}")
