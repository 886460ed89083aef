"""The whole story of forty minutes: an alert in seconds, a restart in the middle, the way back, and the bill.

The first provider takes calls and says nothing from 5:05 to 45:05. At 25:00 the gateway is stopped, or killed, and begins again.
"""

import shutil
import sqlite3
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from tests.acceptance.outage import MINUTE, WAIT, Log, answer, heal, strike, traffic
from tests.fakes import steps
from tests.scene import NOVEMBER, Scene, scene
from trioproxy.journal import AlertCause, AlertTold, Event, ExchangeEnded, Switched, SwitchWeighed
from trioproxy.policy.sticky import place
from trioproxy.store.queries import Selection, success, usage
from trioproxy.store.sqlite import Sqlite
from trioproxy.store.writer import Job

EVERY = 1.0  # seconds between calls
DIES, RESTART, BEGINS, BACK, END = 5 * MINUTE + 5.25, 25 * MINUTE, 25 * MINUTE + 4, 45 * MINUTE + 5.25, 55 * MINUTE
RAMP = 300.0
LOST = 5 * MINUTE + 6.0  # the first call that nobody answers
SESSIONS = [f"s{number}" for number in range(60)]  # each once a minute
A, B_COLD, B_WARM = (
    answer(text, cached=cached, seconds=seconds)
    for text, cached, seconds in (("from a", 10, 0.1), ("from b", 0, 0.4), ("from b", 10, 0.2))
)
COLD = 250  # calls until B's cache is as warm as A's was
# Micro-USD of 20 tokens of prompt and 3 of answer, half of the prompt cached or none of it.
AT_A, AT_B_COLD, AT_B_WARM = 10 + 1 + 12, 40 + 24, 20 + 2 + 24
COLD_AT_A = 20 + 12


def config(path: Path) -> str:
    return f"""
[defaults]
breaker = "consecutive"
headers_timeout = {WAIT:g}
switch_back = {{ over = {RAMP:g}, least = 0.1 }}
[probes]
jitter = 0
[state]
path = "{path}"
"""


@define(eq=False)
class Story:
    """Both lives of the gateway; times are seconds since the first one began."""

    lives: list[Log] = field(factory=list)
    path: Path = Path()

    @property
    def events(self) -> list[Event]:
        return [event for log in self.lives for event in log.s.events]

    @property
    def ended(self) -> list[ExchangeEnded]:
        return [event for event in self.events if isinstance(event, ExchangeEnded)]

    def alerts(self, life: int) -> list[tuple[str, float]]:
        told = [each for each in self.lives[life].s.events if isinstance(each, AlertTold)]
        return [(each.state, each.now) for each in told if (each.cause, each.subject) == (AlertCause.BREAKER_OPEN, "a")]

    def switches(self) -> list[tuple[str, str, str]]:
        return [(each.was, each.channel, each.cause) for each in self.events if isinstance(each, Switched)]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.path) as connection:
            found = connection.execute(statement).fetchall()
        connection.close()
        return found

    def per_minute(self, channel: str) -> list[int]:
        counted = [0] * round(END / MINUTE)
        for log in self.lives:
            for minute, calls in enumerate(log.minutes(channel)):
                counted[minute] += calls
        return counted


async def life(s: Scene, until: float, happens: Sequence[tuple[Any, float]]) -> Log:
    log = Log(s)
    async with trio.open_nursery() as nursery:
        for what, at in happens:
            nursery.start_soon(what, s, at)
        nursery.start_soon(traffic, log, until, EVERY, SESSIONS)
    return log


async def healed(s: Scene, at: float) -> None:
    await heal(s, at, A)


async def told(folder: Path, *, kill: bool) -> Story:
    story, path = Story(), folder / "state" / "ledger.db"
    path.parent.mkdir()
    async with scene("a", "b", toml=config(path)) as s:
        s.a.script(A)
        s.b.script(*[B_COLD] * COLD, B_WARM)
        story.lives.append(await life(s, RESTART, [(strike, DIES)]))
        if kill:
            written(s)
            path = Path(shutil.copytree(path.parent, folder / "killed")) / "ledger.db"
    await trio.sleep(BEGINS - trio.current_time())
    async with scene("a", "b", toml=config(path), wall=NOVEMBER + BEGINS) as s:
        s.a.script(steps.silence())
        s.b.script(B_WARM)
        story.lives.append(await life(s, END, [(healed, BACK)]))
        await s.rest()
        assert s.held() == {}
    story.path = path
    return story


def written(s: Scene) -> None:
    """Until the writer's thread has what was kept; the loop stands still meanwhile, and so does the clock."""
    done = threading.Event()
    assert s.gateway.store is not None
    s.gateway.store.writer.ask(Job(lambda _database: None, lambda _result, _trouble: done.set()))
    assert done.wait(10)


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
async def test_the_whole_story(kill: bool, tmp_path: Path, autojump_clock: MockClock) -> None:
    story = await told(tmp_path, kill=kill)
    noticed(story)
    restarted(story)
    returned(story)
    billed(story)


def noticed(story: Story) -> None:
    before = story.lives[0]
    (state, opened), *rest = before.moves()
    assert (state, rest) == ("open", [])
    first = before.first_failure()
    assert first == LOST + WAIT
    assert opened == first + 4 * EVERY  # five in a row
    ((raised, at),) = story.alerts(0)
    assert (raised, at - opened <= 1.0, at - first <= 5.0) == ("raised", True, True)

    calls = [call for log in story.lives for call in log.calls]
    assert len(calls) == (RESTART + END - BEGINS) / EVERY
    assert {call.status for call in calls} == {200}
    waited = [call for call in calls if call.took >= WAIT]
    assert [call.at for call in waited] == [LOST + EVERY * n for n in range(12)]  # those of twelve seconds
    without = sum(DIES < call.at < BACK for call in calls) - len(waited)
    assert without == 2400 - 4 - 12  # waits of eight seconds that nobody had
    assert before.asked()[-1] < opened


def restarted(story: Story) -> None:
    """Nobody finds out anew: no call is sent to the dead provider, the alert is raised again, and checks go on."""
    after = story.lives[1]
    (state, at), *rest = after.moves()
    assert (state, at, [state for state, _ in rest]) == ("open", BEGINS, ["closed"])
    closed = rest[0][1]
    assert min(after.asked()) >= closed
    assert {call.channel for call in after.calls if call.at < closed} == {"b"}
    assert max(call.took for call in after.calls) < 1.0
    (raised, when), (recovered, over) = story.alerts(1)
    assert (raised, recovered, when - BEGINS <= 1.0) == ("raised", "recovered", True)
    assert closed < over <= closed + 90.0
    probes = after.probes()
    assert {probe.ok for probe in probes if probe.now < BACK} == {False}
    assert probes[0].now - BEGINS <= 63.0
    apart = [later.now - earlier.now for earlier, later in pairwise(probe for probe in probes if probe.now < BACK)]
    assert set(apart) == {10.0}
    assert BACK <= closed <= BACK + 10.0


def returned(story: Story) -> None:
    """A tenth of the sessions, then a fifth of all each minute; nobody who is back leaves again, and no minute is a stampede."""
    after = story.lives[1]
    closed = after.moves()[-1][1]
    begun = min(call.at for call in after.calls if call.at > closed)
    for call, ended in zip(after.calls, after.s.ended, strict=True):
        if call.at > begun:
            share = min(1.0, max(0.1, (call.at - begun) / RAMP))
            due = place("m\0a", f"session default {ended.session}") < share * 10_000
            assert (call.channel == "a") == due, (call, ended.session)
    brought = story.per_minute("a")
    assert brought[:5] == [60] * 5
    total = [a + b for a, b in zip(brought, story.per_minute("b"), strict=True)]
    assert total == [60] * 25 + [56] + [60] * 29  # four seconds without a gateway
    assert brought[6:45] == [0] * 39
    assert brought[51:] == [60] * 4
    growth = [later - earlier for earlier, later in pairwise(brought[45:52])]
    assert all(0 <= more <= 20 for more in growth), brought[45:52]
    for second in range(round(begun), round(END)):
        assert sum(second <= at < second + 1 for at in after.asked()) <= 1 / EVERY


def billed(story: Story) -> None:
    ledger = Sqlite.reader(str(story.path))
    try:
        rows = {row["channel"]: row for row in usage(ledger, ["channel"], Selection())}
        rates = {(row["hour"], row["channel"]): row for row in success(ledger, ["hour", "channel"], Selection())}
    finally:
        ledger.close()
    calls = [call for log in story.lives for call in log.calls]
    answered = {name: sum(call.channel == name for call in calls) for name in ("a", "b")}
    assert {name: row["calls"] for name, row in rows.items()} == answered
    first = story.lives[0].s.upstreams["b"].requests[:COLD]
    cold = sum("max_tokens" not in request.json for request in first)  # the others were health checks
    warm = answered["b"] - cold
    assert rows["a"]["cost"] == AT_A * answered["a"]
    assert rows["b"]["cost"] == AT_B_COLD * cold + AT_B_WARM * warm
    assert rows["b"]["detour"] == (AT_B_COLD - COLD_AT_A) * cold + (AT_B_WARM - AT_A) * warm
    assert rows["a"]["detour"] == 0
    assert rows["b"]["detour"] == sum(
        (event.cost or 0) - event.preferred_cost for event in story.ended if event.preferred_cost is not None
    )

    probes = [probe for log in story.lives for probe in log.probes()]
    assert story.rows("SELECT count(*), sum(cost), sum(ok) FROM probes WHERE channel = 'a'") == [
        (len(probes), AT_A * sum(probe.ok for probe in probes), sum(probe.ok for probe in probes))
    ]
    assert sum(probe.ok for probe in probes) == 6 + 10  # health checks cost a call a minute
    moves = story.rows("SELECT channel, was, state FROM transitions ORDER BY position")
    assert moves == [("a", "closed", "open"), ("a", "open", "closed")]

    assert story.switches() == [("a", "b", "breaker open"), ("b", "a", "ramp")]
    assert story.rows("SELECT was, channel, cause FROM switches ORDER BY position") == story.switches()
    there, back = [event for event in story.events if isinstance(event, SwitchWeighed)]
    assert (there.was, there.channel, back.was, back.channel) == ("a", "b", "b", "a")
    assert (there.before.cached_share, there.after.cached_share) == (0.5, 0.0)
    assert [there.before.first_content, there.after.first_content] == pytest.approx([0.1, 0.4])
    assert (there.before.unit_cost, there.after.unit_cost) == (AT_A * 1000 / 23, AT_B_COLD * 1000 / 23)
    assert (back.before.unit_cost, back.after.unit_cost) == (AT_B_WARM * 1000 / 23, AT_A * 1000 / 23)
    assert (back.before.cached_share, back.after.cached_share) == (0.5, 0.5)
    lost = sum(row["failed"] for (_, channel), row in rates.items() if channel == "a")
    assert lost == 12
