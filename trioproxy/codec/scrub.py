"""Take secrets out of what others may read: an upstream's words go to clients and logs only after this.

Providers echo the key that they refuse, and name their own addresses; neither is the client's business. They echo what a caller
said, too, which is no operator's.
"""

import re
from collections.abc import Iterable
from typing import TypeVar

from trioproxy.codec import jsonread

Text = TypeVar("Text", str, bytes)

GONE = "[redacted]"
QUOTE = 12  # characters in a row that are a quotation: the names of roles and of kinds of content are shorter
LONGEST = 1_000  # characters of a message that are kept where it is looked through for quotations
MOST = 262_144  # bytes of a request that are looked through; of a larger one nothing may be quoted
# Stops at what may close a JSON string or an HTML attribute, so that an edited body stays what it was.
_END = r"""\s"'<>\\,;"""
_PATTERNS = (
    (re.compile(rf"(?i)\b(bearer|basic)\s+[^{_END}]+"), rf"\1 {GONE}"),
    (re.compile(rf"(?i)(api[ _-]?key provided:?\s*)[^{_END}]+"), rf"\1{GONE}"),
    (
        re.compile(
            rf"(?i)\b((?:api|access|secret|x-api|subscription)?[-_]?(?:key|token|secret|sig|signature)=)[^&{_END}]+"
        ),
        rf"\1{GONE}",
    ),
    # JSON may write a slash as `\/`.
    (re.compile(rf"(?i)\b[a-z][a-z0-9+.-]{{1,15}}:(?://|\\/\\/)(?:[^{_END})\]]|\\/)+"), GONE),
    # The makers' prefixes; masked echoes ("sk-proj-abc***xyz") count.
    (re.compile(r"\b(?:sk|pk|rk|gsk|xai|nvapi|hf|tp|pplx|csk|fw|r8)[-_][A-Za-z0-9_\-*.…]{3,}"), GONE),
    (re.compile(r"\b(?:AIza|AKIA|ASIA|ya29\.|eyJ)[A-Za-z0-9_\-./+]{10,}"), GONE),
)


def scrub(text: Text, secrets: Iterable[str] = ()) -> Text:
    """The text without the given secrets, without what looks like a key, and without addresses."""
    if isinstance(text, bytes):
        return scrub(text.decode("utf-8", "surrogateescape"), secrets).encode("utf-8", "surrogateescape")
    clean: str = text
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        clean = clean.replace(secret, GONE)
    for pattern, replacement in _PATTERNS:
        clean = pattern.sub(replacement, clean)
    return clean


def unquoted(message: str, request: bytes) -> str:
    """A provider's message without what it quotes of a request: of its values, for the names of parameters say what is wrong."""
    message = message[:LONGEST]
    try:
        said = "\n".join(_texts(jsonread.read(request)[0])) if len(request) <= MOST else message
    except ValueError:
        return GONE
    kept: list[str] = []
    at = 0
    while at < len(message):
        end = at + QUOTE
        if end > len(message) or message[at:end] not in said:
            kept.append(message[at])
            at += 1
            continue
        while end < len(message) and message[at : end + 1] in said:
            end += 1
        kept.append(GONE)
        at = end
    return "".join(kept)


def _texts(value: object) -> list[str]:
    """Every string among the values, however deep."""
    texts, left = [], [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
    return texts
