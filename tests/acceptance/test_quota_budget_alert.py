"""A budget that is nearly used up is told of once per period, at whatever scope."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, tenant
from tests.fakes import steps
from tests.scene import Scene, scene
from trioproxy.journal import BudgetNearing

DAY = 86_400
# Output costs 4 USD per million tokens at channel `a`.
DEAR = steps.chat_answer("hello", usage=(0, 62_500))  # 0.25 USD


def near(s: Scene) -> list[tuple[str, str, float]]:
    return [(e.limiter, e.scope, round(e.share, 2)) for e in s.events if isinstance(e, BudgetNearing)]


async def spend(s: Scene, times: int) -> list[int]:
    return [(await s.post(headers=bearer(), max_tokens=62_500)).status for _ in range(times)]


@pytest.mark.parametrize(
    "toml, limiter, scope",
    [
        (key(rest="budget = { day = 1.001 }"), "key.micro_usd_per_day", "k"),
        (tenant("budget = { month = 1.001 }") + key(rest='tenant = "acme"'), "tenant.micro_usd_per_month", "acme"),
        ("[organization]\nbudget = { week = 1.001 }\n" + key(), "organization.micro_usd_per_week", ""),
    ],
    ids=["key", "tenant", "organization"],
)
async def test_it_is_told_once_when_the_share_is_passed(
    toml: str, limiter: str, scope: str, autojump_clock: MockClock
) -> None:
    async with scene("a", toml=toml) as s:
        s.a.script(DEAR)
        assert await spend(s, 3) == [200] * 3
        assert near(s) == []  # 0.75 of 1.001
        assert await spend(s, 1) == [200]
        assert near(s) == [(limiter, scope, 1.0)]
        assert await spend(s, 3) == [429] * 3
        assert len(near(s)) == 1


async def test_the_next_period_is_told_of_again(autojump_clock: MockClock) -> None:
    async with scene("a", toml=key(rest="budget = { day = 1.001, alert_at = 0.5 }")) as s:
        s.a.script(DEAR)
        assert await spend(s, 2) == [200] * 2
        assert near(s) == []  # 0.4995
        await spend(s, 2)
        await trio.sleep(DAY)
        await spend(s, 4)
        assert near(s) == [("key.micro_usd_per_day", "k", 0.75)] * 2


async def test_what_parallel_calls_hold_counts(autojump_clock: MockClock) -> None:
    async with scene("a", toml=key(rest="budget = { day = 1.001 }") + "[quota]\noutput = 62500") as s:
        s.a.script(steps.after(5, DEAR))
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(spend, s, 1)
            await trio.sleep(1)
            assert near(s) == [("key.micro_usd_per_day", "k", 1.0)]


async def test_a_budget_that_observes_tells_too_and_stops_nobody(autojump_clock: MockClock) -> None:
    async with scene("a", toml=key(rest="budget = { day = 0.26, observe = true }")) as s:
        s.a.script(DEAR)
        assert await spend(s, 3) == [200] * 3
        assert near(s) == [("key.micro_usd_per_day", "k", 0.96)]


async def test_an_overrun_is_told_when_it_is_settled(autojump_clock: MockClock) -> None:
    async with scene("a", toml=key(rest="budget = { day = 1.0 }")) as s:
        s.a.script(steps.chat_answer("hello", usage=(0, 225_000)))
        await s.post(headers=bearer(), max_tokens=100)
        await s.rest(0)
        assert near(s) == [("key.micro_usd_per_day", "k", 0.9)]


async def test_the_drift_of_estimates_is_readable(autojump_clock: MockClock) -> None:
    async with scene("a", toml=key(rest="limits = { tokens_per_minute = 1000000 }")) as s:
        s.a.script(steps.chat_answer("hello", usage=(40, 3)))
        await s.post(headers=bearer())
        await s.rest(0)
        first = s.gateway.drift()["a"][0]
        assert first > 1  # it counts more than was estimated
        for _ in range(100):
            await s.post(headers=bearer())
        await s.rest(0)
        ratio, deviation = s.gateway.drift()["a"]
        assert ratio > 2.9 > first
        assert deviation < 0.3
