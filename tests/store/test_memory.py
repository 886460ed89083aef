"""What is remembered through a kill: the files as they are at some moment, and a new gateway on a copy of them.

A copy is what `kill -9` would leave: the spool's pages belong to the kernel, and so does what SQLite wrote.
"""

import json
import shutil
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, left, tenant
from tests.fakes import steps
from tests.scene import NOVEMBER, Scene, scene
from tests.store.test_kept import rows, state
from trioproxy.journal import BudgetNearing, StoreTroubled
from trioproxy.memory import Memory
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

DAY, BALANCE, MINUTE = Dimension.TOKENS_PER_DAY, Dimension.BALANCE, Dimension.TOKENS_PER_MINUTE
LIMITED = tenant(
    "balance = 1.0\nlimits = { tokens_per_day = 100000, tokens_per_minute = 50000, concurrency = 3 }\n"
    "end_user = { limits = { tokens_per_day = 50000 } }"
)
CALLER = key(rest='tenant = "acme"')


def killed(folder: Path) -> Path:
    """The files at this moment, elsewhere; the process that goes on with the old ones does not matter any more."""
    copy = folder.with_name(folder.name + "-killed")
    shutil.copytree(folder, copy)
    return copy / "ledger.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    return made


def toml(path: Path, rest: str = LIMITED + CALLER) -> str:
    return state(path) + rest


def used(s: Scene, dimension: Dimension, rank: Rank = Rank.TENANT) -> int:
    limit = {DAY: 100_000, BALANCE: 1_000_000, MINUTE: 50_000}[dimension]
    if not any((gauge.scope.rank, gauge.dimension) == (rank, dimension) for gauge in s.gateway.limits()):
        return 0  # at rest
    return (50_000 if rank is Rank.END_USER else limit) - left(s, rank, dimension)


async def test_a_call_under_way_is_charged_its_estimate_once(folder: Path, autojump_clock: MockClock) -> None:
    async with scene("a", toml=toml(folder / "ledger.db")) as s:
        s.a.script(steps.chat("hello"), steps.chat_stream(["a", "b"], every=60.0))
        await s.post(headers=bearer())
        await s.rest()
        (ended,) = s.ended
        await s.open_stream(headers=[*bearer(), ("x-request-id", "open")], max_tokens=100)
        path = killed(folder)
    spent = ended.usage.input + ended.usage.output
    for restart in range(3):  # the second and third kill come before anything was kept
        async with scene("a", toml=toml(path), wall=NOVEMBER + restart) as s:
            found = rows(path, "SELECT request_id, reason, input, output, cost, note FROM calls ORDER BY position")
            assert [row[:2] for row in found] == [(ended.request_id, "answered"), ("open", "interrupted")]
            _, _, tokens_in, tokens_out, cost, _ = found[1]
            assert tokens_out == 100
            assert used(s, DAY) == spent + tokens_in + tokens_out
            assert used(s, BALANCE) == (ended.cost or 0) + cost
            assert left(s, Rank.TENANT, Dimension.CONCURRENCY) == 3
            if restart < 2:
                path = killed(path.parent)


async def test_a_call_whose_answer_had_not_begun_costs_nothing(folder: Path, autojump_clock: MockClock) -> None:
    async with scene("a", toml=toml(folder / "ledger.db")) as s:
        s.a.script(steps.silence())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: s.post(headers=bearer()))
            await trio.sleep(20)  # it holds its reservation, and the state was kept meanwhile
            assert used(s, DAY) > 0
            path = killed(folder)
            nursery.cancel_scope.cancel("enough")
    async with scene("a", toml=toml(path)) as s:
        assert rows(path, "SELECT * FROM calls") == []
        s.a.script(steps.chat("hello"))
        await s.post(headers=bearer())
        await s.rest()
        (ended,) = s.ended
        assert used(s, DAY) == ended.usage.input + ended.usage.output


@pytest.mark.parametrize("seconds", [0.5, 4.0, 5.5, 9.0])
async def test_whenever_it_is_killed_the_figures_are_exact(
    seconds: float, folder: Path, autojump_clock: MockClock
) -> None:
    """Some calls are in the snapshot, the rest behind it; each counts once, at its own time."""
    async with scene("a", toml=toml(folder / "ledger.db")) as s:
        s.a.script(steps.chat("hello"))
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            await s.post(headers=[*bearer(), ("x-trioproxy-user", "eve")])
            await trio.sleep(0.4)
        before = {dimension: used(s, dimension) for dimension in (DAY, BALANCE)}
        of_eve = used(s, DAY, Rank.END_USER)
        minute = used(s, MINUTE)
        path = killed(folder)
        wall = s.gateway.line.wall()
    async with scene("a", toml=toml(path), wall=wall) as s:
        assert {dimension: used(s, dimension) for dimension in (DAY, BALANCE)} == before
        assert used(s, DAY, Rank.END_USER) == of_eve
        assert abs(used(s, MINUTE) - minute) <= 1
    assert before[DAY] > 0


async def test_what_ends_while_the_state_is_being_kept_counts_once(
    folder: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The accounts are told of one by one here, and calls go on: each counts for those that were told of before it."""
    autojump_clock.autojump_threshold = 0.01  # the store's thread takes real time, in which a day would go by
    monkeypatch.setattr("trioproxy.memory.PART", 1)
    users = [f"user-{number}" for number in range(200)]

    def of_users(s: Scene) -> dict[str, int]:
        return {
            gauge.scope.name: 50_000 - gauge.remaining
            for gauge in s.gateway.limits()
            if (gauge.scope.rank, gauge.dimension) == (Rank.END_USER, DAY)
        }

    config = "snapshot_every = 1e6\n" + LIMITED.replace("concurrency = 3", "concurrency = 300") + CALLER
    async with scene("a", toml=toml(folder / "ledger.db", config)) as s:
        s.a.script(steps.chat("hello"))
        store, line = s.gateway.store, s.gateway.line
        assert store is not None
        memory = Memory(store, s.gateway.supervisor, line, line.wall)

        async def caller(user: str) -> None:
            for _ in range(5):
                await s.post(headers=[*bearer(), ("x-trioproxy-user", user)])

        for user in users:
            await s.post(headers=[*bearer(), ("x-trioproxy-user", user)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(memory.look)
            for user in users[:30]:
                nursery.start_soon(caller, user)
        await store.run(lambda _database: None)
        pieces = rows(folder / "ledger.db", "SELECT body FROM snapshots WHERE family LIKE 'quota from%'")
        assert len(pieces) > 10
        positions = sorted(position for (piece,) in pieces for position, *_ in json.loads(piece))
        assert len(set(positions)) > 5
        before = {dimension: used(s, dimension) for dimension in (DAY, BALANCE)}, of_users(s)
        path, wall = killed(folder), line.wall()
    async with scene("a", toml=toml(path, LIMITED + CALLER), wall=wall) as s:
        assert ({dimension: used(s, dimension) for dimension in (DAY, BALANCE)}, of_users(s)) == before
    assert before[1]["acme / user-0"] == 6 * before[1]["acme / user-99"]


@pytest.mark.parametrize("seconds", [2.0, 7.0])
async def test_what_failed_attempts_took_of_a_channels_limit_is_taken(
    seconds: float, folder: Path, autojump_clock: MockClock
) -> None:
    """A request that the provider got is gone, whatever it said; a connection that nobody took up cost nothing."""
    limited = {"a": "limits = { requests_per_day = 100 }\n", "b": "limits = { requests_per_day = 100 }\n"}

    def taken(s: Scene) -> dict[str, int]:
        gauges = (gauge for gauge in s.gateway.limits() if gauge.scope.rank is Rank.CHANNEL)
        return {gauge.scope.name: 100 - gauge.remaining for gauge in gauges if gauge.remaining < 100}

    async with scene("a", "b", toml=toml(folder / "ledger.db"), channel=limited) as s:
        s.a.script(steps.error(500), steps.error(500), steps.silence())
        s.b.script(steps.chat("hello"), steps.chat("hello"), steps.error(500))
        for _ in range(2):
            await s.post(headers=bearer())
        assert (await s.post(headers=[*bearer(), ("x-request-timeout", "1")])).status == 504
        await trio.sleep(seconds)  # past a snapshot, or before the first
        before = taken(s)
        path, wall = killed(folder), s.gateway.line.wall()
    assert before == {"a": 3, "b": 2}
    async with scene("a", "b", toml=toml(path), channel=limited, wall=wall) as s:
        assert taken(s) == before


@pytest.mark.parametrize("body", ["CAST('{}' AS BLOB)", "'text'", "CAST('[1]' AS BLOB)"])
async def test_a_quota_that_cannot_be_read_is_what_the_ledger_says(
    body: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=toml(path)) as s:
        s.a.script(steps.chat("hello"))
        for _ in range(3):
            await s.post(headers=bearer())
        await s.rest()
        before = {dimension: used(s, dimension) for dimension in (DAY, BALANCE)}
    rows(path, f"UPDATE snapshots SET body = {body} WHERE family = 'quota'")  # noqa: S608 - of this test
    async with scene("a", toml=toml(path)) as s:
        assert {dimension: used(s, dimension) for dimension in (DAY, BALANCE)} == before
    assert before[BALANCE] > 0


async def test_a_budget_that_is_nearly_spent_is_told_once_in_its_day_whatever_restarts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "ledger.db"
    caller = tenant("budget = { day = 0.001, alert_at = 0.03 }") + CALLER
    told = []
    for wall in (NOVEMBER, NOVEMBER + 60, NOVEMBER + 86_400):
        async with scene("a", toml=toml(path, caller), wall=wall) as s:
            s.a.script(steps.chat("hello"))
            await s.post(headers=bearer(), max_tokens=10)
            await s.post(headers=bearer(), max_tokens=10)
            await s.rest()
            told.append(sum(isinstance(event, BudgetNearing) for event in s.events))
    assert told == [1, 0, 1]


async def test_a_record_that_was_being_written_is_dropped(folder: Path, autojump_clock: MockClock) -> None:
    async with scene("a", toml=toml(folder / "ledger.db")) as s:
        s.a.script(steps.chat("hello"))
        await s.post(headers=bearer())
        await s.rest()
        store = s.gateway.store
        assert store is not None
        head = store.position
        await s.post(headers=[*bearer(), ("x-request-id", "last")])
        await s.rest()
        path = killed(folder)
    spool = trio.Path(f"{path}.spool")
    data = bytearray(await spool.read_bytes())
    data[4096 + head + 20] ^= 0xFF  # of the last call's first record
    await spool.write_bytes(data)
    async with scene("a", toml=toml(path)):
        pass
    assert len(rows(path, "SELECT * FROM calls")) in {1, 2}  # two where the thread had been quicker


async def test_a_park_is_remembered_but_not_for_another_key(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", "b", toml=state(path)) as s:
        s.a.script(steps.error(401))
        s.b.script(steps.chat("hello"))
        await s.post()
    async with scene("a", "b", toml=state(path), wall=NOVEMBER + 10) as s:
        s.b.script(steps.chat("hello"))
        await s.post()
        assert s.hits() == "a=0 b=1"
        assert "parked" in (s.gateway.statistics()["a"].objection or "")
    keys = {"a": "sk-a-new-key", "b": "sk-secret-b"}
    async with scene("a", "b", toml=state(path), wall=NOVEMBER + 20, credentials=keys) as s:
        s.a.script(steps.chat("hello"))
        await s.post()
        assert s.hits() == "a=1 b=0"


async def test_what_was_learned_is_remembered(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=toml(path)) as s:
        s.a.script(steps.chat("hello"))
        for _ in range(25):
            await s.post(headers=bearer())
        await s.rest()
        learned = s.gateway.supervisor.quota.state.learned.output("acme/m")
    async with scene("a", toml=toml(path)) as s:
        assert s.gateway.supervisor.quota.state.learned.output("acme/m") == learned
    assert learned == 64  # the floor, in place of what is reserved on an unknown route


async def test_another_configuration_takes_up_what_is_still_there(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", "b", toml=toml(path)) as s:
        s.a.script(steps.error(500))
        s.b.script(steps.chat("hello"))
        for _ in range(3):
            await s.post(headers=bearer())
        await s.rest()
        spent = used(s, BALANCE)
    richer = tenant("balance = 3.0", name="acme") + tenant("balance = 1.0", name="new")
    async with scene("b", "c", toml=toml(path, richer + CALLER)) as s:
        assert left(s, Rank.TENANT, BALANCE, "acme") == 3_000_000 - spent
        assert s.breaker("b") == "closed"
    assert spent > 0


async def test_a_snapshot_that_cannot_be_read_is_told_and_passed_over(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=toml(path)) as s:
        s.a.script(steps.chat("hello"))
        await s.post(headers=bearer())
        await s.rest()
    rows(path, """UPDATE snapshots SET body = CAST('{"version": 99}' AS BLOB) WHERE family = 'channels'""")
    async with scene("a", toml=toml(path)) as s:
        told = [event.why for event in s.events if isinstance(event, StoreTroubled)]
        assert "channels" in told[0]
        assert "version" in told[0]
        assert told[1:] == [""]
        assert used(s, BALANCE) > 0


async def test_what_is_only_in_memory_is_forgotten_and_can_be_asked(autojump_clock: MockClock) -> None:
    async with scene("a", toml=state(Path(":memory:"))) as s:
        s.a.script(steps.chat("hello"))
        await s.post()
        await s.rest()
        store = s.gateway.store
        assert store is not None
        assert await store.query(lambda database: database.execute("SELECT count(*) FROM calls")) == [(1,)]


async def test_a_snapshot_that_is_no_json_is_told_and_passed_over(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=toml(path)):
        pass
    rows(path, "UPDATE snapshots SET body = CAST('{' AS BLOB)")
    async with scene("a", toml=toml(path)) as s:
        told = [event.why for event in s.events if isinstance(event, StoreTroubled) and event.why]
        assert len(told) == 4
