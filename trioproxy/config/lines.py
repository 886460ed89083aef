"""Where each key of a TOML text stands: key path → line, counted from 1.

`tomllib` reads the values and forgets where they were. This scanner reads the same text again, only for the places; it is
given text that `tomllib` has accepted, so it need not tell good TOML from bad. A path is made of keys and array indexes, as
in `("channels", 0, "price", "input")`.
"""

import re
from collections.abc import Iterator, Mapping

from attrs import define, field

Path = tuple[str | int, ...]

BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
# Up to two quotes may stand right before the closing three (TOML 1.0, "String").
LONG_STRING = re.compile(r'"""(?:\\.|[^\\])*?"""(?:"{0,2})|' + r"'''.*?'''(?:'{0,2})", re.DOTALL)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'")
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
ATOM = re.compile(r"[^,\]}\n#]*")
ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\(.)")
ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


def key_lines(text: str) -> Mapping[Path, int]:
    """Every key path of the text with its line; a table's path has the line of its first header or key."""
    scanner = Scanner(text)
    scanner.document()
    return scanner.lines


@define(eq=False)
class Scanner:
    """A cursor over one text. `lines` is what it has found."""

    text: str
    at: int = field(init=False, default=0)
    lines: dict[Path, int] = field(init=False, factory=dict)
    _tables: dict[Path, int] = field(init=False, factory=dict)  # array of tables → how many so far
    _newlines: int = field(init=False, default=0)
    _counted: int = field(init=False, default=0)

    def document(self) -> None:
        table: Path = ()
        while self._skip():
            table = self._header() if self._peek("[") else self._pair(table)

    def _header(self) -> Path:
        line = self._line()
        array = self.text.startswith("[[", self.at)
        self.at += 2 if array else 1
        path: Path = ()
        keys = list(self._keys())
        for key in keys[:-1]:
            path = self._latest((*path, key))
        path = (*path, keys[-1])
        if array:
            self._tables[path] = self._tables.get(path, -1) + 1
            self.lines.setdefault(path, line)
        self.at = self.text.index("]", self.at) + (2 if array else 1)
        self.lines.setdefault(self._latest(path), line)
        return self._latest(path)

    def _latest(self, path: Path) -> Path:
        """The path, and its last element where it names an array of tables."""
        return (*path, self._tables[path]) if path in self._tables else path

    def _pair(self, table: Path) -> Path:
        """One `key = value`; returns the table for the next one."""
        line, path = self._line(), table
        for key in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self.at = self.text.index("=", self.at) + 1
        self._skip()
        self._value(path)
        return table

    def _value(self, path: Path) -> None:
        if self._peek("["):
            self._array(path)
        elif self._peek("{"):
            self._inline_table(path)
        else:
            found = LONG_STRING.match(self.text, self.at) or STRING.match(self.text, self.at)
            found = found or ATOM.match(self.text, self.at)
            assert found  # ATOM matches nothing, too
            self.at = found.end()

    def _array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while self._skip() and not self._peek("]"):
            self.lines[*path, index] = self._line()
            self._value((*path, index))
            index += 1
            self._comma()
        self.at += 1

    def _inline_table(self, path: Path) -> None:
        self.at += 1
        while self._skip() and not self._peek("}"):
            self._pair(path)
            self._comma()
        self.at += 1

    def _keys(self) -> Iterator[str]:
        """The parts of a dotted key; leaves the cursor behind the last one."""
        while True:
            self._skip()
            found = STRING.match(self.text, self.at) or BARE_KEY.match(self.text, self.at)
            assert found, "tomllib accepted the text, so a key stands here"
            self.at = found.end()
            yield _unquoted(found.group())
            self._skip()
            if not self._peek("."):
                return
            self.at += 1

    def _comma(self) -> None:
        if self._skip() and self._peek(","):
            self.at += 1

    def _peek(self, char: str) -> bool:
        return self.text.startswith(char, self.at)

    def _skip(self) -> bool:
        """Go past blanks and comments. Whether anything is left."""
        found = BLANK.match(self.text, self.at)
        assert found  # it matches nothing, too
        self.at = found.end()
        return self.at < len(self.text)

    def _line(self) -> int:
        self._newlines += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._newlines + 1


def _unquoted(key: str) -> str:
    if key[0] == "'":
        return key[1:-1]
    return ESCAPE.sub(_unescaped, key[1:-1]) if key[0] == '"' else key


def _unescaped(found: re.Match[str]) -> str:
    digits = found[1] or found[2]
    return chr(int(digits, 16)) if digits else ESCAPES.get(found[3], found[3])
