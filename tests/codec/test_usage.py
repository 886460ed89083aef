"""Tokens by class, from every way of reporting them; what cannot be is clamped."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.usage import MOST_TOKENS, usage_of
from trioproxy.journal import Usage


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}, (9, 0, 3)),
        (
            {"prompt_tokens": 2000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1500}},
            (500, 1500, 5),
        ),
        ({"input_tokens": 20, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 15}}, (5, 15, 5)),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}, (6, 4, 0)),
        ({"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6, "completion_tokens": 1}, (6, 4, 1)),
        ({"prompt_cache_miss_tokens": 6, "completion_tokens": 1}, (6, 0, 1)),
        ({"prompt_tokens": 10, "completion_tokens": 1, "cached_tokens": 3}, (7, 3, 1)),
        ({"prompt_tokens": 10, "prompt_tokens_details": None, "completion_tokens": 1}, (10, 0, 1)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"audio_tokens": 1}, "completion_tokens": 1}, (10, 0, 1)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}}, (0, 10, 0)),
        ({"prompt_tokens": -5, "completion_tokens": -1, "total_tokens": 7}, (0, 0, 0)),
        ({"prompt_tokens": 10, "total_tokens": 14}, (10, 0, 4)),
        ({"completion_tokens": 4, "total_tokens": 14}, (10, 0, 4)),
        ({"prompt_tokens": 9.0, "completion_tokens": 3.7}, (9, 0, 3)),
        ({"prompt_tokens": float("inf"), "completion_tokens": 10**30}, (MOST_TOKENS, 0, MOST_TOKENS)),
        ({"prompt_tokens": "9", "completion_tokens": 3}, (0, 0, 3)),
        ({"prompt_tokens": True, "completion_tokens": 3}, (0, 0, 3)),
        ({"prompt_tokens": float("nan"), "completion_tokens": 3}, (0, 0, 3)),
    ],
)
def test_each_report_gives_its_classes(report: dict[str, Any], usage: tuple[int, int, int]) -> None:
    uncached, cached, output = usage
    expected = Usage(input=uncached, cached=cached, output=output)
    assert usage_of({"usage": report}) == expected
    assert usage_of({"x_groq": {"usage": report}}) == expected


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"usage": None}, {"usage": {}}, {"usage": {"cost": 1}}, {"x_groq": {"id": "r"}}, {"x_groq": 1}],
)
def test_no_report_is_no_usage(answer: object) -> None:
    assert usage_of(answer) is None


numbers = st.none() | st.integers() | st.floats() | st.text(max_size=2) | st.booleans()


@given(
    st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens"]), numbers)
)
def test_nothing_reported_makes_a_figure_negative_or_absurd(report: dict[str, Any]) -> None:
    usage = usage_of({"usage": report})
    if usage is not None:
        assert all(0 <= figure <= MOST_TOKENS for figure in (usage.input, usage.cached, usage.output))
