"""What each provider counts when a call begins."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.frame import Facts
from trioproxy.codec.jsonsplice import members
from trioproxy.journal import Usage
from trioproxy.policy.charges import CHARGES, OTHER, Charge, Estimate, Route, charge_of, effort_of, expected
from trioproxy.policy.learned import ENOUGH, UNKNOWN, Learned
from trioproxy.policy.limits import Need

CAPPED = Estimate(input=1000, output=200, cached=400, cap=4096)
OPEN = Estimate(input=1000, output=200, cached=400)
counts = st.integers(0, 10**7)


@pytest.mark.parametrize(
    "provider, capped, uncapped",
    [
        ("openai", Need(1, 1000, 4096, 4096), Need(1, 1000, 200, 1000)),
        ("azure", Need(1, 1000, 4096, 5096), Need(1, 1000, 200, 1200)),
        ("anthropic", Need(1, 600, 0, 600), Need(1, 600, 0, 600)),
        ("gemini", Need(1, 1000, 0, 1000), Need(1, 1000, 0, 1000)),
        ("groq", Need(1, 600, 4096, 4696), Need(1, 600, 200, 800)),
        ("bedrock", Need(1, 1000, 4096, 5096), Need(1, 1000, 200, 1200)),
        ("deepseek", Need(1, 1000, 0, 0), Need(1, 1000, 0, 0)),
        ("somebody", Need(1, 1000, 200, 1200), Need(1, 1000, 200, 1200)),
    ],
)
def test_a_provider_is_reserved_by_its_own_arithmetic(provider: str, capped: Need, uncapped: Need) -> None:
    assert charge_of(provider).need(CAPPED) == capped
    assert charge_of(provider).need(OPEN) == uncapped


def test_the_callers_own_limits_reserve_the_likely_sum() -> None:
    assert CAPPED.need == Need(1, 1000, 200, 1200)


def test_output_may_cost_more_than_one_each() -> None:
    assert Charge(burndown=5.0).need(CAPPED) == Need(1, 1000, 20_480, 21_480)


@given(counts, counts, counts, st.none() | counts)
def test_no_reservation_is_negative_or_above_input_and_cap(
    inward: int, output: int, cached: int, cap: int | None
) -> None:
    estimate = Estimate(inward, output, cached, cap)
    for charge in (*CHARGES.values(), OTHER):
        need = charge.need(estimate)
        assert min(need) >= 0
        assert need.total_tokens <= inward + max(output, cap or 0)
        assert need.calls == need.requests == 1


def test_an_unknown_route_is_bounded_by_the_cap_and_has_a_margin() -> None:
    estimate = expected(1000, Facts("m", output_cap=300, choices=2), Route("r"), Learned())
    assert estimate == Estimate(input=1100, output=600, cached=0, cap=600)
    assert expected(1000, Facts("m"), Route("r"), Learned()).output == UNKNOWN


def test_what_was_learned_replaces_the_default() -> None:
    learned = Learned()
    for _ in range(ENOUGH * 10):
        learned.answered("r", Usage(input=500, cached=500, output=400))
        learned.counted("c", 1000, Usage(input=1500))
    estimate = expected(1000, Facts("m", output_cap=4096), Route("r", "c"), learned)
    assert estimate.input == pytest.approx(1500, rel=0.1)
    assert estimate.cached == pytest.approx(750, rel=0.15)
    assert 400 <= estimate.output <= math.ceil(400 * 1.1)
    assert estimate.cap == 4096


@pytest.mark.parametrize(
    "text, effort",
    [
        (b'{"reasoning_effort":"high"}', "high"),
        (b'{"reasoning_effort":null}', None),
        (b"{}", None),
        (b'{"reasoning_effort":3}', None),
    ],
)
def test_the_effort_is_read_where_it_is_a_word(text: bytes, effort: str | None) -> None:
    assert effort_of(text, members(text)) == effort


@pytest.mark.parametrize(
    "provider, used",
    [
        ("openai", Need(1, 1000, 200, 1000)),
        ("azure", Need(1, 1000, 200, 1200)),
        ("anthropic", Need(1, 600, 200, 600)),
        ("groq", Need(1, 600, 200, 800)),
        ("deepseek", Need(1, 1000, 200, 0)),
        ("somebody", Need(1, 1000, 200, 1200)),
    ],
)
def test_an_answer_is_charged_by_the_same_arithmetic_with_what_was_produced(provider: str, used: Need) -> None:
    assert charge_of(provider).used(Usage(input=600, cached=400, output=200)) == used


def test_a_token_of_output_may_cost_more_than_one() -> None:
    assert Charge(burndown=5.0).used(Usage(input=10, output=3)) == Need(1, 10, 15, 25)
