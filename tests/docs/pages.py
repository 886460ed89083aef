"""The documentation as the tests read it: pages, their sections, tables and examples."""

import re
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "trioproxy" / "docs"
README = ROOT / "README.md"
PAGES = (README, *sorted(DOCS.glob("*.md")))

FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


@frozen
class Example:
    """One fenced block. `kind` is what stands behind the fence, such as "toml fragment"."""

    page: str
    kind: str
    text: str

    def __str__(self) -> str:
        first = next((line for line in self.text.splitlines() if line.strip()), "")
        return f"{self.page}:{first[:40]}"


def examples(language: str) -> list[Example]:
    """Every block of a language, in all pages."""
    found = (
        Example(page.name, *match.group("kind", "text"))
        for page in PAGES
        for match in FENCE.finditer(page.read_text("utf-8"))
    )
    return [example for example in found if example.kind.split(" ")[0] == language]


def prose(page: Path) -> str:
    """The page without its examples."""
    return FENCE.sub("", page.read_text("utf-8"))


def section(page: Path, heading: str) -> str:
    """What stands below a heading, down to the next one of its level or above."""
    text = prose(page)
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert found, f"{page.name} has no heading {heading!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def own(page: Path, heading: str) -> str:
    """What stands below a heading, down to the next one of any level."""
    return re.split(r"^#+ ", section(page, heading), maxsplit=1, flags=re.MULTILINE)[0]


def tables(text: str) -> list[list[list[str]]]:
    """Every table's rows without the head, cell by cell."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()[2:]] for block in blocks
    ]


def table(text: str) -> list[list[str]]:
    """The first table."""
    return tables(text)[0]


def words(cell: str) -> list[str]:
    """What a cell names in `backticks`."""
    return re.findall(r"`([^`]+)`", cell)
