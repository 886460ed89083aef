"""A class that pauses in incidents: its calls wait while a breaker of their chain is open, and go on afterwards."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.acceptance.queued import ONE, Crowd, line, of_class, queue_ms
from tests.fakes import steps
from tests.scene import scene
from trioproxy.journal import BreakerMoved

EVAL = "[classes.eval]\n[classes.background]\n"
OTHER = '[[models]]\nname = "n"\nchannels = [{ channel = "b", model = "small" }]\n'
OPENING = "[defaults]\nbreaker = { failures = 1, open_for = 60 }\n"
PROBING = "[defaults]\nbreaker = { failures = 1, window = 0.0, open_for = 20, probes = 1, successes = 1 }\n"
ROOMY = "[organization]\nlimits = { concurrency = 99 }\n"


async def test_eval_waits_while_a_breaker_of_its_chain_is_open(autojump_clock: MockClock) -> None:
    """Sixty seconds, to the second; other classes and other models go on, behind and before it in the line."""
    async with scene("a", "b", toml=OPENING + ROOMY + EVAL + OTHER) as s, trio.open_nursery() as nursery:
        s.a.script(steps.error(503), steps.chat_answer("hello"))
        s.b.script(steps.chat_answer("hello"))
        assert (await s.post(headers=of_class("eval"))).status == 200
        assert s.breaker() == "open"
        crowd = Crowd(s, nursery)
        crowd.send("eval", of_class("eval"))
        await wait_all_tasks_blocked()
        assert line(s, "eval").waiting == 1
        crowd.send("background", of_class("background"))
        crowd.send("nobody's class")
        crowd.send("eval of another model", of_class("eval"), model="n")
        await trio.sleep(61)
        assert crowd.when == {"background": 0.0, "nobody's class": 0.0, "eval of another model": 0.0, "eval": 60.0}
        assert queue_ms(crowd.replies["eval"]) == 60_000.0
        assert s.held() == {}


async def test_it_goes_on_as_soon_as_a_probe_has_closed_the_breaker(autojump_clock: MockClock) -> None:
    """At 20 s another class's call probes for five; with the one lease out eval waits on, and goes when it is back."""
    async with scene("a", "b", toml=PROBING + ROOMY + EVAL) as s, trio.open_nursery() as nursery:
        s.a.script(steps.error(503), steps.chat_answer("hello", delay=5))
        s.b.script(steps.chat_answer("hello"))
        assert (await s.post()).status == 200
        crowd = Crowd(s, nursery)
        await trio.sleep(20.5)
        crowd.send("probe")
        await wait_all_tasks_blocked()
        crowd.send("eval", of_class("eval"))
        await trio.sleep(4)
        assert line(s, "eval").waiting == 1
        await trio.sleep(8)
        assert [event.state for event in s.events if isinstance(event, BreakerMoved)] == ["open", "half_open", "closed"]
        assert {name: round(at, 3) for name, at in crowd.when.items()} == {"probe": 25.5, "eval": 30.5}
        assert s.held() == {}


async def test_an_incident_that_outlasts_its_wait_is_told_as_such(autojump_clock: MockClock) -> None:
    toml = OPENING.replace("60", "400") + ROOMY + EVAL
    async with scene("a", "b", toml=toml) as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat_answer("hello"))
        await s.post()
        reply = await s.post(headers=of_class("eval"))
        error = reply.json["error"]
        assert (reply.status, error["code"], error["limiter"]) == (429, "class_paused", "class.queue")
        assert (reply.headers["retry-after"], queue_ms(reply)) == ("400", 0.0)


async def test_calls_go_on_to_the_channels_that_are_left(autojump_clock: MockClock) -> None:
    """Two channels with a place each; with one out, calls wait for the other, and all out is told at once."""
    toml = OPENING + ONE.replace("1", "99") + "[classes.agentic]\n"
    async with scene("a", "b", toml=toml, channel="max_concurrency = 1") as s, trio.open_nursery() as nursery:
        s.a.script(steps.error(503))
        s.b.script(steps.chat_answer("hello", delay=2))
        crowd = Crowd(s, nursery)
        for name in "xyz":
            crowd.send(name, of_class("agentic"))
            await wait_all_tasks_blocked()
        await trio.sleep(7)
        assert {name: round(at, 2) for name, at in crowd.when.items()} == {"x": 2.0, "y": 4.0, "z": 6.0}
        s.b.script(steps.error(503))
        assert (await s.post(headers=of_class("agentic"))).status == 503
        nobody = await s.post(headers=of_class("agentic"))
        assert (nobody.status, nobody.json["error"]["code"]) == (503, "all_channels_exhausted")
        await s.rest()
        assert s.held() == {}
