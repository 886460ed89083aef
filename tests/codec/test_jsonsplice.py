"""Splicing: spans are exact, edits change what they name, every other byte survives."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.jsonsplice import DuplicateKey, NotAnObject, items, key_span, members, removal, splice

keys = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["model", "a", "ab", 'q"', "b\\"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(keys, values, max_size=6)
layouts = st.tuples(st.booleans(), st.sampled_from([None, 1, "\t"]), st.sampled_from([(",", ":"), (" , ", " : ")]))


def dumped(value: Any, layout: tuple[bool, Any, tuple[str, str]]) -> bytes:
    ascii_only, indent, separators = layout
    return json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators).encode()


@given(objects, layouts)
def test_every_span_covers_exactly_its_value(value: dict[str, Any], layout: Any) -> None:
    text = dumped(value, layout)
    spans = members(text)
    assert {key: json.loads(text[a:b]) for key, (a, b) in spans.items()} == value
    assert [json.loads(text[slice(*key_span(text, spans, key))]) for key in spans] == list(value)


@given(objects, layouts, st.data())
def test_splicing_equals_editing_and_leaves_the_rest_alone(value: dict[str, Any], layout: Any, data: Any) -> None:
    text = dumped(value, layout)
    spans = members(text)
    gone = {key for key in value if data.draw(st.booleans())}
    changed = {key for key in value if key not in gone and data.draw(st.booleans())}
    edits = removal(text, spans, gone) + [(*spans[key], b'"new"') for key in changed]
    result = splice(text, edits)
    assert json.loads(result) == {key: "new" if key in changed else value[key] for key in value if key not in gone}
    after = members(result)
    for key in set(value) - gone - changed:
        assert result[slice(*after[key])] == text[slice(*spans[key])]


@given(st.lists(values, max_size=5), layouts, st.binary(max_size=3).map(lambda pad: b" " * len(pad)))
def test_items_are_found_inside_a_larger_text(value: list[Any], layout: Any, pad: bytes) -> None:
    array = dumped(value, layout)
    text = b'{"messages":' + pad + array + b"}"
    span = members(text)["messages"]
    assert [json.loads(text[a:b]) for a, b in items(text, span)] == value


@given(objects, layouts, st.data())
def test_a_key_that_comes_twice_is_never_missed(value: dict[str, Any], layout: Any, data: Any) -> None:
    key = data.draw(st.sampled_from(sorted(value)) if value else st.just("a"))
    escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in key)
    extra = data.draw(values)
    body = dumped(value or {"a": 1}, layout)
    again = b', "' + escaped.encode() + b'": ' + dumped(extra, layout) + b"}"
    with pytest.raises(DuplicateKey) as caught:
        members(body.rstrip()[:-1] + again if key not in ('"', "\\") else body[:-1] + again)
    assert caught.value.key == key


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":12,"a":1}',
        b'{"a":1.5,"b":0,"a":1}',
        b'{"a":{"x":1},"b":2,"\\u0061":{"x":1}}',
        b'{"b":0,"a":1,"c":2,"a":1}',
    ],
)
def test_duplicates_are_found_however_they_stand(text: bytes) -> None:
    with pytest.raises(DuplicateKey, match="'a'"):
        members(text)


@pytest.mark.parametrize("text", [b"", b"[]", b"1", b'{"a":}', b"{", b'{"a":' + b"[" * 100_000, b"\xef\xbb\xbf{}"])
def test_anything_but_an_object_is_refused(text: bytes) -> None:
    with pytest.raises(NotAnObject):
        members(text)


@pytest.mark.parametrize("text", [b"{}", b"1", b"[" * 100_000])
def test_anything_but_an_array_has_no_items(text: bytes) -> None:
    with pytest.raises(NotAnObject):
        items(text, (0, len(text)))


def test_spans_within_a_span_count_from_the_whole_text() -> None:
    text = b'{"x": {"a": 1, "b": [2]}, "y": 3}'
    inner = members(text, members(text)["x"])
    assert {key: text[a:b] for key, (a, b) in inner.items()} == {"a": b"1", "b": b"[2]"}


def test_a_member_that_is_not_there_has_no_key_span() -> None:
    with pytest.raises(KeyError):
        key_span(b'{"a":1}', members(b'{"a":1}'), "b")


def test_overlapping_edits_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        splice(b"abcdef", [(0, 3, b""), (2, 4, b"")])
