"""B04, B54 and their kinds: who waits in its class's queue, for how long, who is turned away, and what each is told."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.acceptance.limited import bearer, key
from tests.acceptance.queued import ONE, Crowd, line, of_class, queue_ms
from tests.fakes import steps
from tests.scene import CHAT, PROMPT, scene
from trioproxy.call import Request
from trioproxy.journal import EndReason

AGENTIC = "[classes.agentic]\n"
BATCH = "[classes.batch]\ntotal_timeout = 1800\n"
SLOTS = {
    "an organization's calls": (ONE, ""),
    "a channel's calls": ("", "limits = { concurrency = 1 }"),
    "a channel's places": ("[organization]\nlimits = { concurrency = 99 }\n", "max_concurrency = 1"),
}


@pytest.mark.parametrize("slots", SLOTS)
async def test_a_call_that_does_not_fit_waits_for_the_one_before_it(slots: str, autojump_clock: MockClock) -> None:
    toml, channel = SLOTS[slots]
    async with scene("a", toml=toml + AGENTIC, channel=channel) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=4))
        crowd = Crowd(s, nursery)
        for name in ("first", "second", "third"):
            crowd.send(name, of_class("agentic"))
            await wait_all_tasks_blocked()
        assert (line(s, "agentic").waiting, s.a.hits) == (2, 1)
        await trio.sleep(12.5)
        assert crowd.when == {"first": 4.0, "second": 8.0, "third": 12.0}
        assert {name: queue_ms(reply) for name, reply in crowd.replies.items()} == {
            "first": 0.0,
            "second": 4000.0,
            "third": 8000.0,
        }
        assert [ended.queued for ended in s.ended] == [0.0, 4.0, 8.0]
        assert [round(ended.overhead, 6) for ended in s.ended] == [0.0, 4.0, 8.0]
        assert s.held() == {}
        told = line(s, "agentic")
        assert (told.granted, told.refused, told.wait_p50, told.wait_max) == (3, {}, 4.0, 8.0)


async def test_a_class_without_a_queue_is_refused_at_once_and_has_no_queue_header(autojump_clock: MockClock) -> None:
    async with scene("a", toml=ONE + "[classes.own]\n" + AGENTIC) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=4))
        crowd = Crowd(s, nursery)
        crowd.send("first", of_class("own"))
        await wait_all_tasks_blocked()
        crowd.send("second")
        crowd.send("third", of_class("agentic"))
        await trio.sleep(9)
        assert crowd.when == {"first": 4.0, "second": 0.0, "third": 8.0}
        assert crowd.statuses() == {"first": 200, "second": 429, "third": 200}
        assert ["x-trioproxy-queue-ms" in crowd.replies[name].headers for name in ("first", "second", "third")] == [
            False,
            False,
            True,
        ]


async def test_nothing_limited_is_no_queue(autojump_clock: MockClock) -> None:
    async with scene("a", toml=AGENTIC) as s:
        s.a.script(steps.chat_answer("hello"))
        reply = await s.post(headers=of_class("agentic"))
        assert "x-trioproxy-queue-ms" not in reply.headers
        assert s.gateway.queues() == {}
        assert s.gateway.line.admitter is None


async def test_a_wait_for_tokens_ends_when_they_are_there(autojump_clock: MockClock) -> None:
    """Nobody gives anything back in time: the alarm alone wakes it."""
    toml = "[organization]\nlimits = { requests_per_minute = 60, burst = 1.0 }\n" + AGENTIC
    async with scene("a", toml=toml) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello"))
        crowd = Crowd(s, nursery)
        for name in "abcd":
            crowd.send(name, of_class("agentic"))
            await wait_all_tasks_blocked()
        await trio.sleep(5)
        assert {name: round(at, 3) for name, at in crowd.when.items()} == {"a": 0.0, "b": 1.0, "c": 2.0, "d": 3.0}


async def test_what_comes_after_its_time_is_refused_at_the_door_with_the_limits_own_words(
    autojump_clock: MockClock,
) -> None:
    toml = "[organization]\nlimits = { requests_per_minute = 2 }\n" + AGENTIC
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello"))
        assert [(await s.post(headers=of_class("agentic"))).status for _ in range(2)] == [200, 200]
        reply = await s.post(headers=of_class("agentic"))
        error = reply.json["error"]
        assert (reply.status, error["code"], error["limiter"]) == (
            429,
            "rate_limit_exceeded",
            "organization.requests_per_minute",
        )
        assert (reply.headers["retry-after"], reply.headers["x-should-retry"], queue_ms(reply)) == ("30", "true", 0.0)
        assert trio.current_time() - s.ended[0].started < 0.001
        assert s.ended[2].reason is EndReason.REFUSED_QUOTA


async def test_a_callers_own_deadline_bounds_its_wait(autojump_clock: MockClock) -> None:
    async with scene("a", toml=ONE + AGENTIC) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=30))
        crowd = Crowd(s, nursery)
        crowd.send("first", of_class("agentic"))
        await wait_all_tasks_blocked()
        crowd.send("hasty", of_class("agentic", ("x-request-timeout", "2")))
        crowd.send("patient", of_class("agentic"))
        await trio.sleep(11)
        assert {name: round(at, 2) for name, at in crowd.when.items()} == {"hasty": 1.99, "patient": 10.0}
        assert [crowd.replies[name].json["error"]["code"] for name in ("hasty", "patient")] == ["queue_timeout"] * 2
        assert "its own deadline allows" in crowd.replies["hasty"].json["error"]["message"]
        patient = crowd.replies["patient"].json["error"]
        assert (patient["limiter"], patient["request_class"]) == ("organization.concurrency", "agentic")
        assert patient["gateway_decision"] == "rejected_before_dispatch"
        assert [(ended.reason, ended.queued) for ended in s.ended][1] == (EndReason.REFUSED_QUOTA, 10.0)
        assert line(s, "agentic").refused == {"deadline_passed": 1, "max_wait_passed": 1}
        nursery.cancel_scope.cancel()


async def test_retry_after_is_from_the_measured_drain(autojump_clock: MockClock) -> None:
    """Ten seconds a call: with two before it a place is free in thirty seconds, not in one."""
    toml = ONE + AGENTIC + "total_timeout = 100\n[classes.agentic.queue]\nmax_wait = 25\nbound = 3\n"
    async with scene("a", toml=toml) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=10))
        crowd = Crowd(s, nursery)
        for name in "abc":
            crowd.send(name, of_class("agentic"))
            await wait_all_tasks_blocked()
        await trio.sleep(20.5)  # c has come to its turn, and two waits of 10 s each were seen
        for name in "de":
            crowd.send(name, of_class("agentic"))
            await wait_all_tasks_blocked()
        late = await s.post(headers=of_class("agentic"))
        error = late.json["error"]
        assert (late.status, error["code"], late.headers["x-should-retry"]) == (429, "queue_timeout", "true")
        assert 25 < int(late.headers["retry-after"]) <= 31
        assert error["retry_after_ms"] > 25_000
        nursery.cancel_scope.cancel()


async def test_b04_a_waiter_that_leaves_frees_its_place_at_once(autojump_clock: MockClock) -> None:
    """A key with one place and a queue of two; then five failures, after which nothing is in flight."""
    toml = "[defaults]\nbreaker = { failures = 100 }\n[defaults.queue]\nbound = 2\nmax_wait = 60\n"
    async with scene("a", toml=toml + key(rest="limits = { concurrency = 1 }")) as s:
        s.a.script(steps.chat_stream(["x"] * 100, every=0.5), steps.chat_answer("hello"))
        holder = await s.client()
        await holder.stream(CHAT, {**PROMPT, "stream": True}, bearer())
        waiters = [await s.client() for _ in range(2)]
        for client in waiters:
            await client.wire.send(client.request("POST", CHAT, PROMPT, bearer()))
            await wait_all_tasks_blocked()
        assert line(s, "default").waiting == 2
        full = await s.post(headers=bearer())
        assert (full.status, full.json["error"]["code"]) == (429, "queue_full")
        for count, client in enumerate(waiters, 1):
            client.close()
            await wait_all_tasks_blocked()
            assert line(s, "default").waiting == 2 - count
            assert line(s, "default").left == count
        async with trio.open_nursery() as nursery:
            crowd = Crowd(s, nursery)
            crowd.send("next", bearer())
            await wait_all_tasks_blocked()
            assert line(s, "default").waiting == 1
            holder.close()
        assert (crowd.statuses(), crowd.when["next"]) == ({"next": 200}, 0.0)
        s.a.script(steps.hang_up("reset"))
        for _ in range(5):
            assert (await s.stream(headers=bearer())).status == 502
        await s.rest()
        assert s.held() == {}


async def test_b54_batch_gets_its_share_beside_endless_interactive_traffic(autojump_clock: MockClock) -> None:
    """Capacity 1, a second a call: batch has a twentieth coming, so it passes after twenty others at the latest."""
    toml = ONE + "[classes.interactive]\n[classes.interactive.queue]\nmax_wait = 30\n" + BATCH
    async with scene("a", toml=toml) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=1))
        crowd = Crowd(s, nursery)
        for number in range(5):
            crowd.send(f"i{number}", of_class("interactive"))
        await wait_all_tasks_blocked()
        crowd.send("batch", of_class("batch"))
        for number in range(5, 40):
            await trio.sleep(1)
            crowd.send(f"i{number}", of_class("interactive"))
        await trio.sleep(6)
        assert 15 <= crowd.when["batch"] <= 22
        assert set(crowd.statuses().values()) == {200}
        nursery.cancel_scope.cancel()


async def test_b54_the_depth_falls_at_each_timeout(autojump_clock: MockClock) -> None:
    async with scene("a", toml=ONE + "[classes.interactive]\n") as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=100))
        crowd = Crowd(s, nursery)
        crowd.send("holder", of_class("interactive"))
        await wait_all_tasks_blocked()
        for number in range(10):
            crowd.send(f"w{number}", of_class("interactive"))
            await wait_all_tasks_blocked()
            assert line(s, "interactive").waiting == number + 1
            await trio.sleep(0.02)
        for left in range(10, 0, -1):
            assert line(s, "interactive").waiting == left
            await trio.sleep(0.11 if left == 10 else 0.02)
        assert line(s, "interactive").waiting == 0
        assert [round(ended.queued, 3) for ended in s.ended] == [0.3] * 10
        assert line(s, "interactive").refused == {"max_wait_passed": 10}
        nursery.cancel_scope.cancel()


async def test_the_class_says_more_output_is_held_than_is_likely(autojump_clock: MockClock) -> None:
    toml = "[quota]\noutput = 100\n[organization]\nlimits = { tokens_per_minute = 100000 }\n" + AGENTIC
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello"))
        await s.post(headers=of_class("agentic"))
        await s.post(headers=of_class("agentic"), max_tokens=50)
        await s.post()
        await s.rest()
        assert [ended.estimated_output for ended in s.ended] == [150, 50, 100]


async def test_a_slow_reader_of_a_whole_answer_keeps_nobody_waiting_for_the_channel(autojump_clock: MockClock) -> None:
    """Its answer is here, so its place is free, though it has not been read and the call is not over."""
    toml = "[organization]\nlimits = { concurrency = 9 }\n" + AGENTIC
    async with scene("a", toml=toml, channel="max_concurrency = 1") as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=2))
        crowd = Crowd(s, nursery)

        async def slowly() -> None:
            async with s.gateway.dispatch(Request.post(CHAT, PROMPT, dict(of_class("agentic")))) as answer:
                await trio.sleep(5)
                await answer.read()

        nursery.start_soon(slowly)
        await wait_all_tasks_blocked()
        crowd.send("behind", of_class("agentic"))
        await trio.sleep(10)
        assert crowd.when == {"behind": 4.0}
        assert s.held() == {}
