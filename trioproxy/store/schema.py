"""The tables, their version, and how an older version becomes the present one.

Every row is named by its spool (one per gateway) and the position of its record there. `spools` says how far each spool has
been taken over and is written in the same transaction as the rows, which is what makes every record land exactly once.

A change of the tables is one more entry of `MIGRATIONS`, never a change of one that is there.
"""

from trioproxy.store.database import Database, DatabaseTrouble, transaction

_ROW = {"spool": "integer", "position": "integer"}

CALLS = _ROW | {
    "request_id": "text",
    "started": "real",
    "ended": "real",
    "duration": "real",
    "overhead": "real",
    "queued": "real",
    "reason": "text",
    "status": "integer",
    "endpoint": "text",
    "stream": "integer",
    "model": "text",
    "fallback": "text",
    "provider": "text",
    "channel": "text",
    "provider_model": "text",
    "deployment": "text",
    "region": "text",
    "workspace": "text",
    "project": "text",
    "tenant": "text",
    "key_id": "text",
    "end_user": "text",
    "traffic_class": "text",
    "session": "text",
    "arm": "text",
    "estimated_input": "integer",
    "estimated_output": "integer",
    "input": "integer",
    "cached": "integer",
    "output": "integer",
    "estimated": "integer",
    "cost": "integer null",
    "preferred_cost": "integer null",
    "limiter": "text",
    "scope": "text",
    "note": "text",
    "attempts": "integer",
}
ATTEMPTS = _ROW | {
    "number": "integer",
    "channel": "text",
    "provider": "text",
    "model": "text",
    "started": "real",
    "duration": "real",
    "fault": "text",
    "blame": "text",
    "status": "integer",
    "retry_after": "real null",
    "message": "text",
    "reused": "integer",
    "first_content": "real null",
}
TRANSITIONS = _ROW | {
    "at": "real",
    "channel": "text",
    "was": "text",
    "state": "text",
    "seconds": "real null",
    "why": "text",
}
SWITCHES = _ROW | {"at": "real", "model": "text", "was": "text", "channel": "text", "cause": "text"}
PROBES = _ROW | {
    "at": "real",
    "channel": "text",
    "model": "text",
    "ok": "integer",
    "why": "text",
    "seconds": "real",
    "input": "integer",
    "cached": "integer",
    "output": "integer",
    "cost": "integer null",
}
ROLLOUTS = _ROW | {"at": "real", "model": "text", "percent": "integer", "state": "text", "why": "text"}
BALANCES = _ROW | {"at": "real", "tenant": "text", "micro_usd": "integer", "note": "text"}
KEYS = _ROW | {"at": "real", "key_id": "text", "hash": "text", "tenant": "text", "state": "text", "note": "text"}
BEGUN = {"spool": "integer", "serial": "integer", "position": "integer", "record": "bytes"}
SNAPSHOTS = {"spool": "integer", "family": "text", "at": "real", "position": "integer", "body": "bytes"}

DEFERRED = {
    "spool": "integer",
    "id": "text",
    "tenant": "text",
    "key_id": "text",
    "idempotency": "text",
    "digest": "text",
    "status": "text",
    "model": "text",
    "endpoint": "text",
    "traffic_class": "text",
    "priority": "integer",
    "request_id": "text",
    "size": "integer",
    "accepted": "real",
    "expires": "real",
    "not_before": "real",
    "finished": "real",
    "runs": "integer",
    "result_status": "integer",
    "hook": "text",
    "owed": "integer",
    "tries": "integer",
    "next_try": "real",
    "headers": "text",
    # Last, so that what is small is read without what is large.
    "body": "bytes",
    "result": "bytes",
}

EVENTS = {
    "transitions": TRANSITIONS,
    "switches": SWITCHES,
    "probes": PROBES,
    "rollouts": ROLLOUTS,
    "balances": BALANCES,
    "keys": KEYS,
}


def insertion(table: str, columns: dict[str, str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' for _ in columns)})"  # noqa: S608 - our own names


def _table(name: str, columns: dict[str, str], key: str = "spool, position", *, large: bool = False) -> str:
    """`large`: its rows are, and do not go into the index of their keys."""
    kinds = {column: kind.partition(" ") for column, kind in columns.items()}
    lines = [
        f"{column} {'text' if kind == 'text' else '{' + kind + '}'}{'' if null else ' NOT NULL'}"
        for column, (kind, null, _) in kinds.items()
    ]
    return f"CREATE TABLE {name} ({', '.join(lines)}, PRIMARY KEY ({key}))" + ("" if large else " {clustered}")


MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE spools (spool {integer} PRIMARY KEY, identity text NOT NULL UNIQUE, position {integer} NOT NULL)",
        _table("calls", CALLS),
        # None on request_id: random keys dirty a page each, which was a third of what a call costs the writer. One call among
        # a million is found in half a second without.
        "CREATE INDEX calls_started ON calls (started)",
        _table("attempts", ATTEMPTS, "spool, position, number"),
        *(_table(name, columns) for name, columns in EVENTS.items()),
        _table("begun", BEGUN, "spool, serial"),
        _table("snapshots", SNAPSHOTS, "spool, family"),
    ),
    (
        _table("deferred", DEFERRED, "id", large=True),
        "CREATE INDEX deferred_next ON deferred (spool, status, priority, accepted)",
        "CREATE INDEX deferred_size ON deferred (spool, tenant, size)",
        "CREATE UNIQUE INDEX deferred_once ON deferred (spool, tenant, idempotency) WHERE idempotency <> ''",
    ),
)
VERSION = len(MIGRATIONS)


class NewerSchema(DatabaseTrouble):
    """A newer version of this program has been here."""


def version(database: Database) -> int:
    """The version of the tables; 0 where there are none. Raises `NewerSchema` for one that this program cannot read."""
    database.execute("CREATE TABLE IF NOT EXISTS meta (name text PRIMARY KEY, value text NOT NULL)")
    return checked(database.execute("SELECT value FROM meta WHERE name = 'version'"))


def checked(rows: list[tuple[str, ...]], least: int = 0) -> int:
    """The version in the table `meta`, from `least` on."""
    found = int(rows[0][0]) if rows else 0
    if found < least:
        raise DatabaseTrouble(f"its tables are of version {found}, of before {least}: start the gateway once")
    if found > VERSION:
        raise NewerSchema(
            f"its tables are of version {found} and this program knows {VERSION}: use the newer program, or another path"
        )
    return found


def migrate(database: Database) -> None:
    """Bring the tables to the present version, all of it or nothing. Raises `DatabaseTrouble`."""
    with transaction(database):
        database.execute(database.words["alone"])
        found = version(database)
        for statements in MIGRATIONS[found:]:
            for statement in statements:
                database.execute(statement.format_map(database.words))
        database.execute("DELETE FROM meta WHERE name = 'version'")
        database.execute("INSERT INTO meta VALUES ('version', ?)", (str(VERSION),))
