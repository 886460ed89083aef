"""Questions to the ledger: what was used and what it cost, by whatever a row has; and one call with its attempts.

Sums are over calls; money is micro-USD. What the detour cost is the sum of what calls cost over what the same tokens would
have cost at the channel of first choice, while another one answered.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from trioproxy.store.database import Database
from trioproxy.store.schema import ATTEMPTS, CALLS

# What a person may group and filter by, and the column; `day` and `hour` are UTC, of the call's start.
BY = {
    "tenant": "tenant",
    "key": "key_id",
    "user": "end_user",
    "model": "model",
    "channel": "channel",
    "provider": "provider",
    "provider_model": "provider_model",
    "region": "region",
    "class": "traffic_class",
    "session": "session",
    "arm": "arm",
    "reason": "reason",
    "day": "{day}",
    "hour": "{hour}",
}
_SUMS = {
    "calls": "count(*)",
    "answered": "sum(CASE WHEN reason = 'answered' THEN 1 ELSE 0 END)",
    "interrupted": "sum(CASE WHEN reason = 'interrupted' THEN 1 ELSE 0 END)",
    "input": "sum(input)",
    "cached": "sum(cached)",
    "output": "sum(output)",
    "estimated_input": "sum(estimated_input)",
    "estimated_output": "sum(estimated_output)",
    "cost": "coalesce(sum(cost), 0)",
    "unpriced": "sum(CASE WHEN cost IS NULL THEN 1 ELSE 0 END)",
    "detour": "coalesce(sum(CASE WHEN preferred_cost IS NULL THEN 0 ELSE cost - preferred_cost END), 0)",
}
SUMS = tuple(_SUMS)
# What attempts may be grouped and filtered by. A caller who left, or whose own fault it was, says nothing of a channel: such an
# attempt is in `attempts` alone.
BY_ATTEMPT = {
    name: BY[name] for name in ("tenant", "model", "channel", "provider", "provider_model", "day", "hour")
} | {"fault": "fault"}
NAMES = BY | BY_ATTEMPT
_TRIED = (
    "(SELECT attempts.channel AS channel, attempts.provider AS provider, attempts.model AS provider_model, "
    "attempts.started AS started, calls.started AS asked, fault, blame, first_content, calls.model AS model, tenant FROM attempts "
    "JOIN calls ON calls.spool = attempts.spool AND calls.position = attempts.position) AS tried"
)
_FOUND = {
    "attempts": "count(*)",
    "answered": "sum(CASE WHEN blame = '' AND first_content IS NOT NULL THEN 1 ELSE 0 END)",
    "throttled": "sum(CASE WHEN blame = 'rate' THEN 1 ELSE 0 END)",
    "failed": "sum(CASE WHEN blame IN ('provider', 'key', 'adapter') THEN 1 ELSE 0 END)",
}
FOUND = (*_FOUND, "success_rate")


@frozen
class Selection:
    """Which calls: started from `since` on and before `until` (Unix seconds), and `where` a column of `BY` is so."""

    since: float | None = None
    until: float | None = None
    where: tuple[tuple[str, str], ...] = ()

    def clause(self, words: Mapping[str, str], started: str = "started") -> tuple[str, list[Any]]:
        parts = [f"{_column(name, words)} = ?" for name, _ in self.where]
        values: list[Any] = [value for _, value in self.where]
        for bound, sign in ((self.since, ">="), (self.until, "<")):
            if bound is not None:
                parts.append(f"{started} {sign} ?")
                values.append(bound)
        return f" WHERE {' AND '.join(parts)}" if parts else "", values


def usage(database: Database, by: Sequence[str], selection: Selection) -> list[dict[str, Any]]:
    """One row per group, by its names in order. Raises `DatabaseTrouble`; `KeyError` for what is not in `BY`."""
    words = database.words
    groups = [_column(name, words) for name in by]
    sums = [f"{expression} AS {name}" for name, expression in _SUMS.items()]
    clause, values = selection.clause(words)
    grouped = f" GROUP BY {', '.join(groups)} ORDER BY {', '.join(groups)}" if groups else ""
    statement = f"SELECT {', '.join([*groups, *sums])} FROM calls{clause}{grouped}"  # noqa: S608 - names of our own
    return [_row((*by, *SUMS), row, len(by)) for row in database.execute(statement, values)]


def success(database: Database, by: Sequence[str], selection: Selection) -> list[dict[str, Any]]:
    """How often channels answered when they were asked, one row per group; `success_rate` is of 1, None where nothing says.

    Of the calls of the selection. Raises `DatabaseTrouble`; `KeyError` for what is not in `BY_ATTEMPT`.
    """
    words = database.words
    groups = [BY_ATTEMPT[name].format_map(words) for name in by]
    counts = [f"{expression} AS {name}" for name, expression in _FOUND.items()]
    clause, values = selection.clause(words, "asked")
    grouped = f" GROUP BY {', '.join(groups)} ORDER BY {', '.join(groups)}" if groups else ""
    statement = f"SELECT {', '.join([*groups, *counts])} FROM {_TRIED}{clause}{grouped}"  # noqa: S608 - names of our own
    rows = [_row((*by, *_FOUND), row, len(by)) for row in database.execute(statement, values)]
    return [row | {"success_rate": _rate(row)} for row in rows]


def _rate(row: Mapping[str, int]) -> float | None:
    told = row["answered"] + row["throttled"] + row["failed"]
    return row["answered"] / told if told else None


def call(database: Database, request_id: str, since: float = 0.0) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Every call with this id, oldest first (a caller may give ids of its own, and twice), with its attempts.

    All calls from `since` on (Unix seconds) are looked through: give one where it is known, in a large ledger.
    """
    calls = database.execute(
        f"SELECT {', '.join(CALLS)} FROM calls WHERE started >= ? AND request_id = ? ORDER BY started",  # noqa: S608 - names of our own
        (since, request_id),
    )
    found = []
    for row in calls:
        told = dict(zip(CALLS, row, strict=True))
        attempts = database.execute(
            f"SELECT {', '.join(ATTEMPTS)} FROM attempts WHERE spool = ? AND position = ? ORDER BY number",  # noqa: S608 - names of our own
            (told["spool"], told["position"]),
        )
        found.append((told, [dict(zip(ATTEMPTS, attempt, strict=True)) for attempt in attempts]))
    return found


def _column(name: str, words: Mapping[str, str]) -> str:
    return NAMES[name].format_map(words)


def _row(names: Iterable[str], row: Sequence[Any], groups: int) -> dict[str, Any]:
    """PostgreSQL sums to `Decimal`, an empty sum is None."""
    values = [*row[:groups], *(int(value or 0) for value in row[groups:])]
    return dict(zip(names, values, strict=True))
