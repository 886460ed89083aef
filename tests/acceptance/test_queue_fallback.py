"""Another model answers where a policy names it, for its classes, and says so; nowhere else, and never in a circle."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.acceptance.limited import bearer, key
from tests.acceptance.queued import ONE, Crowd, of_class, queue_ms
from tests.fakes import steps
from tests.fakes.client import Reply
from tests.scene import Scene, scene
from trioproxy.journal import EndReason

OTHER = '[[models]]\nname = "n"\nchannels = [{ channel = "b", model = "small" }]\n'
NARROW = "limits = { concurrency = 1 }\n"
BOTH = 'fallback = [{ model = "n" }]\n'
INTERACTIVE = "[classes.interactive]\n"


def busy(s: Scene) -> None:
    s.a.script(steps.chat_answer("from m", delay=10))
    s.b.script(steps.chat_answer("from n"))


async def crowded(s: Scene, nursery: trio.Nursery, traffic_class: str, *headers: tuple[str, str]) -> Reply:
    """The answer to a call that finds the model taken."""
    crowd = Crowd(s, nursery)
    crowd.send("holder", of_class(traffic_class, *headers))
    await wait_all_tasks_blocked()
    return await s.post(headers=of_class(traffic_class, *headers))


async def test_a_call_that_its_queue_turned_away_goes_to_the_named_model(autojump_clock: MockClock) -> None:
    """300 ms for its own model, then the other: by header, by `model`, and in the record."""
    async with scene("a", "b", toml=OTHER + INTERACTIVE, model=NARROW + BOTH) as s, trio.open_nursery() as nursery:
        busy(s)
        reply = await crowded(s, nursery, "interactive")
        assert (reply.status, reply.json["model"], reply.headers["x-trioproxy-fallback"]) == (200, "n", "n")
        assert (reply.headers["x-trioproxy-channel"], reply.headers["x-trioproxy-model"]) == ("b", "small")
        assert (reply.json["choices"][0]["message"]["content"], queue_ms(reply)) == ("from n", 300.0)
        assert s.b.requests[0].json["model"] == "small"
        await trio.sleep(11)
        fallen, held = s.ended
        assert (fallen.model, fallen.fallback, fallen.reason) == ("m", "n", EndReason.ANSWERED)
        assert (fallen.queued, held.fallback) == (0.3, "")
        assert s.held() == {}


async def test_a_streamed_one_says_it_in_every_frame(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OTHER + INTERACTIVE, model=NARROW + BOTH) as s, trio.open_nursery() as nursery:
        busy(s)
        s.b.script(steps.chat_stream(["from", " n"]))
        crowd = Crowd(s, nursery)
        crowd.send("holder", of_class("interactive"))
        await wait_all_tasks_blocked()
        stream = await s.stream(headers=of_class("interactive"))
        assert (stream.status, stream.text(), stream.headers["x-trioproxy-fallback"]) == (200, "from n", "n")
        assert {payload["model"] for payload in stream.payloads()} == {"n"}


@pytest.mark.parametrize(
    "model, classes, allowed",
    [
        (NARROW, INTERACTIVE, False),
        (NARROW + 'fallback = [{ model = "n", classes = ["batch"] }]\n', INTERACTIVE + "[classes.batch]\n", False),
        (NARROW + 'fallback = [{ model = "n", on = ["exhausted"] }]\n', INTERACTIVE, True),
        (NARROW + BOTH, "[classes.interactive.queue]\notherwise = 'refuse'\n", True),
    ],
    ids=["no policy", "another class", "not for the queue", "the class would rather be refused"],
)
async def test_otherwise_nobody_is_put_in_its_place(
    model: str, classes: str, allowed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=OTHER + classes, model=model) as s, trio.open_nursery() as nursery:
        busy(s)
        reply = await crowded(s, nursery, "interactive")
        error = reply.json["error"]
        assert (reply.status, error["code"], error["fallback_allowed"]) == (429, "queue_timeout", allowed)
        assert "x-trioproxy-fallback" not in reply.headers
        assert s.b.hits == 0
        nursery.cancel_scope.cancel()


async def test_a_key_that_may_not_ask_for_the_other_model_does_not_get_it(autojump_clock: MockClock) -> None:
    toml = OTHER + INTERACTIVE + key(rest='models = ["m"]')
    async with scene("a", "b", toml=toml, model=NARROW + BOTH) as s, trio.open_nursery() as nursery:
        busy(s)
        reply = await crowded(s, nursery, "interactive", *bearer())
        assert (reply.status, reply.json["error"]["fallback_allowed"], s.b.hits) == (429, False, 0)
        nursery.cancel_scope.cancel()


async def test_the_callers_own_limit_holds_for_the_other_model_too(autojump_clock: MockClock) -> None:
    toml = OTHER + INTERACTIVE + key(rest="limits = { concurrency = 1 }")
    async with scene("a", "b", toml=toml, model=BOTH) as s, trio.open_nursery() as nursery:
        busy(s)
        reply = await crowded(s, nursery, "interactive", *bearer())
        error = reply.json["error"]
        assert (reply.status, error["limiter"], error["fallback_allowed"], s.b.hits) == (
            429,
            "key.concurrency",
            True,
            0,
        )
        assert trio.current_time() < 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("toml", ["", ONE + "[defaults.queue]\n"], ids=["no limits", "limits and a queue"])
@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
async def test_an_exhausted_chain_goes_on_with_the_named_model(
    toml: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=toml + OTHER, model=BOTH) as s:
        s.a.script(steps.error(503))
        s.b.script(steps.error(500), steps.chat("from n"))
        status, said, headers = await s.ask(streamed=streamed)
        assert (status, said, headers["x-trioproxy-fallback"]) == (200, "from n", "n")
        assert headers["x-trioproxy-attempts"] == "3"
        await s.rest()
        assert [(attempt.channel, attempt.model) for attempt in s.ended[0].attempts] == [
            ("a", "a-model"),
            ("b", "b-model"),
            ("b", "small"),
        ]
        assert (s.ended[0].model, s.ended[0].fallback) == ("m", "n")
        assert s.held() == {}


async def test_the_first_models_limits_are_given_back_when_the_other_one_answers(autojump_clock: MockClock) -> None:
    """One place at each model: while n answers for it, m's is free."""
    other = OTHER + NARROW
    async with scene("a", "b", toml=other, model=NARROW + BOTH) as s, trio.open_nursery() as nursery:
        s.a.script(steps.error(503), steps.chat_answer("from m"))
        s.b.script(steps.error(500), steps.chat_answer("from n", delay=5))
        crowd = Crowd(s, nursery)
        crowd.send("fallen")
        await trio.sleep(1)
        assert (await s.post()).json["choices"][0]["message"]["content"] == "from m"
        assert (await s.post(model="n")).json["error"]["limiter"] == "model.concurrency"
        await trio.sleep(5)
        assert crowd.statuses() == {"fallen": 200}
        assert s.held() == {}


async def test_where_the_other_one_fails_too_the_answer_is_an_error_and_nobody_a_fallback(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", "b", toml=OTHER, model=BOTH) as s:
        s.a.script(steps.error(503))
        s.b.script(steps.error(500), steps.error(429, headers=[("retry-after", "7")]))
        reply = await s.post()
        assert (reply.status, reply.json["error"]["fallback_allowed"]) == (429, True)
        assert (s.a.hits, s.b.hits) == (1, 2)
        await s.rest()
        assert (s.ended[0].reason, s.ended[0].fallback) == (EndReason.CHAIN_EXHAUSTED, "")
        assert s.held() == {}


@pytest.mark.parametrize("what", ["a client's error", "a deadline"])
async def test_the_callers_own_end_goes_nowhere_else(what: str, autojump_clock: MockClock) -> None:
    bad = {"error": {"message": "no", "type": "invalid_request_error", "code": "context_length_exceeded"}}
    async with scene("a", "b", toml=OTHER, model=BOTH) as s:
        s.a.script(steps.error(400, bad) if what == "a client's error" else steps.silence())
        headers = [("x-request-timeout", "2")]
        assert (await s.post(headers=headers)).status == (400 if what == "a client's error" else 504)
        assert s.b.hits == 0


async def test_several_are_tried_in_order_and_each_once(autojump_clock: MockClock) -> None:
    toml = OTHER + '[[models]]\nname = "o"\nchannels = [{ channel = "b", model = "tiny" }]\n'
    async with scene("a", "b", toml=toml, model='fallback = [{ model = "n" }, { model = "o" }]\n') as s:
        s.a.script(steps.error(503))
        s.b.script(steps.error(500), steps.error(500), steps.chat_answer("from o"))
        reply = await s.post()
        assert (reply.status, reply.json["model"]) == (200, "o")
        assert [request.json["model"] for request in s.b.requests] == ["b-model", "small", "tiny"]


async def test_a_wildcard_may_stand_in(autojump_clock: MockClock) -> None:
    toml = '[[models]]\nname = "cheap/*"\nchannels = [{ channel = "b", model = "*" }]\n'
    async with scene("a", "b", toml=toml, model='fallback = [{ model = "cheap/nano" }]\n') as s:
        s.a.script(steps.error(503))
        s.b.script(steps.error(500), steps.chat_answer("hi"))
        reply = await s.post()
        assert (reply.json["model"], s.b.requests[1].json["model"]) == ("cheap/nano", "nano")
