"""Quotas that do not fit together, limits that cannot act, and what the written ones come to."""

import math

import pytest

from trioproxy.config.limits import Budget, Limits, QuotaSettings
from trioproxy.config.lint import warnings
from trioproxy.config.load import parse_config
from trioproxy.config.scopes import Scopes, limits
from trioproxy.errors import ConfigError
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank
from trioproxy.policy.tiers import TIERS

BASE = """
[[channels]]
name = "c"
base_url = "http://localhost/v1"
price = { input = 1.0, output = 1.0 }
[[models]]
name = "m"
channels = [{ channel = "c", model = "m" }]
"""
TENANTS = '[[tenants]]\nname = "acme"\n[[teams]]\nname = "nlp"\ntenant = "acme"\n'


def key(rest: str, digit: str = "0") -> str:
    return f'[[keys]]\nid = "k{digit}"\nhash = "sha256:{digit * 64}"\n{rest}\n'


def faults(toml: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(BASE + toml, "x")
    return {fault.path: fault.message for fault in caught.value.faults}


def told(toml: str) -> dict[str, str]:
    return {warning.path: warning.message for warning in warnings(parse_config(BASE + toml, "x"))}


@pytest.mark.parametrize(
    ("toml", "path", "message"),
    [
        (TENANTS + key('tenant = "acne"'), "keys[0].tenant", '"acne" is no tenant; did you mean "acme"?'),
        (TENANTS + key('tenant = "acme"\nteam = "npl"'), "keys[0].team", 'is no team of "acme"; did you mean "nlp"?'),
        (TENANTS + key('team = "nlp"'), "keys[0].team", '"nlp" is no team of "default"; known are none'),
        (TENANTS + '[[teams]]\nname = "x"\ntenant = "y"', "teams[1].tenant", '"y" is no tenant; known are acme'),
        (TENANTS + '[[teams]]\nname = "nlp"\ntenant = "acme"', "teams[1].name", "is already teams[0]"),
        (TENANTS + '[[tenants]]\nname = "acme"', "tenants[1].name", "is already tenants[0]"),
        (key("limits = { requests_per_minute = 0 }"), "keys[0].limits.requests_per_minute", "give at least 1"),
        (key("limits = { request_per_minute = 5 }"), "keys[0].limits.request_per_minute", "requests_per_minute"),
        (key("budget = { day = 0 }"), "keys[0].budget.day", "too little"),
        (key("budget = { year = 10 }"), "keys[0].budget.year", "unknown key"),
        (key('tier = "gold"'), "keys[0].tier", "is no choice here"),
        (key('limits = { observe = ["budget"] }'), "keys[0].limits.observe", '"budget" is no limit'),
        ('[quota]\nzone = "Berlin"', "quota.zone", "is no time zone: give one such as Europe/Berlin"),
        ("[organization]\nlimits = { tokens_per_day = 2047 }", "organization.limits.tokens_per_day", "2048 tokens"),
        (
            '[[tenants]]\nname = "a"\nend_user = { limits = { tokens_per_day = 9 } }',
            "tenants[0].end_user.limits.tokens_per_day",
            "too little for any call without max_tokens",
        ),
        ("[[tenants]]\nbalance = 5.0", "tenants[0].name", "is missing"),
    ],
)
def test_what_does_not_fit_is_a_fault_with_its_place(toml: str, path: str, message: str) -> None:
    found = faults(toml)
    assert list(found) == [path]
    assert message in found[path]


def test_a_small_output_makes_room_for_a_small_day() -> None:
    made = parse_config(BASE + "[quota]\noutput = 9\n[organization]\nlimits = { tokens_per_day = 9 }", "x")
    assert made.organization.limits.tokens_per_day == 9


def test_tenants_need_not_be_listed_as_long_as_none_is() -> None:
    assert parse_config(BASE + key('tenant = "anybody"'), "x").keys[0].tenant == "anybody"


@pytest.mark.parametrize(
    ("toml", "path", "message"),
    [
        (
            '[[tenants]]\nname = "a"\nlimits = { concurrency = 5 }\n'
            + key('tenant = "a"\nlimits = { concurrency = 6 }'),
            "keys[0].limits.concurrency",
            "6 is never reached: the tenant's is 5",
        ),
        (
            '[organization]\nlimits = { requests_per_day = 5 }\n[[tenants]]\nname = "a"\nlimits = { requests_per_day = 6 }',
            "tenants[0].limits.requests_per_day",
            "6 is never reached: the organization's is 5",
        ),
    ],
)
def test_a_limit_that_another_one_always_beats_is_warned_about(toml: str, path: str, message: str) -> None:
    assert told(toml)[path] == message


@pytest.mark.parametrize(
    "toml",
    [
        key("budget = { week = 1.0 }"),
        '[[tenants]]\nname = "a"\nbalance = 1.0',
        '[[tenants]]\nname = "a"\nend_user = { budget = { day = 1.0 } }',
    ],
)
def test_money_that_a_channel_without_a_price_does_not_count_is_warned_about(toml: str) -> None:
    free = '[[channels]]\nname = "d"\nbase_url = "http://localhost/v1"\n'
    message = '"d" has no price: what it does counts in no budget or balance'
    found = [warning.message for warning in warnings(parse_config(BASE + free + toml, "x"))]
    assert message in found
    assert message not in [warning.message for warning in warnings(parse_config(BASE + free, "x"))]


def test_nothing_limited_is_no_scopes_at_all() -> None:
    assert Scopes.of(parse_config(BASE + TENANTS + key('tenant = "acme"\nteam = "nlp"'), "x")) is None


def test_a_key_stands_below_its_team_its_tenant_and_the_organization() -> None:
    one = "limits = { concurrency = 5 }"
    toml = (
        f'[organization]\n{one}\n[[tenants]]\nname = "acme"\n{one}\n[[teams]]\nname = "nlp"\ntenant = "acme"\n{one}\n'
    )
    toml += key(f'tenant = "acme"\nteam = "nlp"\n{one}') + key('tenant = "acme"', "1") + key("", "2")
    scopes = Scopes.of(parse_config(BASE + toml, "x"))
    assert scopes is not None

    def above(key_id: str, tenant: str) -> list[tuple[Rank, str]]:
        return [(step.scope.rank, step.scope.name) for step in scopes.callers(key_id, tenant)]

    organization, tenant = (Rank.ORGANIZATION, ""), (Rank.TENANT, "acme")
    assert above("k0", "acme") == [organization, tenant, (Rank.TEAM, "acme / nlp"), (Rank.KEY, "k0")]
    assert above("k1", "acme") == [organization, tenant]
    assert above("k2", "default") == above("anonymous", "default") == [organization]


def test_a_tier_is_overridden_field_by_field() -> None:
    made = limits(QuotaSettings(zone="Europe/Berlin"), Limits(requests_per_day=7), tier="free")
    free = TIERS["free"]
    assert (made.requests_per_day, made.requests_per_minute) == (7, free.requests_per_minute)
    assert (made.tokens_per_minute, made.concurrency, made.zone) == (10_000, 100, "Europe/Berlin")


def test_money_is_whole_micro_dollars() -> None:
    made = limits(QuotaSettings(), Limits(), Budget(day=0.1, week=1.005, month=0.000_001), balance=25.0)
    assert (made.micro_usd_per_day, made.micro_usd_per_week, made.micro_usd_per_month) == (100_000, 1_005_000, 1)
    assert (made.balance, made.stream) == (25_000_000, math.inf)


def test_observing_is_said_for_one_limit_a_scope_or_all() -> None:
    one = limits(QuotaSettings(), Limits(observe=("tokens_per_day",)), Budget(observe=True))
    assert one.observe == {
        Dimension.TOKENS_PER_DAY,
        Dimension.MICRO_USD_PER_DAY,
        Dimension.MICRO_USD_PER_WEEK,
        Dimension.MICRO_USD_PER_MONTH,
    }
    assert Dimension.BALANCE not in limits(QuotaSettings(), Limits(observe=("*",))).observe
    assert limits(QuotaSettings(observe=True), Limits()).observe == set(Dimension)
