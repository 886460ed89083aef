"""The scanner: every key of a TOML text at the line where it stands."""

import tomllib
from textwrap import dedent
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trioproxy.config.lines import Path, key_lines
from trioproxy.config.show import toml_string

TEXT = '''\
# a [comment] with = in it
top = 1
[listen] # trailing
data = "x # no comment [neither.a.header]"
'quoted key' = 1
"esc\\u0041ped.\\"key" = 2
[[channels]]
name = """
x = 1
[[channels]]
ends in quotes"""""
price = { input = 1, "out put" = { deep = 2 } }
[channels.params]
rename.a = 'x'
raw = \'\'\'
\\\'\'\'
[[channels]]
list = [ 1, # one ]
  { a = 2, b = [3,
    "]"] }, # two }
]
when = 1979-05-27 07:32:00Z
[[channels.inner]]
x = 1
[[channels.inner]]
x = 1
[a.b.c]
'''


def test_every_kind_of_key_has_its_line() -> None:
    tomllib.loads(TEXT)
    assert key_lines(TEXT) == {
        ("top",): 2,
        ("listen",): 3,
        ("listen", "data"): 4,
        ("listen", "quoted key"): 5,
        ("listen", 'escAped."key'): 6,
        ("channels",): 7,
        ("channels", 0): 7,
        ("channels", 0, "name"): 8,
        ("channels", 0, "price"): 12,
        ("channels", 0, "price", "input"): 12,
        ("channels", 0, "price", "out put"): 12,
        ("channels", 0, "price", "out put", "deep"): 12,
        ("channels", 0, "params"): 13,
        ("channels", 0, "params", "rename"): 14,
        ("channels", 0, "params", "rename", "a"): 14,
        ("channels", 0, "params", "raw"): 15,
        ("channels", 1): 17,
        ("channels", 1, "list"): 18,
        ("channels", 1, "list", 0): 18,
        ("channels", 1, "list", 1): 19,
        ("channels", 1, "list", 1, "a"): 19,
        ("channels", 1, "list", 1, "b"): 19,
        ("channels", 1, "list", 1, "b", 0): 19,
        ("channels", 1, "list", 1, "b", 1): 20,
        ("channels", 1, "when"): 22,
        ("channels", 1, "inner"): 23,
        ("channels", 1, "inner", 0): 23,
        ("channels", 1, "inner", 0, "x"): 24,
        ("channels", 1, "inner", 1): 25,
        ("channels", 1, "inner", 1, "x"): 26,
        ("a", "b", "c"): 27,
    }


def test_line_ends_of_windows_count_once() -> None:
    assert key_lines(dedent(TEXT).replace("\n", "\r\n"))[("channels", 1, "when")] == 22


keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
scalars = st.integers() | st.booleans() | keys
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))


def written(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return toml_string(value)
        case list():
            return "[\n" + "".join(f"{written(element)}, # ]\n" for element in value) + "]"
        case dict():
            return "{ " + ", ".join(f"{toml_string(key)} = {written(inner)}" for key, inner in value.items()) + " }"
        case _:
            return str(value)


def paths(value: Any, path: Path) -> set[Path]:
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path}.union(*(paths(inner, (*path, key)) for key, inner in members))


@given(st.dictionaries(keys, values, max_size=4))
def test_the_scanner_finds_the_paths_that_tomllib_finds(document: dict[str, Any]) -> None:
    text = "".join(f"{toml_string(key)} = {written(value)}\n" for key, value in document.items())
    assert tomllib.loads(text) == document
    assert set(key_lines(text)) == paths(document, ()) - {()}
