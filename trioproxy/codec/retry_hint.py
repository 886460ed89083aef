"""How long a provider asks us to wait: the grammar of Retry-After, and of durations as providers write them.

In order: `retry-after-ms`, `retry-after` in (fractional) seconds, `retry-after` as one of the three HTTP dates. Proxies
duplicate headers, so of several readable values the largest counts. A wait is never negative and never above the cap: a
provider that says "nine years" has not thought about it.
"""

import calendar
import re
from collections.abc import Sequence

CAP = 600.0  # seconds: the most that throttling may keep a channel out; longer is not believed

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
# RFC 9110, 5.6.7: IMF-fixdate, RFC 850, asctime.
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\w{{3}}, (?P<day>\d\d) (?P<month>\w{{3}}) (?P<year>\d{{4}}) {_CLOCK} GMT",
        rf"\w{{6,9}}, (?P<day>\d\d)-(?P<month>\w{{3}})-(?P<year>\d\d) {_CLOCK} GMT",
        rf"\w{{3}} (?P<month>\w{{3}}) (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})",
    )
)
_DAY = 86_400.0
_HALF_CENTURY = 50 * 365.25 * _DAY


def retry_after(headers: Sequence[tuple[bytes, bytes]], wall: float, *, cap: float = CAP) -> float | None:
    """Seconds to wait from now, in [0, cap]; None where no header says anything readable. `wall` is Unix time."""
    waits: dict[bytes, list[float]] = {b"retry-after-ms": [], b"retry-after": []}
    for name, value in headers:
        known = waits.get(name.lower())
        if known is not None:
            text = value.decode("latin-1").strip()
            wait = _seconds(text, 0.001) if known is waits[b"retry-after-ms"] else _wait(text, wall)
            known += () if wait is None else (wait,)
    found = waits[b"retry-after-ms"] or waits[b"retry-after"]
    return min(max(0.0, *found), cap) if found else None


def duration(text: str) -> float | None:
    """Seconds in a Go-like duration ("6m0s", "1m2.5s", "750ms") or a bare number; None for anything else."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return max(0.0, float(text))
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def date(text: str, wall: float) -> float | None:
    """Unix time of an HTTP date in any of its three forms; None if it is none. `wall` settles two-digit years."""
    for pattern in _DATES:
        found = pattern.fullmatch(text)
        if found is None:
            continue
        day, *clock = (int(found[part]) for part in ("day", "hour", "minute", "second"))
        month, year = _month(found["month"]), int(found["year"])
        short = len(found["year"]) == 2
        if short:
            year += 2000
        if not _possible((year, month, day), clock):
            return None
        at = calendar.timegm((year, month, day, *clock))
        # RFC 9110: a two-digit year that seems more than 50 years ahead is the past one with the same digits.
        if short and at > wall + _HALF_CENTURY:
            at = calendar.timegm((year - 100, month, day, *clock))
        return float(at)
    return None


def _wait(text: str, wall: float) -> float | None:
    seconds = _seconds(text, 1.0)
    if seconds is None:
        seconds = duration(text)
    if seconds is None:
        at = date(text, wall)
        seconds = None if at is None else at - wall
    return seconds


def _seconds(text: str, unit: float) -> float | None:
    return float(text) * unit if _NUMBER.fullmatch(text) else None


def _month(name: str) -> int:
    """1 to 12, or 0 for what is no month."""
    names = _MONTHS.split()
    return names.index(name.lower()) + 1 if name.lower() in names else 0


def _possible(day: tuple[int, int, int], clock: Sequence[int]) -> bool:
    year, month, number = day
    hour, minute, second = clock
    if year < 1 or not month or not 1 <= number <= calendar.monthrange(year, month)[1]:
        return False
    return hour < 24 and minute < 60 and second <= 60
