"""Two features at once: what each promises holds beside the other."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key
from tests.acceptance.queued import Crowd, line, of_class
from tests.fakes import steps
from tests.scene import scene
from trioproxy.journal import EndReason, Switched

OTHER = '[[models]]\nname = "n"\nchannels = [{ channel = "b", model = "n" }]\n'
THROTTLED = steps.error(429, headers=[("retry-after", "7")])


async def test_a_limit_and_a_rest_agree_on_one_wait(autojump_clock: MockClock) -> None:
    """A is at its limit for a minute and B rests for 7 s: header and body say 7 s, and then B answers."""
    limits = {"a": "limits = { requests_per_minute = 1 }"}
    async with scene("a", "b", channel=limits) as s:
        s.a.script(steps.chat("from a"))
        s.b.script(THROTTLED, steps.chat("from b"))
        assert (await s.post()).status == 200
        await s.post()  # brings B to rest
        reply = await s.post()
        error = reply.json["error"]
        assert (reply.status, reply.headers["retry-after"], error["retry_after_ms"]) == (429, "7", 7000)
        assert (error["limiter"], error["gateway_decision"]) == ("channel.requests_per_minute", "rejected_before_dispatch")
        await trio.sleep(7)
        assert (await s.post()).json["choices"][0]["message"]["content"] == "from b"


async def test_where_everybody_rests_nothing_was_dispatched(autojump_clock: MockClock) -> None:
    async with scene("a", toml=key()) as s:
        s.a.script(THROTTLED)
        first, second = [(await s.post(headers=bearer())).json["error"] for _ in range(2)]
        assert (first["gateway_decision"], second["gateway_decision"], s.a.hits) == (
            "admitted_then_provider_rejected",
            "rejected_before_dispatch",
            1,
        )
        assert (second["limiter"], second["retry_after_ms"]) == ("provider", 7000)


async def test_a_stand_in_that_fails_too_is_named_by_no_header(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OTHER, model='fallback = [{ model = "n" }]', links=("a",)) as s:
        s.a.script(steps.error(503))
        s.b.script(steps.error(503), steps.chat("from n"))
        failed, answered = await s.post(), await s.post()
        assert (failed.status, failed.headers.get("x-trioproxy-fallback")) == (503, None)
        assert (answered.status, answered.headers["x-trioproxy-fallback"]) == (200, "n")


async def test_a_drain_that_cuts_a_queued_call_is_recorded_as_it_was_told(autojump_clock: MockClock) -> None:
    toml = "[classes.batch]\n[organization]\nlimits = { concurrency = 1 }\n"
    async with scene("a", toml=toml) as s, trio.open_nursery() as nursery:
        s.a.script(steps.silence())
        crowd = Crowd(s, nursery)
        crowd.send("holds", of_class("batch"))
        await s.rest(1)
        crowd.send("waits", of_class("batch"))
        await s.rest(1)
        assert line(s, "batch").waiting == 1
        s.door.stop()
        await s.rest(1)
        assert crowd.statuses() == {"holds": 503, "waits": 503}
        assert [(each.reason, each.status) for each in s.ended] == [(EndReason.DRAINED, 503)] * 2
        assert s.held() == {}


async def test_a_candidate_that_fails_is_blamed_although_a_stand_in_answered(autojump_clock: MockClock) -> None:
    """The rollout learns of it, its arm is told, nobody takes the stand-in for the model's own channel."""
    rollout = '[[rollouts]]\nmodel = "m"\ncandidate = [{ channel = "c", model = "new" }]\nsteps = [100]\nstarted = true\n'
    fallback = 'fallback = [{ model = "n" }]'
    async with scene("a", "b", "c", toml=OTHER + rollout, model=fallback, links=("a",)) as s:
        s.a.script(steps.error(503))
        s.c.script(steps.error(503))
        s.b.script(steps.chat("from n"))
        for _ in range(2):
            reply = await s.post()
            assert (reply.status, reply.headers["x-trioproxy-fallback"], reply.headers["x-trioproxy-arm"]) == (
                200,
                "n",
                "candidate",
            )
        await s.rest()
        assert [(each.arm, each.fallback, each.refused) for each in s.ended] == [("candidate", "n", False)] * 2
        (arms,) = s.gateway.rollouts().values()
        assert (arms.candidate.calls, arms.candidate.failed) == (2, 1.0)
        assert s.gateway.readings()["m"].keys().isdisjoint({"b"})
        preferred = 9 * 3 + 3 * 12  # of nine tokens and three at the candidate's price
        assert s.ended[0].preferred_cost == preferred


async def test_a_full_queue_says_nothing_of_a_rollouts_arm(autojump_clock: MockClock) -> None:
    rollout = '[[rollouts]]\nmodel = "m"\ncandidate = [{ channel = "a", model = "new" }]\nsteps = [100]\nstarted = true\n'
    model = 'limits = { concurrency = 1 }\nfallback = [{ model = "n" }]'
    async with scene("a", "b", toml=OTHER + rollout + "[classes.interactive]\n", model=model) as s:
        s.a.script(steps.chat_answer("from a", delay=5))
        s.b.script(steps.chat("from n"))
        async with trio.open_nursery() as nursery:
            crowd = Crowd(s, nursery)
            crowd.send("first", of_class("interactive"))
            await s.rest(1)
            crowd.send("second", of_class("interactive"))
        assert [crowd.replies[name].headers.get("x-trioproxy-arm") for name in ("first", "second")] == ["candidate", None]
        (arms,) = s.gateway.rollouts().values()
        assert (arms.candidate.calls, arms.candidate.failed) == (1, 0.0)


async def test_a_stand_in_is_no_switch_and_what_was_passed_over_is_told(autojump_clock: MockClock) -> None:
    """A is at its limit and B out: the stand-in's channel becomes no first choice of the model, however often it answers."""
    limits = {"a": "limits = { requests_per_minute = 1 }", "b": 'breaker = { preset = "consecutive", failures = 1 }'}
    spare = '[[models]]\nname = "n"\nchannels = [{ channel = "c", model = "n" }]\n'
    fallback = 'fallback = [{ model = "n" }]'
    async with scene("a", "b", "c", toml=spare, channel={"c": "", **limits}, model=fallback, links=("a", "b")) as s:
        s.a.script(steps.chat("from a"))
        s.b.script(steps.error(503))
        s.c.script(steps.chat("from n"))
        for _ in range(12):
            assert (await s.post()).status == 200
        assert "c" not in {event.channel for event in s.events if isinstance(event, Switched)}
        assert [channel for channel, _ in s.ended[-1].skipped] == ["b", "a"]
        s.c.script(steps.error(503))
        for _ in range(12):
            assert (await s.post()).status in {429, 503}
        assert "c" not in {event.channel for event in s.events if isinstance(event, Switched)}


async def test_a_model_that_the_last_channel_does_not_know_is_not_why_the_chain_failed(autojump_clock: MockClock) -> None:
    """Answer and record name the same fault."""
    wild = '[[models]]\nname = "w/*"\nchannels = [{ channel = "a", model = "*" }, { channel = "b", model = "*" }]\n'
    async with scene("a", "b", toml=wild) as s:
        s.a.script(steps.error(529))
        s.b.script(steps.error(404))
        assert (await s.post(model="w/x")).status == 529
        await s.rest()
        assert (s.ended[0].reason, s.ended[0].status) == (EndReason.CHAIN_EXHAUSTED, 529)
