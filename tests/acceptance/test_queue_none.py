"""Calls of a class without a queue: they never wait, and they do not take from those who wait for the same."""

from typing import Any

import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, tenant
from tests.acceptance.queued import Crowd, line, of_class
from tests.fakes import steps
from tests.scene import scene

TOKENS = """
[organization]
limits = { tokens_per_minute = 6000, burst = 1.0 }
[classes.agentic]
[classes.batch]
"""
BIG: dict[str, Any] = {"max_tokens": 60}
SMALL: dict[str, Any] = {"max_tokens": 10}


async def test_small_calls_without_a_queue_do_not_drain_a_bucket_before_one_who_waits(
    autojump_clock: MockClock,
) -> None:
    """100 tokens a second, 100 at most: without that rule a small call every 0.2 s would keep the big one waiting for ever."""
    async with scene("a", toml=TOKENS) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", usage=(9, 60)))
        crowd = Crowd(s, nursery)
        crowd.send("first", **BIG)
        await trio.sleep(0.05)
        crowd.send("big", of_class("agentic"), **BIG)
        for n in range(8):
            await trio.sleep(0.05)
            crowd.send(f"small {n}", **SMALL)
        await trio.sleep(2)
        assert crowd.statuses()["big"] == 200
        assert crowd.when["big"] < 0.5
        early = crowd.replies["small 0"]
        assert (early.status, early.json["error"]["code"]) == (429, "queue_full")
        assert early.json["error"]["limiter"] == "class.queue"
        assert "no queue to stand in" in early.json["error"]["message"]
        assert "x-trioproxy-queue-ms" not in early.headers
        assert list(s.gateway.queues()) == ["agentic", "batch"]
        assert s.held() == {}


async def test_they_go_before_a_batch_that_waits_until_its_share_is_due(autojump_clock: MockClock) -> None:
    async with scene(
        "a", toml=TOKENS.replace("[classes.batch]", "[classes.batch]\n[classes.batch.queue]\nshare = 0.3")
    ) as s:
        async with trio.open_nursery() as nursery:
            s.a.script(steps.chat_answer("hello", usage=(9, 60)), steps.chat_answer("hello", usage=(9, 10)))
            crowd = Crowd(s, nursery)
            crowd.send("first", **BIG)
            await trio.sleep(0.05)
            crowd.send("night", of_class("batch"), **BIG)
            for n in range(120):
                await trio.sleep(0.05)
                crowd.send(f"small {n}", **SMALL)
            await trio.sleep(2)
        assert crowd.statuses()["night"] == 200
        before = [name for name in crowd.order[: crowd.order.index("night")] if crowd.statuses()[name] == 200]
        assert len(before) > 1, "some small ones went before it"
        assert crowd.when["night"] < 4.0  # 230 tokens of theirs, of which its 69 are 30 %, and its own, at 100 a second
        assert s.held() == {}


async def test_what_nobody_waits_for_they_take(autojump_clock: MockClock) -> None:
    """One waits for its own tenant's place; a call of another tenant has nothing to do with that."""
    one = "limits = { concurrency = 1 }"
    keys = key("ann-1", 'tenant = "ann"') + key("bob-1", 'tenant = "bob"')
    tenants = tenant(one, "ann") + tenant(one, "bob") + keys + "[classes.agentic]\n"
    ann, bob = bearer("ann-1"), bearer("bob-1")
    async with scene("a", toml=tenants) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=1))
        crowd = Crowd(s, nursery)
        crowd.send("first", of_class("agentic", *ann))
        await trio.sleep(0.1)
        crowd.send("second", of_class("agentic", *ann))
        await trio.sleep(0.1)
        assert line(s, "agentic").waiting == 1
        crowd.send("own", ann)
        crowd.send("other", bob)
        await trio.sleep(3)
        assert crowd.statuses() == {"first": 200, "second": 200, "own": 429, "other": 200}
        assert s.held() == {}
