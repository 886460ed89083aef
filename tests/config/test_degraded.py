"""What a configuration may say about degraded delivery, and what `check` finds wrong with it."""

import pytest

from trioproxy.config.lint import warnings
from trioproxy.config.load import parse_config
from trioproxy.config.model import Config
from trioproxy.config.secrets import resolve_sinks
from trioproxy.config.show import render
from trioproxy.errors import ConfigError

CHANNEL = '[[channels]]\nname = "c"\nbase_url = "http://localhost/v1"\n'
STATE = '[state]\npath = "x.db"\n'
HOOK = '[[deferred.webhooks]]\nname = "h"\nurl = "https://h.test/in/T0KEN"\nsecret = { value = "sesame-sesame" }\n'


def read(model: str, rest: str = "") -> Config:
    return parse_config(
        f'{CHANNEL}[[models]]\nname = "m"\nchannels = [{{ channel = "c", model = "m" }}]\n{model}\n{rest}', "f"
    )


@pytest.mark.parametrize(
    ("model", "rest", "path", "said"),
    [
        ('on_exhausted = "answer"', "", "models[0].degraded", "needs its words"),
        ('on_exhausted = "defer"', "", "models[0].on_exhausted", "give [state] path"),
        ('on_exhausted = "later"', "", "models[0].on_exhausted", '"defer"'),
        ('degraded = { text = " " }', "", "models[0].degraded.text", "says nothing"),
        ('webhook = "hh"', HOOK, "models[0].webhook", 'did you mean "h"?'),
        ("", HOOK + HOOK, "deferred.webhooks[1].name", "already"),
        (
            "",
            '[[keys]]\nid = "k"\nhash = "sha256:' + "0" * 64 + '"\nwebhook = "h"',
            "keys[0].webhook",
            "known are none",
        ),
        ("defer_ttl = 0", "", "models[0].defer_ttl", "more than 0"),
        ("", "[deferred]\nmax_calls = 0", "deferred.max_calls", "too little"),
    ],
)
def test_what_cannot_be_is_a_fault(model: str, rest: str, path: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(model, rest)
    (fault,) = caught.value.faults
    assert fault.path == path
    assert said in fault.message


@pytest.mark.parametrize(
    ("model", "rest", "said"),
    [
        ('degraded = { text = "sorry" }', "", "it is never said"),
        ('webhook = "h"', HOOK, "it is never told"),
        ('on_exhausted = "defer"', '[state]\npath = ":memory:"', "ends with the process"),
        ('on_exhausted = "defer"', STATE + "[defaults]\nkeepalive_after = 5", "cannot be put off"),
    ],
)
def test_what_cannot_act_is_warned_about(model: str, rest: str, said: str) -> None:
    assert any(said in fault.message for fault in warnings(read(model, rest)))


def test_the_effective_configuration_can_be_read_again_and_hides_what_is_secret() -> None:
    config = read('on_exhausted = "defer"\nwebhook = "h"', STATE + HOOK)
    text = render(config)
    assert "T0KEN" not in text
    assert "sesame" not in text
    assert parse_config(text, "f").models == config.models
    assert resolve_sinks(config, {}) == {"deferred.webhooks[h]": "sesame-sesame"}
