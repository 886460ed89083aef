"""Rollouts, the way back and the control socket in a configuration: what is refused, and what is warned about."""

import pytest

from trioproxy.config.lint import warnings
from trioproxy.config.load import parse_config
from trioproxy.errors import ConfigError
from trioproxy.policy.switchback import SwitchBackPolicy

REST = """
[[channels]]
name = "a"
base_url = "http://localhost/v1"
[[channels]]
name = "b"
base_url = "http://localhost/v1"
[[models]]
name = "m"
channels = [{ channel = "a", model = "x" }]
"""
GOOD = '[[rollouts]]\nmodel = "m"\ncandidate = [{ channel = "b", model = "y" }]\n'


def faults(toml: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(toml + REST, "gateway.toml")
    return [f"{fault.path}: {fault.message}" for fault in caught.value.faults]


def warned(toml: str) -> list[str]:
    return [
        str(each) for each in warnings(parse_config(toml + REST, "gateway.toml")) if "one channel" not in each.message
    ]


def test_what_is_not_said_has_its_default() -> None:
    (rollout,) = parse_config(GOOD + REST, "gateway.toml").rollouts
    assert (rollout.steps, rollout.hold, rollout.key, rollout.started) == ((10, 50, 100), 600.0, "session", False)
    assert (rollout.tolerance.sample, rollout.tolerance.cost) == (100, None)


@pytest.mark.parametrize("steps", ["[]", "[0, 10]", "[50, 10]", "[10, 10]", "[50, 101]"])
def test_steps_grow_from_one_to_a_hundred(steps: str) -> None:
    assert faults(f"{GOOD}steps = {steps}\n") == [
        f"rollouts[0].steps: {steps} are no steps: give growing percentages from 1 to 100"
    ]


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        (GOOD.replace('"m"', '"n"'), ['rollouts[0].model: "n" is no model; known are m']),
        (GOOD + GOOD, ['rollouts[1].model: "m" is already rollouts[0]: give another name']),
        (GOOD.replace('"b"', '"c"'), ['rollouts[0].candidate[0].channel: "c" is no channel; known are a, b']),
        (
            GOOD.replace('"y"', '"*"'),
            ['rollouts[0].candidate[0].model: "*" has nothing to stand for: "m" is no pattern; name the model'],
        ),
        (
            GOOD.replace('[{ channel = "b", model = "y" }]', "[]"),
            ["rollouts[0].candidate: the list is empty: give at least one"],
        ),
        (
            GOOD + "tolerance = { errors = -1 }\n",
            ["rollouts[0].tolerance.errors: -1.0 is too little: give at least 0, or leave it out"],
        ),
        (GOOD + 'name = "a\\nb"\n', ['rollouts[0].name: "a\\nb" is no name: give at most 256 printable characters']),
        (
            '[control]\nsocket = "c.sock"\n',
            ['control.socket: "c.sock" is no place for a socket: give an absolute path of at most 107 bytes'],
        ),
        (
            "[defaults]\nswitch_back = { over = -1, least = 2 }\n",
            [
                "defaults.switch_back.over: -1.0 is too little: give at least 0.0",
                "defaults.switch_back.least: 2.0 is too much: give at most 1.0",
            ],
        ),
        ("[classes.x]\nswitch_back = { over = 1 }\n", ["classes.x.switch_back: unknown key; known are"]),
    ],
)
def test_what_cannot_be_is_refused_by_name(toml: str, told: list[str]) -> None:
    found = faults(toml)
    assert len(found) == len(told)
    assert all(one.startswith(other) for one, other in zip(found, told, strict=True)), found


def test_a_model_s_way_back_is_its_own() -> None:
    toml = "[defaults]\nswitch_back = { over = 300 }\n" + REST + "switch_back = { over = 10, least = 0.5 }\n"
    config = parse_config(toml, "gateway.toml")
    assert config.switch_back == SwitchBackPolicy(300.0)
    assert config.models[0].switch_back == SwitchBackPolicy(10.0, 0.5)


def test_a_rollout_that_can_begin_and_end_is_not_warned_about() -> None:
    assert warned('[control]\nsocket = "/run/c.sock"\n' + GOOD) == []
    assert warned(GOOD + "started = true\n") == []


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        (GOOD, "rollouts[0]: nothing can start it: give [control] socket"),
        (
            GOOD.replace('"b", model = "y"', '"a", model = "x"') + "started = true\n",
            "rollouts[0].candidate: the candidate is the model's own chain: there is nothing to compare",
        ),
    ],
)
def test_a_rollout_that_cannot_act_is_warned_about(toml: str, told: str) -> None:
    assert any(each.startswith(told) for each in warned(toml)), warned(toml)
