"""The quick look at a unary answer never disagrees with the exact one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.chat_answer import usual
from trioproxy.codec.openai_chat import CHAT
from trioproxy.codec.usage import MOST_TOKENS, usage_of
from trioproxy.journal import Usage

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
REPORT = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
GOOD = {"id": "x", "object": "chat.completion", "choices": [CHOICE], "usage": REPORT}


def text(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_the_usual_answer_is_known_at_once() -> None:
    assert usual(text()) == Usage(input=9, output=3)
    cached = {**REPORT, "prompt_tokens_details": {"cached_tokens": 4}}
    assert usual(text(usage=cached)) == Usage(input=5, cached=4, output=3)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[" * 100_000,
        text(error={"message": "x", "code": 502}),
        text(x_groq={"error": "over_capacity"}),
        text(object="error"),
        text(type="error"),
        text(choices=[]),
        text(choices=None),
        text(choices=[{**CHOICE, "error": {"code": 502}}]),
        text(choices=[{**CHOICE, "finish_reason": "error"}]),
        text(choices=[CHOICE, {**CHOICE, "finish_reason": "insufficient_system_resource"}]),
        text(choices=[{"index": 0, "text": "legacy"}]),
        text(usage=None),
        text(usage={**REPORT, "prompt_tokens": -1}),
        text(usage={**REPORT, "completion_tokens": MOST_TOKENS + 1}),
        text(usage={**REPORT, "prompt_tokens_details": {"cached_tokens": 10}}),
        text(usage={**REPORT, "prompt_cache_hit_tokens": 4}),
        text(usage={**REPORT, "cached_tokens": 4}),
        text(usage={"input_tokens": 9, "output_tokens": 3}),
        text().replace(b"hi", b"\xff"),
        text().replace(b'"hi"', b"NaN"),
    ],
)
def test_whatever_is_odd_gets_a_closer_look(body: bytes) -> None:
    assert usual(body) is None


counts = st.one_of(st.integers(-2, 20), st.none(), st.just("3"), st.just(2.5), st.just(True))
reports = st.fixed_dictionaries(
    {"prompt_tokens": counts, "completion_tokens": counts},
    optional={
        "prompt_tokens_details": st.one_of(st.none(), st.fixed_dictionaries({}, optional={"cached_tokens": counts})),
        "prompt_cache_hit_tokens": counts,
        "prompt_cache_miss_tokens": counts,
        "cached_tokens": counts,
        "total_tokens": counts,
    },
)


@given(reports)
def test_it_counts_as_the_exact_reading_does(report: dict[str, Any]) -> None:
    quick = usual(text(usage=report))
    if quick is not None:
        assert quick == usage_of(json.loads(text(usage=report)))
        assert CHAT.read_answer(text(usage=report), 200, 0.0) == (None, quick)
