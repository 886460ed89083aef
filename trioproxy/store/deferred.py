"""Calls that were put off: accepted once, done once, kept for a while.

    pending ⇄ running → done        pending → expired | cancelled

Every step is one transaction of the writer, guarded by the state that it starts from, so that of two that compete one happens.
`running` is durable before a provider is asked, and a life that ends there leaves it for the next, which puts it back: `runs` then
says that the provider may have worked twice, and still there is one result. Each row is its gateway's own, by the spool's number.

Times are Unix seconds, sizes bytes.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from attrs import define, frozen

from trioproxy.store.database import Database, Row
from trioproxy.store.schema import DEFERRED, insertion

PENDING, RUNNING, DONE, EXPIRED, CANCELLED = "pending", "running", "done", "expired", "cancelled"
OVER = frozenset({DONE, EXPIRED, CANCELLED})
PATH = "/v1/deferred"

_INSERT = insertion("deferred", DEFERRED)
_SEEN = (
    *("id", "tenant", "key_id", "digest", "status", "model", "traffic_class", "request_id", "accepted", "expires"),
    *("finished", "runs", "result_status", "result", "hook", "tries"),
)
_FIND = f"SELECT {', '.join(_SEEN)} FROM deferred"  # noqa: S608 - our own names


@define
class Deferred:
    """One row as it is shown: to its tenant, to a webhook, to an operator."""

    id: str
    tenant: str
    key_id: str
    digest: str
    status: str
    model: str
    traffic_class: str
    request_id: str
    accepted: float
    expires: float
    finished: float
    runs: int
    result_status: int
    result: bytes
    hook: str
    tries: int

    @classmethod
    def of(cls, row: Row) -> "Deferred":
        found = cls(*row)
        found.result = bytes(found.result)
        return found

    def at(self, now: float) -> "Deferred":
        """The same with what the time has made of it since."""
        if self.status == PENDING and self.expires <= now:
            self.status = EXPIRED
        return self

    def told(self) -> dict[str, Any]:
        """What a caller is told, as JSON has it."""
        told: dict[str, Any] = {
            "id": self.id,
            "object": "deferred",
            "status": self.status,
            "model": self.model,
            "request_id": self.request_id,
            "created_at": int(self.accepted),
            "expires_at": int(self.expires),
            "poll_url": f"{PATH}/{self.id}",
            "runs": self.runs,
        }
        if self.status == DONE:
            told["result"] = {"status": self.result_status, "body": msgspec.Raw(self.result)}
        elif self.status in OVER:
            why = "it could not be done in time" if self.status == EXPIRED else "it was cancelled before it had begun"
            error = {"message": f"there is no result: {why}", "type": "invalid_request_error", "param": None}
            told["error"] = {**error, "code": f"deferred_{self.status}"}
        return told


@frozen
class Put:
    """A call to be put off."""

    id: str
    tenant: str
    key_id: str
    idempotency: str
    digest: str
    model: str
    endpoint: str
    traffic_class: str
    priority: int
    request_id: str
    headers: dict[str, str]
    body: bytes
    accepted: float
    expires: float
    hook: str


@frozen
class Bounds:
    """How much may be stored: in all, and of one tenant."""

    calls: int
    bytes: int
    tenant_calls: int
    tenant_bytes: int


@frozen
class Work:
    """One that is running now, for the so manyth time."""

    id: str
    key_id: str
    model: str
    endpoint: str
    headers: dict[str, str]
    body: bytes
    runs: int


def accept(database: Database, spool: int, put: Put, bounds: Bounds) -> Deferred | str:
    """Store it, or find the one that its tenant stored under the same idempotency key. A string is which bound is reached."""
    if put.idempotency and (known := repeated(database, spool, put.tenant, put.idempotency)) is not None:
        return known
    size = len(put.body)
    for clause, values, calls, most, whose in (
        ("", (), bounds.calls, bounds.bytes, "max"),
        (" AND tenant = ?", (put.tenant,), bounds.tenant_calls, bounds.tenant_bytes, "tenant"),
    ):
        statement = f"SELECT count(*), coalesce(sum(size), 0) FROM deferred WHERE spool = ?{clause}"  # noqa: S608 - our own
        ((count, total),) = database.execute(statement, (spool, *values))
        if count >= calls:
            return f"{whose}_calls = {calls}"
        if total + size > most:
            return f"{whose}_bytes = {most}"
    row: dict[str, Any] = dict.fromkeys(DEFERRED, "") | {"spool": spool, "status": PENDING, "size": size}
    row |= {name: getattr(put, name) for name in DEFERRED if hasattr(put, name)}
    row |= {"headers": msgspec.json.encode(put.headers).decode(), "result": b""}
    row |= dict.fromkeys(("not_before", "finished", "next_try"), 0.0)
    row |= dict.fromkeys(("runs", "result_status", "owed", "tries"), 0)
    database.execute(_INSERT, list(row.values()))
    (found,) = database.execute(f"{_FIND} WHERE id = ?", (put.id,))
    return Deferred.of(found)


def repeated(database: Database, spool: int, tenant: str, idempotency: str) -> Deferred | None:
    """What a tenant stored under this idempotency key."""
    rows = database.execute(f"{_FIND} WHERE spool = ? AND tenant = ? AND idempotency = ?", (spool, tenant, idempotency))
    return Deferred.of(rows[0]) if rows else None


def find(database: Database, id_: str, tenant: str | None = None) -> Deferred | None:
    """The one with this id; None also where it is not this tenant's."""
    rows = database.execute(f"{_FIND} WHERE id = ?", (id_,))
    found = Deferred.of(rows[0]) if rows else None
    return found if found is not None and tenant in (None, found.tenant) else None


def listed(database: Database) -> list[Deferred]:
    """All that are stored, in the order in which they came."""
    return [Deferred.of(row) for row in database.execute(f"{_FIND} ORDER BY accepted, id")]


def cancel(database: Database, id_: str, tenant: str | None, now: float) -> Deferred | None:
    """Cancel what waits; then, or where it was over or has begun, as it is now."""
    found = find(database, id_, tenant)
    if found is None:
        return None
    if found.at(now).status == PENDING:
        _over(database, CANCELLED, now, which="id = ?", values=(id_,))
        return find(database, id_, tenant)
    return found


def resume(database: Database, spool: int) -> None:
    """A new life: what the last one had begun is to be done again."""
    database.execute("UPDATE deferred SET status = ? WHERE spool = ? AND status = ?", (PENDING, spool, RUNNING))


def models(database: Database, spool: int, now: float) -> list[str]:
    """The models that somebody waits for."""
    rows = database.execute(
        "SELECT DISTINCT model FROM deferred WHERE spool = ? AND status = ? AND expires > ?", (spool, PENDING, now)
    )
    return [model for (model,) in rows]


def claim(database: Database, spool: int, wanted: Sequence[str], now: float, *, eager: bool = False) -> Work | None:
    """Begin the next one of these models: by its class, then by its age. `eager`: nobody has to rest any longer."""
    if eager:
        database.execute(
            "UPDATE deferred SET not_before = 0 WHERE spool = ? AND status = ? AND not_before > 0", (spool, PENDING)
        )
    marks = ", ".join("?" for _ in wanted)
    rows = database.execute(
        "SELECT id, key_id, model, endpoint, headers, body, runs FROM deferred "  # noqa: S608 - marks only
        f"WHERE spool = ? AND status = ? AND expires > ? AND not_before <= ? AND model IN ({marks}) "
        "ORDER BY priority, accepted, id LIMIT 1",
        (spool, PENDING, now, now, *wanted),
    )
    if not rows:
        return None
    id_, key_id, model, endpoint, headers, body, runs = rows[0]
    database.execute("UPDATE deferred SET status = ?, runs = runs + 1 WHERE id = ?", (RUNNING, id_))
    return Work(id_, key_id, model, endpoint, msgspec.json.decode(headers), bytes(body), runs + 1)


def finish(database: Database, work: Work, *, status: int, result: bytes, now: float) -> None:
    """The one result, in place of the request."""
    database.execute(
        "UPDATE deferred SET status = ?, result_status = ?, result = ?, body = ?, size = ?, finished = ?, next_try = ?, "
        "owed = CASE WHEN hook = '' THEN 0 ELSE 1 END WHERE id = ? AND status = ? AND runs = ?",
        (DONE, status, result, b"", len(result), now, now, work.id, RUNNING, work.runs),
    )


def put_back(database: Database, work: Work, not_before: float) -> None:
    """It is to be tried again, no sooner than so."""
    database.execute(
        "UPDATE deferred SET status = ?, not_before = ? WHERE id = ? AND status = ? AND runs = ?",
        (PENDING, not_before, work.id, RUNNING, work.runs),
    )


def tidy(database: Database, spool: int, now: float, retention: float) -> int:
    """What waited too long expires, and what was over for long enough is forgotten; how many expired."""
    waited = (spool, PENDING, now)
    ((expired,),) = database.execute(
        "SELECT count(*) FROM deferred WHERE spool = ? AND status = ? AND expires <= ?", waited
    )
    if expired:
        _over(database, EXPIRED, now, which="spool = ? AND status = ? AND expires <= ?", values=waited)
    database.execute(
        "DELETE FROM deferred WHERE spool = ? AND finished > 0 AND finished <= ? AND owed = 0", (spool, now - retention)
    )
    return int(expired)


def owed(database: Database, spool: int, now: float, most: int) -> list[Deferred]:
    """Those whose end is to be told by a webhook now."""
    rows = database.execute(
        f"{_FIND} WHERE spool = ? AND owed = 1 AND next_try <= ? ORDER BY next_try, id LIMIT ?", (spool, now, most)
    )
    return [Deferred.of(row) for row in rows]


def next_owed(database: Database, spool: int) -> float | None:
    """When the next end is to be told; None where none is owed."""
    ((at,),) = database.execute("SELECT min(next_try) FROM deferred WHERE spool = ? AND owed = 1", (spool,))
    return None if at is None else float(at)


def told(database: Database, id_: str) -> None:
    """Its end has been told, or nobody wants to hear of it."""
    database.execute("UPDATE deferred SET owed = 0, tries = tries + 1 WHERE id = ?", (id_,))


def untold(database: Database, id_: str, next_try: float) -> None:
    """It has not, and is to be tried again."""
    database.execute("UPDATE deferred SET tries = tries + 1, next_try = ? WHERE id = ?", (next_try, id_))


def _over(database: Database, status: str, now: float, *, which: str, values: Sequence[Any]) -> None:
    """These end without a result."""
    told_of = "CASE WHEN hook = '' THEN 0 ELSE 1 END" if status == EXPIRED else "0"
    database.execute(
        f"UPDATE deferred SET status = ?, finished = ?, next_try = ?, body = ?, size = 0, owed = {told_of} WHERE {which}",  # noqa: S608 - our own
        (status, now, now, b"", *values),
    )
