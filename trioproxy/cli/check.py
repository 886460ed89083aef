"""`trioproxy check`: everything that is wrong with a file, at once, before anything starts."""

import os
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click

from trioproxy.cli.reading import FILE, read, tell
from trioproxy.config.lint import warnings
from trioproxy.config.load import decode, located, places
from trioproxy.config.model import Config
from trioproxy.config.rules import shown
from trioproxy.config.secrets import credentials, sink_name
from trioproxy.errors import ConfigError, ConfigFault


@click.command("check")
@click.argument("file", type=FILE)
@click.option("--strict", is_flag=True, help="Take warnings for faults.")
@click.option(
    "--no-secrets", is_flag=True, help="Do not look up keys, certificates and folders, as on a build machine."
)
def command(file: Path, *, strict: bool, no_secrets: bool) -> None:
    """Tell everything that is wrong with FILE.

    Faults keep the gateway from starting; warnings are settings that cannot act. Keys are looked up too, and never shown.

    \b
    Exit code: 0 in order, 1 faults (or warnings with --strict), 2 the file cannot be read.

    \b
    Examples:
      trioproxy check gateway.toml
      trioproxy check gateway.toml --strict --no-secrets     in CI
    """  # noqa: D301 - click reads the backspace
    try:
        config = read(file)
    except ConfigError as exc:
        _leave(file, exc.faults, ())
    lines = places(decode(file.read_bytes(), str(file)))
    faults = () if no_secrets else tuple(located(fault, lines) for fault in _outside(config))
    remarks = tuple(located(fault, lines) for fault in warnings(config))
    if faults or (strict and remarks):
        _leave(file, faults, remarks)
    tell(file, "warning", remarks)
    click.echo(f"{file}: in order: {_many(len(config.channels), 'channel')}, {_many(len(config.models), 'model')}")


def _outside(config: Config) -> Iterator[ConfigFault]:
    """Faults of what the file only points at: keys, certificates, programs and folders."""
    try:
        credentials(config, os.environ)
    except ConfigError as exc:
        yield from exc.faults
    files = [(f"channels[{index}]", channel.ca_file) for index, channel in enumerate(config.channels)]
    files += [(sink_name(index), sink.ca_file) for index, sink in enumerate(config.alerts.sinks)]
    for path, ca_file in files:
        if ca_file is not None:
            try:
                ssl.create_default_context(cafile=ca_file)
            except OSError as exc:  # ssl.SSLError is one
                yield ConfigFault(f"{path}.ca_file", f"cannot be used ({exc}): give a PEM file")
    for index, sink in enumerate(config.alerts.sinks):
        if sink.command and shutil.which(sink.command[0]) is None:
            yield ConfigFault(f"{sink_name(index)}.command", "there is no such program: give its path")
    yield from _folders(config)


def _folders(config: Config) -> Iterator[ConfigFault]:
    """Where something is to be written, and may not be."""
    kept = config.state.path if config.state.path != ":memory:" else None
    spool = config.state.spool
    for path, named in (("state.path", kept), ("state.spool", spool), ("control.socket", config.control.socket)):
        if named is not None and not os.access(folder := Path(named).absolute().parent, os.W_OK | os.X_OK):
            told = "may not be written in" if folder.is_dir() else "is no folder"
            yield ConfigFault(path, f"{shown(str(folder))} {told}: make it, or choose another")


def _leave(file: Path, faults: tuple[ConfigFault, ...], remarks: tuple[ConfigFault, ...]) -> NoReturn:
    tell(file, "fault", faults)
    tell(file, "warning", remarks)
    count = " and ".join(_many(len(each), what) for each, what in ((faults, "fault"), (remarks, "warning")) if each)
    click.echo(f"{file}: {count}", err=True)
    raise click.exceptions.Exit(1)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
