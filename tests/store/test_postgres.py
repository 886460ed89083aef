"""A real PostgreSQL server: the same rows, through its absence, and several gateways in one ledger."""

from pathlib import Path

import psycopg
import trio

from tests.fakes import steps
from tests.scene import scene
from tests.store.ledgers import server
from tests.store.test_trouble import store, told
from trioproxy.config.secrets import DATABASE
from trioproxy.store import queries
from trioproxy.store.records import TopUp


async def test_the_server_may_be_away_and_every_call_lands_once(tmp_path: Path) -> None:
    with server() as running:
        toml = f'[state]\npath = "{tmp_path / "one"}"\nurl = {{ value = "{running.url}" }}\n'
        other = f'[state]\npath = "{tmp_path / "two"}"\nurl = {{ value = "{running.url}" }}\n'
        credentials = {"a": "sk-secret-a", DATABASE: running.url}
        async with scene("a", toml=toml, credentials=credentials) as s:
            s.a.script(steps.chat("hello"))
            await s.post(headers=[("x-request-id", "before")])
            await store(s).write(TopUp(1.0, "acme", 5, "by hand"))
            running.stop()
            await s.post(headers=[("x-request-id", "during")])
            why = await told(s, 1)
            assert running.url not in why
            running.start()
            assert await told(s, 2) == ""
            await s.stream(headers=[("x-request-id", "after")])
            await trio.sleep(0.05)
        async with scene("a", toml=other, credentials=credentials) as s:
            s.a.script(steps.chat("hello"))
            await s.post(headers=[("x-request-id", "elsewhere")])
            await trio.sleep(0.05)
            await store(s).write(TopUp(2.0, "acme", 6, ""))
            selection = queries.Selection(where=(("tenant", "default"), ("channel", "a")), since=1.0)
            (sums,) = await store(s).query(lambda database: queries.usage(database, ["day", "tenant"], selection))
            assert (sums["calls"], sums["answered"], sums["input"]) == (4, 4, 36)
            assert sums["day"] == "2025-11-24"
            rates = await store(s).query(lambda database: queries.success(database, ["hour", "channel"], selection))
            assert [(row["hour"][-4:], row["channel"], row["success_rate"]) for row in rates] == [(":00Z", "a", 1.0)]
            ((call, tries),) = await store(s).query(lambda database: queries.call(database, "after"))
            assert (call["reason"], call["stream"], [each["channel"] for each in tries]) == ("answered", 1, ["a"])
        with psycopg.connect(running.url) as connection:
            found = connection.execute("SELECT request_id, spool FROM calls ORDER BY spool, position").fetchall()
            paid = connection.execute("SELECT spool, micro_usd FROM balances ORDER BY at").fetchall()
    assert found == [("before", 1), ("during", 1), ("after", 1), ("elsewhere", 2)]
    assert paid == [(1, 5), (2, 6)]
