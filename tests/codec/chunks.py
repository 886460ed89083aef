"""Frames as providers send them, composed for these tests."""

import json
from typing import Any

DONE = b"data: [DONE]\n\n"


def frame(value: Any, *, end: bytes = b"\n") -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode() + end + end


def chunk(delta: Any = None, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **more,
    }


def token(text: str = "Hi", **more: Any) -> bytes:
    return frame(chunk({"content": text}, **more))


ROLE = frame(chunk({"role": "assistant", "content": "", "refusal": None}))
STOP = frame(chunk(finish="stop"))
REPORT = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
USAGE = frame({**chunk(), "choices": [], "usage": REPORT})
ERROR = frame({"error": {"message": "boom", "type": "server_error", "param": None, "code": 502}})
