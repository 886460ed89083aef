"""PostgreSQL, for several gateways that write one ledger. Needs the `postgres` extra.

A connection that is lost is made anew at the next transaction; until then records wait in the spool.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from attrs import define, field

from trioproxy.store.database import DatabaseTrouble, Row

PATIENCE = 5  # seconds for a connection, and for any one statement of the writer

_SIZE = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'"


@define(eq=False)
class Postgres:
    """One connection. The URL holds a password, so nothing of it is ever told."""

    _url: str = field(repr=False)
    _read_only: bool = False
    _connection: "psycopg.Connection[Any] | None" = field(init=False, default=None, repr=False)
    words: dict[str, str] = field(
        init=False,
        factory=lambda: {
            "integer": "BIGINT",
            "real": "DOUBLE PRECISION",
            "bytes": "BYTEA",
            "clustered": "",
            "alone": "SELECT pg_advisory_xact_lock(7237133)",  # several gateways may start at once
            "day": "to_char(to_timestamp(started) AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
            "hour": """to_char(to_timestamp(started) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24":00Z"')""",
        },
    )

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> "Postgres":
        """Raises `DatabaseTrouble`."""
        made = cls(url, read_only)
        with made._told():
            made._connected()
        return made

    def begin(self) -> None:
        self.execute("BEGIN")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        try:
            self.execute("ROLLBACK")
        except DatabaseTrouble:
            self._drop()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._told():
            cursor = self._connected().execute(_spelled(statement), values or None)
            return cursor.fetchall() if cursor.description else []

    def insert(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._told(), self._connected().cursor() as cursor:
            cursor.executemany(_spelled(statement), rows)

    def size(self) -> int:
        return int(self.execute(_SIZE)[0][0])

    def shrink(self) -> None:
        """Its own autovacuum does that."""

    def close(self) -> None:
        self._drop()

    def _connected(self) -> "psycopg.Connection[Any]":
        if self._connection is None or self._connection.closed:
            options = f"-c statement_timeout={0 if self._read_only else PATIENCE * 1000}"
            self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=PATIENCE, options=options)
            self._connection.read_only = self._read_only
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except psycopg.Error as exc:
            if self._connection is not None and self._connection.broken:
                self._drop()
            data = isinstance(exc, psycopg.DataError | psycopg.IntegrityError)
            raise DatabaseTrouble(str(exc).strip().split("\n")[0] or type(exc).__name__, data=data) from exc


def _spelled(statement: str) -> Any:
    return statement.replace("?", "%s")
