"""`[alerts]`: what is refused, what is warned of, where secrets come from, and what is never shown."""

import pytest

from trioproxy.config.lint import warnings
from trioproxy.config.load import parse_config
from trioproxy.config.model import Alerts, Secret, Sink
from trioproxy.config.secrets import resolve_all, resolve_sinks
from trioproxy.config.show import MASK, render
from trioproxy.errors import ConfigError
from trioproxy.journal import AlertCause
from trioproxy.policy.alerting import Rhythm
from trioproxy.policy.spikes import Thresholds

GOOD = """
[[channels]]
name = "a"
base_url = "http://localhost/v1"
[[channels]]
name = "b"
base_url = "http://localhost:2/v1"
[[models]]
name = "m"
order = "listed"
channels = [{ channel = "a", model = "m" }, { channel = "b", model = "m" }]
"""
HOOK = "https://hooks.example/services/T0KEN"


def faults(text: str) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        parse_config(GOOD + text, "x")
    assert "T0KEN" not in str(caught.value)
    assert all(fault.line for fault in caught.value.faults)
    return [(fault.path, fault.message) for fault in caught.value.faults]


def warned(text: str) -> list[tuple[str, str]]:
    told = [(fault.path, fault.message) for fault in warnings(parse_config(GOOD + text, "x"))]
    assert "T0KEN" not in str(told)
    return told


def test_without_a_word_everything_is_watched_and_the_log_is_told() -> None:
    assert parse_config(GOOD, "x").alerts == Alerts(("*",), "", Rhythm(900, 14400, 60), Thresholds(), ())


def test_what_is_written_arrives() -> None:
    text = f"""
        [alerts]
        causes = ["breaker_open", "store_trouble"]
        source = "gw"
        rhythm = {{ every = 60, calm = 0 }}
        [alerts.thresholds]
        rate_limited = 0.5
        [[alerts.sinks]]
        url = "{HOOK}"
        secret = {{ env = "S" }}
        [[alerts.sinks]]
        command = ["/bin/page", "-v"]
        causes = ["store_trouble"]
    """
    hook = Sink(url=HOOK, secret=Secret(env="S"))
    page = Sink(command=("/bin/page", "-v"), causes=("store_trouble",))
    assert parse_config(GOOD + text, "x").alerts == Alerts(
        ("breaker_open", "store_trouble"),
        "gw",
        Rhythm(every=60, calm=0),
        Thresholds(rate_limited=0.5),
        (hook, page),
    )


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (
            '[alerts]\ncauses = ["breaker_opn"]',
            "alerts.causes",
            'element 0: "breaker_opn" is no cause of an alert; did',
        ),
        ('[alerts]\ncauses = ["test"]', "alerts.causes", 'element 0: "test" is no cause of an alert; known are'),
        ('[alerts]\ncause = ["*"]', "alerts.cause", 'unknown key; did you mean "causes"?'),
        ("[alerts]\nrhythm = { every = 0 }", "alerts.rhythm.every", "0 is too little: give more than 0"),
        ("[alerts.thresholds]\nleast = 0", "alerts.thresholds.least", "0 is too little: give at least 1"),
        ("[alerts.thresholds]\nrefused = 20", "alerts.thresholds.refused", "20.0 is too much: give at most 1"),
        ("[[alerts.sinks]]", "alerts.sinks[0]", "neither url nor command is given"),
        (
            f'[[alerts.sinks]]\nurl = "{HOOK}"\ncommand = ["x"]',
            "alerts.sinks[0]",
            "both url and command are given: say once who is told",
        ),
        (
            '[[alerts.sinks]]\ncommand = ["x"]\nsecret = { env = "S" }',
            "alerts.sinks[0].secret",
            "is for a url: a command signs nothing",
        ),
        ('[[alerts.sinks]]\nurl = "hooks.example/T0KEN"', "alerts.sinks[0].url", "this is no URL to post to"),
        ('[[alerts.sinks]]\nurl = "ftp://x/T0KEN"', "alerts.sinks[0].url", "this is no URL to post to"),
        ('[[alerts.sinks]]\nurl = "https://x/T0 KEN"', "alerts.sinks[0].url", "this is no URL to post to"),
        ('[[alerts.sinks]]\nurl = "https://x:99999/T0KEN"', "alerts.sinks[0].url", "this is no URL (Port out of range"),
        ('[[alerts.sinks]]\nurl = "https://me:T0KEN@x/"', "alerts.sinks[0].url", "user:password@ and # are not sent"),
        (f'[[alerts.sinks]]\nurl = "{HOOK}#x"', "alerts.sinks[0].url", "user:password@ and # are not sent"),
        (f'[[alerts.sinks]]\nurl = "{HOOK}"\ntries = 0', "alerts.sinks[0].tries", "0 is out of range: give 1 to 20"),
        (f'[[alerts.sinks]]\nurl = "{HOOK}"\nleast = "loud"', "alerts.sinks[0].least", '"loud" is no choice here'),
    ],
)
def test_what_cannot_be_is_refused(text: str, path: str, message: str) -> None:
    told = faults(text)
    assert path in [where for where, _ in told]
    assert any(message in what for where, what in told if where == path), told


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (
            '[[alerts.sinks]]\nurl = "http://hooks.example/T0KEN"',
            "alerts.sinks[0].url",
            "http:// carries alerts in the clear to hooks.example: use https://",
        ),
        (
            '[[alerts.sinks]]\nurl = "http://localhost/"\nca_file = "x"',
            "alerts.sinks[0].ca_file",
            "it is never used, because url is http://",
        ),
        (
            f'[[alerts.sinks]]\nurl = "{HOOK}"\nsecret = {{ value = "T0KEN" }}',
            "alerts.sinks[0].secret",
            "the secret itself stands in the file: move it into a variable or a file",
        ),
        (
            f'[alerts]\ncauses = ["breaker_open"]\n[[alerts.sinks]]\nurl = "{HOOK}"\ncauses = ["store_trouble"]',
            "alerts.sinks[0].causes",
            "nothing is ever told here: [alerts] causes has none of them",
        ),
        (
            f'[alerts]\ncauses = []\n[[alerts.sinks]]\nurl = "{HOOK}"',
            "alerts.sinks[0].causes",
            "nothing is ever told here: [alerts] causes has none of them",
        ),
        (
            "[alerts]\nthresholds = { refused = 1 }",
            "alerts.thresholds.refused",
            "a share of 1 is never passed: give less, or 0 to ask nothing",
        ),
        (
            "[alerts]\nthresholds = { drift = 1 }",
            "alerts.thresholds.drift",
            "no estimate is that good: give more than 1, or 0 to ask nothing",
        ),
        (
            "[alerts]\nrhythm = { remind = 60 }",
            "alerts.rhythm.remind",
            "nothing is told oftener than every = 900 s",
        ),
    ],
)
def test_what_cannot_act_is_warned_of(text: str, path: str, message: str) -> None:
    assert warned(text) == [(path, message)]


@pytest.mark.parametrize(
    "text",
    [
        f'[[alerts.sinks]]\nurl = "{HOOK}"',
        '[[alerts.sinks]]\nurl = "http://127.0.0.1:9/x"',
        '[[alerts.sinks]]\ncommand = ["page"]\ncauses = ["breaker_open"]',
        "[alerts]\ncauses = []",
        "[alerts]\nthresholds = { drift = 0, refused = 0 }",
    ],
)
def test_what_is_well_is_not_warned_of(text: str) -> None:
    assert warned(text) == []


def test_secrets_of_sinks_come_with_those_of_channels_and_alone() -> None:
    text = f'[[alerts.sinks]]\ncommand = ["x"]\n[[alerts.sinks]]\nurl = "{HOOK}"\nsecret = {{ env = "HOOK_SECRET" }}'
    config = parse_config(GOOD.replace('name = "a"', 'name = "a"\napi_key = { env = "KEY" }', 1) + text, "x")
    environ = {"KEY": "sk-1", "HOOK_SECRET": "whsec_c2VjcmV0"}
    assert resolve_all(config, environ) == {"a": "sk-1", "alerts.sinks[1]": "whsec_c2VjcmV0"}
    assert resolve_sinks(config, {"HOOK_SECRET": "any"}) == {"alerts.sinks[1]": "any"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "env HOOK_SECRET is not set or empty: export it before the start"),
        ("whsec_T0KEN!", "env HOOK_SECRET: what follows whsec_ is not base64"),
    ],
)
def test_a_secret_that_cannot_sign_is_a_fault(value: str, message: str) -> None:
    config = parse_config(GOOD + f'[[alerts.sinks]]\nurl = "{HOOK}"\nsecret = {{ env = "HOOK_SECRET" }}', "x")
    for resolve in (resolve_all, resolve_sinks):
        with pytest.raises(ConfigError) as caught:
            resolve(config, {"HOOK_SECRET": value})
        assert [(fault.path, fault.message) for fault in caught.value.faults] == [("alerts.sinks[0].secret", message)]


def test_what_is_printed_reads_back_and_hides_what_follows_a_host() -> None:
    text = f"""
        [alerts]
        source = "gw"
        rhythm = {{ every = 1.5 }}
        [[alerts.sinks]]
        url = "{HOOK}"
        secret = {{ value = "T0KEN" }}
        [[alerts.sinks]]
        url = "http://localhost:9/"
        [[alerts.sinks]]
        command = ["/bin/page"]
    """
    config = parse_config(GOOD + text, "x")
    printed = render(config)
    assert "T0KEN" not in printed
    hook, local, page = parse_config(printed, "x").alerts.sinks
    assert hook == Sink(url=f"https://hooks.example/{MASK}", secret=Secret(value=MASK))
    assert (local, page) == config.alerts.sinks[1:]
    assert parse_config(printed, "x").alerts.rhythm == config.alerts.rhythm
    assert "T0KEN" not in repr(config)


def test_every_cause_may_be_named() -> None:
    names = [cause.value for cause in AlertCause if cause is not AlertCause.TEST]
    text = "[alerts]\ncauses = [" + ", ".join(f'"{name}"' for name in names) + "]"
    assert parse_config(GOOD + text, "x").alerts.causes == tuple(names)
