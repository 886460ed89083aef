"""A restart in the middle of what takes its time: a rollout keeps its step and arms, a way back goes on, and who was out comes back slowly."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import NOVEMBER, Scene, scene
from tests.store.test_kept import rows, state
from trioproxy.journal import LimitLearned, RolloutMoved
from trioproxy.policy.rollout import Verb
from trioproxy.policy.sticky import place

ROLLOUT = """
[[rollouts]]
model = "m"
candidate = [{ channel = "b", model = "newer" }]
hold = 600
tolerance = { sample = 20 }
"""
BACK = "[defaults]\nswitch_back = { over = 300, least = 0.1 }\nbreaker = { preset = 'consecutive', failures = 1 }\n"
SESSIONS = [f"s{number}" for number in range(200)]


def due(share: float) -> set[str]:
    return {session for session in SESSIONS if place("m\0a", f"session default {session}") < share * 10_000}


async def who(s: Scene, session: str) -> str:
    reply = await s.post(headers=[("x-trioproxy-session", session)])
    return reply.headers["x-trioproxy-channel"]


async def crowd(s: Scene, channel: str) -> set[str]:
    return {session for session in SESSIONS if await who(s, session) == channel}


def good(s: Scene) -> None:
    s.a.script(steps.chat("from a"))
    s.b.script(steps.chat("from b"))


async def test_a_rollout_keeps_its_step_and_its_arms(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    async with scene("a", "b", toml=state(path) + ROLLOUT, links=("a",)) as s:
        good(s)
        await s.gateway.order_rollout("m", Verb.START)
        tenth = await crowd(s, "b")
        await trio.sleep(601)
        half = await crowd(s, "b")
        await trio.sleep(300)
        before = s.gateway.rollouts()["m"]
    assert tenth < half
    async with scene("a", "b", toml=state(path) + ROLLOUT, links=("a",), wall=NOVEMBER + 5000) as s:
        good(s)
        after = s.gateway.rollouts()["m"]
        assert (after.state, after.percent, after.candidate, after.baseline) == (
            "running",
            50,
            before.candidate,
            before.baseline,
        )
        assert after.held == pytest.approx(before.held, abs=1)  # what nobody saw is not held
        assert await crowd(s, "b") == half
        await trio.sleep(250)
        assert s.gateway.rollouts()["m"].percent == 50
        await trio.sleep(51)
        assert s.gateway.rollouts()["m"].percent == 100
        assert [event.percent for event in s.events if isinstance(event, RolloutMoved)] == [100]
    assert rows(path, "SELECT percent, state, why FROM rollouts ORDER BY position") == [
        (10, "running", "by hand"),
        (50, "running", "held and well"),
        (100, "running", "held and well"),
    ]


@pytest.mark.parametrize("started", ["true", "false"])
async def test_a_rollout_that_went_back_stays_back(started: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "ledger.db"
    toml = state(path) + ROLLOUT.replace("hold = 600", f"hold = 600\nstarted = {started}")
    async with scene("a", "b", toml=toml, links=("a",)) as s:
        if started == "false":
            await s.gateway.order_rollout("m", Verb.START)
        await s.gateway.order_rollout("m", Verb.ROLLBACK)
    async with scene("a", "b", toml=toml, links=("a",)) as s:
        good(s)
        assert s.gateway.rollouts()["m"].state == "rolled_back"
        assert await crowd(s, "b") == set()


async def test_a_way_back_goes_on_where_it_was(tmp_path: Path, autojump_clock: MockClock) -> None:
    toml = state(tmp_path / "ledger.db") + BACK
    async with scene("a", "b", toml=toml) as s:
        good(s)
        s.a.script(steps.error(500))
        assert await who(s, "first") == "b"
        s.a.script(steps.chat("from a"))
        await trio.sleep(60)
        assert await who(s, "trial") == "a"
        await who(s, "first")  # the first to see it closed: from here on it grows
        await trio.sleep(150)
        assert await crowd(s, "a") == due(0.5)
    async with scene("a", "b", toml=toml, wall=NOVEMBER + 5000) as s:
        good(s)
        assert await crowd(s, "a") == due(0.5)
        await trio.sleep(90)
        assert await crowd(s, "a") == due(0.8)
        await trio.sleep(61)
        assert await crowd(s, "a") == set(SESSIONS)


@pytest.mark.parametrize("fault, away", [(500, 70), (401, 400)], ids=["breaker", "park"])
async def test_a_channel_that_was_out_at_the_end_comes_back_slowly(
    fault: int, away: float, tmp_path: Path, autojump_clock: MockClock
) -> None:
    toml = state(tmp_path / "ledger.db") + BACK
    async with scene("a", "b", toml=toml) as s:
        good(s)
        s.a.script(steps.error(fault))
        assert await who(s, "first") == "b"
        assert s.gateway.statistics()["a"].objection or s.breaker() == "open"
    async with scene("a", "b", toml=toml, wall=NOVEMBER + away) as s:
        good(s)
        s.a.script(steps.chat("from a"))
        assert await who(s, "trial") == "a"
        assert await crowd(s, "a") == due(0.1)
        await trio.sleep(300)
        assert await crowd(s, "a") == set(SESSIONS)


async def test_a_limit_that_was_learned_is_not_met_by_a_429_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Of a hundred a minute that are configured the provider gives twenty-eight: the next process knows."""
    path = tmp_path / "ledger.db"
    limited = {"a": "limits = { requests_per_minute = 100 }\n"}
    async with scene("a", "b", toml=state(path), channel=limited) as s:
        good(s)
        s.a.script(*[steps.chat("from a")] * 40, steps.error(429, headers=[("retry-after", "0")]), steps.chat("from a"))
        for _ in range(41):
            await s.post()
        (learned,) = [event for event in s.events if isinstance(event, LimitLearned)]
        await s.rest()
    async with scene("a", "b", toml=state(path), channel=limited, wall=NOVEMBER + 2) as s:
        good(s)
        (lane,) = s.gateway.paces()["a"].lanes
        assert lane.tried == pytest.approx(learned.limit)
        await s.post()
        assert s.hits() == "a=0 b=1"  # forty are in this minute already
        await trio.sleep(60)
        await s.post()
        assert s.hits() == "a=1 b=1"


async def test_a_breaker_that_opens_is_remembered_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Not at the next snapshot: what is killed in the seconds between would ask the dead provider five times more."""
    path = tmp_path / "ledger.db"
    async with scene("a", "b", toml=state(path, "snapshot_every = 1000")) as s:
        good(s)
        s.a.script(steps.error(500))
        for _ in range(3):
            await s.post()
        assert s.breaker() == "open"
        await s.rest(0.01)
        assert s.gateway.store is not None
        await s.gateway.store.run(lambda _database: None)
        (body,) = rows(path, "SELECT body FROM snapshots WHERE family = 'channels'")
        assert b'"state":"open"' in body[0]
