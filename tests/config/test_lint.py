"""Warnings: what is allowed but cannot act."""

from datetime import UTC, datetime

import pytest
from attrs import evolve

from trioproxy.config.lint import warnings
from trioproxy.config.model import Channel, ClassPolicy, Config, Key, Link, Model, Params, Price, Secret
from trioproxy.config.probes import Probe, Probes

HASH = "sha256:" + "0" * 64
A = Channel("a", "https://a.example/v1", api_key=Secret(env="A"), price=Price(1, 2))
B = evolve(A, name="b")
MODEL = Model("m", (Link("a", "m"), Link("b", "m")))
GOOD = Config(channels=(A, B), models=(MODEL,))
TODAY = datetime(2026, 1, 1, tzinfo=UTC)


def told(**changes: object) -> list[tuple[str, str]]:
    return [(fault.path, fault.message) for fault in warnings(evolve(GOOD, **changes), today=TODAY)]  # type: ignore[arg-type]


def test_a_good_configuration_has_no_warning() -> None:
    assert warnings(GOOD) == []


@pytest.mark.parametrize(
    "channel, path, message",
    [
        (evolve(A, api_key=Secret(value="sk-1")), "channels[0].api_key", "the key itself stands in the file"),
        (evolve(A, auth="none"), "channels[0].api_key", "it is never sent"),
        (
            evolve(A, base_url="http://a.example/v1"),
            "channels[0].base_url",
            "carries the key and all prompts in the clear",
        ),
        (evolve(A, base_url="http://a.x", api_key=None, auth="none"), "channels[0].base_url", "carries all prompts"),
        (evolve(A, base_url="https://a/v1/chat/completions"), "channels[0].base_url", "is appended to it"),
        (evolve(A, base_url="http://127.0.0.1/", ca_file="x"), "channels[0].ca_file", "it is never used"),
        (evolve(A, headers={"X-Api-Key": "sk-1"}), "channels[0].headers.X-Api-Key", "a credential in the file"),
        (evolve(A, price=None), "models[0].channels[0]", '"a" has no price and the order is by cost: it comes last'),
    ],
)
def test_a_channel_that_does_not_do_what_it_says_is_warned_of(channel: Channel, path: str, message: str) -> None:
    ((where, what),) = told(channels=(channel, B))
    assert where == path
    assert message in what
    assert "sk-1" not in what


def test_a_channel_that_no_model_uses_is_warned_of() -> None:
    assert told(channels=(A, B, evolve(A, name="c"))) == [("channels[2]", 'no model uses "c": it is never asked')]


@pytest.mark.parametrize(
    "model, path, message",
    [
        (Model("m", (Link("a", "m"),)), "models[0].channels", '"m" has one channel'),
        (evolve(MODEL, chain_max=1), "models[0].channels", "2 channels and chain_max = 1: 1 are only tried"),
        (evolve(MODEL, channels=(*MODEL.channels, Link("a", "m"))), "models[0].channels[2]", "is listed twice"),
    ],
)
def test_a_chain_that_cannot_act_is_warned_of(model: Model, path: str, message: str) -> None:
    found = told(models=(model, evolve(MODEL, name="other")))
    assert [where for where, _ in found] == [path]
    assert message in found[0][1]


def test_prices_do_not_matter_where_the_order_is_as_listed() -> None:
    assert told(channels=(evolve(A, price=None), B), models=(evolve(MODEL, order="listed"),)) == []


@pytest.mark.parametrize(
    "key, path",
    [
        (Key("k", HASH, models=("x/*",)), "keys[0].models"),
        (Key("k", HASH, classes=("batch",)), "keys[0].classes[0]"),
        (Key("k", HASH, expires="2025-12-31T23:59:59Z"), "keys[0].expires"),
        (Key("k", HASH, expires="2026-01-01T00:00:00Z"), "keys[0].expires"),
    ],
)
def test_a_key_that_opens_nothing_is_warned_of(key: Key, path: str) -> None:
    assert [where for where, _ in told(keys=(key,))] == [path]


def test_a_key_that_opens_something_is_not() -> None:
    keys = (Key("k", HASH, models=("m*",), classes=("default",), expires="2026-01-01T00:00:01Z"),)
    assert told(keys=keys) == []


@pytest.mark.parametrize(
    "policy, fields",
    [
        (ClassPolicy(gate_timeout=600), ["gate_timeout"]),
        (ClassPolicy(total_timeout=50), ["headers_timeout", "idle_timeout"]),
        (ClassPolicy(min_attempt=600), ["min_attempt"]),
        (ClassPolicy(keepalive_after=5, mode="assured"), ["keepalive_after"]),
        (ClassPolicy(keepalive_after=5), []),
    ],
)
def test_a_deadline_that_another_one_always_beats_is_warned_of_once(policy: ClassPolicy, fields: list[str]) -> None:
    assert [path for path, _ in told(defaults=policy)] == [f"defaults.{name}" for name in fields]
    assert [path for path, _ in told(classes={"x": policy})] == [f"classes.x.{name}" for name in fields]
    assert [path for path, _ in told(defaults=policy, classes={"x": policy})] == [f"defaults.{name}" for name in fields]


def test_a_channel_that_cannot_be_checked_is_told_where_health_checks_are_on() -> None:
    pattern = Model("a/*", (Link("a", "*"), Link("b", "x")))
    assert [path for path, _ in told(models=(pattern,), probes=Probes())] == ["channels[0].probe"]
    named = (evolve(A, probe=Probe(model="small")), B)
    left_out = (evolve(A, probe=Probe(enabled=False)), B)
    assert told(models=(pattern,), probes=Probes(), channels=named) == []
    assert told(models=(pattern,), probes=Probes(), channels=left_out) == []
    assert told(models=(pattern,)) == []


def test_a_channel_that_takes_the_bound_of_a_check_away_is_told() -> None:
    def changed(**params: object) -> list[str]:
        shaped = evolve(A, params=Params(**params))  # type: ignore[arg-type]
        return [message for _, message in told(channels=(shaped, B), probes=Probes())]

    assert changed(allow=("max_tokens",)) == changed(allow=None) == []
    assert changed(allow=("n",), rename={"max_tokens": "n"}) == []
    (message,) = changed(allow=("top_p",))
    assert message.startswith("params.allow takes max_tokens away")
