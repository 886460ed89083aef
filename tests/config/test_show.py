"""The effective configuration: what it prints reads back as the same, and tells no credential."""

import tomllib

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.config.limits import Budget, Limits, Quotas, QuotaSettings, Team, Tenant
from trioproxy.config.load import parse_config
from trioproxy.config.model import (
    Channel,
    ClassPolicy,
    Config,
    Key,
    Link,
    Listen,
    Logging,
    Model,
    Params,
    Price,
    Scope,
    Secret,
)
from trioproxy.config.probes import Probe, Probes
from trioproxy.config.show import MASK, render, toml_string
from trioproxy.policy.breaker import BreakerPolicy

HASH = "sha256:" + "ab" * 32
FULL = Config(
    channels=(
        Channel(
            "a",
            "https://a.example/v1",
            api_key=Secret(env="A_KEY"),
            headers={"X-Title": 'it\'s "quoted" \\ back'},
            price=Price(0.27, 1.1, cached_input=0.07),
            scope=Scope(region="eu", tier="ärmel\x7f\n"),
            params=Params(rename={"max_tokens": "max_completion_tokens", "a.b c": "d"}, allow=("top_p",)),
            breaker=BreakerPolicy(failures=2, window=1e16, open_for=1e-05, growth=2.0, jitter=0.5, silence=0.0),
            probe=Probe(model="m-mini", limit="max_completion_tokens", tokens=16),
        ),
        Channel("b", "http://[::1]:8/v1", auth="none", breaker="half-open"),
    ),
    models=(
        Model(
            "openai/*", (Link("a", "*"), Link("b", "x")), order="listed", chain_max=2, rewrite_model=True, max_output=99
        ),
        Model('q"uo te', (Link("a", "m"),)),
    ),
    listen=Listen(data="[::]:0", open=True, max_body=1),
    defaults=ClassPolicy(gate_timeout=7.5),
    breaker=BreakerPolicy(probes=2, failed_probe="count"),
    keys=(
        Key("k", HASH, models=("m", "openai/*"), expires="2027-01-31T00:00:00Z"),
        Key(
            "l", "sha256:" + "0" * 64, "b", team="t", tier="free", limits=Limits(concurrency=1), budget=Budget(week=2.0)
        ),
    ),
    classes={"batch": ClassPolicy(gate_timeout=7.5, mode="assured"), "a.b": ClassPolicy()},
    log=Logging("json", "debug"),
    quota=QuotaSettings("Europe/Berlin", observe=True, output=1000),
    organization=Quotas(Limits(concurrency=9, burst=10.0), Budget(month=1000.0)),
    tenants=(
        Tenant("default", "pro", Limits(tokens_per_day=5000, observe=("*",)), Budget(day=1.5, observe=True), 25.0),
        Tenant("b", end_user=Quotas(Limits(requests_per_day=10, stream=60.0))),
    ),
    teams=(Team("t", "b", Limits(requests_per_minute=7)),),
    probes=Probes(every=30.0, closes=False, failures=0),
)


def test_it_reads_back_as_the_same_configuration() -> None:
    assert parse_config(render(FULL), "x") == FULL


def test_literal_keys_and_credential_headers_are_masked_and_nothing_else() -> None:
    literal = evolve(
        FULL.channels[1], api_key=Secret(value="sk-spilled"), headers={"Authorization": "spilled", "X-T": "t"}
    )
    text = render(evolve(FULL, channels=(FULL.channels[0], literal)))
    assert "spilled" not in text
    back = parse_config(text, "x").channels[1]
    assert back == evolve(literal, api_key=Secret(value=MASK), headers={"Authorization": MASK, "X-T": "t"})


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_as_a_toml_string(text: str) -> None:
    assert tomllib.loads(f"x = {toml_string(text)}") == {"x": text}


@given(
    st.builds(ClassPolicy, *[st.floats(0, 1e300, exclude_min=True)] * 2),
    st.builds(Price, *[st.floats(0, 1e300)] * 2, st.none() | st.floats(0, 1e300)),
)
def test_any_figures_survive(policy: ClassPolicy, price: Price) -> None:
    config = evolve(FULL, defaults=policy, channels=(evolve(FULL.channels[0], price=price), FULL.channels[1]))
    assert parse_config(render(config), "x") == config
