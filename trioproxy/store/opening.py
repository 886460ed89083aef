"""From `[state]` to a store: what is checked, mended, taken over and refused before the gateway serves.

A database file that is damaged is moved aside and a new one begun, loudly: a gateway that stands still because its bookkeeping
is broken would be the greater damage. One that a newer program wrote, that cannot be written, or that another process uses is a
fault of the configuration, and refused.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from attrs import frozen

from trioproxy.config.model import Channel, Config, State
from trioproxy.errors import ConfigError, ConfigFault
from trioproxy.journal import Journal
from trioproxy.store import register, schema
from trioproxy.store.database import Database, DatabaseTrouble, transaction
from trioproxy.store.importer import Importer, Place
from trioproxy.store.ledger import Ledger
from trioproxy.store.records import KeyChange, TopUp
from trioproxy.store.spool import Spool, SpoolError
from trioproxy.store.store import Store
from trioproxy.store.writer import DAY, Retention, Writer

MEMORY = ":memory:"


def open_store(config: Config, url: str | None, journal: Journal, wall: Callable[[], float]) -> Store | None:
    """The store of a configuration; None where it has none. Blocks, at the start only. Raises `ConfigError`."""
    state = config.state
    if state.path is None:
        return None
    try:
        spool = _spool(state)
    except (OSError, SpoolError) as exc:
        raise _refused(getattr(exc, "strerror", None) or str(exc), state.spool or f"{state.path}.spool") from exc
    try:
        return _Opening(config, url, spool, wall).store(journal)
    except DatabaseTrouble as trouble:
        spool.close()
        raise _refused(trouble.why, "the PostgreSQL database" if url else state.path) from trouble
    except BaseException:
        spool.close()
        raise


def open_reader(state: State, url: str | None) -> Database:
    """A connection that reads what a gateway writes. Raises `ConfigError`."""
    return _beside(state, url, "read", _reader)


def open_writer(state: State, url: str | None) -> Database:
    """A connection for a moment's change beside a gateway; each transaction waits for its turn. Raises `ConfigError`."""
    open_reader(state, url).close()  # it makes no file where there is none
    return _beside(state, url, "written", _writer)


def _beside(state: State, url: str | None, verb: str, open_: Callable[[str, str | None], Database]) -> Database:
    if state.path is None or (state.path == MEMORY and url is None):
        raise ConfigError([ConfigFault("state.path", "there is no ledger: give the path of one")])
    try:
        database = open_(state.path, url)
    except DatabaseTrouble as trouble:
        raise _refused(trouble.why, "the PostgreSQL database" if url else state.path, verb) from trouble
    try:
        schema.checked(database.execute("SELECT value FROM meta WHERE name = 'version'"), schema.VERSION)
    except DatabaseTrouble as trouble:
        database.close()
        raise _refused(trouble.why, "the PostgreSQL database" if url else state.path, verb) from trouble
    return database


def _spool(state: State) -> Spool:
    size = state.spool_size
    if state.path == MEMORY and state.spool is None:
        return Spool.in_memory(size)
    return Spool.open(Path(state.spool or f"{state.path}.spool"), size)


def _reader(path: str, url: str | None) -> Database:
    from trioproxy.store.sqlite import Sqlite  # not loaded by who keeps nothing

    return Sqlite.reader(path) if url is None else _postgres(url, read_only=True)


def _writer(path: str, url: str | None) -> Database:
    from trioproxy.store.sqlite import Sqlite

    return Sqlite.open(path) if url is None else _postgres(url)


def _postgres(url: str, *, read_only: bool = False) -> Database:
    try:
        from trioproxy.store.postgres import Postgres
    except ImportError as exc:
        raise DatabaseTrouble("PostgreSQL needs psycopg: pip install 'trioproxy[postgres]'") from exc
    return Postgres.open(url, read_only=read_only)


@frozen
class _Opening:
    """The steps of opening, over what they have in common."""

    config: Config
    url: str | None
    spool: Spool
    wall: Callable[[], float]

    def store(self, journal: Journal) -> Store:
        why = ""
        try:
            database, importer, changed = self._opened()
        except DatabaseTrouble as trouble:
            if not trouble.broken:
                raise
            why = self._moved_aside(trouble)
            database, importer, changed = self._opened()
        state = self.config.state
        ledger = Ledger(self.spool, self.wall, self.spool.size // 4)
        for record in changed:
            ledger.post(record)
        retention = Retention(state.retention_days * DAY, state.max_size)
        writer = Writer(self.spool, database, importer, retention)
        assert state.path is not None
        in_memory = state.path == MEMORY and self.url is None
        reader = None if in_memory else partial(_reader, state.path, self.url)
        return Store(ledger, self.spool, writer, journal, reader, why)

    def _opened(self) -> tuple[Database, Importer, list[KeyChange | TopUp]]:
        assert self.config.state.path is not None
        database = _writer(self.config.state.path, self.url)
        try:
            schema.migrate(database)
            importer = Importer(self.spool, places(self.config.channels))
            self._take_over(database, importer)
            changed = register.changes(self.config, database, importer.number, self.wall())
        except BaseException:
            database.close()
            raise
        return database, importer, changed

    def _take_over(self, database: Database, importer: Importer) -> None:
        """What the last life left: its spool, and the calls that it left open."""
        with transaction(database):
            importer.start(database)
        while importer.take(database, None):
            pass
        with transaction(database):
            position = importer.interrupt(database, importer.start(database))
        self.spool.live(position, self.config.state.spool_size)

    def _moved_aside(self, trouble: DatabaseTrouble) -> str:
        path = self.config.state.path
        assert path is not None
        aside = f"{path}.broken-{int(self.wall())}"
        for ending in ("", "-wal", "-shm"):
            if (old := Path(path + ending)).exists():
                old.rename(aside + ending)
        return f"{path} is damaged ({trouble.why}): it was moved to {aside} and a new one was begun"


def places(channels: tuple[Channel, ...]) -> Mapping[str, Place]:
    """Where each channel lives, as rows tell it."""
    return {channel.name: _place(channel) for channel in channels}


def _place(channel: Channel) -> Place:
    scope = channel.scope
    return Place(
        channel.provider_name,
        scope.deployment or "",
        scope.region or "",
        scope.workspace or "",
        scope.project or "",
        channel.tariff(),
    )


def _refused(why: str, what: str, verb: str = "used") -> ConfigError:
    return ConfigError([ConfigFault("state.path", f"{what} cannot be {verb}: {why}")])
