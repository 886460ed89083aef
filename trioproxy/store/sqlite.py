"""SQLite: the default, in the standard library, one file.

WAL, so that readers (`trioproxy ledger`) and the writer do not wait for each other, and `synchronous=NORMAL`: a commit
survives the end of the process at once, and a loss of power from the next checkpoint on.
"""

import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

from attrs import define, field

from trioproxy.store.database import DatabaseTrouble, Row

TOGETHER = 50  # rows in one statement: 2,000 values of the 32,766 that it may have
PATIENCE = 1.0  # seconds for another process's lock; records wait in the spool meanwhile
BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


@define(eq=False)
class Sqlite:
    """One connection to a file, or to memory that ends with it."""

    _connection: sqlite3.Connection
    words: dict[str, str] = field(
        init=False,
        factory=lambda: {
            "integer": "INTEGER",
            "real": "REAL",
            "bytes": "BLOB",
            "clustered": "WITHOUT ROWID",
            "alone": "SELECT 1",  # a transaction that writes is alone as it is
            "day": "date(started, 'unixepoch')",
            "hour": "strftime('%Y-%m-%dT%H:00Z', started, 'unixepoch')",
        },
    )

    @classmethod
    def open(cls, path: str) -> "Sqlite":
        """For writing; the file is made where there is none. Raises `DatabaseTrouble`."""
        with told():
            # Opened by the thread that starts the gateway, used by the writer's from then on, never by both.
            connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
            except BaseException:
                connection.close()
                raise
            return cls(connection)

    @classmethod
    def reader(cls, path: str) -> "Sqlite":
        """For reading alone, beside a gateway that writes. Raises `DatabaseTrouble`."""
        if not Path(path).exists():
            raise DatabaseTrouble("there is no such file yet: a gateway makes it when it is served")
        with told():
            uri = f"file:{quote(str(Path(path).absolute()))}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            return cls(connection)

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.rollback()
            except sqlite3.Error:  # a full disk has ended the transaction already
                return

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with told():
            return self._connection.execute(statement, values).fetchall()

    def insert(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Many rows a statement: for each statement Python's lock is let go and fought for again, against the loop."""
        verb, values, group = statement.partition(" VALUES ")
        if not values:
            with told():
                self._connection.executemany(statement, rows)
            return
        waiting = list(rows)
        for start in range(0, len(waiting), TOGETHER):
            some = waiting[start : start + TOGETHER]
            with told():
                self._connection.execute(
                    f"{verb} VALUES {', '.join([group] * len(some))}", list(chain.from_iterable(some))
                )

    def size(self) -> int:
        (pages,), (free,) = self.execute("PRAGMA page_count")[0], self.execute("PRAGMA freelist_count")[0]
        (page,) = self.execute("PRAGMA page_size")[0]
        return int((pages - free) * page)

    def shrink(self) -> None:
        self.execute("PRAGMA incremental_vacuum(1000)")

    def close(self) -> None:
        self._connection.close()


@contextmanager
def told() -> Generator[None]:
    try:
        yield
    except (OverflowError, UnicodeEncodeError, sqlite3.IntegrityError, sqlite3.DataError) as exc:
        raise DatabaseTrouble(str(exc), data=True) from exc
    except sqlite3.Error as exc:
        code = getattr(exc, "sqlite_errorcode", 0) or 0
        raise DatabaseTrouble(str(exc), broken=code & 0xFF in BROKEN) from exc
