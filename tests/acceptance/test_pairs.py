"""Two features at once: what each promises holds beside the other."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key
from tests.acceptance.queued import Crowd, line, of_class
from tests.fakes import steps
from tests.scene import scene
from trioproxy.journal import EndReason

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
