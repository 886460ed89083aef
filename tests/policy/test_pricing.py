"""What a call costs: whole micro-USD, exact for prices as providers write them, rounded once and half up."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.journal import Usage
from trioproxy.policy.pricing import Tariff

tokens = st.integers(0, 10_000_000) | st.integers(0, 40).map(lambda count: count * 50)
# As price lists write them: USD per million with at most four decimals.
prices = st.integers(0, 1_000_000).map(lambda ten_thousandths: ten_thousandths / 10_000)


@pytest.mark.parametrize(
    ("usage", "tariff", "cost"),
    [
        (Usage(), Tariff(2.5, 1.25, 10.0), 0),
        (Usage(input=1_000_000), Tariff(2.5, 1.25, 10.0), 2_500_000),
        (Usage(cached=1_000_000), Tariff(2.5, 1.25, 10.0), 1_250_000),
        (Usage(output=1_000_000), Tariff(2.5, 1.25, 10.0), 10_000_000),
        (Usage(input=9, output=3), Tariff(1.0, 0.1, 4.0), 21),
        (Usage(input=1000, cached=500, output=200), Tariff(3.0, 0.3, 15.0), 6150),
    ],
)
def test_dollars_per_million_are_micro_dollars_per_token(usage: Usage, tariff: Tariff, cost: int) -> None:
    assert tariff.cost(usage) == cost


@pytest.mark.parametrize(("count", "cost"), [(1, 1), (2, 1), (3, 2), (5, 3)])
def test_half_a_micro_dollar_is_rounded_up(count: int, cost: int) -> None:
    assert Tariff(0.5, 0.5, 0.5).cost(Usage(input=count)) == cost


@pytest.mark.parametrize(("price", "count", "cost"), [(1.005, 100, 101), (19.705, 1300, 25_617), (0.7, 15, 11)])
def test_a_half_that_floats_cannot_write_is_still_a_half(price: float, count: int, cost: int) -> None:
    """1.005 micro-USD times 100 is 100.5, whatever the nearest binary fraction says."""
    assert Tariff(price, price, price).cost(Usage(input=count)) == cost


def test_it_is_rounded_once_and_not_by_part() -> None:
    assert Tariff(0.4, 0.4, 0.4).cost(Usage(input=1, cached=1, output=1)) == 1


def test_cached_tokens_are_cheaper_where_the_price_says_so() -> None:
    tariff = Tariff(2.0, 0.5, 8.0)
    assert tariff.cost(Usage(input=600, cached=400, output=10)) < tariff.cost(Usage(input=1000, output=10))


def test_figures_that_are_our_own_estimate_cost_the_same() -> None:
    tariff = Tariff(2.0, 0.5, 8.0)
    assert tariff.cost(Usage(input=7, output=3, estimated=True)) == tariff.cost(Usage(input=7, output=3))


@given(tokens, tokens, tokens, prices, prices, prices)
def test_the_cost_is_the_exact_sum_rounded_half_up(
    fresh: int, cached: int, output: int, input_price: float, cached_price: float, output_price: float
) -> None:
    cost = Tariff(input_price, cached_price, output_price).cost(Usage(fresh, cached, output))
    listed = (Fraction(str(price)) for price in (input_price, cached_price, output_price))
    exact = sum((count * price for count, price in zip((fresh, cached, output), listed, strict=True)), Fraction())
    assert cost == (exact + Fraction(1, 2)).__floor__()
