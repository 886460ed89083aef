"""After an outage: traffic comes back to the preferred channel minute by minute, each session for good, and no faster."""

import json
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import Scene, scene
from trioproxy.journal import BreakerMoved, GrowthPaused, Switched
from trioproxy.policy.sticky import place

SESSIONS = [f"s{number}" for number in range(200)]
OUTAGE = "[defaults]\nswitch_back = { over = 300, least = 0.1 }\nbreaker = { preset = '%s', failures = 1 }\n"


def due(share: float) -> set[str]:
    """The sessions whose place is within a share, by the hash alone."""
    return {session for session in SESSIONS if place("m\0a", f"session default {session}") < share * 10_000}


async def who(s: Scene, session: str) -> str:
    reply = await s.post(headers=[("x-trioproxy-session", session)])
    return reply.headers["x-trioproxy-channel"]


async def trip(s: Scene) -> None:
    s.a.script(steps.error(500))
    s.b.script(steps.chat("from b"))
    assert await who(s, "first") == "b"
    assert s.breaker() == "open"
    s.a.script(steps.chat("from a"))


async def back(s: Scene) -> set[str]:
    """The sessions that the preferred channel answers now."""
    return {session for session in SESSIONS if await who(s, session) == "a"}


@pytest.mark.parametrize("preset", ["four-layer", "consecutive"])
async def test_the_way_back_minute_by_minute(preset: str, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OUTAGE % preset) as s:
        await trip(s)
        await trio.sleep(60)
        began = trio.current_time()
        assert await who(s, "trial") == "a"  # the one call that finds out
        assert s.breaker() == "closed"
        before: set[str] = set()
        counts = []
        for minute, share in enumerate((0.1, 0.2, 0.4, 0.6, 0.8, 1.0)):
            await trio.sleep_until(began + 60 * minute)
            now = await back(s)
            assert now == due(share)
            assert before <= now  # who has come back stays
            counts.append(len(now))
            before = now
        assert counts == [20, 40, 74, 120, 162, 200]
        await trio.sleep(1000)
        assert await back(s) == set(SESSIONS)


async def test_a_crowd_that_waits_for_the_breaker_does_not_fall_upon_it(autojump_clock: MockClock) -> None:
    """200 calls in the very moment it may be asked again: the trial and a tenth go there, at once and in the seconds after."""
    async with scene("a", "b", toml=OUTAGE % "four-layer") as s:
        await trip(s)
        await trio.sleep(60)
        hits = s.a.hits
        async with trio.open_nursery() as nursery:
            for session in SESSIONS:
                nursery.start_soon(who, s, session)
        assert s.a.hits - hits in {len(due(0.1)), len(due(0.1)) + 1}


async def test_no_second_brings_more_than_its_part(autojump_clock: MockClock) -> None:
    """Two sessions a second may come of 600 in 300 s; half as many again are chance."""
    crowd = [f"t{number}" for number in range(600)]
    async with scene("a", "b", toml=OUTAGE % "four-layer") as s:
        await trip(s)
        await trio.sleep(60)
        await who(s, "trial")
        began = trio.current_time()
        counts = []
        for step in range(31):
            await trio.sleep_until(began + 10 * step)
            chains = [s.gateway.chains("m", ("default", session))[""] for session in crowd]
            counts.append(sum(chain.steps[0].channel == "a" for chain in chains))
        steps_taken = [later - earlier for earlier, later in pairwise(counts)]
        assert max(steps_taken) <= 35
        assert min(steps_taken) >= 0
        assert counts[-1] == 600


async def test_a_channel_that_goes_out_on_its_way_begins_anew(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OUTAGE % "four-layer") as s:
        await trip(s)
        await trio.sleep(60)
        await who(s, "trial")
        await trio.sleep(150)
        half = await back(s)
        assert 80 < len(half) < 120
        s.a.script(steps.error(500))
        assert await who(s, min(half)) == "b"
        assert await back(s) == set()
        s.a.script(steps.chat("from a"))
        await trio.sleep(60)
        await who(s, "trial")
        tenth = await back(s)
        assert tenth == due(0.1)
        assert tenth <= half
        states = [event.state for event in s.events if isinstance(event, BreakerMoved)]
        assert states == ["open", "closed", "open", "closed"]


async def test_failover_still_reaches_who_is_on_the_way_back(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OUTAGE % "four-layer") as s:
        await trip(s)
        await trio.sleep(60)
        await who(s, "trial")
        later = min(set(SESSIONS) - due(0.1))
        assert await who(s, later) == "b"
        s.b.script(steps.error(500))
        assert await who(s, later) == "a"


async def test_growth_stops_while_the_channel_throttles(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OUTAGE % "four-layer") as s:
        await trip(s)
        await trio.sleep(60)
        began = trio.current_time()
        await who(s, "trial")
        await trio.sleep(90)
        third = await back(s)
        s.a.script(steps.error(429, headers=[("retry-after-ms", "1")]))
        for session in sorted(third)[:10]:
            assert await who(s, session) == "b"
            await trio.sleep(0.01)
        s.a.script(steps.chat("from a"))
        paused = trio.current_time() - began
        await trio.sleep(300)
        assert s.gateway.supervisor.traffic.state.snapshot(trio.current_time())["returning"]["m"]["a"] == pytest.approx(
            paused / 300, abs=0.001
        )
        assert (await back(s)) >= third
        whys = [event.why for event in s.events if isinstance(event, GrowthPaused)]
        subject = {event.subject for event in s.events if isinstance(event, GrowthPaused)}
        assert subject == {"a on its way back to m"}
        assert "were refused by the provider, more than 5%" in whys[0]
        assert whys[1:] == [""]


async def test_a_restart_goes_on_with_the_way_back(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OUTAGE % "four-layer") as s:
        await trip(s)
        await trio.sleep(60)
        await who(s, "trial")
        await trio.sleep(150)
        told = s.gateway.supervisor.traffic.state.snapshot(trio.current_time())
        assert told["returning"] == {"m": {"a": 0.5}}
    async with scene("a", "b", toml=OUTAGE % "four-layer") as s:
        s.a.script(steps.chat("from a"))
        s.b.script(steps.chat("from b"))
        assert s.gateway.supervisor.traffic.state.restore(json.loads(json.dumps(told)), trio.current_time()) == []
        assert await back(s) == due(0.5)


async def test_a_callers_fault_says_nothing_of_the_way_back(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OUTAGE % "four-layer") as s:
        await trip(s)
        await trio.sleep(60)
        await who(s, "trial")
        s.a.script(steps.error(400))
        for session in sorted(due(0.1)) * 2:
            await s.post(headers=[("x-trioproxy-session", session)])
        await s.rest()
        assert [event for event in s.events if isinstance(event, GrowthPaused)] == []


async def test_without_a_ramp_all_come_back_at_once(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml="[defaults]\nbreaker = { failures = 1 }\n") as s:
        await trip(s)
        await trio.sleep(60)
        assert await back(s) == set(SESSIONS)


async def test_a_model_s_own_ramp_wins(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OUTAGE % "four-layer", model="switch_back = { over = 10 }") as s:
        await trip(s)
        await trio.sleep(60)
        await who(s, "trial")
        assert await back(s) == due(0.1)
        await trio.sleep(10)
        assert await back(s) == set(SESSIONS)


async def test_a_parked_channel_comes_back_by_the_same_way(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OUTAGE % "four-layer") as s:
        s.a.script(steps.error(401))
        s.b.script(steps.chat("from b"))
        assert await who(s, "first") == "b"
        s.a.script(steps.chat("from a"))
        await trio.sleep(300)
        assert await who(s, "trial") == "a"
        assert await back(s) == due(0.1)


async def test_the_switches_say_why(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OUTAGE % "consecutive") as s:
        await trip(s)
        await who(s, "x")
        await trio.sleep(60)
        await who(s, "trial")
        await who(s, "x")
        switches = [event for event in s.events if isinstance(event, Switched)]
        assert [(each.was, each.channel, each.cause) for each in switches] == [
            ("a", "b", "breaker open"),
            ("b", "a", "ramp"),
        ]
