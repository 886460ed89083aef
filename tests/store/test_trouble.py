"""What the store does when its database does not: nothing is lost, and it is said at once."""

import os
import resource
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.fakes import steps
from tests.scene import Scene, scene
from tests.store.test_kept import rows, state
from trioproxy.app import open_gateway
from trioproxy.config.load import parse_config
from trioproxy.errors import ConfigError
from trioproxy.journal import Event, StoreTroubled
from trioproxy.store import schema
from trioproxy.store.database import DatabaseTrouble
from trioproxy.store.records import TopUp, encode
from trioproxy.store.sqlite import Sqlite
from trioproxy.store.store import Store

SMALL = "spool_size = 1048576"


def store(s: Scene) -> Store:
    assert s.gateway.store is not None
    return s.gateway.store


async def told(s: Scene, number: int) -> str:
    """The so manyth trouble that was told."""
    with trio.fail_after(10):
        while len(found := [event for event in s.events if isinstance(event, StoreTroubled)]) < number:
            await something(s)
    return found[number - 1].why


async def something(s: Scene) -> None:
    """Wait until the store says anything."""
    said = trio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, StoreTroubled):
            said.set()

    s.gateway.journal.subscribe(hear)
    try:
        await said.wait()
    finally:
        s.gateway.journal.unsubscribe(hear)


def full(s: Scene) -> None:
    """Nothing more fits into the database's file, as on a full disk: SQLite says the same."""
    store(s).writer.database.execute("PRAGMA max_page_count = 1")


def emptied(s: Scene) -> None:
    store(s).writer.database.execute("PRAGMA max_page_count = 1000000")


async def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=state(path, SMALL)) as s:
        s.a.script(steps.chat("hello"))
        full(s)
        filler = 0
        while len([event for event in s.events if isinstance(event, StoreTroubled)]) < 1:
            filler += 1
            store(s).post(TopUp(0.0, "acme", 1, "x" * 20_000))
            await trio.sleep(0.05)
        assert "full" in await told(s, 1)
        assert (await s.post(headers=[("x-request-id", "during")])).status == 200
        while store(s).admits:
            filler += 1
            store(s).post(TopUp(0.0, "acme", 1, "x" * 20_000))
        refused = await s.post()
        assert refused.status == 503
        assert refused.json["error"]["code"] == "ledger_unavailable"
        assert s.a.hits == 1
        emptied(s)
        assert await told(s, 2) == ""
        assert (await s.post(headers=[("x-request-id", "after")])).status == 200
        await trio.sleep(0.05)
    assert rows(path, "SELECT count(*), sum(micro_usd) FROM balances") == [(filler, filler)]
    assert rows(path, "SELECT request_id FROM calls WHERE cost > 0 ORDER BY position") == [("during",), ("after",)]


async def test_calls_under_way_are_settled_even_where_there_is_no_room(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=state(path, SMALL)) as s:
        s.a.script(steps.chat_stream(["a", "b"], every=0.1))
        full(s)
        stream = await s.open_stream(headers=[("x-request-id", "open")])
        posted = 0
        filler = encode(TopUp(0.0, "acme", 1, "x" * 1000))
        while store(s).spool.append(filler) is not None:
            posted += 1
        await stream.rest()
        await trio.sleep(0.3)
        assert store(s).statistics().room < 1100
        assert not store(s).admits
        emptied(s)
        assert await told(s, 2) == ""
        assert store(s).admits
        await trio.sleep(0.5)
    assert rows(path, "SELECT count(*) FROM balances") == [(posted,)]
    assert rows(path, "SELECT request_id, reason FROM calls") == [("open", "answered")]


async def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=state(path)) as s:
        s.a.script(steps.chat("hello"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert (await s.post()).status == 200
        assert "locked" in await told(s, 1)
        assert (await s.post()).status == 200
        other.rollback()
        other.close()
        assert await told(s, 2) == ""
        await trio.sleep(0.05)
    assert rows(path, "SELECT count(*) FROM calls") == [(2,)]


def broken(path: Path) -> None:
    path.write_bytes(b"this is no database at all" * 1000)


def aside(folder: Path) -> bytes:
    """What was moved aside."""
    (found,) = folder.glob("ledger.db.broken-*[0-9]")
    return found.read_bytes()


def torn(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(8000))


@pytest.mark.parametrize("damage", [broken, torn])
async def test_a_damaged_database_is_moved_aside_loudly(damage: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=state(path)) as s:
        s.a.script(steps.chat("hello"))
        await s.post()
        await trio.sleep(0.05)
    damage(path)
    damaged = await trio.Path(path).read_bytes()
    async with scene("a", toml=state(path)) as s:
        assert "damaged" in await told(s, 1)
        assert await told(s, 2) == ""
        s.a.script(steps.chat("hello"))
        await s.post()
        await trio.sleep(0.05)
    assert rows(path, "SELECT count(*) FROM calls") == [(1,)]
    assert aside(tmp_path) == damaged


async def refused(path: Path, rest: str = "") -> str:
    """Why a gateway with this state does not start."""
    channel = '[[channels]]\nname = "a"\nbase_url = "http://127.0.0.1:9/v1"\nauth = "none"\n'
    model = '[[models]]\nname = "m"\nchannels = [ { channel = "a", model = "m" } ]\n'
    config = parse_config(channel + model + state(path, rest), "gateway.toml")
    with pytest.raises(ConfigError) as caught:
        async with open_gateway(config):
            pass
    assert [fault.path for fault in caught.value.faults] == ["state.path"]
    return str(caught.value)


async def test_a_newer_programs_tables_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=state(path)):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'version'")
    connection.close()
    assert "version 99 and this program knows" in await refused(path)
    assert rows(path, "SELECT value FROM meta WHERE name = 'version'") == [("99",)]


async def test_an_older_programs_tables_are_brought_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=state(path)) as s:
        s.a.script(steps.chat("hello"))
        await s.post()
        await trio.sleep(0.05)
    later = (*schema.MIGRATIONS, ("CREATE TABLE later (id text PRIMARY KEY)",))
    monkeypatch.setattr(schema, "MIGRATIONS", later)
    monkeypatch.setattr(schema, "VERSION", len(later))
    async with scene("a", toml=state(path)):
        pass
    assert rows(path, "SELECT count(*) FROM calls") == [(1,)]
    assert rows(path, "SELECT * FROM later") == []
    assert rows(path, "SELECT value FROM meta WHERE name = 'version'") == [(str(len(later)),)]


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Sqlite.open(str(tmp_path / "ledger.db"))
    schema.migrate(database)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE a (b text)", "no SQL")))
    with pytest.raises(DatabaseTrouble):
        schema.migrate(database)
    assert database.execute("SELECT name FROM sqlite_master WHERE name = 'a'") == []
    assert schema.version(database) == len(schema.MIGRATIONS) - 1
    database.close()


async def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert "No such file or directory" in await refused(tmp_path / "nowhere" / "ledger.db")


async def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)  # root may write anywhere
    try:
        assert "Permission denied" in await refused(folder / "ledger.db")
    finally:
        if root:
            os.seteuid(0)


async def test_a_disk_without_room_for_the_spool_is_said(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        assert "File too large" in await refused(tmp_path / "ledger.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    async with scene("a", toml=state(tmp_path / "ledger.db")) as s:
        assert store(s).admits


async def test_a_write_that_cannot_be_made_is_told_to_who_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=state(path)) as s:
        await store(s).write(TopUp(1.0, "acme", 5, ""))
        assert rows(path, "SELECT tenant, micro_usd FROM balances") == [("acme", 5)]
        full(s)
        with pytest.raises(DatabaseTrouble, match="full"):
            await store(s).write(TopUp(2.0, "acme", 6, "x" * 20_000))
        emptied(s)
    assert rows(path, "SELECT micro_usd FROM balances ORDER BY at") == [(5,), (6,)]
