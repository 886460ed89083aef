"""A regression set: prompts with what is expected of their answers, from one TOML file, every fault told at once.

A set says nothing of channels: the same one is asked of any. Its hash covers what is asked and what is expected, so that two
readings with one hash answered the same questions; names, comments and the order of keys do not matter.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from attrs import asdict, define, evolve, field, frozen

from trioproxy.codec.chat_facts import facts_of
from trioproxy.config import rules
from trioproxy.config.lines import Path
from trioproxy.config.load import parse_toml, told
from trioproxy.config.structure import structure
from trioproxy.errors import Refusal
from trioproxy.policy.expect import Expect
from trioproxy.policy.refusal import REFUSALS
from trioproxy.policy.schema import objection

MOST_PROMPTS = 10_000  # a report of more is read by nobody
# What a set cannot say, because the run does.
OURS = {
    "model": "say it once, as the set's model",
    "messages": "put them beside params, as messages",
    "stream": "a set is asked for whole answers",
    "stream_options": "a set is asked for whole answers",
    "n": "ask several times with --repeat",
}
Finding = tuple[Path, str]


def _said(_instance: Any, _attribute: Any, value: str) -> None:
    if not value.strip():
        raise ValueError("is empty: give it a text")


@frozen
class Prompt:
    """One question: `prompt` (with `system` before it) or whole `messages`. `params` go into the request as they are."""

    name: str = ""  # "prompt 3" where the file gives none
    expect: Expect = field(factory=Expect)
    prompt: str | None = None
    system: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    params: Mapping[str, Any] = field(factory=dict)

    def conversation(self) -> list[Mapping[str, Any]]:
        """The messages as they are sent."""
        if self.messages:
            return list(self.messages)
        said = (("system", self.system), ("user", self.prompt))
        return [{"role": role, "content": text} for role, text in said if text is not None]


@frozen
class PromptSet:
    """`params` are those of every prompt that does not say otherwise; `model` is the public name to ask for."""

    prompts: tuple[Prompt, ...] = field(validator=rules.not_empty)
    name: str = ""
    model: str | None = None
    params: Mapping[str, Any] = field(factory=dict)
    refusal_phrases: tuple[str, ...] = field(default=REFUSALS, validator=rules.each(_said))

    def body(self, prompt: Prompt, model: str, tame: Callable[[Any], Any] = lambda asked: asked) -> bytes:
        """The request for one prompt. `tame` is for a set that is still being judged."""
        asked = {"model": model, "messages": prompt.conversation(), **self.params, **prompt.params}
        return json.dumps(tame(asked), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    @property
    def hash(self) -> str:
        """Of what is asked and expected; the model is not part of it, nor are names."""
        content = [
            (prompt.conversation(), dict(self.params) | dict(prompt.params), asdict(prompt.expect))
            for prompt in self.prompts
        ]
        text = json.dumps([content, self.refusal_phrases], sort_keys=True, separators=(",", ":"))
        return blake2b(text.encode(), digest_size=12).hexdigest()


def parse_set(text: str, name: str) -> PromptSet:
    """The set in a file's text. Raises `ConfigError` with every fault, in the order of the file."""
    raw = parse_toml(text, name)
    reading = Reading(raw)
    made = reading.set()
    if made is None or reading.found:
        raise told(reading.found, text, name)
    return made


@define(eq=False)
class Reading:
    """One pass over a parsed file. `found` gathers its faults, as (path, message)."""

    raw: Mapping[str, Any]
    found: list[Finding] = field(init=False, factory=list)

    def set(self) -> PromptSet | None:
        """The set; None only where `found` says why."""
        listed = self.raw.get("prompts")
        rest = {key: value for key, value in self.raw.items() if key != "prompts"}
        shell, faults = structure({**rest, "prompts": [{}] if isinstance(listed, list) else listed}, PromptSet)
        if listed is None:
            faults = [(("prompts",), "there are none: add [[prompts]] with a prompt and an expect")]
            faults += structure({**rest, "prompts": [{}]}, PromptSet)[1]
        self.found += faults
        shared = {} if shell is None else shell.params
        self.found += _reserved(shared)
        prompts = self._prompts(listed if isinstance(listed, list) else [], shared)
        told = {path for path, _ in self.found}
        self.found += [finding for finding in _unwritable(self.raw, ()) if finding[0] not in told]
        return None if shell is None or self.found else evolve(shell, prompts=tuple(prompts))

    def _prompts(self, listed: list[Any], shared: Mapping[str, Any]) -> list[Prompt]:
        if not listed and self.raw.get("prompts") == []:
            self.found.append((("prompts",), "is empty: add a [[prompts]]"))
        if len(listed) > MOST_PROMPTS:
            self.found.append((("prompts",), f"there are {len(listed)}: at most {MOST_PROMPTS} are allowed"))
        made: list[Prompt] = []
        names: dict[str, int] = {}
        for index, raw in enumerate(listed[:MOST_PROMPTS]):
            prompt, findings = _prompt(raw, index, shared)
            if prompt is not None:
                made.append(prompt)
                first = names.setdefault(prompt.name, index)
                if first != index:
                    findings.append((("name",), f"{rules.shown(prompt.name)} is prompts[{first}] already"))
            self.found += [(("prompts", index, *path), what) for path, what in findings]
        return made


def _prompt(raw: object, index: int, shared: Mapping[str, Any]) -> tuple[Prompt | None, list[Finding]]:
    """One prompt and its faults. Its expectation is read apart, so that a fault in one does not hide those of the other."""
    if not isinstance(raw, dict):
        return structure(raw, Prompt)
    expect, faults = structure(raw.get("expect", {}), Expect)
    findings: list[Finding] = [(("expect", *path), what) for path, what in faults]
    given = {"name": f"prompt {index + 1}", **raw}
    given.pop("expect", None)
    prompt, faults = structure(given, Prompt)
    findings += faults
    if prompt is not None:
        told = {path[0] for path, _ in faults if path}
        if not told & {"prompt", "system", "messages", "params"}:
            findings += _question(prompt, shared)
        if not prompt.name.strip():
            findings.append((("name",), "is empty: give it a text"))
    if expect is not None:
        if expect == Expect(ignore_case=expect.ignore_case) and not any(path[0] == "expect" for path, _ in findings):
            findings.append((("expect",), "expects nothing: give it a condition, such as contains"))
        findings += [(("expect", *path), what) for path, what in _expectation(expect)]
    if prompt is None or expect is None:
        return prompt, findings
    findings += _unoffered(expect, {**shared, **prompt.params})
    return evolve(prompt, expect=expect), findings


def _question(prompt: Prompt, shared: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with what is asked."""
    yield from _reserved(prompt.params)
    if prompt.messages and (prompt.prompt is not None or prompt.system is not None):
        yield ("messages",), "stands beside a prompt or a system: give one or the other"
    if not prompt.messages and (prompt.prompt is None or not prompt.prompt.strip()):
        yield ("prompt",), "is missing or empty: give a prompt, or messages"
        return
    body = PromptSet((prompt,), params=shared).body(prompt, "m", _tame)
    try:
        facts_of(body)
    except Refusal as exc:
        yield ("messages",) if exc.param == "messages" else ("params", exc.param or ""), exc.message


def _tame(value: Any) -> Any:
    """The value with null for what JSON cannot say, which is told of elsewhere."""
    match value:
        case dict():
            return {key: _tame(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_tame(inner) for inner in value]
        case float() if not math.isfinite(value):
            return None
    return value if isinstance(value, str | int | float | bool) else None


def _expectation(expect: Expect) -> Iterator[Finding]:
    """What is wrong with what is expected."""
    for index, pattern in enumerate(expect.regex):
        try:
            re.compile(pattern)
        except (re.error, RecursionError) as exc:
            yield ("regex", index), f"{rules.shown(pattern)} is no regular expression: {exc}"
    for name in ("contains", "not_contains"):
        if "" in getattr(expect, name):
            yield (name,), "has an empty text in it, which is in every answer"
    if expect.min_length is not None and expect.max_length is not None and expect.min_length > expect.max_length:
        yield ("min_length",), f"{expect.min_length} is more than max_length: no answer can be both"
    if expect.schema is not None and (wrong := objection(expect.schema)):
        yield ("schema",), wrong


def _unoffered(expect: Expect, params: Mapping[str, Any]) -> Iterator[Finding]:
    if expect.tool is None:
        return
    offered = _offered(params)
    if expect.tool.name not in offered:
        known = f"there are {', '.join(offered)}" if offered else "there are none"
        yield ("expect", "tool", "name"), f"{rules.shown(expect.tool.name)} is not among params.tools: {known}"


def _offered(params: Mapping[str, Any]) -> list[str]:
    tools = params.get("tools")
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return [str(function.get("name")) for function in functions if isinstance(function, dict)]


def _reserved(params: Mapping[str, Any]) -> Iterator[Finding]:
    for key in params:
        if key in OURS:
            yield ("params", key), f"is not the set's to say: {OURS[key]}"


def _unwritable(value: object, path: Path) -> Iterator[Finding]:
    """What JSON cannot say: dates and numbers that are none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _unwritable(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _unwritable(inner, (*path, index))
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, "is no number that JSON knows"
    elif not isinstance(value, str | int | float | bool):
        yield path, "is a date or time: JSON has none, put it in quotes"
