"""JSON as providers write it: read leniently, judge exactly, send on strictly.

Two things in the field are not JSON for a strict reader and yet perfectly good answers: lone surrogates (a Node server
that cuts an emoji in two) and the words NaN and Infinity (a Python server's logprobs). Both are read here; only the words
have to be replaced before a client may see them (`strict`), everything else stays as it came.
"""

import json
import re
from typing import Literal

import msgspec

_decode = msgspec.json.decode
# A string, or a word that only Python's and JavaScript's writers take for a number.
_WORDS = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+]?\b(?:NaN|Infinity)\b', re.DOTALL)

Form = Literal["json", "sse", "html", "empty", "other"]


def read(data: bytes) -> tuple[object, bool]:
    """The value, and whether words stand in it that strict JSON does not know. Raises `ValueError` if unreadable."""
    try:
        return _decode(data), False
    except msgspec.DecodeError:
        pass
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    odd: list[str] = []
    try:
        value = json.loads(data.decode("utf-8", "replace").removeprefix("\ufeff"), parse_constant=odd.append)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    return value, bool(odd)


def is_text(data: bytes) -> bool:
    """Whether it is UTF-8 throughout, without which no client can read it, JSON or not."""
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def strict(data: bytes) -> bytes:
    """The same text with null for NaN and Infinity, outside strings only."""
    return _WORDS.sub(lambda word: word[0] if word[0].startswith(b'"') else b"null", data)


def tidy(body: bytes) -> bytes:
    """A whole answer as strict JSON: the very same bytes unless words for numbers stand in it as values."""
    if b"NaN" not in body and b"Infinity" not in body:
        return body
    try:
        return strict(body) if read(body)[1] else body
    except ValueError:
        return body


def write(value: object) -> bytes:
    """Compact strict JSON; lone surrogates go out as the escapes they came as. Raises `ValueError` if too deep."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def form_of(head: bytes) -> Form:
    """What an answer is by its first bytes, whatever its Content-Type says. A few bytes of the body are enough."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:16].lower()
    if not start:
        return "empty"
    if start[:1] in b"{[":
        return "json"
    if start.startswith((b":", b"data:", b"event:", b"id:", b"retry:")):
        return "sse"
    return "html" if start.startswith(b"<") else "other"
