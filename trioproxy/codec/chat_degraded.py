"""What stands in for a model in the chat dialect: the operator's words as an answer, and a streamed request asked as a whole one."""

from trioproxy.codec import jsonread
from trioproxy.codec.chat_relabel import stream_from_answer
from trioproxy.codec.frame import Facts
from trioproxy.codec.jsonsplice import Edit, removal, splice

_NOTHING = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def spoken(text: str, model: str, facts: Facts, *, request_id: str, created: int) -> bytes:
    """The text as the request wants it: one JSON, or a whole stream with its `[DONE]`. `created` is Unix seconds."""
    message = {"role": "assistant", "content": text}
    choices = [{"index": at, "message": message, "finish_reason": "stop"} for at in range(facts.choices)]
    answer = jsonread.write(
        {
            "id": f"chatcmpl-{request_id}",
            "object": "chat.completion",
            "created": created,
            "model": model,
            "choices": choices,
            "usage": _NOTHING,
        }
    )
    if not facts.stream:
        return answer
    stream = stream_from_answer(answer, facts.wants_usage)
    assert stream is not None, "it was made of an answer"
    return stream


def unstreamed(body: bytes, facts: Facts) -> bytes:
    """The request for one whole answer; every other byte as it came."""
    if not facts.stream:
        return body
    spans = facts.members
    edits: list[Edit] = [(*spans["stream"], b"false")]
    return splice(body, edits + removal(body, spans, ["stream_options"]))
