"""What a model said in one whole chat answer, as far as an expectation can ask: text, refusal, tool calls, and how it ended.

Nothing raises: a member of another type than the dialect has it counts as not there, because what is judged here is what a
caller could have used.
"""

from typing import Any

from attrs import frozen

from trioproxy.codec import jsonread


@frozen
class ToolCall:
    """A function that the model wants called. `arguments` is its JSON as it came, valid or not."""

    name: str
    arguments: str = ""


@frozen
class Said:
    """The first choice of an answer. `refusal` is the member of that name; `finish` is the dialect's finish reason."""

    text: str = ""
    refusal: str = ""
    finish: str = ""
    calls: tuple[ToolCall, ...] = ()


def said_in(body: bytes) -> Said:
    """What the first choice says; an empty `Said` where there is none that can be read."""
    try:
        answer: Any = jsonread.read(body)[0]
    except ValueError:
        return Said()
    choices = _of(answer, "choices", list)
    choice = choices[0] if choices else None
    message = _of(choice, "message", dict)
    return Said(
        text=_text(message.get("content")),
        refusal=_text(message.get("refusal")),
        finish=_of(choice, "finish_reason", str),
        calls=tuple(_calls(message)),
    )


def _of(value: Any, key: str, wanted: type) -> Any:
    """The member `key`, or an empty value of the wanted type."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, wanted) else wanted()


def _text(content: Any) -> str:
    """A string, or the text parts of a list; null is no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(_of(part, "text", str) for part in content)


def _calls(message: dict[str, Any]) -> list[ToolCall]:
    functions = [_of(call, "function", dict) for call in _of(message, "tool_calls", list)]
    old = _of(message, "function_call", dict)  # the form before tools, which some servers still answer with
    return [
        ToolCall(_of(function, "name", str), _of(function, "arguments", str))
        for function in (*functions, *([old] if old else []))
    ]
