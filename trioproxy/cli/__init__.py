"""The command line: one module per command, loaded when it is called for.

`trioproxy --help` needs no command's module, so it answers at once; the table below holds what it shows. Every module has
its click command as `command`.
"""

import difflib
import importlib

import click

COMMANDS = {
    "serve": "Run the gateway.",
    "demo": "Watch failover happen on this machine, no provider needed.",
    "init": "Write a first configuration from the keys in the environment.",
    "keys": "Make keys for callers.",
    "check": "Tell everything that is wrong with a configuration.",
    "config": "Show the effective configuration, defaults included.",
    "chain": "Show which channels answer for a model, in which order, and why.",
    "rollout": "See how a rollout goes, and start, step, pause or take it back.",
    "regress": "Ask channels a set of prompts and judge their answers, side by side.",
    "ledger": "Tell what was used and what it cost.",
    "deferred": "Look at calls that were put off, and take one back.",
    "alerts": "See that alerts arrive.",
}


class LazyGroup(click.Group):
    """Finds commands in `COMMANDS` (overriding these methods is how click loads lazily)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COMMANDS)}."
            ctx.fail(f"No such command {cmd_name!r}; {meant}")
        command = importlib.import_module(f"{__name__}.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trioproxy", message="%(prog)s %(version)s")
def main() -> None:
    """An LLM gateway that fails over: one process, one file.

    \b
    Begin with:
      trioproxy init gateway.toml      a configuration from your provider keys
      trioproxy check gateway.toml     is it right?
      trioproxy serve gateway.toml     run it
    """  # noqa: D301 - click reads the backspace
