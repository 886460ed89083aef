"""What is learned from usage: the promised error, the margins, what is kept and what is forgotten."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.journal import Usage
from trioproxy.policy.learned import (
    DECAY,
    ENOUGH,
    FLOOR,
    GREATEST,
    GROWTH,
    LEAST,
    MOST,
    SURPRISE,
    UNKNOWN,
    Learned,
    Mean,
    Quantile,
)

values = st.lists(st.integers(1, 10**6), min_size=1, max_size=300)


def exact(observed: list[int], quantile: float) -> int:
    """The quantile of the weighted observations, by definition: the value beyond which less than the rest lies."""
    weighted = sorted((value, DECAY ** (len(observed) - at)) for at, value in enumerate(observed))
    beyond = (1 - quantile) * sum(weight for _, weight in weighted)
    for value, weight in reversed(weighted):
        beyond -= weight
        if beyond < -1e-9:
            return value
    return weighted[0][0]


def fed(observed: list[int]) -> Quantile:
    made = Quantile()
    for value in observed:
        made.observe(value)
    return made


@given(values, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_a_quantile_is_never_below_the_exact_one_nor_a_tenth_above_it(observed: list[int], quantile: float) -> None:
    found, true = fed(observed).at(quantile), exact(observed, quantile)
    assert true * (1 - 1e-6) <= found <= true * GROWTH * (1 + 1e-6)


def test_the_bound_holds_after_the_weights_were_rescaled() -> None:
    """Weights grow without end, so they are scaled back every few thousand observations."""
    observed = [1 + at * 7919 % 1000 for at in range(12_000)]
    assert 950 <= fed(observed).at() <= 950 * GROWTH * 1.02
    assert len(fed(observed)._buckets) < 80


def test_what_was_long_ago_is_forgotten() -> None:
    """After 1,400 observations the old ones weigh a thousandth."""
    assert fed([100_000] * 1000 + [100] * 1400).at() <= 100 * GROWTH


def test_nothing_observed_is_nothing() -> None:
    assert Quantile().at() == 0.0


def test_an_unknown_route_gets_the_default_and_reasoning_adds_to_it() -> None:
    learned = Learned()
    assert [learned.output("r", effort) for effort in (None, "low", "medium", "high", "odd")] == [
        UNKNOWN,
        UNKNOWN + 1024,
        UNKNOWN + 4096,
        UNKNOWN + 16_384,
        UNKNOWN,
    ]


@pytest.mark.parametrize("output", [10, 300, 50_000])
def test_a_few_observations_only_raise_the_default(output: int) -> None:
    learned = Learned()
    for _ in range(ENOUGH - 1):
        learned.answered("r", Usage(output=output))
    assert learned.output("r") == max(UNKNOWN, math.ceil(fed([output]).at()))
    learned.answered("r", Usage(output=output))
    assert learned.output("r") == max(FLOOR, math.ceil(fed([output]).at()))


def test_routes_do_not_learn_from_each_other() -> None:
    learned = Learned()
    for _ in range(50):
        learned.answered("long", Usage(output=9000))
    assert learned.output("short") == UNKNOWN


def test_estimated_usage_teaches_nothing() -> None:
    """It is our own guess; learning from it would confirm itself."""
    learned = Learned()
    for _ in range(50):
        learned.answered("r", Usage(input=5, output=9000, estimated=True), 3.0)
        learned.counted("c", 10, Usage(input=20, estimated=True))
    assert learned.snapshot() == Learned().snapshot()


def test_an_unknown_channel_has_a_margin_of_a_tenth() -> None:
    assert Learned().factor("c") == pytest.approx(1.1)


@pytest.mark.parametrize("ratio", [0.6, 1.0, 1.35, 2.9])
def test_a_steady_ratio_is_learned_and_its_margin_shrinks(ratio: float) -> None:
    learned = Learned()
    for _ in range(300):
        learned.counted("c", 1000, Usage(input=round(1000 * ratio)))
    assert learned.factor("c") == pytest.approx(ratio, rel=0.01)


def test_an_unsteady_ratio_keeps_a_margin() -> None:
    learned = Learned()
    for _ in range(300):
        learned.counted("c", 1000, Usage(input=800))
        learned.counted("c", 1000, Usage(input=1200))
    assert 1.15 < learned.factor("c") < 1.25


def test_cached_input_counts_as_input() -> None:
    learned = Learned()
    for _ in range(300):
        learned.counted("c", 1000, Usage(input=100, cached=900))
    assert learned.factor("c") == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("actual", [0, 199, 5001, 10**9])
def test_a_surprise_beyond_five_times_teaches_nothing(actual: int) -> None:
    assert SURPRISE == 5
    learned = Learned()
    learned.counted("c", 1000, Usage(input=actual))
    assert learned.snapshot()["ratios"] == {}


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 50_000)), max_size=60))
def test_the_factor_stays_within_its_clamps(pairs: list[tuple[int, int]]) -> None:
    learned = Learned()
    for estimated, actual in pairs:
        learned.counted("c", estimated, Usage(input=actual))
        assert LEAST <= learned.factor("c") <= GREATEST


def test_the_cached_share_is_what_is_surely_cached() -> None:
    learned = Learned()
    assert learned.cached("r") == 0.0
    learned.answered("r", Usage(input=100, cached=900))
    assert learned.cached("r") == 0.0  # one call is no evidence
    for _ in range(300):
        learned.answered("r", Usage(input=100, cached=900))
    assert learned.cached("r") == pytest.approx(0.9, abs=0.01)


def test_how_long_streams_last_is_told_once_enough_were_seen() -> None:
    learned = Learned()
    for _ in range(ENOUGH - 1):
        learned.answered("r", Usage(output=5), 2.5)
    assert learned.seconds("r") is None
    learned.answered("r", Usage(output=5), 2.5)
    seconds = learned.seconds("r")
    assert seconds is not None
    assert 2.5 <= seconds <= 2.5 * GROWTH
    assert learned.seconds("other") is None


def test_the_longest_unused_route_makes_room() -> None:
    learned = Learned()
    for at in range(MOST):
        learned.answered(f"r{at}", Usage(output=1))
    learned.answered("r0", Usage(output=1))
    learned.answered("new", Usage(output=1))
    kept = learned.snapshot()["outputs"]
    assert len(kept) == MOST
    assert "r0" in kept
    assert "r1" not in kept


def taught() -> Learned:
    learned = Learned()
    for at in range(100):
        learned.answered("r", Usage(input=100, cached=at, output=at * 10), at / 10)
        learned.counted("c", 100, Usage(input=100 + at))
    return learned


def test_a_snapshot_is_json_and_restores_what_was_known() -> None:
    learned, again = taught(), Learned()
    again.restore(json.loads(json.dumps(learned.snapshot())))
    reads: list[Callable[[Learned], float | None]] = [
        lambda one: one.output("r"),
        lambda one: one.seconds("r"),
        lambda one: one.factor("c"),
        lambda one: one.cached("r"),
    ]
    assert [read(again) for read in reads] == [read(learned) for read in reads]
    again.answered("r", Usage(output=50))
    learned.answered("r", Usage(output=50))
    assert again.output("r") == learned.output("r")


@pytest.mark.parametrize(
    "kept",
    [{}, {**Learned().snapshot(), "ratios": {"c": ["x", 1]}}, {**Learned().snapshot(), "outputs": {"r": {"count": 1}}}],
)
def test_an_unreadable_snapshot_changes_nothing(kept: dict[str, Any]) -> None:
    learned = taught()
    before = learned.snapshot()
    with pytest.raises((KeyError, TypeError, ValueError)):
        learned.restore(kept)
    assert learned.snapshot() == before


@given(st.lists(st.floats(0.5, 3.0), max_size=50))
def test_a_mean_stays_among_what_it_has_seen(seen: list[float]) -> None:
    mean = Mean()
    for value in seen:
        mean.observe(value)
    assert min([1.0, *seen]) - 1e-9 <= mean.mean <= max([1.0, *seen]) + 1e-9
    assert mean.deviation <= 2.5
