"""The command line: what it prints, how it ends, and that bad input is one clear sentence and never a traceback."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from trioproxy.cli import COMMANDS, main
from trioproxy.config.load import parse_config
from trioproxy.config.starter import PROVIDERS
from trioproxy.policy.access import key_hash

GOOD = """
[[channels]]
name = "dear"
base_url = "https://dear.example/v1"
api_key = { env = "DEAR_KEY" }
price = { input = 2.5, output = 10 }
[[channels]]
name = "cheap"
base_url = "https://cheap.example/v1"
api_key = { env = "CHEAP_KEY" }
price = { input = 0.27, output = 1.10 }
[[models]]
name = "deepseek-chat"
chain_max = 1
channels = [{ channel = "dear", model = "d" }, { channel = "cheap", model = "c" }]
[[models]]
name = "openai/*"
channels = [{ channel = "dear", model = "*" }, { channel = "cheap", model = "vendor/*" }]
"""
KEYS = {"DEAR_KEY": "sk-dear", "CHEAP_KEY": "sk-cheap"}
NO_KEYS: dict[str, str | None] = {provider.variable: None for provider in PROVIDERS}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(GOOD)
    return path


def run(*args: object, env: dict[str, str] | None = None, stdin: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(main, [str(arg) for arg in args], env={**NO_KEYS, **(env or {})}, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    assert "sk-dear" not in result.output
    return result


def test_help_lists_every_command_and_loads_none() -> None:
    code = "import sys, trioproxy.cli as c; c.main(['--help'], standalone_mode=False); print(*sys.modules)"
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout  # noqa: S603 - ours
    assert all(f"  {name} " in text for name in COMMANDS)
    loaded = text.split()
    assert "trioproxy.cli" in loaded
    assert not {"trio", "cattrs", "rich", "trioproxy.cli.check"} & set(loaded)


def test_python_m_trioproxy_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "trioproxy", "--help"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("Usage: trioproxy ")


def every_command() -> list[tuple[str, ...]]:
    """Groups, and what is in them, too."""
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        found += [(name,), *((name, sub) for sub in getattr(command, "commands", ()))]
    return found


@pytest.mark.parametrize("args", every_command(), ids=" ".join)
def test_every_commands_help_has_examples(args: tuple[str, ...]) -> None:
    result = run(*args, "--help")
    assert result.exit_code == 0
    assert "Examples:\n    trioproxy " in result.output.replace('printf %s "$KEY" | ', "")
    assert "..." not in result.output.partition("Commands:")[2], "what a group lists is cut short"


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"demo", "keys"}))
def test_the_help_of_what_reads_or_writes_a_file_tells_its_exit_codes(name: str) -> None:
    told = [run(*args, "--help").output for args in every_command() if args[0] == name]
    assert any("Exit code: 0 " in text for text in told)


def test_an_unknown_command_is_told_with_its_nearest() -> None:
    result = run("chek")
    assert result.exit_code == 2
    assert "No such command 'chek'; did you mean 'check'?" in result.stderr
    assert "there are serve, demo" in run("zzz").stderr


def test_check_in_order_tells_warnings_and_ends_with_0(file: Path) -> None:
    result = run("check", file, env=KEYS)
    assert result.exit_code == 0
    assert result.stdout == f"{file}: in order: 2 channels, 2 models\n"
    assert result.stderr.startswith(f"{file}:15: warning: models[0].channels: 2 channels and chain_max = 1")


def test_check_strict_takes_warnings_for_faults(file: Path) -> None:
    result = run("check", file, "--strict", env=KEYS)
    assert result.exit_code == 1
    assert result.stderr.endswith(f"{file}: 1 warning\n")


def test_check_looks_up_keys_unless_told_not_to(file: Path) -> None:
    result = run("check", file, env={"DEAR_KEY": "sk-dear x"})
    assert result.exit_code == 1
    assert f"{file}:5: fault: channels[0].api_key: env DEAR_KEY has a space" in result.stderr
    assert f"{file}:10: fault: channels[1].api_key: env CHEAP_KEY is not set" in result.stderr
    assert result.stderr.endswith("2 faults and 1 warning\n")
    assert run("check", file, "--no-secrets").exit_code == 0


def test_check_opens_certificates(file: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for name in ("ca.pem", "none.pem"):
        file.write_text(
            GOOD.replace('api_key = { env = "DEAR', f'ca_file = "{tmp_path}/{name}"\napi_key = {{ env = "DEAR')
        )
        result = run("check", file, env=KEYS)
        assert result.exit_code == 1
        assert f"{file}:5: fault: channels[0].ca_file: cannot be used" in result.stderr


def test_check_looks_for_the_sinks_of_alerts(file: Path) -> None:
    file.write_text(GOOD + '[[alerts.sinks]]\ncommand = ["/no/such/program"]\n')
    with file.open("a") as text:
        text.write('[[alerts.sinks]]\nurl = "https://h.example/"\nsecret = { env = "NO_SUCH" }\nca_file = "/no/such"\n')
    result = run("check", file, env=KEYS)
    assert result.exit_code == 1
    assert "alerts.sinks[0].command: there is no such program: give its path" in result.stderr
    assert "alerts.sinks[1].secret: env NO_SUCH is not set or empty" in result.stderr
    assert "alerts.sinks[1].ca_file: cannot be used" in result.stderr
    assert run("check", file, "--no-secrets").exit_code == 0


def test_check_tells_all_faults_with_their_lines(file: Path) -> None:
    file.write_text(GOOD.replace("chain_max = 1", "chain_max = 11\nordr = 1"))
    result = run("check", file)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"{file}:14: fault: models[0].chain_max: 11 is out of range: give 1 to 10",
        f'{file}:15: fault: models[0].ordr: unknown key; did you mean "order"?',
        f"{file}: 2 faults",
    ]


@pytest.mark.parametrize("command", ["check", "chain", "config"])
def test_a_file_that_cannot_be_read_ends_with_2(command: str, tmp_path: Path) -> None:
    rest = ("m",) if command == "chain" else ()
    for path in (tmp_path / "none.toml", tmp_path):
        result = run(command, path, *rest)
        assert result.exit_code == 2
        assert str(path) in result.stderr


@pytest.mark.parametrize("command", ["check", "chain", "config"])
@pytest.mark.parametrize("content, line", [(b"= 1\n", 1), (b"\n\xff", 2), (b"a = " + b"[" * 10_000, None)])
def test_a_file_that_is_no_toml_ends_with_1(command: str, content: bytes, line: int | None, file: Path) -> None:
    file.write_bytes(content)
    result = run(command, file, *(("m",) if command == "chain" else ()))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{file}:{line}: fault: " if line else f"{file}: fault: ")


def test_chain_shows_the_order_and_the_reason_for_each_channel(file: Path) -> None:
    result = run("chain", file, "deepseek-chat")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "deepseek-chat: cheapest first, at most 1 attempts",
        "#  channel  provider's model  why here",
        "1  cheap    c                 cheapest: 0.27 in / 1.10 out USD per Mtok",
        "-  dear     d                 second by cost: 2.50 in / 10.00 out USD per Mtok; only while one above is out",
    ]


def test_chain_resolves_wildcards(file: Path) -> None:
    result = run("chain", file, "openai/gpt-4o")
    assert "openai/gpt-4o (by openai/*): cheapest first" in result.stdout
    assert "vendor/gpt-4o" in result.stdout


def test_chain_for_programs(file: Path) -> None:
    told = json.loads(run("chain", file, "openai/x", "--json").stdout)
    assert told["matched"] == "openai/*"
    assert [(step["position"], step["channel"], step["model"]) for step in told["chain"]] == [
        (1, "cheap", "vendor/x"),
        (2, "dear", "x"),
    ]
    assert told["beyond"] == []


def test_chain_names_who_may_stand_in(file: Path) -> None:
    file.write_text(
        GOOD + '[[models]]\nname = "m"\nchannels = [{ channel = "cheap", model = "m" }]\n'
        'fallback = [{ model = "openai/x", classes = ["default"] }, { model = "deepseek-chat", on = ["queue"] }]\n'
    )
    assert run("chain", file, "m").stdout.splitlines()[-2:] == [
        "where its class cannot serve it in time or no channel answers: openai/x, for calls of class default",
        "where its class cannot serve it in time: deepseek-chat, for calls of class *",
    ]
    told = json.loads(run("chain", file, "m", "--json").stdout)
    assert told["fallback"][1] == {"model": "deepseek-chat", "classes": ["*"], "on": ["queue"]}


def test_chain_of_an_unknown_model_names_the_nearest(file: Path) -> None:
    result = run("chain", file, "deepseek-chta")
    assert result.exit_code == 1
    assert result.stderr == f"{file}: no model answers to 'deepseek-chta'; did you mean 'deepseek-chat'?\n"
    assert "there are deepseek-chat, openai/*" in run("chain", file, "zzz").stderr


def test_config_print_is_the_effective_configuration(file: Path) -> None:
    result = run("config", file, "--print")
    assert result.exit_code == 0
    assert parse_config(result.stdout, "x") == parse_config(GOOD, "x")
    assert "gate_timeout = 30.0" in result.stdout


def test_config_without_print_is_a_summary(file: Path) -> None:
    text = run("config", file).stdout
    assert "channels: dear, cheap\n" in text
    assert "keys: none\n" in text


def test_init_writes_what_check_accepts_and_no_key(tmp_path: Path) -> None:
    path, env = tmp_path / "new.toml", {"DEEPSEEK_API_KEY": "sk-dear", "GROQ_API_KEY": "sk-dear"}
    result = run("init", path, env=env)
    assert result.exit_code == 0
    assert "deepseek (DEEPSEEK_API_KEY), groq (GROQ_API_KEY)" in result.stdout
    assert "sk-dear" not in path.read_text()
    assert run("check", path, env=env).exit_code == 0


def test_init_without_keys_writes_what_check_accepts(tmp_path: Path) -> None:
    assert "no provider key was found" in run("init", tmp_path / "new.toml").stdout
    assert run("check", tmp_path / "new.toml").exit_code == 0


def test_init_replaces_nothing_unless_forced(file: Path) -> None:
    result = run("init", file)
    assert result.exit_code == 1
    assert "--force" in result.stderr
    assert file.read_text() == GOOD
    assert run("init", file, "--force").exit_code == 0
    assert file.read_text() != GOOD


def test_init_into_nowhere_is_one_sentence(tmp_path: Path) -> None:
    result = run("init", tmp_path / "no" / "where.toml")
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr


def test_a_new_key_is_shown_once_and_its_block_is_what_the_configuration_takes() -> None:
    result = run("keys", "new", "--id", "ci", "--tenant", "research")
    assert result.exit_code == 0
    key = result.stderr.split()[-1]
    assert key.startswith("tp-")
    assert len(key) == 3 + 43
    assert key not in result.stdout
    assert tomllib.loads(result.stdout) == {"keys": [{"id": "ci", "hash": key_hash(key), "tenant": "research"}]}
    assert parse_config(GOOD + result.stdout, "x").keys[0].id == "ci"


def test_no_two_new_keys_are_alike() -> None:
    keys = [run("keys", "new") for _ in range(3)]
    assert len({key.stderr for key in keys}) == 3
    assert len({tomllib.loads(key.stdout)["keys"][0]["id"] for key in keys}) == 3


def test_a_key_takes_a_name_that_can_stand_anywhere() -> None:
    result = run("keys", "new", "--id", 'a"b')
    assert result.exit_code == 2
    assert "is no name" in result.stderr


def test_hash_reads_a_key_from_standard_input() -> None:
    result = run("keys", "hash", stdin="tp-abc\n")
    assert result.stdout == key_hash("tp-abc") + "\n"


@pytest.mark.parametrize("stdin", [b"", b"\n", b"two words\n", b"two\nlines\n", b"\xff\n"])
def test_hash_refuses_what_is_no_key(stdin: bytes) -> None:
    result = run("keys", "hash", stdin=stdin)
    assert result.exit_code == 1
    assert result.stderr.startswith("a key is one line")


def test_every_command_is_a_click_command_and_says_in_one_line_what_it_does() -> None:
    for name in ("init", "check", "chain", "config", "keys"):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert COMMANDS[name].endswith(".")
