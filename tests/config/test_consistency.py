"""What must hold between the parts of a configuration."""

import pytest

from trioproxy.config.consistency import Parts, findings
from trioproxy.config.model import Channel, Config, Key, Link, Listen, Model, Secret

HASH, OTHER = "sha256:" + "0" * 64, "sha256:" + "1" * 64
CHANNEL = Channel("a", "https://a.example/v1", api_key=Secret(env="A"))
MODEL = Model("m", (Link("a", "m"),))


def found(**changes: object) -> list[tuple[tuple[str | int, ...], str]]:
    config = Config(**({"channels": (CHANNEL,), "models": (MODEL,)} | changes))  # type: ignore[arg-type]
    return list(findings(Parts.of(config)))


def test_what_fits_together_has_no_finding() -> None:
    assert found() == []


@pytest.mark.parametrize(
    "changes, path",
    [
        ({"channels": (CHANNEL, CHANNEL)}, ("channels", 1, "name")),
        ({"models": (MODEL, MODEL)}, ("models", 1, "name")),
        ({"keys": (Key("k", HASH), Key("k", OTHER))}, ("keys", 1, "id")),
        ({"keys": (Key("k", HASH), Key("l", HASH))}, ("keys", 1, "hash")),
    ],
)
def test_names_and_keys_are_given_once(changes: dict[str, object], path: tuple[str | int, ...]) -> None:
    ((where, _message),) = found(**changes)
    assert where == path


def test_a_link_names_a_channel_that_there_is() -> None:
    ((path, message),) = found(models=(Model("m", (Link("aa", "m"),)),))
    assert path == ("models", 0, "channels", 0, "channel")
    assert message == '"aa" is no channel; did you mean "a"?'


def test_a_star_in_a_link_needs_a_wildcard_to_stand_for() -> None:
    ((path, _message),) = found(models=(Model("m", (Link("a", "*"),)),))
    assert path == ("models", 0, "channels", 0, "model")
    assert found(models=(Model("a/*", (Link("a", "*"), Link("a", "fixed"))),)) == []


def test_a_channel_elsewhere_has_a_key_or_says_that_it_needs_none() -> None:
    ((path, message),) = found(channels=(Channel("a", "https://a.example/v1"),))
    assert path == ("channels", 0, "api_key")
    assert 'env = "OPENAI_API_KEY"' in message
    assert 'auth = "none"' in message
    assert found(channels=(Channel("a", "https://a.example/v1", auth="none"),)) == []
    assert found(channels=(Channel("a", "http://localhost:11434/v1"),)) == []


def test_a_door_to_other_machines_has_keys_or_is_open_on_purpose() -> None:
    ((path, message),) = found(listen=Listen(data="0.0.0.0:8787"))
    assert path == ("listen", "data")
    assert "open = true" in message
    assert found(listen=Listen(data="0.0.0.0:8787", open=True)) == []
    assert found(listen=Listen(data="0.0.0.0:8787"), keys=(Key("k", HASH),)) == []
    assert found(listen=Listen(data="unix:/run/gw.sock")) == []
