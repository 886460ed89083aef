"""What the store needs of a database, SQLite's or PostgreSQL's, and how their troubles are told.

Statements are written once: `?` for parameters, and the few words in braces that the two spell differently. Objects are
used by one thread at a time.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

Row = tuple[Any, ...]


class DatabaseTrouble(Exception):
    """The database did not do what it was asked. No caller of the gateway ever sees it.

    `broken`: its file is damaged, and no second try will help. `data`: it does not take these values, and others it would.
    """

    def __init__(self, why: str, *, broken: bool = False, data: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.broken = broken
        self.data = data


class Database(Protocol):
    """One connection. Everything raises `DatabaseTrouble`."""

    words: dict[str, str]  # integer, real, bytes, clustered; alone: of a transaction; day, hour: of `started`

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Never raises."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]: ...

    def insert(self, statement: str, rows: Iterable[Sequence[Any]]) -> None: ...

    def size(self) -> int:
        """Bytes that rows and indexes take, room that deleted ones left not counted."""
        ...

    def shrink(self) -> None:
        """Give room of deleted rows back to the disk, some at a time."""

    def close(self) -> None: ...


@contextmanager
def transaction(database: Database) -> Generator[Database]:
    """All that is done inside, or nothing of it."""
    database.begin()
    try:
        yield database
        database.commit()
    except BaseException:
        database.rollback()
        raise
