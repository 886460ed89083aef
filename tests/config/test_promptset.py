"""A set is read strictly: all of its faults at once, each with its path and line, before anything is sent."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from attrs import fields

from tests.docs.pages import DOCS, Example, examples, own, table, tables, words
from trioproxy.config.promptset import MOST_PROMPTS, Prompt, PromptSet, parse_set
from trioproxy.errors import ConfigError
from trioproxy.policy.expect import Expect, Tool
from trioproxy.policy.refusal import BEGINNING, REFUSALS

SET = """
model = "m"
params = { temperature = 0, max_tokens = 50 }
[[prompts]]
prompt = "Hi"
system = "Be brief."
params = { max_tokens = 9 }
expect = { contains = ["Hi"], refusal = false }
"""


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_set(text, "set.toml")
    return [str(fault) for fault in caught.value.faults]


def test_a_prompt_is_the_set_s_parameters_and_its_own() -> None:
    prompts = parse_set(SET, "set.toml")
    (prompt,) = prompts.prompts
    assert prompt.name == "prompt 1"
    assert prompt.expect == Expect(contains=("Hi",), refusal=False)
    assert json.loads(prompts.body(prompt, "public")) == {
        "model": "public",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "temperature": 0,
        "max_tokens": 9,
    }


def test_messages_go_as_they_are() -> None:
    text = (
        '[[prompts]]\nmessages = [{ role = "user", content = [{ type = "text", text = "é" }] }]\nexpect.min_length = 1'
    )
    prompts = parse_set(text, "set.toml")
    body = prompts.body(prompts.prompts[0], "m")
    assert json.loads(body)["messages"] == [{"role": "user", "content": [{"type": "text", "text": "é"}]}]


# A set is no configuration: the page's fences say TOML, so that nobody takes one for the other.
@pytest.mark.parametrize("example", examples("TOML"), ids=str)
def test_every_set_of_the_documentation_is_one(example: Example) -> None:
    assert parse_set(example.text, "example").prompts


def test_every_key_of_a_set_is_documented_with_its_type() -> None:
    for heading, cls in (("The file", PromptSet), ("A prompt", Prompt), ("What can be expected", Expect)):
        documented = [words(row[0])[0] for row in table(own(DOCS / "regression.md", heading))]
        assert documented == [field.name for field in fields(cls)], heading


def test_the_reading_s_example_of_the_documentation_runs(tmp_path: Path) -> None:
    (code,) = [example.text for example in examples("python") if example.page == "regression.md"]
    (shown,) = [example.text for example in examples("json") if example.page == "regression.md"]
    names: dict[str, Any] = {}
    exec(compile(code, "regression.md", "exec"), names)  # noqa: S102 - our own documentation
    file = tmp_path / "report.json"
    file.write_text(shown)
    assert names["good_enough"](file) is False  # it is old by now
    file.write_text(shown.replace("1764495000.0", "1e12"))
    assert names["good_enough"](file) is True


def test_the_phrases_of_the_documentation_are_the_code_s() -> None:
    (listed,) = tables(own(DOCS / "regression.md", "How a refusal is known"))
    assert [word for row in listed for word in words(" ".join(row))] == list(REFUSALS)
    assert f"first {BEGINNING} characters" in own(DOCS / "regression.md", "How a refusal is known")


def test_the_example_that_ships_is_a_set() -> None:
    text = files("trioproxy.docs").joinpath("regression-example.toml").read_text("utf-8")
    prompts = parse_set(text, "example")
    assert prompts.prompts[-1].expect.tool == Tool("weather", {"unit": "celsius"})


BROKEN = """modl = 1
refusal_phrases = [" "]
[params]
n = 3
at = 2026-01-01
[[prompts]]
name = "a"
prompt = "x"
params = { stream = true, max_tokens = 0, top_p = nan }
expect = { regex = ["("], schema = { type = "nope" }, tool = { name = "x" }, contains = "x", max_tokens = -1 }
[[prompts]]
name = "a"
expect = {}
[[prompts]]
prompt = "u"
messages = [{ role = "user" }]
expect = { schema = { "$ref" = "https://x" }, min_length = 3, max_length = 2, refusal = 1, contains = [""] }
[[prompts]]
messages = [{ content = "x" }]
colour = 1
"""


def test_all_faults_are_told_at_once_with_paths_and_lines() -> None:
    told = faults(BROKEN)
    assert [fault.partition("): ")[0] for fault in told] == [
        "modl (line 1",
        "refusal_phrases (line 2",
        "params.n (line 4",
        "params.at (line 5",
        "prompts[0].params.stream (line 9",
        "prompts[0].params.max_tokens (line 9",
        "prompts[0].params.top_p (line 9",
        "prompts[0].expect.contains (line 10",
        "prompts[0].expect.max_tokens (line 10",
        "prompts[0].expect.regex[0] (line 10",
        "prompts[0].expect.schema (line 10",
        "prompts[0].expect.tool.name (line 10",
        "prompts[1].prompt (line 11",
        "prompts[1].name (line 12",
        "prompts[1].expect (line 13",
        "prompts[2].messages (line 16",
        "prompts[2].expect.refusal (line 17",
        "prompts[2].expect.contains (line 17",
        "prompts[2].expect.min_length (line 17",
        "prompts[2].expect.schema (line 17",
        "prompts[3].expect (line 18",
        "prompts[3].messages (line 19",
        "prompts[3].colour (line 20",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "prompts: there are none: add [[prompts]] with a prompt and an expect"),
        ("prompts = []", "prompts (line 1): is empty: add a [[prompts]]"),
        ("prompts = 3", "prompts (line 1): this is a whole number: give a list in [ ]"),
        ("prompts = [3]", "prompts[0] (line 1): this is a whole number: give a table such as { key = value }"),
        ("= 1", "set.toml (line 1): is no TOML: Invalid statement (at line 1, column 1)"),
    ],
)
def test_a_file_that_is_no_set_at_all(text: str, fault: str) -> None:
    assert faults(text) == [fault]


def test_a_set_is_bounded() -> None:
    text = '[[prompts]]\nprompt = "x"\nexpect.min_length = 1\n' * (MOST_PROMPTS + 1)
    (fault,) = faults(text)
    assert f"at most {MOST_PROMPTS} are allowed" in fault


def test_the_hash_is_of_what_is_asked_and_expected_and_of_nothing_else() -> None:
    same = parse_set(SET, "set.toml").hash
    told_otherwise = '# a comment\nname = "n"\n' + SET.replace('model = "m"', 'model = "other"')
    told_otherwise = told_otherwise.replace("temperature = 0, max_tokens = 50", "max_tokens = 50, temperature = 0")
    assert parse_set(told_otherwise, "x").hash == same
    changes = (("Hi", "Ho"), ("= 9", "= 8"), ("false", "true"), ("temperature = 0", "temperature = 1"), ("Be", "Do be"))
    others = {parse_set(SET.replace(*change), "x").hash for change in changes}
    others.add(parse_set('refusal_phrases = ["nope"]\n' + SET, "x").hash)
    assert len(others | {same}) == len(changes) + 2
