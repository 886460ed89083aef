r"""Edit a JSON text in place: find the spans of members, replace those, and leave every other byte as it came.

msgspec validates the text and hands out each value's raw bytes; the walk here only adds up lengths to learn where they
stand, so it is linear and never guesses. Spans are `(start, end)` byte offsets into the whole text. A key is known by what
it means, not by how it is written (`"m\u006fdel"` is `model`), and a key that comes twice is an error: two readers would
take different ones.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

Span = tuple[int, int]
Edit = tuple[int, int, bytes]

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
# One key with what stands around it. The text is known to be valid when this runs.
_KEY = re.compile(rb'[\s,]*("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*', re.DOTALL)
_QUOTE = ord('"')
_BLANK = b" \t\r\n"
_AFTER_VALUE = b",}" + _BLANK
_GAP = re.compile(rb"[\s,]*")


class NotAnObject(ValueError):
    """The text is not one JSON object (or, for `items`, not one array)."""


class DuplicateKey(ValueError):
    """The same key comes twice in one object. `key` is its meaning, escapes undone."""

    def __init__(self, key: str) -> None:
        super().__init__(f"duplicate key {key!r}")
        self.key = key


def members(text: bytes, span: Span | None = None) -> dict[str, Span]:
    """Key → span of its value, in the order of the text, for the object that `span` covers (default: the whole text).

    Raises `NotAnObject` for anything else, unreadable or too deep text included, and `DuplicateKey`.
    """
    start, end = span or (0, len(text))
    try:
        values = _OBJECT.decode(text if span is None else text[start:end])
    except (msgspec.DecodeError, RecursionError) as exc:
        raise NotAnObject(str(exc)) from None
    spans: dict[str, Span] = {}
    at = text.index(b"{", start) + 1
    for key, raw in values.items():
        begin = _value_of(text, at, key)
        value = bytes(raw)
        at = begin + len(value)
        # Of two equal keys msgspec keeps the last value, so at the first one something else stands, or more of it.
        if not text.startswith(value, begin) or text[at] not in _AFTER_VALUE:
            raise DuplicateKey(key)
        spans[key] = (begin, at)
    again = _KEY.match(text, at)
    if again is not None:
        raise DuplicateKey(_STRING.decode(again[1]))
    return spans


def items(text: bytes, span: Span) -> list[Span]:
    """The spans of an array's items. Raises `NotAnObject` where `span` covers no array."""
    start, end = span
    try:
        values = _ARRAY.decode(text[start:end])
    except (msgspec.DecodeError, RecursionError) as exc:
        raise NotAnObject(str(exc)) from None
    spans = []
    at = start + 1
    for value in values:
        begin = _end_of_gap(text, at)
        at = begin + len(bytes(value))
        spans.append((begin, at))
    return spans


def key_span(text: bytes, spans: Mapping[str, Span], key: str, start: int = 0) -> Span:
    """Where `key` itself stands, quotes included. `spans` are those of its object, which begins at `start`."""
    before = start
    for name, (begin, end) in spans.items():
        if name == key:
            return text.index(b'"', before), text.rindex(b'"', before, begin) + 1
        before = end
    raise KeyError(key)


def removal(text: bytes, spans: Mapping[str, Span], drop: Iterable[str], start: int = 0) -> list[Edit]:
    """The edits that take the members `drop` out of an object beginning at `start`, each with one comma."""
    gone = set(drop)
    edits: list[Edit] = []
    kept = False
    names = list(spans)
    for at, name in enumerate(names):
        if name not in gone:
            kept = True
        elif kept:
            edits.append((spans[names[at - 1]][1], spans[name][1], b""))
        else:
            follower = names[at + 1] if at + 1 < len(names) else None
            until = key_span(text, spans, follower, start)[0] if follower is not None else spans[name][1]
            edits.append((key_span(text, spans, name, start)[0], until, b""))
    return edits


def splice(text: bytes, edits: Iterable[Edit]) -> bytes:
    """The text with every `(start, end, new)` carried out. Spans must not overlap."""
    parts: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits):
        assert start >= at, "edits overlap"
        parts += (text[at:start], new)
        at = end
    parts.append(text[at:])
    return b"".join(parts)


def _value_of(text: bytes, at: int, key: str) -> int:
    """Where the value of the next member begins; that member is `key`, or a key came twice."""
    quote = text.index(b'"', at)
    name = key.encode()
    after = quote + 1 + len(name)
    if not text.startswith(name, quote + 1) or text[after] != _QUOTE:
        found = _KEY.match(text, at)
        assert found is not None, "msgspec accepted this object, so a key follows"
        written = _STRING.decode(found[1])
        if written != key:
            raise DuplicateKey(written)
        return found.end()
    begin = text.index(b":", after) + 1
    while text[begin] in _BLANK:
        begin += 1
    return begin


def _end_of_gap(text: bytes, at: int) -> int:
    gap = _GAP.match(text, at)
    assert gap is not None, "the pattern matches the empty text too"
    return gap.end()
