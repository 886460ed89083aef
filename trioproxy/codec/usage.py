"""Tokens as the price table counts them, from whatever an OpenAI-like provider reports.

The prompt figure includes what was read from the cache (OpenAI, Groq, OpenRouter, DeepSeek alike), so `input` is the prompt
less the cached part. A report that cannot be (negative, more cached than prompted) is clamped, never believed.
"""

import math

from trioproxy.journal import Usage

# No provider takes a call of this size; a larger figure is a fault of theirs and must not reach the ledger.
MOST_TOKENS = 1_000_000_000


def usage_of(answer: object) -> Usage | None:
    """The usage in a decoded answer or chunk, `x_groq.usage` included; None where it reports nothing."""
    if not isinstance(answer, dict):
        return None
    report = answer.get("usage")
    if not isinstance(report, dict) or not report:
        groq = answer.get("x_groq")
        report = groq.get("usage") if isinstance(groq, dict) else None
    return _normal(report) if isinstance(report, dict) else None


def _normal(report: dict[str, object]) -> Usage | None:
    hit = _tokens(report, "prompt_cache_hit_tokens")
    miss = _tokens(report, "prompt_cache_miss_tokens")
    prompt = _tokens(report, "prompt_tokens", "input_tokens")
    output = _tokens(report, "completion_tokens", "output_tokens")
    total = _tokens(report, "total_tokens")
    if prompt is None and (hit is not None or miss is not None):
        prompt = (hit or 0) + (miss or 0)
    if prompt is None and output is None and total is None:
        return None
    if prompt is None:
        prompt = max(0, (total or 0) - (output or 0))
    if output is None:
        output = max(0, (total or 0) - prompt)
    cached = min(_cached(report, hit), prompt)
    return Usage(input=prompt - cached, cached=cached, output=output)


def _cached(report: dict[str, object], hit: int | None) -> int:
    for name in ("prompt_tokens_details", "input_tokens_details"):
        details = report.get(name)
        if isinstance(details, dict):
            told = _tokens(details, "cached_tokens")
            if told is not None:
                return told
    return hit if hit is not None else _tokens(report, "cached_tokens") or 0


def _tokens(report: dict[str, object], *names: str) -> int | None:
    for name in names:
        value = report.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
            return int(min(max(value, 0), MOST_TOKENS))
    return None
