"""`trioproxy config`: the effective configuration, so that nobody has to know the defaults by heart."""

from pathlib import Path

import click

from trioproxy.cli.reading import FILE, read_or_leave
from trioproxy.config.show import render


@click.command("config")
@click.argument("file", type=FILE)
@click.option("--print", "print_", is_flag=True, help="Write the effective configuration to standard output.")
def command(file: Path, *, print_: bool) -> None:
    """Show the effective configuration of FILE.

    What --print writes is valid TOML with every default in it. Keys that stand in the file are masked.

    \b
    Exit code: 0 shown, 1 a faulty file, 2 the file cannot be read.

    \b
    Examples:
      trioproxy config gateway.toml --print
      trioproxy config gateway.toml --print | grep gate_timeout
    """  # noqa: D301 - click reads the backspace
    config = read_or_leave(file)
    if print_:
        click.echo(render(config), nl=False)
        return
    click.echo(f"{file}: listens on {config.listen.data}")
    for heading, names in (
        ("channels", [channel.name for channel in config.channels]),
        ("models", [model.name for model in config.models]),
        ("classes", ["default", *config.classes]),
        ("keys", [key.id for key in config.keys]),
    ):
        click.echo(f"{heading}: {', '.join(names) or 'none'}")
    click.echo("Every setting with its default: --print")
