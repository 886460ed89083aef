"""The usual good answer, known by its shape alone.

Nearly every unary answer has choices with a message, a plain report of usage, and nothing odd about it. Decoding only the
fields that could make it odd costs a third of reading it whole. Whatever is not usual here is judged exactly elsewhere:
this module never says that an answer is bad.
"""

import msgspec

from trioproxy.codec import jsonread
from trioproxy.codec.chat_chunk import FAILED_FINISHES
from trioproxy.codec.usage import MOST_TOKENS
from trioproxy.journal import Usage


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Report(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Details | None = None
    # Whoever reports one of these counts in another way.
    prompt_cache_hit_tokens: object = None
    cached_tokens: object = None


class _Message(msgspec.Struct):
    """Any object."""


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    error: object = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    usage: _Report
    object: str | None = None
    type: str | None = None
    error: msgspec.Raw | None = None
    x_groq: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def usual(body: bytes) -> Usage | None:
    """The usage of an answer that is good beyond doubt; None where a closer look is needed."""
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    report = answer.usage
    details = report.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details is not None else 0
    prompt, output = report.prompt_tokens, report.completion_tokens
    told = answer.error is not None or answer.x_groq is not None or "error" in (answer.object, answer.type)
    odd = report.prompt_cache_hit_tokens is not None or report.cached_tokens is not None
    if told or odd or not (0 <= cached <= prompt <= MOST_TOKENS and 0 <= output <= MOST_TOKENS):
        return None
    for choice in answer.choices:
        if choice.error is not None or choice.finish_reason in FAILED_FINISHES:
            return None
    if not answer.choices or not jsonread.is_text(body):
        return None
    return Usage(prompt - cached, cached, output)
