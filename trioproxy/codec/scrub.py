"""Take secrets out of what others may read: an upstream's words go to clients and logs only after this.

Providers echo the key that they refuse, and name their own addresses; neither is the client's business.
"""

import re
from collections.abc import Iterable
from typing import TypeVar

Text = TypeVar("Text", str, bytes)

GONE = "[redacted]"
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
