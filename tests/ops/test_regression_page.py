"""The page stands alone, says what there is, and nothing that a model said can become a part of it."""

import re
from html.parser import HTMLParser

import pytest
from trio.testing import MockClock

from tests.fakes import steps
from tests.ops.test_regression import answering, plan, ran
from tests.scene import scene
from trioproxy.ops.regression_page import money, page, shown, visible

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></main><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "<!-- ", "]]>", "&lt;b&gt;", "\x1b[2J\x1b]0;owned\x07", "\u202eevil", "\ud800", "</style><style>*{display:none}",
]  # fmt: skip


class Tags(HTMLParser):
    """Every tag that is opened, and every attribute's name."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Tags:
    parser = Tags()
    parser.feed(text)
    return parser


async def page_of(text: str) -> str:
    """A page on which `text` stands everywhere where another's text can stand."""
    name = text.encode("utf-8", "replace").decode().replace("\x1b", "").replace("\x07", "")
    toml = f"[[prompts]]\nname = '''{name} '''\nprompt = '''{name}'''\nexpect = {{ contains = ['''{name}'''] }}\n"
    call = {"type": "function", "function": {"name": text, "arguments": text}}
    async with scene("a", "b") as s:
        s.a.script(answering({"content": text, "refusal": text, "tool_calls": [call]}, finish=text))
        s.b.script(steps.error(400, {"error": {"message": text}}))
        return page(await ran(plan(s, toml)))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_whatever_a_model_says_stays_text(text: str, autojump_clock: MockClock) -> None:
    plain, hostile = read(await page_of("harmless")), await page_of(text)
    found = read(hostile)
    assert found.tags == plain.tags
    assert found.names == plain.names
    assert visible(text).strip() in found.text
    assert hostile.encode("utf-8")
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", hostile) is None


async def test_the_page_needs_nothing_from_elsewhere(autojump_clock: MockClock) -> None:
    text = await page_of("harmless")
    found = read(text)
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(found.tags)
    assert not {"src", "href", "srcset", "action"} & found.names
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


async def test_both_answers_their_checks_and_the_figures_are_there(autojump_clock: MockClock) -> None:
    toml = (
        'name = "Support"\n[[prompts]]\nname = "greets"\nprompt = "Hi"\nexpect = { contains = ["yes"], max_tokens = 2 }'
    )
    async with scene("a", "b") as s:
        s.a.script(steps.chat_answer("yes indeed", delay=1.5, usage=(100, 2)))
        s.b.script(steps.chat_answer("no", usage=(100, 2)))
        text = page(await ran(plan(s, toml)))
    said = read(text).text
    for part in (
        "Support",
        "greets",
        "yes indeed",
        "a-model",
        "100 %",
        "0 %",
        "1.50 s",
        "$0.000108",
        "other words",
        "1 of 1",
    ):
        assert part in said, part
    assert "<li>contains" in text
    assert "<li class=no>contains" in text


def test_money_is_told_to_the_last_micro_dollar_and_never_as_nothing() -> None:
    assert [money(0), money(1), money(1_234_567), money(None)] == ["$0.000000", "$0.000001", "$1.234567", "unknown"]


def test_joiners_that_scripts_need_stay() -> None:
    text = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 👩\u200d💻\n\tx"
    assert shown(text) == text
