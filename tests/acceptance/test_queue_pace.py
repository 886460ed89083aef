"""A place in the line and what the providers' headers say: a channel without room is no place, and nothing stays held for it."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.queued import Crowd, line, of_class
from tests.acceptance.test_learning import told
from tests.fakes import steps
from tests.scene import scene
from trioproxy.journal import EndReason

QUEUES = "[classes.interactive]\n[classes.agentic]\n"
SPENT = steps.chat_answer("spent", headers=told(limit=60, remaining=0, reset="7s"))


async def test_a_channel_whose_provider_has_no_room_is_no_place(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=QUEUES, channel="limits = { concurrency = 9 }") as s:
        s.a.script(SPENT)
        s.b.script(steps.chat("hello"))
        assert (await s.post(headers=of_class("agentic"))).status == 200
        reply = await s.post(headers=of_class("agentic"))
        assert (reply.status, s.hits(), trio.current_time()) == (200, "a=1 b=1", 0.0)
        (_, why), *_ = s.ended[-1].skipped
        assert "7" in why
        assert (s.held(), s.failures(), s.gateway.paces()["a"].lanes[0].remaining) == ({}, 0, 0)


async def test_where_no_provider_has_room_a_call_waits_in_its_queue_until_one_has(autojump_clock: MockClock) -> None:
    """One a second comes back: the first call that waits goes after a second, and none is refused for asking too early."""
    async with scene("a", toml=QUEUES, channel="limits = { concurrency = 9 }") as s, trio.open_nursery() as nursery:
        s.a.script(SPENT, steps.chat("hello"))
        assert (await s.post(headers=of_class("agentic"))).status == 200
        crowd = Crowd(s, nursery)
        crowd.send("waits", of_class("agentic"))
        await trio.sleep(0.1)
        assert (line(s, "agentic").waiting, s.a.hits) == (1, 1)
        crowd.send("cannot", of_class("interactive"))
        await trio.sleep(9)
        assert crowd.statuses() == {"waits": 200, "cannot": 429}
        error = crowd.replies["cannot"].json["error"]
        assert (error["limiter"], error["gateway_decision"]) == (
            "provider.requests_per_minute",
            "rejected_before_dispatch",
        )
        assert 0.1 < crowd.when["waits"] <= 7.0
        assert s.ended[-1].queued == pytest.approx(crowd.when["waits"])
        assert s.held() == {}


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
async def test_a_place_at_a_channel_that_warms_up_is_given_up_and_the_next_one_is_asked(
    streamed: bool, autojump_clock: MockClock
) -> None:
    """Its share of calls is known only when one is about to be sent: then the place and what is held there go back."""
    ramp = "limits = { concurrency = 3 }\nramp = { warmup = 600.0 }"
    channels = {"a": ramp, "b": "limits = { concurrency = 3 }"}
    async with scene("a", "b", toml=QUEUES, channel=channels) as s:
        s.a.script(steps.chat("hello"))
        s.b.script(steps.chat("hello"))
        for _ in range(10):
            status, said, _ = await s.ask(streamed=streamed, headers=of_class("agentic"))
            assert (status, said) == (200, "hello")
            await s.rest(0.01)
            assert s.held() == {}
        assert s.a.hits + s.b.hits == 10
        assert s.b.hits >= 8
        assert {ended.reason for ended in s.ended} == {EndReason.ANSWERED}
        assert all(len(ended.attempts) == 1 for ended in s.ended)
        assert all(
            gauge.remaining == gauge.limit for gauge in s.gateway.limits() if gauge.dimension.value == "concurrency"
        )
