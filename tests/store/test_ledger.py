"""What becomes a record, what it says, and what is dropped where there is no room; and what is forgotten in time."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key
from tests.fakes import steps
from tests.scene import NOVEMBER, scene
from tests.store.test_kept import rows, state
from tests.store.test_trouble import store
from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.journal import (
    AttemptRecord,
    BreakerMoved,
    ChannelCooled,
    ChannelParked,
    EndReason,
    ExchangeEnded,
    ProbeRan,
    RolloutMoved,
    Switched,
    Usage,
)

SCOPE = 'scope = { region = "eu", deployment = "d1", workspace = "w", project = "p" }\nprovider = "azure"'


async def test_a_call_tells_where_it_was_answered_and_every_attempt_why_not(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", "b", toml=state(path), channel=SCOPE) as s:
        s.a.script(steps.error(429, headers=[("retry-after", "7")]))
        s.b.script(steps.after(2.0, steps.chat("hello")))
        await s.post()
        await s.rest()
    ((provider, *place, started, ended, duration),) = rows(
        path, "SELECT provider, channel, region, deployment, workspace, project, started, ended, duration FROM calls"
    )
    assert (provider, *place) == ("azure", "b", "eu", "d1", "w", "p")
    assert (started, ended, duration) == pytest.approx((NOVEMBER, NOVEMBER + 2, 2.0), abs=0.01)
    tries = rows(path, "SELECT number, channel, provider, fault, blame, status, retry_after FROM attempts")
    assert tries == [(1, "a", "azure", "rate_limited", "rate", 429, 7.0), (2, "b", "azure", "", "", 0, None)]


async def test_refusals_are_calls_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    limited = key(rest="limits = { requests_per_day = 1 }")
    async with scene("a", toml=state(path) + limited) as s:
        s.a.script(steps.chat("hello"))
        for headers in (bearer(), bearer(), bearer("other")):
            await s.post(headers=headers)
        await s.rest()
    found = rows(path, "SELECT reason, status, limiter, key_id, cost FROM calls ORDER BY position")
    assert found == [
        ("answered", 200, "", "k", found[0][4]),
        ("refused_quota", 429, "key.requests_per_day", "k", 0),
        ("refused_auth", 401, "", "anonymous", 0),
    ]


async def test_every_event_has_its_table(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=state(path)) as s:
        for event in (
            BreakerMoved("a", "closed", "open", 10.0, 70.0),
            ChannelParked("a", "auth", "no", 300.0, 10.0),
            ChannelCooled("a", "rate_limited", 3.0, 10.0),
            Switched("m", "a", "b", "breaker open", 10.0),
            ProbeRan("a", "a-model", True, "", 0.5, Usage(3, 0, 1), 7, 10.0),
            RolloutMoved("m", 10, "running", "step", 10.0),
        ):
            s.gateway.journal.emit(event)
    assert rows(path, "SELECT channel, was, state, seconds, why FROM transitions ORDER BY position") == [
        ("a", "closed", "open", 60.0, ""),
        ("a", "", "parked", 300.0, "no"),
    ]
    assert rows(path, "SELECT model, was, channel, cause FROM switches") == [("m", "a", "b", "breaker open")]
    assert rows(path, "SELECT channel, ok, input, output, cost FROM probes") == [("a", 1, 3, 1, 7)]
    assert rows(path, "SELECT model, percent, state, why FROM rollouts") == [("m", 10, "running", "step")]


async def test_where_there_is_no_room_a_settlement_stays_and_a_refusal_goes(tmp_path: Path) -> None:
    """Two calls with one id, and a caller whose refusals come by the thousand."""
    path = tmp_path / "ledger.db"
    fault = Fault(FaultKind.SERVER_ERROR, Blame.PROVIDER, "x" * 1000, 500)
    attempt = AttemptRecord("a", "a-model", 0.0, 1.0, fault)
    failed = ExchangeEnded("same", EndReason.CHAIN_EXHAUSTED, 502, "/v1", attempts=(attempt,) * 3)
    async with scene("a", toml=state(path, "spool_size = 1048576")) as s:
        ledger = store(s).ledger
        count = 0
        while ledger.admits:  # faster than any thread
            s.gateway.journal.emit(failed)
            count += 1
        before = ledger.dropped
        s.gateway.journal.emit(ExchangeEnded("refused", EndReason.REFUSED_AUTH, 401, "/v1"))
        s.gateway.journal.emit(failed)
        assert (ledger.dropped - before, store(s).statistics().dropped) == (1, before + 1)
    assert rows(path, "SELECT request_id, count(*) FROM calls GROUP BY request_id") == [("same", count + 1)]
    assert rows(path, "SELECT max(length(message)) FROM attempts") == [(300,)]


@pytest.mark.parametrize("rest, gone", [("retention_days = 10", 20), ("retention_days = 0\nmax_size = 1", 30)])
async def test_what_is_too_old_or_too_much_is_forgotten_oldest_first(rest: str, gone: int, tmp_path: Path) -> None:
    """But nothing of what a restart has to count: what came behind the last snapshot."""
    path = tmp_path / "ledger.db"
    async with scene("a", toml=state(path, rest)) as s:
        for number in range(30):
            s.wall = NOVEMBER + number * 86_400
            s.gateway.journal.emit(ExchangeEnded(f"call-{number}", EndReason.ANSWERED, 200, "/v1"))
        store(s).keep({})
        s.gateway.journal.emit(ExchangeEnded("behind", EndReason.ANSWERED, 200, "/v1"))
        for _ in range(200):  # of the thread's rounds nobody is told
            if store(s).statistics().forgotten:
                break
            await trio.sleep(0.02)
        assert store(s).statistics().forgotten == gone
    found = [name for (name,) in rows(path, "SELECT request_id FROM calls ORDER BY position")]
    assert found == [*(f"call-{number}" for number in range(gone, 30)), "behind"]


async def test_a_value_that_no_database_takes_costs_no_record(tmp_path: Path) -> None:
    """The odd one is cleaned, and those around it are there."""
    path = tmp_path / "ledger.db"
    odd = [
        ExchangeEnded("half", EndReason.ANSWERED, 200, "/v1", session="half a pair: \ud800", cost=5),
        ExchangeEnded("huge", EndReason.ANSWERED, 2**63, "/v1", estimated_input=2**70, cost=5),
        ExchangeEnded("nan", EndReason.ANSWERED, 200, "/v1", overhead=float("nan"), cost=5),
    ]
    async with scene("a", toml=state(path)) as s:
        for number, event in enumerate(odd):
            s.gateway.journal.emit(ExchangeEnded(f"before-{number}", EndReason.ANSWERED, 200, "/v1", cost=1))
            s.gateway.journal.emit(event)
            s.gateway.journal.emit(ExchangeEnded(f"after-{number}", EndReason.ANSWERED, 200, "/v1", cost=1))
        assert s.gateway.journal.broken == 0
        await store(s).run(lambda _database: None)
        assert store(s).statistics().unreadable == 0
    assert rows(path, "SELECT count(*), sum(cost) FROM calls") == [(9, 21)]
    assert rows(path, "SELECT session FROM calls WHERE request_id = 'half'") == [("half a pair: ?",)]


async def test_a_record_that_is_none_is_passed_over_and_told(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", toml=state(path)) as s:
        s.gateway.journal.emit(ExchangeEnded("before", EndReason.ANSWERED, 200, "/v1"))
        store(s).spool.append(b"\x93\xa5later\x01\x02")
        s.gateway.journal.emit(ExchangeEnded("after", EndReason.ANSWERED, 200, "/v1"))
        await store(s).run(lambda _database: None)
        assert store(s).statistics().unreadable == 1
    assert rows(path, "SELECT request_id FROM calls ORDER BY position") == [("before",), ("after",)]
