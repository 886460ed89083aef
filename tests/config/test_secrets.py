"""Credentials: found where the file says, and named but never shown."""

from pathlib import Path

import pytest

from trioproxy.config.model import Channel, Config, Link, Model, Secret
from trioproxy.config.secrets import Credential, credentials, resolve, resolve_all
from trioproxy.errors import ConfigError

SPILL = "sk-spilled-secret"


def unread(path: str) -> str:
    raise AssertionError(f"nothing reads {path}")


def config(*secrets: Secret | None) -> Config:
    channels = tuple(Channel(f"c{n}", "http://localhost/", api_key=secret) for n, secret in enumerate(secrets))
    return Config(channels=channels, models=(Model("m", (Link("c0", "m"),)),))


@pytest.mark.parametrize("value", ["sk-1", "sk-1\n", "sk-1\r\n"])
def test_a_value_is_taken_without_its_line_end(value: str) -> None:
    assert resolve(Secret(env="A"), {"A": value}, unread) == "sk-1"
    assert resolve(Secret(file="/a"), {}, lambda _path: value) == "sk-1"
    assert resolve(Secret(value=value), {}, unread) == "sk-1"


@pytest.mark.parametrize(
    "secret, environ, named",
    [
        (Secret(env="A_KEY"), {}, "A_KEY"),
        (Secret(env="A_KEY"), {"A_KEY": ""}, "A_KEY"),
        (Secret(env="A_KEY"), {"A_KEY": "\n"}, "A_KEY"),
        (Secret(env="A_KEY"), {"A_KEY": f"{SPILL}\nx"}, "A_KEY"),
        (Secret(env="A_KEY"), {"A_KEY": f"{SPILL} "}, "A_KEY"),
        (Secret(env="A_KEY"), {"A_KEY": f"{SPILL}ä"}, "A_KEY"),
        (Secret(value="\n"), {}, "the key is empty"),
        (Secret(value=f"{SPILL}\x00"), {}, "the configuration file"),
        (Secret(env="gsk_spilled"), {}, "the variable named by env"),
    ],
)
def test_a_fault_names_the_place_and_never_the_value(secret: Secret, environ: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        resolve(secret, environ, unread)
    assert "spilled" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "empty").write_text("\n")
    for name, reason in (
        ("none", "No such file"),
        ("binary", "is not UTF-8"),
        ("empty", "is empty"),
        ("a\0", "no valid"),
    ):
        with pytest.raises(ConfigError, match=reason):
            credentials(config(Secret(file=str(tmp_path / name))), {})
    with pytest.raises(ConfigError, match="the file named by file"):
        credentials(config(Secret(file=SPILL)), {})


def test_all_channels_are_resolved_and_those_without_a_key_left_out(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-2\n")
    found = resolve_all(config(Secret(env="A"), None, Secret(file=str(tmp_path / "key"))), {"A": "sk-1"})
    assert found == {"c0": "sk-1", "c2": "sk-2"}


def test_a_key_that_is_never_sent_is_not_looked_up() -> None:
    channel = Channel("c0", "http://localhost/", api_key=Secret(env="A"), auth="none")
    assert resolve_all(Config((channel,), (Model("m", (Link("c0", "m"),)),)), {}) == {}


def test_all_faults_come_at_once_under_their_channels() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_all(config(Secret(env="A"), Secret(env="B"), Secret(env="C")), {"B": "sk"})
    assert [fault.path for fault in caught.value.faults] == ["channels[0].api_key", "channels[2].api_key"]


def test_a_credential_prints_its_source_alone() -> None:
    credential = credentials(config(Secret(env="DEEPSEEK_API_KEY")), {"DEEPSEEK_API_KEY": SPILL})["c0"]
    assert credential == Credential("env DEEPSEEK_API_KEY", SPILL)
    assert str(credential) == repr(credential) == "<secret from env DEEPSEEK_API_KEY>"
    assert f"{credential}" == "<secret from env DEEPSEEK_API_KEY>"
