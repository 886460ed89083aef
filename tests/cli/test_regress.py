"""`trioproxy regress`: what it refuses before it sends anything, what it asks, writes and shows, and how it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import click
import pytest
import trio
from attrs import evolve
from click.testing import CliRunner, Result
from trio.testing import MockClock

from tests.docs.pages import DOCS, own, table, words
from tests.fakes import steps
from tests.fakes.upstream import Exchange, FakeUpstream, on_loopback
from tests.ops.test_regression import plan, ran
from tests.scene import scene
from trioproxy.cli import main, regress_run
from trioproxy.cli.regress import command
from trioproxy.policy.reading import readings_in
from trioproxy.sim.upstream import Manner, Mode, ScriptedUpstream

SET = """
name = "tiny"
model = "m"
[[prompts]]
name = "echo"
prompt = "Bonjour"
params = { max_tokens = 50 }
expect = { contains = ["Bonjour"] }
"""
CHANNEL = """
[[channels]]
name = "{name}"
base_url = "http://127.0.0.1:{port}/v1"
api_key = {{ env = "KEY_{variable}" }}
price = {{ input = {price}, output = {price} }}
"""
KEYS = {"KEY_A": "sk-secret-a", "KEY_B": "sk-secret-b"}


@contextmanager
def upstream(mode: Mode = Mode.OK) -> Iterator[int]:
    """A scripted provider on loopback in a thread with a run of its own; gives its port."""
    ports: list[int] = []
    tokens: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []

    async def serve() -> None:
        provider = ScriptedUpstream("provider", ("m",), Manner(first=0, every=0))
        provider.break_down(mode)
        async with trio.open_nursery() as nursery:
            ports.append(await nursery.start(provider.run))
            tokens.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))

    thread = Thread(target=trio.run, args=(serve,))
    thread.start()
    while not tokens:
        thread.join(0.001)
    try:
        yield ports[0]
    finally:
        token, scope = tokens[0]
        token.run_sync_soon(scope.cancel)
        thread.join()


def gateway(path: Path, price: float = 1.0, **ports: int) -> Path:
    text = "".join(
        CHANNEL.format(name=name, variable=name.upper(), port=port, price=price) for name, port in ports.items()
    )
    links = ", ".join(f'{{ channel = "{name}", model = "{name}-m" }}' for name in ports)
    file = path / "gateway.toml"
    file.write_text(f'{text}\n[[models]]\nname = "m"\nchannels = [{links}]\n')
    return file


def run(*args: object, env: dict[str, str] | None = None) -> Result:
    result = CliRunner().invoke(main, ["regress", *map(str, args)], env=KEYS | (env or {}))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "sk-secret" not in result.output
    return result


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "set.toml"
    path.write_text(SET)
    return path


def test_two_channels_that_answer_well_end_with_0_and_both_reports_are_written(tmp_path: Path, prompts: Path) -> None:
    page, data = tmp_path / "report.html", tmp_path / "report.json"
    with upstream() as a, upstream() as b:
        config = gateway(tmp_path, a=a, b=b)
        sides = ("--channel", "a", "--channel", "b", "--repeat", "2")
        result = run(prompts, "--config", config, *sides, "--html", page, "--json", data)
    assert result.exit_code == 0, result.output
    assert "4 calls, likely cost: a $0." in result.stderr
    assert "2/2 pass" in result.stdout
    document: Any = json.loads(data.read_text())
    one, two = readings_in(document)
    assert (one.channel, one.passed, one.complete, two.channel, two.provider_model) == ("a", 2, True, "b", "b-m")
    assert document["prompts"][0]["answers"]["a"][0]["said"]["text"].startswith("This is provider. You said: Bonjour.")
    assert "This is provider. You said: Bonjour." in page.read_text("utf-8")
    assert "sk-secret" not in page.read_text("utf-8") + data.read_text()


@pytest.mark.parametrize(("share", "code"), [("100", 1), ("50", 0), ("50.1", 1)])
def test_expectations_that_fail_end_with_1_below_the_share_that_must_pass(
    share: str, code: int, tmp_path: Path, prompts: Path
) -> None:
    prompts.write_text(SET + '[[prompts]]\nname = "other"\nprompt = "Hi"\nexpect = { contains = ["42"] }\n')
    with upstream() as a:
        config = gateway(tmp_path, a=a)
        result = run(prompts, "--config", config, "--channel", "a", "--fail-under", share)
    assert result.exit_code == code
    assert 'contains "42": it does not' in " ".join(result.stdout.replace("│", " ").split())


def test_a_channel_that_answers_nothing_ends_with_3_and_says_why(tmp_path: Path, prompts: Path) -> None:
    with upstream() as a, upstream(Mode.ERROR_503) as b:
        config = gateway(tmp_path, a=a, b=b)
        result = run(prompts, "--config", config, "--channel", "a", "--channel", "b")
    assert result.exit_code == 3
    assert "channel b answered nothing: overloaded: 503" in result.stderr
    config = gateway(tmp_path, a=b)  # nobody listens there any more
    result = run(prompts, "--config", config, "--channel", "a")
    assert result.exit_code == 3
    assert "channel a answered nothing: connect: " in result.stderr


def refused(*args: object, env: dict[str, str] | None = None) -> str:
    """The complaint of a run that ends with 2; nothing is asked, so no upstream is needed."""
    result = run(*args, env=env)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return result.stderr


def test_faults_of_the_set_and_of_the_configuration_end_with_2_all_at_once(tmp_path: Path, prompts: Path) -> None:
    config = gateway(tmp_path, a=9)
    prompts.write_text(SET.replace("contains", "contain") + "[[prompts]]\n")
    told = refused(prompts, "--config", config, "--channel", "a").splitlines()
    assert len([line for line in told if ": fault: prompts[" in line]) == 3
    assert told[0].startswith(f"{prompts}:8: fault: prompts[0].expect.contain: unknown key")
    prompts.write_text(SET)
    config.write_text("channels = 1\n")
    assert f"{config}:1: fault: channels: " in refused(prompts, "--config", config, "--channel", "a")


def test_what_the_command_lacks_is_told(tmp_path: Path, prompts: Path) -> None:
    config = gateway(tmp_path, a=9, b=9)
    good = (prompts, "--config", config, "--channel")
    assert "give a SET, --config FILE and --channel NAME" in refused()
    assert "give a SET" in refused(prompts, "--config", config)
    told = refused(*good, "z", "--channel", "y", "--model", "other")
    assert "no channel 'z': there are a, b; there is no channel 'y'" in told
    assert "no model answers to 'other': there are m" in told
    assert "cannot be read" in refused(tmp_path / "none.toml", "--config", config, "--channel", "a")
    assert "none.toml" in refused(prompts, "--config", tmp_path / "none.toml", "--channel", "a")
    assert "there is no folder" in refused(*good, "a", "--json", tmp_path / "none" / "x.json")
    assert "--demo brings its own" in refused("--demo", "--config", config)
    prompts.write_text(SET.replace('model = "m"', ""))
    assert "which model?" in refused(*good, "a")


def test_only_the_keys_of_the_channels_that_are_asked_must_be_there(tmp_path: Path, prompts: Path) -> None:
    with upstream() as a:
        config = gateway(tmp_path, a=a, b=9)
        assert run(prompts, "--config", config, "--channel", "a", env={"KEY_B": ""}).exit_code == 0
        told = refused(prompts, "--config", config, "--channel", "b", env={"KEY_B": ""})
    assert "channels[1].api_key: env KEY_B is not set" in told


def test_a_channel_that_does_not_serve_the_model_is_told_with_those_that_do(tmp_path: Path, prompts: Path) -> None:
    config = gateway(tmp_path, a=9)
    config.write_text(config.read_text() + CHANNEL.format(name="b", variable="B", port=9, price=1))
    told = refused(prompts, "--config", config, "--channel", "b")
    assert "channel b does not serve m: it has a" in told


def test_a_wildcard_gives_the_channel_its_own_name_for_the_model(tmp_path: Path, prompts: Path) -> None:
    with upstream() as a:
        config = gateway(tmp_path, a=a)
        config.write_text(config.read_text().replace('"m"', '"x/*"').replace('"a-m"', '"vendor/*"'))
        data = tmp_path / "report.json"
        args = (prompts, "--config", config, "--channel", "a", "--model", "x/big", "--json", data)
        assert run(*args).exit_code == 0
    (reading,) = readings_in(json.loads(data.read_text()))
    assert (reading.model, reading.provider_model) == ("x/big", "vendor/big")


def test_a_run_is_bounded(tmp_path: Path, prompts: Path) -> None:
    text = "".join(f'[[prompts]]\nprompt = "{number}"\nexpect.min_length = 1\n' for number in range(1001))
    prompts.write_text(f'model = "m"\n{text}')
    args = (prompts, "--config", gateway(tmp_path, a=9), "--channel", "a", "--repeat", 100)
    assert "that would be 100100 calls, at most 100000 are allowed: lower --repeat" in refused(*args)


# Money


def test_a_run_that_costs_more_than_it_may_is_not_begun(tmp_path: Path, prompts: Path) -> None:
    config = gateway(tmp_path, price=1000.0, a=9)
    args = (prompts, "--config", config, "--channel", "a")
    assert "likely more than --max-cost ($0.010000)" in refused(*args, "--max-cost", "0.01", "--yes")


def test_a_price_that_is_not_known_is_flagged_and_bounds_nothing(tmp_path: Path, prompts: Path) -> None:
    config = gateway(tmp_path, a=9)
    config.write_text(config.read_text().replace("price", "# price"))
    args = (prompts, "--config", config, "--channel", "a")
    told = refused(*args, "--max-cost", "5", "--yes")
    assert "a unknown (it has no price)" in told
    assert "--max-cost cannot bound a channel without a price: give a one" in told
    assert "nobody is here to agree to the cost: give --yes" in refused(*args)


@pytest.mark.parametrize(("answer", "code", "calls"), [("y", 0, 1), ("n", 2, 0), ("", 2, 0)])
def test_somebody_at_the_terminal_is_asked_above_the_threshold(
    answer: str, code: int, calls: int, tmp_path: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regress_run, "interactive", lambda: True)
    with upstream() as a:
        config = gateway(tmp_path, price=10_000.0, a=a)
        args = ["regress", str(prompts), "--config", str(config), "--channel", "a"]
        result = CliRunner().invoke(main, args, env=KEYS, input=f"{answer}\n")
    assert result.exit_code == code, result.output
    assert "Go on?" in result.stderr
    assert ("1/1" in result.stdout) is bool(calls)


def test_below_the_threshold_and_with_yes_nobody_is_asked(tmp_path: Path, prompts: Path) -> None:
    with upstream() as a:
        cheap, dear = gateway(tmp_path, a=a), (prompts, "--config", tmp_path / "gateway.toml", "--channel", "a")
        assert "Go on?" not in run(prompts, "--config", cheap, "--channel", "a").stderr
        gateway(tmp_path, price=10_000.0, a=a)
        assert "give --yes" in refused(*dear)
        assert run(*dear, "--yes").exit_code == 0
        assert run(*dear, "--ask-above", "100").exit_code == 0


# The rest


async def test_a_run_that_did_not_ask_everything_does_not_pass_however_good_it_was(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("yes"))
        planned = plan(s, names="a", repeat=50, concurrency=1)
        whole, part = await ran(planned), await ran(evolve(planned, max_cost=4_500))
        assert whole.summary("a").pass_rate == part.summary("a").pass_rate == 1
        assert part.stopped
        assert regress_run.code_of(whole, 1.0) == 0
        assert regress_run.code_of(part, 1.0) == 1


def test_the_example_is_a_set_that_the_demo_runs(tmp_path: Path) -> None:
    example = tmp_path / "set.toml"
    example.write_text(run("--example").stdout)
    result = run(example, "--demo", "--channel", "steady", "--channel", "premium")
    assert result.exit_code == 0, result.output
    assert "5/5 (100%)" in result.stdout


def test_every_option_is_documented_with_its_default() -> None:
    rows = {words(row[0])[0].split()[0]: row[1] for row in table(own(DOCS / "regression.md", "The run"))}
    options = {each.opts[0]: each for each in command.params if isinstance(each, click.Option)}
    assert set(rows) == set(options) - {"--demo", "--example"}
    for name, cell in rows.items():
        given = options[name].default
        if isinstance(given, int | float) and not isinstance(given, bool):
            assert float(cell) == given, name


def test_the_demo_without_more_shows_a_channel_that_fails_now_and_then() -> None:
    result = run("--demo")
    assert result.exit_code == 1, result.output
    assert "4/5 (80%)" in result.stdout
    assert "overloaded: 503" in " ".join(result.stdout.replace("│", " ").split())


def test_what_a_model_says_cannot_move_the_cursor(tmp_path: Path, prompts: Path) -> None:
    prompts.write_text(
        SET.replace("Bonjour", r"\u001b[2J[bold]\u0007", 1).replace('["Bonjour"]', r'["\u001b[2J[bold]"]')
    )
    text = (
        prompts.read_text() + '[[prompts]]\nname = "\\u001b[31m[red]"\nprompt = "x"\nexpect.contains = ["\\u001b[5m"]\n'
    )
    prompts.write_text(text)
    with upstream() as a:
        config = gateway(tmp_path, a=a)
        result = run(prompts, "--config", config, "--channel", "a")
    assert result.exit_code == 1
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
    assert "[31m[red]" in result.stdout


async def test_ctrl_c_shows_what_there_is_and_ends_with_130(tmp_path: Path, prompts: Path) -> None:
    data = tmp_path / "report.json"
    provider = FakeUpstream("a")

    async def interrupt(x: Exchange) -> None:
        process.send_signal(signal.SIGINT)
        await x.closed()

    provider.script(steps.chat("Bonjour"), steps.chat("Bonjour"), interrupt)
    async with on_loopback(provider):
        config = gateway(tmp_path, a=provider.port)
        args = [str(prompts), "--config", str(config), "--channel", "a", "--repeat", "9", "--concurrency", "1"]
        command = [sys.executable, "-m", "trioproxy", "regress", *args, "--yes", "--json", str(data)]
        with trio.fail_after(30):
            process = await trio.lowlevel.open_process(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | KEYS
            )
            assert process.stdout is not None
            out = b"".join([part async for part in process.stdout]).decode()
            await process.wait()
    assert process.returncode == 130, out
    assert "Not everything was asked: it was interrupted." in out
    assert "Traceback" not in out
    (reading,) = readings_in(json.loads(data.read_text()))
    assert (reading.passed, reading.runs, reading.complete) == (2, 2, False)
