"""The command line refuses what it does not understand, naming it, before anything runs."""

import pytest
from click.testing import CliRunner

from bench.cli import main


@pytest.mark.parametrize("command", ["upstream", "relay", "load", "compare", "streams", "soak", "steps"])
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["upstream", "--wait", "normal:1"], "normal:1"),
        (["upstream", "--fault", "explode"], "explode"),
        (["load", "--profile", "fast"], "fast"),
        (["load", "--shape", "colour=red"], "colour=red"),
        (["compare", "nobody"], "nobody"),
    ],
)
def test_what_is_not_understood_is_named(words: list[str], said: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert said in result.output
