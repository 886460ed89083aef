"""`trioproxy regress`: the same questions to several channels, side by side, before traffic goes there.

It talks to the channels as the configuration has them, past chains and limits, from connections of its own; no gateway needs to run.
"""

from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import trio

from trioproxy.cli.reading import read, tell
from trioproxy.config.load import decode
from trioproxy.config.promptset import PromptSet, parse_set
from trioproxy.errors import ConfigError

PATH = click.Path(dir_okay=False, path_type=Path)
EXAMPLE = "regression-example.toml"
PASSED, FAILED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130


@click.command("regress")
@click.argument("set_file", metavar="[SET]", type=PATH, required=False)
@click.option("--config", "config_file", type=PATH, help="The gateway's configuration, which has the channels.")
@click.option("--channel", "channels", multiple=True, help="Whom to ask; twice for side by side.  [required]")
@click.option("--model", help="The public model; by default what the set says.")
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="Ask everything so often.")
@click.option(
    "--concurrency", type=click.IntRange(1, 256), default=4, show_default=True, help="Calls at once a channel."
)
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), default=120.0, show_default=True, help="Seconds a call."
)
@click.option("--fail-under", type=click.FloatRange(0, 100), default=100.0, show_default=True, help="Percent to pass.")
@click.option("--max-cost", type=click.FloatRange(0), help="USD that the run may cost; it ends before it costs more.")
@click.option(
    "--ask-above", type=click.FloatRange(0), default=0.1, show_default=True, help="USD from which to ask first."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--html", "html_file", type=PATH, help="Write a page to look at.")
@click.option("--json", "json_file", type=PATH, help="Write everything for programs, readings for rollouts first.")
@click.option(
    "--demo", is_flag=True, help="Ask the upstreams of `trioproxy demo`: no key, no file, nothing leaves here."
)
@click.option("--example", is_flag=True, help="Print a set to begin with.")
def command(set_file: Path | None, config_file: Path | None, *, demo: bool, example: bool, **options: Any) -> None:
    """Ask channels the prompts of SET and judge the answers by what SET expects.

    The likely cost is told before anything is sent. A call that fails is a failed prompt; nothing is retried. Ctrl-C shows what
    there is.

    \b
    Exit code: 0 every channel passes --fail-under, 1 one does not, or not everything was asked, 2 a faulty file or
    command, 3 a channel answered nothing at all, 130 interrupted.

    \b
    Examples:
      trioproxy regress --demo
      trioproxy regress --example > set.toml
      trioproxy regress set.toml --config gateway.toml --channel primary --channel candidate --html report.html
      trioproxy regress set.toml --config gateway.toml --channel candidate --repeat 5 --fail-under 95 --max-cost 2 --yes
    """  # noqa: D301 - click reads the backspace
    text = files("trioproxy.docs").joinpath(EXAMPLE).read_text("utf-8")
    if example:
        click.echo(text, nl=False)
        return
    for file in (options["html_file"], options["json_file"]):
        if file is not None and not file.absolute().parent.is_dir():
            raise click.UsageError(f"{file} cannot be written: there is no folder {file.absolute().parent}")
    if demo and (config_file or options["model"]):
        raise click.UsageError("--demo brings its own configuration and model: leave --config and --model out")
    if not demo and (set_file is None or config_file is None or not options["channels"]):
        raise click.UsageError("give a SET, --config FILE and --channel NAME; or --demo to see it at work")
    prompts = parse(Path(EXAMPLE), text) if set_file is None else parse(set_file)
    job = partial(_demo, prompts, options)
    if not demo:
        assert config_file is not None
        job = partial(_real, prompts, config_file, options)
    code = INTERRUPTED
    try:
        code = trio.run(job)
    except* KeyboardInterrupt:  # before the run took it upon itself, or a second one
        click.echo(err=True)
    raise click.exceptions.Exit(code)


def parse(path: Path, text: str | None = None) -> PromptSet:
    """The set, or every fault of it and exit code 2."""
    try:
        if text is None:
            text = decode(path.read_bytes(), str(path))
        return parse_set(text, str(path))
    except OSError as exc:
        raise click.UsageError(f"{path} cannot be read: {exc.strerror}") from exc
    except ConfigError as exc:
        tell(path, "fault", exc.faults)
        raise click.exceptions.Exit(USAGE) from exc


async def _real(prompts: PromptSet, path: Path, options: Mapping[str, Any]) -> int:
    from trioproxy.cli.regress_run import credentials_of, perform

    try:
        config = read(path)
        keys = credentials_of(config, options["channels"])
    except click.FileError as exc:
        return refuse(exc.format_message())
    except ConfigError as exc:
        tell(path, "fault", exc.faults)
        return USAGE
    return await perform(prompts, config, keys, options)


async def _demo(prompts: PromptSet, options: Mapping[str, Any]) -> int:
    from trioproxy.cli.demo import MODEL, configuration, start
    from trioproxy.cli.regress_run import perform

    code = USAGE
    async with trio.open_nursery() as upstreams:
        config = configuration(0, "json", await start(upstreams))
        asked = {**options, "model": MODEL, "channels": options["channels"] or ("thrifty", "steady")}
        code = await perform(prompts, config, {}, asked)
        upstreams.cancel_scope.cancel("the run has ended")
    return code


def refuse(message: str) -> int:
    """Say why nothing is asked; the exit code for it."""
    click.echo(f"trioproxy regress: {message}", err=True)
    return USAGE
