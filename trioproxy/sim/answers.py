"""What a scripted model says: OpenAI chat answers without a model, the same for the same question.

It repeats the question, names itself, calls a tool where it is told to, and counts about four characters to a token. Whole
answers and frames are made of the same `Script`, so a stream says exactly what its unary twin says.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

Json = dict[str, Any]

DONE = b"data: [DONE]\n\n"
PLACEHOLDERS: Json = {"string": "example", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}


class BadQuestion(Exception):
    """The request's body is no chat request; `args[0]` says why."""


@frozen
class Script:
    """One answer: either `pieces` of text or a tool call. `finish` is OpenAI's finish reason."""

    model: str
    prompt_tokens: int
    pieces: tuple[str, ...] = ()
    tool: str | None = None
    arguments: str = ""
    finish: str = "stop"
    choices: int = 1
    include_usage: bool = False

    @property
    def usage(self) -> dict[str, int]:
        output = len(self.pieces) or tokens(self.arguments)
        total = self.prompt_tokens + output * self.choices
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": output * self.choices, "total_tokens": total}


def tokens(text: str) -> int:
    """About how many tokens a text is: four characters each, English prose under current vocabularies."""
    return max(1, len(text) // 4)


def script_for(body: bytes, name: str) -> Script:
    """The answer of the upstream called `name` to a chat request. Raises `BadQuestion`."""
    try:
        return _script(json.loads(body), name)
    except json.JSONDecodeError as exc:
        raise BadQuestion(f"the body is not JSON: {exc}") from exc
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        # A member of another type than OpenAI's schema has it; which one does not matter to a scripted upstream.
        raise BadQuestion(f"the request is malformed: {exc!r}") from exc


def _script(asked: Any, name: str) -> Script:
    messages = asked.get("messages") if isinstance(asked, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise BadQuestion("messages: a list of at least one message is required")
    shared: Json = {
        "model": str(asked.get("model") or name),
        "prompt_tokens": sum(tokens(text_of(each)) + 4 for each in messages),
        "choices": int(asked.get("n") or 1),
        "include_usage": bool((asked.get("stream_options") or {}).get("include_usage")),
    }
    tool = _tool(asked, messages[-1])
    if tool is not None:
        arguments = json.dumps(_arguments(tool.get("parameters") or {}))
        return Script(tool=tool["name"], arguments=arguments, finish="tool_calls", **shared)
    pieces = _pieces(_say(messages[-1], name))
    cap = asked.get("max_completion_tokens") or asked.get("max_tokens")
    if cap and cap < len(pieces):
        return Script(pieces=pieces[:cap], finish="length", **shared)
    return Script(pieces=pieces, **shared)


def completion(script: Script, id_: str, created: int) -> bytes:
    """The unary answer. `created` is Unix seconds."""
    message: Json = {"role": "assistant", "content": "".join(script.pieces) or None, "refusal": None}
    if script.tool is not None:
        message["tool_calls"] = [_call(script, id_)]
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": script.finish}
        for index in range(script.choices)
    ]
    shared = {"id": id_, "object": "chat.completion", "created": created, "model": script.model}
    return json.dumps(shared | {"choices": choices, "usage": script.usage}).encode()


def frames(script: Script, id_: str, created: int) -> Iterator[bytes]:
    """The same as a stream, frame by frame: role, pieces, finish, usage where it was asked for, `[DONE]`."""
    shared = {"id": id_, "object": "chat.completion.chunk", "created": created, "model": script.model}

    def chunk(index: int, delta: Json, finish: str | None = None) -> bytes:
        return frame(
            shared | {"choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        )

    for index in range(script.choices):
        yield chunk(index, {"role": "assistant", "content": "" if script.tool is None else None, "refusal": None})
        for delta in _deltas(script, id_):
            yield chunk(index, delta)
        yield chunk(index, {}, script.finish)
    if script.include_usage:
        yield frame(shared | {"choices": [], "usage": script.usage})
    yield DONE


def frame(payload: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def error_body(message: str, type_: str, code: str | int | None = None) -> bytes:
    """OpenAI's error body."""
    return json.dumps({"error": {"message": message, "type": type_, "param": None, "code": code}}).encode()


def models(names: Sequence[str], owner: str) -> bytes:
    """The answer to `GET /v1/models`."""
    return json.dumps(
        {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name in names]}
    ).encode()


def text_of(message: Json) -> str:
    """The text of a message, whether its content is a string or a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


def _say(last: Json, name: str) -> str:
    asked = " ".join(text_of(last).split())
    if last.get("role") == "tool":
        return f"The tool says: {asked}. That is what {name} makes of it."
    return f"This is {name}. You said: {asked or 'nothing'}. A real model would now be clever about it."


def _pieces(text: str) -> tuple[str, ...]:
    first, *rest = text.split(" ")
    return (first, *(f" {word}" for word in rest))


def _tool(asked: Json, last: Json) -> Json | None:
    """The function to call: the one that `tool_choice` names or requires, or that the user mentions."""
    choice = asked.get("tool_choice")
    functions: list[Json] = [tool["function"] for tool in asked.get("tools") or [] if "function" in tool]
    if not functions or choice == "none" or last.get("role") == "tool":
        return None
    wanted = choice["function"]["name"] if isinstance(choice, dict) and "function" in choice else None
    mentioned = text_of(last) if last.get("role") == "user" else ""
    for function in functions:
        if function["name"] == wanted or (wanted is None and function["name"] in mentioned):
            return function
    return functions[0] if choice == "required" else None


def _arguments(schema: Json) -> Json:
    """The least that a JSON schema asks for."""
    properties: Json = schema.get("properties") or {}
    return {name: _value(properties.get(name) or {}) for name in schema.get("required") or properties}


def _value(schema: Json) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("type") == "object":
        return _arguments(schema)
    return PLACEHOLDERS.get(str(schema.get("type")), "example")


def _call(script: Script, id_: str) -> Json:
    return {"id": f"call_{id_}", "type": "function", "function": {"name": script.tool, "arguments": script.arguments}}


def _deltas(script: Script, id_: str) -> Iterator[Json]:
    """The content of a stream: pieces of text, or a call's head and then fragments of its arguments."""
    for piece in script.pieces:
        yield {"content": piece}
    if script.tool is not None:
        head = _call(script, id_)
        head["function"] = {"name": script.tool, "arguments": ""}
        yield {"tool_calls": [{"index": 0} | head]}
        for start in range(0, len(script.arguments), 8):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": script.arguments[start : start + 8]}}]}
