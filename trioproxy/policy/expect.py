"""What is expected of an answer, and whether one meets it.

Each condition of an `Expect` gives one `Check`, met or not, with the reason in words; an answer passes when all of them are met.
Text is compared in Unicode's composed form, so that an accent written as two characters is the same accent.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field, frozen, validators

from trioproxy.codec.chat_said import Said, ToolCall
from trioproxy.policy.refusal import REFUSALS, composed, refusal_in
from trioproxy.policy.schema import mismatches

_LENGTH = validators.optional(validators.ge(0))


@frozen
class Tool:
    """A tool call that must be among the answer's. `arguments` must be contained in what it is called with."""

    name: str
    arguments: Mapping[str, Any] | None = None


@frozen
class Expect:
    """What an answer must be like; what is None or empty is not looked at. Lengths are characters, `max_tokens` tokens."""

    contains: tuple[str, ...] = ()
    not_contains: tuple[str, ...] = ()
    regex: tuple[str, ...] = ()
    ignore_case: bool = False
    min_length: int | None = field(default=None, validator=_LENGTH)
    max_length: int | None = field(default=None, validator=_LENGTH)
    max_tokens: int | None = field(default=None, validator=_LENGTH)
    refusal: bool | None = None
    schema: Mapping[str, Any] | None = None
    tool: Tool | None = None


@frozen
class Check:
    """One condition, in words, and what was found. `found` is empty where it is met and there is nothing to say."""

    wanted: str
    met: bool
    found: str = ""


def judge(
    expect: Expect, said: Said, output_tokens: int | None, phrases: tuple[str, ...] = REFUSALS
) -> tuple[Check, ...]:
    """Every condition of `expect`, judged. `output_tokens` is the provider's own figure, None where it told none."""
    return (
        *_texts(expect, composed(said.text), said),
        *_sizes(expect, said.text, output_tokens),
        *_forms(expect, said, phrases),
    )


def quoted(text: str, longest: int = 60) -> str:
    """A text on one line and short enough for a message."""
    line = " ".join(text.split())
    return json.dumps(line if len(line) <= longest else f"{line[: longest - 1]}…", ensure_ascii=False)


def _texts(expect: Expect, text: str, said: Said) -> Iterator[Check]:
    folded = text.casefold() if expect.ignore_case else text
    nothing = "" if text else f"there is no text{_instead(said)}"
    for wanted in expect.contains:
        met = _folded(wanted, expect) in folded
        yield Check(f"contains {quoted(wanted)}", met, "" if met else nothing or "it does not")
    for unwanted in expect.not_contains:
        met = _folded(unwanted, expect) not in folded
        yield Check(f"does not contain {quoted(unwanted)}", met, "" if met else "it does")
    for pattern in expect.regex:
        met = re.search(pattern, text, re.IGNORECASE if expect.ignore_case else 0) is not None
        yield Check(f"matches {quoted(pattern)}", met, "" if met else nothing or "it does not")


def _folded(text: str, expect: Expect) -> str:
    return composed(text).casefold() if expect.ignore_case else composed(text)


def _instead(said: Said) -> str:
    return f", a call of {', '.join(call.name for call in said.calls)} instead" if said.calls else ""


def _sizes(expect: Expect, text: str, output_tokens: int | None) -> Iterator[Check]:
    if expect.min_length is not None:
        yield Check(f"at least {expect.min_length} characters", len(text) >= expect.min_length, f"{len(text)}")
    if expect.max_length is not None:
        yield Check(f"at most {expect.max_length} characters", len(text) <= expect.max_length, f"{len(text)}")
    if expect.max_tokens is not None:
        met = output_tokens is not None and output_tokens <= expect.max_tokens
        told = "the provider told no usage" if output_tokens is None else f"{output_tokens}"
        yield Check(f"at most {expect.max_tokens} output tokens", met, told)


def _forms(expect: Expect, said: Said, phrases: tuple[str, ...]) -> Iterator[Check]:
    if expect.refusal is not None:
        sign = refusal_in(said, phrases)
        yield Check("refuses" if expect.refusal else "does not refuse", bool(sign) is expect.refusal, sign)
    if expect.schema is not None:
        wrong = _misfit(expect.schema, said)
        yield Check("fits the JSON schema", not wrong, wrong)
    if expect.tool is not None:
        wrong = _missed(expect.tool, said.calls)
        yield Check(_call_in_words(expect.tool), not wrong, wrong)


def _misfit(schema: Mapping[str, Any], said: Said) -> str:
    """Why the text does not fit. A fence around JSON is not taken off: no caller that parses it would."""
    if not said.text.strip():
        return f"there is no text{_instead(said)}"
    try:
        value = json.loads(said.text, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        fenced = " (a Markdown fence stands around it)" if said.text.lstrip().startswith("```") else ""
        return f"it is no JSON: {exc}{fenced}"
    return "; ".join(mismatches(schema, value))


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


def _missed(tool: Tool, calls: tuple[ToolCall, ...]) -> str:
    named = [call for call in calls if call.name == tool.name]
    if not named:
        others = ", ".join(dict.fromkeys(call.name for call in calls))
        return f"it calls {others}" if others else "it calls no tool"
    if tool.arguments is None:
        return ""
    reasons = [_difference(tool.arguments, call) for call in named]
    return "" if "" in reasons else reasons[0]


def _difference(wanted: Mapping[str, Any], call: ToolCall) -> str:
    try:
        given = json.loads(call.arguments, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return f"its arguments are no JSON: {quoted(call.arguments)}"
    return "" if _contained(wanted, given) else f"it is called with {quoted(call.arguments)}"


def _contained(wanted: Any, given: Any) -> bool:
    """Whether every member of the wanted tables is there, at every depth; lists and single values must be equal."""
    if isinstance(wanted, Mapping):
        return isinstance(given, dict) and all(key in given and _contained(wanted[key], given[key]) for key in wanted)
    if isinstance(wanted, bool) or isinstance(given, bool):  # to Python true is 1, to JSON it is not
        return wanted is given
    return bool(wanted == given)


def _call_in_words(tool: Tool) -> str:
    if not tool.arguments:
        return f"calls {tool.name}"
    return f"calls {tool.name} with {json.dumps(tool.arguments, ensure_ascii=False, default=str)}"
