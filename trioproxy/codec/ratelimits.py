"""Rate-limit headers: what providers tell about their limits, and what we tell about ours.

Read: one table per provider family, because the same name means requests per day at one and per minute at another. Proxies
duplicate headers, so of several values the most restrictive counts; what cannot be (negative, NaN, no number) is passed over.
An observation tunes local limits and never replaces them. Resets are seconds from now, to a *full* limit as most providers
mean it, in [0, 24 h].

Written: OpenAI's names, and the IETF's RateLimit fields (draft-ietf-httpapi-ratelimit-headers), which tell more: there the
time is to *more* quota, not to all of it.
"""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from trioproxy.codec.retry_hint import duration

Headers = Sequence[tuple[bytes, bytes]]

LONGEST = 86_400.0  # seconds; a longer reset is not believed
LARGEST = 10**15  # no limit of this size is one

# Dimensions, in the words of the quota's own.
REQUESTS, REQUESTS_DAY = "requests_per_minute", "requests_per_day"
TOKENS, INPUT, OUTPUT = "tokens_per_minute", "input_tokens_per_minute", "output_tokens_per_minute"
CAPACITY = "capacity_percent"  # of provisioned throughput

# Per family: a header's name with the place of limit, remaining and reset; the dimension; what part of the account.
_OPENAI = (
    ("x-ratelimit-{}-requests", REQUESTS, ""),
    ("x-ratelimit-{}-tokens", TOKENS, ""),
    ("x-ratelimit-{}-project-tokens", TOKENS, "project"),
)
_ANTHROPIC = (
    ("anthropic-ratelimit-requests-{}", REQUESTS, ""),
    ("anthropic-ratelimit-tokens-{}", TOKENS, ""),
    ("anthropic-ratelimit-input-tokens-{}", INPUT, ""),
    ("anthropic-ratelimit-output-tokens-{}", OUTPUT, ""),
    ("anthropic-priority-input-tokens-{}", INPUT, "priority"),
    ("anthropic-priority-output-tokens-{}", OUTPUT, "priority"),
    ("anthropic-fast-input-tokens-{}", INPUT, "fast"),
    ("anthropic-fast-output-tokens-{}", OUTPUT, "fast"),
)
_TABLES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "openai": _OPENAI,
    "azure": _OPENAI,
    "anthropic": _ANTHROPIC,
    "groq": (("x-ratelimit-{}-requests", REQUESTS_DAY, ""), ("x-ratelimit-{}-tokens", TOKENS, "")),
    "cerebras": (("x-ratelimit-{}-requests-day", REQUESTS_DAY, ""), ("x-ratelimit-{}-tokens-minute", TOKENS, "")),
    "mistral": (("x-ratelimit-{}-req-minute", REQUESTS, ""), ("x-ratelimit-{}-tokens-minute", TOKENS, "")),
    "openrouter": (("x-ratelimit-{}", REQUESTS, ""),),
    "gemini": (),
    "deepseek": (),
}
_UTILIZATION = b"azure-openai-deployment-utilization"
_FIELDS = ("limit", "remaining", "reset")
_REMAINING, _RESET = 1, 2
_NOTHING = [None, None, None]

_REQUESTS, _TOKENS = (
    tuple(f"x-ratelimit-{kind}-{word}".encode() for kind in _FIELDS) for word in ("requests", "tokens")
)

_NUMBER = re.compile(r"\+?(\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_GO_UNITS = frozenset("smhd")
_MILLISECONDS, _SECONDS = 1e12, 1e9  # a bare number above is a moment in that unit, not a duration


class Observation(NamedTuple):
    """What a provider told about one of its limits; None where it told nothing. `reset_after` is seconds from now."""

    dimension: str
    limit: int | None = None
    remaining: int | None = None
    reset_after: float | None = None
    scope: str = ""


class Allowance(NamedTuple):
    """One of our own limits, as a caller may know it. `window` and the times are seconds; `unit` "requests" or "tokens".

    `reset_after` is the time until it is full again, `more_after` the time until there is more of it.
    """

    name: str
    limit: int
    remaining: int
    reset_after: float
    more_after: float
    window: int = 60
    unit: str = "requests"


def _indexed(rows: Iterable[tuple[str, str, str]]) -> dict[bytes, tuple[tuple[str, str], int]]:
    """Name → dimension and scope, and the place of limit, remaining or reset."""
    return {
        name.format(kind).encode(): ((dimension, scope), place)
        for name, dimension, scope in rows
        for place, kind in enumerate(_FIELDS)
    }


_NAMES = {family: _indexed(rows) for family, rows in _TABLES.items()}


def telling(family: str, headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that tell of a limit of requests or tokens. Names are in lower case, as a reader of answers gives them."""
    names = _NAMES.get(family, _NAMES["openai"])
    return [pair for pair in headers if pair[0] in names]


def observations(family: str, headers: Headers, wall: float) -> list[Observation]:
    """What the headers of one answer tell, by the provider's family (an unknown one is read as OpenAI's). Never raises.

    `wall` is Unix time, for resets that are given as moments.
    """
    names = _NAMES.get(family, _NAMES["openai"])
    seen: dict[tuple[str, str], list[float | None]] = {}
    for name, value in headers:
        known = names.get(name) or names.get(name.lower())
        if known is not None:
            key, place = known
            told = seen.get(key)
            if told is None:
                told = seen[key] = [None, None, None]
            if place != _RESET and told[place] is None and value.isdigit() and len(value) < 16:  # nearly always
                told[place] = int(value)
            else:
                _note(told, place, value, wall)
        elif name.lower() == _UTILIZATION and (used := _number(value.decode("latin-1").rstrip(" %"))) is not None:
            _keep(seen.setdefault((CAPACITY, ""), [100.0, None, None]), _REMAINING, max(0.0, 100.0 - used))
    return [
        Observation(key[0], _whole(told[0]), _whole(told[1]), told[2], key[1])
        for key, told in seen.items()
        if told != _NOTHING
    ]


def reset_after(text: str, wall: float) -> float | None:
    """Seconds in [0, 24 h] from a reset as any provider writes it; None for anything else.

    A Go duration ("1m2.5s"), a bare number of seconds, a Unix time in seconds or milliseconds, or RFC 3339.
    """
    seconds, absolute = _reset(text)
    if seconds is None:
        return None
    return _clamped(seconds - wall if absolute else seconds)


@lru_cache(maxsize=4096)  # the same few durations, and moments in whole seconds, come again and again
def _reset(text: str) -> tuple[float | None, bool]:
    """Seconds, and whether they are since 1970 rather than from now."""
    text = text.strip()
    number = _number(text)
    if number is not None:
        if number > _SECONDS:
            return number / (1000 if number > _MILLISECONDS else 1), True
        return number, False
    seconds = duration(text) if text[-1:] in _GO_UNITS else None
    return (seconds, False) if seconds is not None else (_moment(text), True)


def openai_headers(requests: Allowance | None, tokens: Allowance | None) -> list[tuple[bytes, bytes]]:
    """`x-ratelimit-*` as OpenAI's clients read them. Resets are Go durations to a full limit."""
    lines: list[tuple[bytes, bytes]] = []
    for names, one in ((_REQUESTS, requests), (_TOKENS, tokens)):
        if one is not None:
            left = max(0, one.remaining)
            reset = go_duration(one.reset_after).encode()
            lines += ((names[0], b"%d" % one.limit), (names[1], b"%d" % left), (names[2], reset))
    return lines


def ietf_headers(allowances: Sequence[Allowance]) -> list[tuple[bytes, bytes]]:
    """`ratelimit-policy` and `ratelimit` as lists of Structured Fields; nothing where there is no limit.

    `t` is rounded up, so that nobody who obeys it comes too early; a Retry-After beside it must not be earlier.
    """
    if not allowances:
        return []
    policies, limits = [], []
    for name, limit, remaining, _, more, window, unit in allowances:
        policies.append(_policy(name, limit, unit, window))
        limits.append(f"{_string(name)};r={max(0, remaining)};t={_ceiled(more)}")
    return [(b"ratelimit-policy", ", ".join(policies).encode()), (b"ratelimit", ", ".join(limits).encode())]


def go_duration(seconds: float) -> str:
    """A duration as Go writes it: "750ms", "1.5s", "6m0s", "2h0m5s". Rounded up to milliseconds; endless ones to a day."""
    if seconds <= 0:  # nothing of it is used
        return "0s"
    milliseconds = math.ceil(min(LONGEST, seconds) * 1000 - 1e-6)
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _note(told: list[float | None], place: int, value: bytes, wall: float) -> None:
    """Take up one header's value; a proxy may have joined several with commas."""
    for text in value.decode("latin-1").split(","):
        _keep(told, place, reset_after(text, wall) if place == _RESET else _number(text))


def _keep(told: list[float | None], place: int, value: float | None) -> None:
    """The most restrictive of what was said: the least limit and remainder, the latest reset."""
    known = told[place]
    if value is None or known is None:
        told[place] = known if value is None else value
    else:
        told[place] = max(known, value) if place == _RESET else min(known, value)


def _number(text: str) -> float | None:
    """A number that is none of negative, NaN, infinite and beyond all reason."""
    found = _NUMBER.fullmatch(text.strip())
    number = float(found[1]) if found else math.inf
    return number if number < LARGEST else None


def _moment(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    # Without an offset it is no RFC 3339, and nobody knows whose midnight it means.
    return at.timestamp() if at.tzinfo is not None else None


def _clamped(seconds: float) -> float:
    return min(LONGEST, max(0.0, seconds))


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


@lru_cache(maxsize=4096)
def _policy(name: str, limit: int, unit: str, window: int) -> str:
    quota_unit = "" if unit == "requests" else f";qu={_string(unit)}"
    return f"{_string(name)};q={limit}{quota_unit};w={window}"


def _ceiled(seconds: float) -> int:
    return 0 if seconds <= 0 else math.ceil((min(LONGEST, seconds)) - 1e-9)


@lru_cache(maxsize=4096)
def _string(text: str) -> str:
    """A Structured Fields string: printable ASCII, quote and backslash escaped."""
    kept = "".join(char if " " <= char <= "~" else "?" for char in text)
    return '"' + kept.replace("\\", "\\\\").replace('"', '\\"') + '"'
