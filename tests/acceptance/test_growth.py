"""How fast a channel's traffic may grow, in a whole gateway: ceilings, a slow start, and a brake that lets go by itself."""

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import Scene, scene
from trioproxy.journal import EndReason, GrowthPaused

WARMING = {"a": "ramp = { warmup = 60.0 }"}
RAMP = "ramp = { requests_per_minute = 6 }"


async def who(s: Scene, times: int) -> str:
    """The channels that answered so many calls, a letter each; a dash where nobody did."""
    replies = [await s.post() for _ in range(times)]
    return "".join(reply.headers.get("x-trioproxy-channel", "-") for reply in replies)


def pauses(s: Scene) -> list[tuple[str, str]]:
    return [(event.subject, event.why) for event in s.events if isinstance(event, GrowthPaused)]


async def test_what_exceeds_the_ceiling_goes_to_the_next_channel(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel=RAMP) as s:
        s.a.script(steps.chat_answer("hello"))
        s.b.script(steps.chat_answer("hello"))
        assert await who(s, 14) == "aaaaaabbbbbb--"
        assert s.hits() == "a=6 b=6"
        await s.rest(0)
        ended = s.ended[-1]
        assert (ended.reason, ended.limiter, ended.scope) == (EndReason.REFUSED_QUOTA, "ramp.requests_per_minute", "a")
        assert ended.wait == pytest.approx(10.94, abs=0.01)  # 60 s · ln(6 / 5)
        assert ended.skipped[0] == ("a", "it may not grow beyond 6 requests_per_minute yet; wait 10.9 s")
        await trio.sleep(10.95)
        assert await who(s, 1) == "a"


async def test_what_is_offered_all_the_time_grows_as_fast_as_the_ramp(autojump_clock: MockClock) -> None:
    channel = "ramp = { requests_per_minute = 6, growth = 2.0, period = 600.0 }"
    async with scene("a", channel=channel) as s:
        s.a.script(steps.chat_answer("hello"))
        minutes = []
        for _ in range(20):
            before = s.a.hits
            for _ in range(60):
                await s.post()
                await trio.sleep(1)
            minutes.append(s.a.hits - before)
        # After the first minute's burst twice as much every ten minutes: 6.3 · 2^(t / 600 s).
        assert minutes == [11, 6, 7, 7, 8, 8, 9, 10, 11, 11, 12, 13, 13, 15, 16, 17, 18, 20, 21, 23]


async def test_growth_pauses_and_goes_on_by_itself(autojump_clock: MockClock) -> None:
    channel = "ramp = { requests_per_minute = 600, max_rate_limited = 0.05 }"
    async with scene("a", channel=channel) as s:
        throttled = steps.error(429, headers=[("retry-after", "1")])
        s.a.script(*[steps.chat_answer("hello")] * 30, *[throttled] * 3, steps.chat_answer("hello"))
        for _ in range(33):
            await s.post()
            await trio.sleep(1)
        assert pauses(s) == [("a", "2 of 25 calls were refused by the provider, more than 5%")]
        assert s.gateway.paces()["a"].paused
        for _ in range(180):
            await s.post()
            await trio.sleep(1)
        assert pauses(s)[1:] == [("a", "")]
        assert not s.gateway.paces()["a"].paused


async def test_a_new_channel_takes_a_growing_share_and_others_the_rest(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        for upstream in (s.a, s.b):
            upstream.script(steps.chat_answer("hello"))
        assert await who(s, 10) == "a" * 10
    async with scene("a", channel="ramp = { warmup = 60.0 }") as alone:
        alone.a.script(steps.chat_answer("hello"))
        assert await who(alone, 10) == "a" * 10  # nobody else could be asked
    async with scene("a", "b", channel=WARMING) as s:
        s.a.script(steps.chat_answer("hello"))
        s.b.script(steps.chat_answer("hello"))
        assert await who(s, 20) == "abbbbbbbbbabbbbbbbbb"
        await trio.sleep(30)
        assert (await who(s, 20)).count("a") == 10
        await trio.sleep(30)
        assert await who(s, 20) == "a" * 20


async def test_a_recovered_channel_begins_slowly_again(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel=WARMING) as s:
        s.b.script(steps.chat_answer("hello"))
        s.a.script(steps.chat_answer("hello"))
        await who(s, 1)
        await trio.sleep(61)
        s.a.script(*[steps.error(500)] * 3, steps.chat_answer("hello"))
        assert await who(s, 4) == "bbbb"
        assert s.breaker() == "open"
        await trio.sleep(61)
        assert (await who(s, 20)).count("a") == 2


async def test_the_channel_that_was_passed_over_is_asked_when_the_others_fail(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel=WARMING) as s:
        s.a.script(steps.chat_answer("hello"))
        s.b.script(steps.error(500))
        assert await who(s, 2) == "aa"
        assert s.hits() == "a=2 b=1"
