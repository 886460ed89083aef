"""Ready-made steps for a `FakeUpstream`'s script: what an OpenAI-speaking upstream does, well or badly.

Delays are virtual seconds: `delay` before the first frame, `every` between frames. `end` says how a stream stops:
"clean" (last chunk, connection kept), "fin" (closed), "reset" (RST) or "hang" (silence until the other side gives up).
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import trio

from tests.fakes.upstream import Exchange, Headers, Step

End = Literal["clean", "fin", "reset", "hang"]
Usage = tuple[int, int]

DONE = b"data: [DONE]\n\n"


def frame(payload: object) -> bytes:
    """One SSE event with a JSON payload."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def delta(text: str | None = None, *, role: bool = False, finish: str | None = None, model: str = "m") -> bytes:
    """One chat chunk: a role, some content, a finish reason."""
    content = ({"role": "assistant"} if role else {}) | ({} if text is None else {"content": text})
    return frame(_chunk(model, [{"index": 0, "delta": content, "finish_reason": finish}]))


def usage_frame(usage: Usage = (9, 3), model: str = "m") -> bytes:
    return frame(_chunk(model, []) | {"usage": usage_json(usage)})


def error_frame(message: str = "boom", code: int | str = 502, type_: str = "server_error") -> bytes:
    return frame({"error": {"message": message, "type": type_, "code": code}})


def usage_json(usage: Usage = (9, 3)) -> dict[str, int]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


def completion(text: str, *, usage: Usage | None = (9, 3), model: str = "m", finish: str = "stop") -> dict[str, Any]:
    """A unary chat completion."""
    message = {"role": "assistant", "content": text, "refusal": None}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }
    return answer | ({"usage": usage_json(usage)} if usage else {})


def chat_answer(text: str, *, delay: float = 0, usage: Usage | None = (9, 3), headers: Headers = ()) -> Step:
    """Answer unary, naming the model that was asked for."""

    async def step(x: Exchange) -> None:
        await trio.sleep(delay)
        await x.reply(200, completion(text, usage=usage, model=_model(x)), headers)

    return step


def chat_stream(
    tokens: Iterable[str],
    *,
    delay: float = 0,
    every: float = 0,
    usage: Usage | None = (9, 3),
    end: End = "clean",
) -> Step:
    """Stream role, tokens, finish, usage where asked for, `[DONE]`. An `end` but "clean" stops after the tokens."""
    words = list(tokens)

    async def step(x: Exchange) -> None:
        model = _model(x)
        frames = [delta("", role=True, model=model), *(delta(word, model=model) for word in words)]
        if end == "clean":
            frames.append(delta(finish="stop", model=model))
            if usage and (x.request.json.get("stream_options") or {}).get("include_usage"):
                frames.append(usage_frame(usage, model))
            frames.append(DONE)
        await sse(frames, delay=delay, every=every, end=end)(x)

    return step


def chat(text: str) -> Step:
    """Answer as asked: streamed word by word, or unary."""

    async def step(x: Exchange) -> None:
        if x.request.json.get("stream"):
            await chat_stream(_words(text))(x)
        else:
            await chat_answer(text)(x)

    return step


def sse(
    frames: Sequence[bytes],
    *,
    delay: float = 0,
    every: float = 0,
    end: End = "clean",
    gzipped: bool = False,
) -> Step:
    """A 200 stream of these pieces, each in its own write and chunk. The head goes out at once."""

    async def step(x: Exchange) -> None:
        await x.start(gzipped=gzipped)
        await trio.sleep(delay)
        for number, piece in enumerate(frames):
            if number and every:
                await trio.sleep(every)
            await x.write(piece)
        await finish(x, end)

    return step


def error(status: int, body: object = None, headers: Headers = ()) -> Step:
    """An error answer; by default with OpenAI's error body."""
    shown = {"error": {"message": f"scripted {status}", "type": "server_error", "param": None, "code": None}}

    async def step(x: Exchange) -> None:
        await x.reply(status, shown if body is None else body, headers)

    return step


def raw(*writes: bytes, every: float = 0, end: End = "fin") -> Step:
    """Exactly these bytes in these writes, head included."""

    async def step(x: Exchange) -> None:
        await x.send_in(*writes, every=every)
        if end != "clean":
            await finish(x, end)

    return step


def silence() -> Step:
    """Take the request and never answer."""
    return Exchange.closed


def hang_up(end: Literal["fin", "reset"] = "fin", *, delay: float = 0) -> Step:
    """Take the request and close without an answer."""

    async def step(x: Exchange) -> None:
        await trio.sleep(delay)
        await finish(x, end)

    return step


def after(seconds: float, step: Step) -> Step:
    """The same, later."""

    async def later(x: Exchange) -> None:
        await trio.sleep(seconds)
        await step(x)

    return later


def hold(count: int, step: Step) -> Step:
    """The same, once `count` requests are in."""

    async def held(x: Exchange) -> None:
        await x.upstream.wait_hits(count)
        await step(x)

    return held


async def finish(x: Exchange, end: End) -> None:
    """Stop a streamed answer this way."""
    match end:
        case "clean":
            await x.end()
        case "fin":
            x.fin()
        case "reset":
            x.reset()
        case "hang":
            await x.closed()


def _chunk(model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": choices}


def _model(x: Exchange) -> str:
    return str(x.request.json.get("model", "m"))


def _words(text: str) -> list[str]:
    first, *rest = text.split(" ")
    return [first, *(f" {word}" for word in rest)]
