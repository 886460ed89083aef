"""What a gateway with a store remembers, on a network in memory with a real SQLite file."""

import sqlite3
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, left
from tests.fakes import steps
from tests.scene import NOVEMBER, scene
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank


def state(path: Path, rest: str = "") -> str:
    return f'[state]\npath = "{path}"\n{rest}\n'


def rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute(statement).fetchall()
    connection.close()
    return found


async def test_every_call_is_a_row_with_what_it_was_and_cost(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", "b", toml=state(path)) as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat("hello"))
        await s.post(headers=[("x-request-id", "one")])
        await s.stream()
        await s.rest()
        (ended, _) = s.ended
    assert len(rows(path, "SELECT 1 FROM calls")) == 2
    found = rows(
        path, "SELECT request_id, reason, channel, provider, input, output, cost, attempts, status FROM calls LIMIT 1"
    )
    assert found == [("one", "answered", "b", "b", ended.usage.input, ended.usage.output, ended.cost, 2, 200)]
    tries = rows(path, "SELECT channel, fault, status FROM attempts WHERE position = (SELECT min(position) FROM calls)")
    assert tries == [("a", "overloaded", 503), ("b", "", 0)] or tries[0][0] == "a"
    assert rows(path, "SELECT * FROM begun") == []


BALANCE = """
[[tenants]]
name = "acme"
balance = 1.0
limits = { tokens_per_day = 100000, tokens_per_minute = 50000 }
"""


async def test_a_restart_forgets_no_usage_and_counts_none_twice(tmp_path: Path, autojump_clock: MockClock) -> None:
    toml = state(tmp_path / "ledger.db") + BALANCE + key(rest='tenant = "acme"')
    wall = NOVEMBER
    spent: list[int] = []
    for _ in range(3):
        async with scene("a", toml=toml, wall=wall) as s:
            s.a.script(steps.chat("hello"))
            if spent:
                assert left(s, Rank.TENANT, Dimension.BALANCE) == 1_000_000 - sum(spent)
            await s.post(headers=bearer())
            await s.rest()
            spent += [ended.cost or 0 for ended in s.ended]
            assert left(s, Rank.TENANT, Dimension.BALANCE) == 1_000_000 - sum(spent)
            await trio.sleep(3)
        wall += 10
    assert sum(spent) > 0
    assert rows(tmp_path / "ledger.db", "SELECT sum(cost), count(*) FROM calls") == [(sum(spent), 3)]


async def test_a_restart_during_an_outage_keeps_the_breaker_open(tmp_path: Path, autojump_clock: MockClock) -> None:
    toml = state(tmp_path / "ledger.db")
    async with scene("a", "b", toml=toml) as s:
        s.a.script(steps.error(500))
        s.b.script(steps.chat("hello"))
        for _ in range(3):
            await s.post()
        assert s.breaker() == "open"
    async with scene("a", "b", toml=toml, wall=NOVEMBER + 20) as s:  # of the breaker's sixty seconds
        assert s.breaker() == "open"
        assert 39 < s.gateway.statistics()["a"].open_for < 41
        s.b.script(steps.chat("hello"))
        await s.post()
        assert s.hits() == "a=0 b=1"
