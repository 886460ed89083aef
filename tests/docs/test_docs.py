"""The documentation is true: what it lists is what there is, and its examples are accepted and run."""

import ast
import inspect
import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

import trioproxy
from tests.docs.pages import (
    DOCS,
    FENCE,
    PAGES,
    README,
    ROOT,
    Example,
    examples,
    own,
    prose,
    section,
    table,
    tables,
    words,
)
from trioproxy.cli import COMMANDS
from trioproxy.codec import fault_table
from trioproxy.codec.problem import error_table
from trioproxy.codec.retry_hint import CAP
from trioproxy.config import deferred, growth, limits, model, probes
from trioproxy.config.lint import warnings
from trioproxy.config.load import Defaults
from trioproxy.config.structure import structure
from trioproxy.doors import connection, rejection
from trioproxy.errors import Blame, Fault, FaultKind, Limited
from trioproxy.http.message import MessageError
from trioproxy.http.pool import Pool
from trioproxy.journal import (
    AlertCause,
    AlertTold,
    AttemptRecord,
    EndReason,
    ExchangeEnded,
    Usage,
)
from trioproxy.lifecycle import __doc__ as line_doc
from trioproxy.ops import lines, log
from trioproxy.ops.alerts import Wrapper
from trioproxy.phases import holding
from trioproxy.policy import gate
from trioproxy.policy.alerting import SEVERITY, Rhythm
from trioproxy.policy.breaker import PRESETS, BreakerPolicy
from trioproxy.policy.chain import INPUT_SHARE, OUTPUT_SHARE
from trioproxy.policy.classes import CLASSES, QueuePolicy
from trioproxy.policy.comparison import Tolerance
from trioproxy.policy.pricing import Tariff
from trioproxy.policy.spikes import Thresholds
from trioproxy.policy.switchback import SwitchBackPolicy
from trioproxy.policy.tiers import TIERS

CONFIGURATION = DOCS / "configuration.md"
OPERATING = DOCS / "operating.md"
ERRORS = DOCS / "errors.md"

# Which heading of configuration.md describes which classes.
SECTIONS: dict[str, tuple[type, ...]] = {
    "`[listen]`": (model.Listen,),
    "`[defaults]`": (model.ClassPolicy, Defaults),
    "`[[channels]]`": (model.Channel,),
    "`api_key`": (model.Secret,),
    "`price`": (model.Price,),
    "`scope`": (model.Scope,),
    "`params`": (model.Params,),
    "`ramp`": (growth.Growth,),
    "`breaker`": (BreakerPolicy,),
    "`queue`": (QueuePolicy,),
    "`probe`": (probes.Probe,),
    "`[probes]`": (probes.Probes,),
    "`[[models]]`": (model.Model,),
    "`fallback`": (model.Fallback,),
    "`degraded`": (deferred.Degraded,),
    "`[deferred]`": (deferred.Deferring,),
    "`[[deferred.webhooks]]`": (deferred.ResultHook,),
    "`channels` of a model": (model.Link,),
    "`[[keys]]`": (model.Key,),
    "`switch_back`": (SwitchBackPolicy,),
    "`[[rollouts]]`": (model.Rollout,),
    "`require`": (model.Requirement,),
    "`tolerance`": (Tolerance,),
    "`[control]`": (model.Control,),
    "`[log]`": (model.Logging,),
    "`[quota]`": (limits.QuotaSettings,),
    "`limits`": (limits.Limits,),
    "`budget`": (limits.Budget,),
    "`[organization]`": (limits.Quotas,),
    "`[[tenants]]`": (limits.Tenant,),
    "`[[teams]]`": (limits.Team,),
    "`[state]`": (model.State,),
    "`[alerts]`": (model.Alerts,),
    "`rhythm`": (Rhythm,),
    "`thresholds`": (Thresholds,),
    "`[[alerts.sinks]]`": (model.Sink,),
}


# The whole


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        assert there.is_file(), target
        headings = [
            re.sub(r"[^\w -]", "", line).replace(" ", "-").lower()
            for line in re.findall(r"(?m)^#+ (.+)$", prose(there))
        ]
        assert not anchor or anchor in headings, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_promised_that_depends_on_others(page: Path) -> None:
    """No availability in nines, no speed of a failover."""
    assert (
        re.findall(r"(?i)99\.\d|\bSLA\b|uptime|failover (?:in|within|under) \d|guarantee", page.read_text("utf-8"))
        == []
    )


def test_the_readme_begins_with_the_two_commands() -> None:
    first, second = FENCE.findall(README.read_text("utf-8"))[0][1].splitlines()
    assert first == "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/trioproxy demo"
    assert second == (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1]
    before = README.read_text("utf-8").partition("```")[0]
    assert before.split() == ["#", "trioproxy"]


def test_the_docs_are_all_listed_in_the_readme() -> None:
    listed = re.findall(r"\(trioproxy/docs/([\w-]+\.md)\)", section(README, "Reference"))
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md"))


def test_every_command_is_documented() -> None:
    named = [words(row[0])[0].split()[1] for row in table(section(README, "Commands"))]
    assert named == list(COMMANDS)


# The line


def test_the_line_is_drawn_as_the_code_has_it() -> None:
    drawn = next(line.strip() for line in (line_doc or "").splitlines() if "→" in line)
    for page in (README, DOCS / "life-of-a-request.md"):
        assert f"\n    {drawn}\n" in page.read_text("utf-8")
    rooms = [re.sub(r"\W", "", room) for room in drawn.split("→")]
    assert [row[0] for row in tables(section(README, "Life of a request"))[0]] == ["door", *rooms]


def test_every_end_reason_is_told_and_no_other() -> None:
    reasons = [reason.value for reason in EndReason]
    assert sorted(words(row[0])[0] for row in tables(section(README, "Life of a request"))[1]) == sorted(reasons)
    assert sorted(words(section(DOCS / "life-of-a-request.md", "How it can end"))[: len(reasons)]) == sorted(reasons)


# Configuration


def default_of(field: "attrs.Attribute[Any]") -> str:
    """A field's default as the page writes it."""
    default = field.default
    if default is attrs.NOTHING:
        return "required"
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # a class at run time
        made = default.factory()  # type: ignore[union-attr]
        default = {} if attrs.has(type(made)) else made
    match default:
        case None:
            return "none"
        case bool() | str():
            return f"`{json.dumps(default)}`"
        case float() | int():
            return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
        case tuple():
            return f"`{json.dumps(list(default))}`"
        case _:
            return f"`{json.dumps(default)}`"


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_is_documented_with_its_default(heading: str) -> None:
    documented = {words(row[0])[0]: row[1] for row in table(own(CONFIGURATION, heading))}
    assert documented == {field.name: default_of(field) for cls in SECTIONS[heading] for field in attrs.fields(cls)}


def test_every_class_of_the_configuration_has_a_section() -> None:
    """A new one must be documented; the file itself is what the page is, and a tariff what prices become."""
    there = {cls for cls in vars(model).values() if isinstance(cls, type) and attrs.has(cls)} | {deferred.ResultHook}
    assert there - {model.Config, Tariff} == {cls for classes in SECTIONS.values() for cls in classes} - {Defaults}


def test_choices_and_durations_say_what_they_take() -> None:
    for heading, classes in SECTIONS.items():
        rows = {words(row[0])[0]: row for row in table(own(CONFIGURATION, heading))}
        for field in (field for cls in classes for field in attrs.fields(cls)):
            row = rows[field.name]
            choices = [choice for choice in getattr(field.type, "__args__", ()) if isinstance(choice, str)]
            assert [choice for choice in choices if f'"{choice}"' not in " ".join(row[1:])] == [], (heading, field.name)
            assert field.type is not float or row[2], f"{heading} {field.name} has no unit"


def test_the_classes_wait_as_they_are_said_to() -> None:
    (shown,) = [rows for rows in tables(own(CONFIGURATION, "`queue`")) if len(rows) == len(CLASSES)]
    assert [words(row[0])[0] for row in shown] == list(CLASSES)
    for row, (name, policy) in zip(shown, CLASSES.items(), strict=True):
        fields = (
            "priority",
            "bound",
            "max_wait",
            "share",
            "otherwise",
            "tokens_per_minute",
            "burst",
            "output_headroom",
        )
        told = [json.loads(words(cell)[0]) if words(cell) else None for cell in row[1:]]
        assert told == [getattr(policy, field) for field in fields], name


def test_the_presets_are_what_they_are_said_to_be() -> None:
    """Those that all of them leave at its default are not shown."""
    defaults = PRESETS["four-layer"]
    assert defaults == BreakerPolicy()
    fields = ["failures", "window", "open_for", "probes", "successes", "slow"]
    _, shown = tables(own(CONFIGURATION, "`breaker`"))
    assert [words(row[0])[0] for row in shown] == [f'"{name}"' for name in PRESETS]
    for row, policy in zip(shown, PRESETS.values(), strict=True):
        asked = {name: json.loads(words(cell)[0]) for name, cell in zip(fields, row[1:], strict=True)}
        assert structure(asked, BreakerPolicy) == (policy, [])
        assert attrs.evolve(defaults, **asked) == policy


@pytest.mark.parametrize("example", examples("toml"), ids=str)
def test_every_configuration_shown_is_accepted(example: Example) -> None:
    """One that is marked as a fragment needs a channel and a model to stand."""
    rest = "" if example.kind == "toml" else '[[channels]]\nname = "c"\nbase_url = "http://localhost/v1"\n'
    rest += "" if example.kind == "toml" else '[[models]]\nname = "m"\nchannels = [{ channel = "c", model = "m" }]\n'
    config = trioproxy.parse_config(example.text + rest, str(example))
    assert [str(each) for each in warnings(config) if "one channel" not in each.message] == []


# Figures that stand in the prose


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("life-of-a-request.md", f"{gate.MAX_BYTES // 1024} KiB of them"),
        ("life-of-a-request.md", f"Up to {holding.MAX_ASSURED // model.MiB} MiB are held"),
        ("life-of-a-request.md", f"a second for every {connection.MIN_RATE // 1024} KiB"),
        ("configuration.md", f"a second for every {connection.MIN_RATE // 1024} KiB"),
        ("configuration.md", f"`{INPUT_SHARE:g} * input + {OUTPUT_SHARE:g} * output`"),
        ("configuration.md", f"At most {attrs.fields(Pool).limit.default} a channel"),
        ("operating.md", f"at most {attrs.fields(Pool).limit.default} a channel"),
        ("operating.md", f"past {log.MAX_WAITING:,} waiting lines"),
        ("operating.md", f"At most {'ten' if CAP == 600 else CAP} minutes are obeyed"),
        ("operating.md", f"our key ({fault_table.AUTH.park or 0:g} seconds)"),
        ("operating.md", f"our account's right ({fault_table.FORBIDDEN.park or 0:g})"),
        ("operating.md", f"its balance ({fault_table.BILLING.park or 0:g};"),
    ],
)
def test_a_figure_in_the_prose_is_the_code_s(page: str, said: str) -> None:
    assert said in " ".join((DOCS / page).read_text("utf-8").split())


# Errors


def test_the_error_table_is_the_translators_own() -> None:
    told = [
        [str(status), f"`{type_}`", f"`{code}`", "as told" if helps else "no", meaning]
        for status, type_, code, helps, meaning in error_table()
    ]
    wanted = "\n".join(f"| {' | '.join(row)} |" for row in told)
    assert table(section(ERRORS, "Which are worth a second try")) == told, f"errors.md needs\n{wanted}"


def test_what_the_door_says_itself_is_documented() -> None:
    limits = model.Listen()
    said = (
        rejection.broken(MessageError("malformed message")),
        rejection.bad_target(),
        rejection.repeated(b"authorization"),
        rejection.too_slow("head", 1),
        rejection.too_large(limits),
        rejection.internal(),
        rejection.going_down(),
        rejection.full(limits),
    )
    makers = [node for node in ast.parse(inspect.getsource(rejection)).body if "-> Rejected:" in ast.unparse(node)]
    assert len(makers) == len(said), "a rejection is missing here"
    documented = {(row[0], words(row[1])[0]) for row in table(section(ERRORS, "What the door says itself"))}
    assert documented == {(str(each.status), each.code) for each in said}


def test_every_member_of_a_429_is_documented_and_no_other() -> None:
    members = {name for row in table(section(ERRORS, "Limits")) for name in words(row[0])}
    assert members == {field.name for field in attrs.fields(Limited)} - {"scope"}


def test_the_tiers_are_what_they_are_said_to_be() -> None:
    told = {
        json.loads(words(row[0])[0]): [None if cell == "no limit" else int(cell) for cell in row[1:]]
        for row in table(section(CONFIGURATION, "Tiers"))
    }
    assert told == {
        name: [tier.requests_per_minute, tier.tokens_per_minute, tier.requests_per_day, tier.concurrency]
        for name, tier in TIERS.items()
    }


# Operating


def full_exchange() -> ExchangeEnded:
    fault = Fault(FaultKind.CUT, Blame.PROVIDER, "cut")
    attempts = (AttemptRecord("a", "m", 0, 1, fault), AttemptRecord("b", "m", 1, 1, first_content=0.5))
    return ExchangeEnded(
        "req_1",
        EndReason.ANSWERED,
        200,
        "/v1/chat/completions",
        attempts=attempts,
        skipped=(("c", "parked"),),
        usage=Usage(1, 2, 3, estimated=True),
        note="a note",
        traceparent="00-…",
        estimated_input=1,
        estimated_output=2,
        limiter="key.tokens_per_day",
        scope="k",
        wait=1.0,
        queued=0.5,
        session="s",
        arm="baseline",
        fallback="m2",
        preferred_cost=1,
        refused=True,
    )


def test_every_field_of_a_log_line_is_documented_and_no_other() -> None:
    line = lines._exchange(full_exchange())
    attempts: Any = line["attempts"]
    events, fields, inner = tables(section(OPERATING, "The log"))
    assert sorted(name for row in fields for name in words(row[0])) == sorted(line)
    assert sorted(name for row in inner for name in words(row[0])) == sorted(set().union(*attempts))
    assert {"exchange", "breaker", "parked", "cooling", "bug", "listening"} <= {
        name for row in events for name in words(row[0])
    }


def sample(cls: type) -> Any:
    """An object of a frozen class, with something in every field that has no default."""
    given = {str: "x", int: 1, float: 1.0, bool: False, int | None: 1, AlertCause: AlertCause.TEST, Usage: Usage()}
    fields = [field for field in attrs.fields(cls) if field.default is attrs.NOTHING]
    return cls(*(given[field.type] if field.type in given else sample(field.type) for field in fields))


@pytest.mark.parametrize("event", [each for each in lines.TOLD if each is not ExchangeEnded])
def test_every_event_s_line_is_documented_with_its_fields(event: type) -> None:
    """What stands in the two readings of a switch is named once, behind `before_` and `after_`."""
    told = lines.line_of(sample(event))
    assert told is not None
    rows = {name: words(row[2]) for row in tables(section(OPERATING, "The log"))[0] for name in words(row[0])}
    names = {re.sub(r"^(before|after)_", "", name) for name in told[2]}
    assert names == set(rows[told[1]]) - {"before_", "after_"}


def test_every_cause_of_an_alert_is_documented_with_its_severity() -> None:
    told = [(words(row[0])[0], row[1]) for row in table(section(OPERATING, "Alerts"))]
    assert sorted(told) == sorted((cause.value, SEVERITY[cause]) for cause in AlertCause)


def test_the_alert_that_is_shown_is_one() -> None:
    (example,) = [each for each in examples("json") if each.page == "operating.md"]
    told = AlertTold(
        AlertCause.CHANNEL_PARKED,
        "azure-eu",
        "critical",
        "raised",
        "channel azure-eu is parked for 300 s: auth",
        1,
        0,
        1,
    )
    made = Wrapper("gateway-eu-1", lambda: 1_796_032_801.0)(told)
    assert json.loads(made) == json.loads(example.text)
