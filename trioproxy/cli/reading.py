"""How commands take a configuration file: read it, or say in one sentence per fault why not.

Exit codes: 1 for a file with faults, 2 for one that cannot be read or a command used wrongly, as click has it.
"""

from collections.abc import Iterable
from pathlib import Path

import click

from trioproxy.config.load import decode, parse_config
from trioproxy.config.model import Config
from trioproxy.errors import ConfigError, ConfigFault

FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


def read(path: Path) -> Config:
    """The file's configuration. Raises `ConfigError`; leaves with 2 where the file cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise click.FileError(str(path), exc.strerror or "it cannot be read") from exc
    return parse_config(decode(data, str(path)), str(path))


def read_or_leave(path: Path) -> Config:
    """`read`, for commands that have nothing to do with a faulty file: tells the faults and leaves with 1."""
    try:
        return read(path)
    except ConfigError as exc:
        tell(path, "fault", exc.faults)
        raise click.exceptions.Exit(1) from exc


def tell(path: Path, what: str, faults: Iterable[ConfigFault]) -> None:
    """One line a fault on standard error, as compilers write them: `FILE:LINE: fault: PATH: MESSAGE`."""
    colour = "red" if what == "fault" else "yellow"
    for fault in faults:
        where = f"{path}:{fault.line}" if fault.line else str(path)
        name = "" if fault.path == str(path) else f"{fault.path}: "
        click.echo(f"{where}: {click.style(what, fg=colour)}: {name}{fault.message}", err=True)
