"""The store: what is remembered beyond the process, as the rest of the gateway holds it.

`post` is for the hot path: a copy into memory, never a wait. `write`, `run` and `query` wait for the writer's thread and for
nothing else. Opening brings the database to the present version, takes over what the last life left in the spool, and records
the calls that it left open as interrupted; only then is there a store.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import trio
from attrs import define, field, frozen

from trioproxy.journal import Journal, StoreTroubled
from trioproxy.store.database import Database, DatabaseTrouble, Row
from trioproxy.store.ledger import Ledger
from trioproxy.store.records import Record
from trioproxy.store.spool import Spool
from trioproxy.store.writer import Job, Kept, Writer

T = TypeVar("T")

LAST_WORDS = 5.0  # seconds for what is waiting at the end; what is not done by then is in the spool


@frozen
class StoreStatistics:
    """`waiting` records are not in the database yet; `room` is bytes of the spool; `why` is "" while all is well."""

    posted: int
    waiting: int
    dropped: int
    unreadable: int
    forgotten: int
    room: int
    why: str


@define(eq=False)
class Store:
    """The durable record of one gateway. Made by `opening.open_store`; `start` it inside a Trio run."""

    ledger: Ledger
    spool: Spool
    writer: Writer
    journal: Journal
    reader: Callable[[], Database] | None  # another connection, for reading; None where there can be none
    why: str = ""  # what had to be done about it when it was opened
    _told: str = field(init=False, default="")
    _token: trio.lowlevel.TrioToken | None = field(init=False, default=None)

    def start(self) -> None:
        """Begin to write. Subscribes to the journal."""
        self._token = trio.lowlevel.current_trio_token()
        self.journal.subscribe(self.ledger)
        self.writer.told = self.told
        self.writer.start()
        if self.why:
            self.tell(self.why)

    def tell(self, why: str) -> None:
        """Something was wrong, and is over: it has been dealt with."""
        self._tell(why)
        self._tell("")

    @property
    def admits(self) -> bool:
        """Whether another call may begin: its settlement is sure to find room."""
        return self.ledger.admits

    @property
    def position(self) -> int:
        """Where the next record goes: what is before it has happened."""
        return self.spool.head

    def post(self, record: Record) -> None:
        """Write a record that must not be lost. Never blocks; safe from `kill -9` when it returns."""
        self.ledger.post(record)

    async def write(self, record: Record) -> None:
        """As `post`, and wait until it is in the database. Raises `DatabaseTrouble`: then it still comes there later."""
        self.post(record)
        await self.run(lambda _database: None)  # the writer takes the spool over before it works

    async def run(self, work: Callable[[Database], T]) -> T:
        """Have a transaction made in the writer's thread; when it returns its changes are durable.

        Raises `DatabaseTrouble`. Cancelled, the transaction may be made all the same. `work` must not keep the database.
        """
        assert self._token is not None, "started"
        done = trio.Event()
        outcome: list[tuple[Any, DatabaseTrouble | None]] = []

        def tell(result: Any, trouble: DatabaseTrouble | None) -> None:
            outcome.append((result, trouble))
            assert self._token is not None
            self._token.run_sync_soon(done.set)

        self.writer.ask(Job(work, tell))
        await done.wait()
        result, trouble = outcome[0]
        if trouble is not None:
            raise trouble
        made: T = result
        return made

    async def query(self, read: Callable[[Database], T]) -> T:
        """Read in a thread, beside the writer. Raises `DatabaseTrouble`; cancelled, the result is thrown away."""
        if self.reader is None:
            return await self.run(read)
        return await trio.to_thread.run_sync(_read, self.reader, read, abandon_on_cancel=True)

    def keep(self, families: Mapping[str, Any]) -> None:
        """Remember what the live state is now, by family; plain values. It is written soon, the newest only."""
        self.writer.kept = Kept(self.ledger.wall(), self.position, families)

    def recalled(self) -> dict[str, tuple[float, int, bytes]]:
        """What was kept last, by family: when (Unix seconds), at which position, and what, as JSON. Before `start`."""
        rows = self.writer.database.execute(
            "SELECT family, at, position, body FROM snapshots WHERE spool = ?", (self.writer.importer.number,)
        )
        bodies = {family: body.encode() if isinstance(body, str) else bytes(body) for family, *_, body in rows}
        return {family: (at, position, bodies[family]) for family, at, position, _ in rows}

    def calls_since(self, position: int, columns: tuple[str, ...]) -> list[Row]:
        """The calls that some channel answered behind `position`, in order. Before `start`."""
        statement = f"SELECT {', '.join(columns)} FROM calls WHERE spool = ? AND position >= ? AND channel <> '' ORDER BY position"  # noqa: S608 - our own names
        return self.writer.database.execute(statement, (self.writer.importer.number, position))

    def failures_since(self, position: int) -> list[Row]:
        """Attempts that answered nothing behind `position`: their call's position, start, end, channel and fault. Before `start`."""
        statement = (
            "SELECT position, started, started + duration, channel, fault FROM attempts "
            "WHERE spool = ? AND position >= ? AND first_content IS NULL"
        )
        return self.writer.database.execute(statement, (self.writer.importer.number, position))

    def statistics(self) -> StoreStatistics:
        ledger, importer = self.ledger, self.writer.importer
        return StoreStatistics(
            ledger.posted,
            ledger.posted - importer.imported,
            ledger.dropped,
            importer.unreadable,
            self.writer.forgotten,
            self.spool.room,
            self.writer.why,
        )

    def close(self) -> None:
        """Write what there is, for `LAST_WORDS` seconds at most. Blocks: there is nothing left that it could hold up."""
        if self.ledger in self.journal.subscribers:
            self.journal.unsubscribe(self.ledger)
        self.ledger.catch_up()
        if self.writer.close(LAST_WORDS):
            self.spool.close()

    def told(self, why: str) -> None:
        """From the writer's thread: there is trouble, or no more."""
        assert self._token is not None
        try:
            self._token.run_sync_soon(partial(self._tell, why))
        except trio.RunFinishedError:  # it came back, or not, when there was nobody left to tell
            return

    def _tell(self, why: str) -> None:
        if not why:
            self.ledger.catch_up()
        if why != self._told:
            self._told = why
            self.journal.emit(StoreTroubled(why, self.statistics().waiting, trio.current_time()))


def _read(reader: Callable[[], Database], read: Callable[[Database], T]) -> T:
    database = reader()
    try:
        return read(database)
    finally:
        database.close()
