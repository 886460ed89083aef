"""Cut at every checkpoint: every exchange is one row, whatever had begun has ended, and rows add up to the balance."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.test_quota_cancel import LINES, spent
from tests.scene import Scene, scene
from tests.store.test_kept import rows, state
from tests.store.test_trouble import store
from tests.test_lifecycle import Visit, cut_everywhere, embedded, scripted, through_the_door
from trioproxy.policy.limits import Dimension

BALANCE = '[[tenants]]\nname = "default"\nbalance = 100.0\n'


@pytest.mark.parametrize("visit", [embedded, through_the_door])
@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
@pytest.mark.parametrize("line", ["two attempts", "keepalive"])
async def test_wherever_a_caller_leaves_there_is_one_row(
    visit: Visit, streamed: bool, line: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    extra, script = LINES[line]
    path = tmp_path / "ledger.db"
    totals: list[int] = []

    async def counted(s: Scene, streamed: bool, at: int) -> bool:
        cut = await visit(s, streamed, at)
        await trio.testing.wait_all_tasks_blocked()
        totals.extend(ended.cost or 0 for ended in s.ended)
        assert store(s).ledger._open == {}
        assert sum(spent(s, Dimension.BALANCE).values()) == sum(totals)
        return cut

    async with scene(*("a", "b")[: len(script)], toml=state(path) + BALANCE + extra) as s:
        await cut_everywhere(s, counted, streamed=streamed, script=scripted(*script))
    assert rows(path, "SELECT count(*), sum(cost) FROM calls") == [(len(totals), sum(totals))]
    assert rows(path, "SELECT count(*) FROM begun") == [(0,)]
    assert len(totals) > 5
    assert sum(totals) > 0


async def test_a_query_that_is_given_up_holds_nobody_up(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with scene("a", toml=state(tmp_path / "ledger.db")) as s:
        with trio.CancelScope() as scope:
            scope.cancel()
            await store(s).query(lambda database: database.execute("SELECT 1"))
        with trio.CancelScope() as other:
            other.cancel()
            await store(s).run(lambda database: database.execute("SELECT 1"))
        assert (scope.cancelled_caught, other.cancelled_caught) == (True, True)
        assert store(s).statistics().why == ""
