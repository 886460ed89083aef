"""The writer: the one thread that has the database, so that nobody else ever waits for a disk.

It takes the spool over in batches, and between them does what it is asked: snapshots, durable jobs, forgetting what is too
old. When the database fails, nothing is lost: records stay in the spool, the trouble is told once, and it tries again.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from attrs import define, field, frozen

from trioproxy.store.database import Database, DatabaseTrouble, transaction
from trioproxy.store.importer import Importer
from trioproxy.store.schema import EVENTS, SNAPSHOTS, insertion
from trioproxy.store.spool import Spool

# Seconds between batches. Nothing is at risk meanwhile; ten a second cost a call 10 µs more than one a second (measured).
EVERY = 0.5
FIRST_PAUSE, LAST_PAUSE = 0.25, 2.0  # seconds until a failing database is tried again
TIDY = 60.0  # seconds between looks at what is too old
CHUNK = 1000  # calls that are forgotten in one transaction
DAY = 86_400.0

_INSERT_SNAPSHOT = insertion("snapshots", SNAPSHOTS)


@frozen
class Kept:
    """What the gateway's live state was, by family, when the spool was at `position`. `at` is Unix seconds."""

    at: float
    position: int
    families: Mapping[str, Any]


@frozen
class Job:
    """Something to do in a transaction, and whom to tell: the result, or the trouble."""

    work: Callable[[Database], Any]
    done: Callable[[Any, DatabaseTrouble | None], None]


@frozen
class Retention:
    """`age` in seconds and `size` in bytes of what is kept; 0 for no bound."""

    age: float = 90 * DAY
    size: int = 0


@define(eq=False)
class Writer:
    """`start` it, `close` it."""

    spool: Spool
    database: Database
    importer: Importer
    retention: Retention
    # Called in the thread when trouble begins, and with "" when it is over; set by whoever starts it.
    told: Callable[[str], None] = field(init=False, default=lambda _why: None)
    why: str = field(init=False, default="")
    forgotten: int = field(init=False, default=0)
    kept: Kept | None = field(init=False, default=None)  # set by the loop, written here
    _written: Kept | None = field(init=False, default=None)
    _jobs: deque[Job] = field(init=False, factory=deque)
    _wake: threading.Event = field(init=False, factory=threading.Event)
    _closing: bool = field(init=False, default=False)
    _pause: float = field(init=False, default=EVERY)
    _tidied: float = field(init=False, default=0.0)
    _thread: threading.Thread | None = field(init=False, default=None)

    def start(self) -> None:
        # A daemon: a disk that never answers keeps nobody from leaving, and what it holds up is in the spool.
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    def ask(self, job: Job) -> None:
        """Have something done soon. From the loop."""
        self._jobs.append(job)
        self._wake.set()

    def close(self, patience: float) -> bool:
        """Write what there is and end; whether that was done within so many seconds. Blocks."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(patience)
            return not self._thread.is_alive()
        return True

    def _run(self) -> None:
        while True:
            self._wake.wait(self._pause)
            self._wake.clear()
            closing = self._closing
            self._round()
            if closing:
                self.database.close()
                return

    def _round(self) -> None:
        try:
            if self.why:  # whether the last transaction was made is known to the database alone
                self.spool.release(self.importer.start(self.database))
            self._import()
            self._keep()
            self._work()
            self._tidy()
        except DatabaseTrouble as trouble:
            self._troubled(trouble)
        except Exception as exc:  # noqa: BLE001 - a bug here must be told, and must not end the only writer
            self._troubled(DatabaseTrouble(f"{type(exc).__name__}: {exc}"))
        else:
            self._pause = EVERY
            if self.why:
                self.why = ""
                self.told("")

    def _troubled(self, trouble: DatabaseTrouble) -> None:
        while self._jobs:  # who waits for a durable write is told that there is none
            self._jobs.popleft().done(None, trouble)
        self._pause = min(LAST_PAUSE, max(FIRST_PAUSE, self._pause * 2))
        if not self.why:
            self.why = trouble.why
            self.told(trouble.why)

    def _import(self) -> None:
        until = self.spool.head
        while self.spool.tail < until and self.importer.take(self.database, until):
            if self.importer.passed_over:
                self.told(f"a record was passed over: {self.importer.passed_over}")
                self.told("")

    def _keep(self) -> None:
        kept = self.kept
        if kept is None or kept is self._written:
            return
        number = self.importer.number
        with transaction(self.database) as database:
            database.execute("DELETE FROM snapshots WHERE spool = ?", (number,))
            for family, state in kept.families.items():
                body = msgspec.json.encode(state)
                database.execute(_INSERT_SNAPSHOT, (number, family, kept.at, kept.position, body))
        self._written = kept

    def _work(self) -> None:
        while self._jobs:
            self._import()  # what was posted before this one was asked for is in the database when it is told
            job = self._jobs.popleft()
            try:
                with transaction(self.database) as database:
                    result = job.work(database)
            except DatabaseTrouble as trouble:
                job.done(None, trouble)
                raise
            job.done(result, None)

    def _tidy(self) -> None:
        if self._written is None:
            return
        now = self._written.at  # clocks are the loop's affair
        if now < self._tidied + TIDY:
            return
        if not self.forget(now):
            self._tidied = now

    def forget(self, now: float) -> bool:
        """Forget the oldest calls where they are too old or too many; whether there may be more to forget.

        What came behind the last snapshot stays, because a restart counts it.
        """
        number = self.importer.number
        rows = self.database.execute(
            "SELECT position, ended FROM calls WHERE spool = ? ORDER BY position LIMIT ?", (number, CHUNK)
        )
        known = self._written.position if self._written is not None else 0
        limit, size = self.retention.age, self.retention.size
        too_large = bool(size) and self.database.size() > size
        old = [at for at, ended in rows if at < known and (too_large or (limit and ended < now - limit))]
        if not old:
            return False
        with transaction(self.database) as database:
            for table in ("calls", "attempts", *(name for name in EVENTS if name not in {"balances", "keys"})):
                database.execute(f"DELETE FROM {table} WHERE spool = ? AND position <= ?", (number, old[-1]))  # noqa: S608 - our own names
        self.forgotten += len(old)
        self.database.shrink()
        return len(old) == CHUNK
