"""What the two upstreams of the exam say: sixty numbered words each, so that any piece of an answer tells who said it.

Whole answers and frames are OpenAI chat's. Pure.
"""

import json
from typing import Any, Literal

Who = Literal["a", "b"]
Json = dict[str, Any]

WORDS = 60
DONE = b"data: [DONE]\n\n"
PROMPT_TOKENS = {"a": 9, "b": 17}


def words(who: Who, first: int = 0, last: int = WORDS) -> list[str]:
    """The words from `first` up to but without `last`."""
    return [f"{who}{number:02} " for number in range(first, last)]


def text(who: Who) -> str:
    """The whole answer."""
    return "".join(words(who))


def model(who: Who) -> str:
    """The name that the upstream gives its model."""
    return f"{who}-model"


def usage(who: Who) -> dict[str, int]:
    """What the whole answer used."""
    prompt = PROMPT_TOKENS[who]
    return {"prompt_tokens": prompt, "completion_tokens": WORDS, "total_tokens": prompt + WORDS}


def completion(who: Who, said: str | None = None, finish: str = "stop") -> bytes:
    """A whole answer as a JSON body."""
    message = {"role": "assistant", "content": text(who) if said is None else said, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    head = {"id": f"chatcmpl-{who}", "object": "chat.completion", "created": 1764000000, "model": model(who)}
    return json.dumps(head | {"choices": [choice], "usage": usage(who)}).encode()


def frame(who: Who, choices: list[Json], more: Json | None = None) -> bytes:
    """One frame of a stream."""
    head = {"id": f"chatcmpl-{who}", "object": "chat.completion.chunk", "created": 1764000000, "model": model(who)}
    return b"data: " + json.dumps(head | {"choices": choices} | (more or {})).encode() + b"\n\n"


def delta(who: Who, said: Json, finish: str | None = None) -> bytes:
    """A frame with one choice."""
    return frame(who, [{"index": 0, "delta": said, "logprobs": None, "finish_reason": finish}])


def role(who: Who) -> bytes:
    """The frame before all content."""
    return delta(who, {"role": "assistant", "content": ""})


def contents(who: Who, first: int = 0, last: int = WORDS) -> list[bytes]:
    """A frame for each word."""
    return [delta(who, {"content": word}) for word in words(who, first, last)]


def ending(who: Who, finish: str = "stop") -> list[bytes]:
    """The finish reason and the usage; no `[DONE]`."""
    return [delta(who, {}, finish), frame(who, [], {"usage": usage(who)})]


def error(message: str, type_: str, code: str | int | None = None) -> bytes:
    """An error as a JSON body."""
    return json.dumps({"error": {"message": message, "type": type_, "param": None, "code": code}}).encode()
