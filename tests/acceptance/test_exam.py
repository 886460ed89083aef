"""The failover exam, S01 to S07: what goes wrong before there is any content.

Channel A is faulty, B is healthy. The client gets one whole answer in time, A is not hammered, and everything that tells who
answered tells the truth.
"""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.verdict import WHOLE, assert_answered, assert_refused, both, call, scripted
from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step
from tests.scene import scene
from trioproxy.errors import FaultKind

PARTIAL_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/js"
NO_HTTP = b"SSH-2.0-OpenSSH_9.6\r\n\r\n"


@both
async def test_s01_a_throttled_channel_is_left_alone_for_as_long_as_it_asked(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(429, headers=[("retry-after", "2")]), scripted("a is back"))
        s.b.script(scripted())
        for moment in (0, 0.5, 1, 1.99):
            await trio.sleep(moment - trio.current_time())
            outcome = await call(s, streamed)
            assert trio.current_time() == moment
            await assert_answered(s, outcome, "b", attempts=1 if moment else 2)
        assert s.hits() == "a=1 b=4"
        await trio.sleep(2 - trio.current_time())
        await assert_answered(s, await call(s, streamed), "a", "a is back", attempts=1)
        assert s.failures() == 0


@both
async def test_s01_without_another_channel_the_client_is_told_when_to_come_back(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(429, headers=[("retry-after", "2")]), scripted("a is back"))
        outcome = await call(s, streamed)
        await assert_refused(s, outcome, 429)
        assert (outcome.headers["retry-after"], outcome.headers["x-should-retry"]) == ("2", "true")
        await trio.sleep(1.5)
        outcome = await call(s, streamed)
        await assert_refused(s, outcome, 429, attempts=0)
        assert outcome.headers["retry-after"] == "1"
        assert (s.a.hits, trio.current_time()) == (1, 1.5)
        await trio.sleep(0.5)
        await assert_answered(s, await call(s, streamed), "a", "a is back", attempts=1)


@both
async def test_s01_a_call_from_before_the_throttle_does_not_lift_it(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.after(1, scripted("from before")), steps.error(429, headers=[("retry-after", "5")]))
        s.b.script(scripted())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, s, streamed)
            await trio.sleep(0.5)
            assert (await call(s, streamed)).text == WHOLE
        assert trio.current_time() == 1
        for moment in (1, 3, 5.4):
            await trio.sleep(moment - trio.current_time())
            await assert_answered(s, await call(s, streamed), "b", attempts=1)
        assert s.hits() == "a=2 b=4"


@both
async def test_s02_a_channel_that_throttles_for_ever_is_asked_once_per_cooldown(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(429, headers=[("retry-after", "5")]))
        s.b.script(scripted())
        for moment in range(31):
            await trio.sleep(moment - trio.current_time())
            await assert_answered(s, await call(s, streamed), "b", attempts=1 if moment % 5 else 2)
        assert [request.arrived for request in s.a.requests] == [0, 5, 10, 15, 20, 25, 30]
        assert (s.breaker(), s.failures()) == ("closed", 0)


@both
async def test_s02_one_call_of_many_at_once_tries_a_channel_that_has_cooled_down(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.after(0.5, steps.error(429, headers=[("retry-after", "5")])))
        s.b.script(scripted())
        await call(s, streamed)
        await trio.sleep(6)
        outcomes = []

        async def one() -> None:
            outcomes.append(await call(s, streamed))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
        assert [(outcome.status, outcome.text) for outcome in outcomes] == [(200, WHOLE)] * 20
        assert s.hits() == "a=2 b=21"


@both
async def test_s02_without_a_hint_the_cooldown_grows_from_one_second_to_a_minute(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(429))
        s.b.script(scripted())
        for moment in range(200):
            await trio.sleep(moment - trio.current_time())
            assert (await call(s, streamed)).text == WHOLE
        assert [request.arrived for request in s.a.requests] == [0, 1, 3, 7, 15, 31, 63, 123, 183]


@both
async def test_s02_calls_that_are_throttled_together_are_one_strike(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.after(0.5, steps.error(429)))
        s.b.script(scripted())
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(call, s, streamed)
        assert (s.a.hits, trio.current_time()) == (20, 0.5)
        s.a.script(scripted("a is back"))
        await trio.sleep(0.99)
        assert (await call(s, streamed)).text == WHOLE
        await trio.sleep(0.01)
        assert (await call(s, streamed)).text == "a is back"


@both
@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 522, 524, 529, 408, 409, 424, 425])
async def test_s03_one_failure_costs_one_extra_attempt(status: int, streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(status), scripted("a is back"))
        s.b.script(scripted())
        await assert_answered(s, await call(s, streamed), "b")
        assert (s.hits(), trio.current_time()) == ("a=1 b=1", 0)
        await assert_answered(s, await call(s, streamed), "a", "a is back", attempts=1)
        assert s.hits() == "a=2 b=1"


@both
async def test_s04_a_channel_that_is_down_is_asked_three_times(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(503))
        s.b.script(scripted())
        for number in range(15):
            ended = await assert_answered(s, await call(s, streamed), "b", attempts=2 if number < 3 else 1)
            assert [name for name, _ in ended.skipped] == ([] if number < 3 else ["a"])
        assert s.hits() == "a=3 b=15"
        assert s.breaker() == "open"


@both
async def test_s04_calls_that_were_waiting_for_a_slot_see_that_the_breaker_has_opened(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel="max_concurrency = 3\nslot_timeout = 5") as s:
        s.a.script(steps.after(1, steps.error(503)))
        s.b.script(scripted())
        outcomes = []

        async def one() -> None:
            outcomes.append(await call(s, streamed))

        async with trio.open_nursery() as nursery:
            for _ in range(15):
                nursery.start_soon(one)
        assert [(outcome.status, outcome.text) for outcome in outcomes] == [(200, WHOLE)] * 15
        assert (s.hits(), trio.current_time()) == ("a=3 b=15", 1)


@both
async def test_s04_of_calls_that_overlap_none_is_begun_after_the_third_failure(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.after(1, steps.error(503)))
        s.b.script(scripted())
        outcomes = []

        async def one(at: float) -> None:
            await trio.sleep(at)
            outcomes.append(await call(s, streamed))

        async with trio.open_nursery() as nursery:
            for number in range(15):
                nursery.start_soon(one, number * 0.4)
        assert [(outcome.status, outcome.text) for outcome in outcomes] == [(200, WHOLE)] * 15
        # The third failure comes at 1.8 s; those begun at 1.2 and 1.6 are on their way then.
        assert s.hits() == "a=5 b=15"


BEFORE_HEADERS = {
    "reset": steps.hang_up("reset"),
    "fin": steps.hang_up("fin"),
    "late reset": steps.hang_up("reset", delay=0.5),
    "half a head, then reset": steps.raw(PARTIAL_HEAD, end="reset"),
    "half a head, then fin": steps.raw(PARTIAL_HEAD, end="fin"),
    "an interim answer, then reset": steps.raw(b"HTTP/1.1 103 Early Hints\r\n\r\n", end="reset"),
    "not HTTP at all": steps.raw(NO_HTTP),
    "two lengths": steps.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}"),
}


@both
@pytest.mark.parametrize("fault", BEFORE_HEADERS)
async def test_s05_a_connection_that_breaks_before_the_headers_fails_over(
    fault: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(BEFORE_HEADERS[fault])
        s.b.script(scripted())
        ended = await assert_answered(s, await call(s, streamed), "b")
        assert s.hits() == "a=1 b=1"
        assert trio.current_time() == (0.5 if fault == "late reset" else 0)
        assert s.failures() == 1
        assert ended.attempts[0].fault is not None
        assert ended.attempts[0].fault.counts


@both
async def test_s05_a_refused_connection_fails_over(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.network.refuse("a.test", 80)
        s.b.script(scripted())
        ended = await assert_answered(s, await call(s, streamed), "b")
        assert ended.attempts[0].fault is not None
        assert ended.attempts[0].fault.kind is FaultKind.CONNECT
        assert (s.hits(), s.failures()) == ("a=0 b=1", 1)


async def drip_interim(x: Exchange) -> None:
    """Say every five seconds that the answer is being worked on, and never answer."""
    while True:
        await x.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await trio.sleep(5)


async def drip_head(x: Exchange) -> None:
    """A head that never ends, one header every five seconds."""
    await x.send(b"HTTP/1.1 200 OK\r\n")
    for number in range(1000):
        await x.send(b"x-%d: 1\r\n" % number)
        await trio.sleep(5)


NO_HEADERS: dict[str, Step] = {
    "silence": steps.silence(),
    "silence for two minutes": steps.after(120, scripted("too late")),
    "half a head": steps.raw(PARTIAL_HEAD, end="hang"),
    "interim answers only": drip_interim,
    "a head that never ends": drip_head,
}


@both
@pytest.mark.parametrize("fault", NO_HEADERS)
@pytest.mark.parametrize("limit", [12, 60])
async def test_s06_a_channel_that_never_answers_is_left_at_the_header_deadline(
    limit: int, fault: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=f"[defaults]\nheaders_timeout = {limit}") as s:
        s.a.script(NO_HEADERS[fault])
        s.b.script(scripted())
        ended = await assert_answered(s, await call(s, streamed), "b")
        assert trio.current_time() == limit
        assert (s.hits(), s.a.closed_at, s.failures()) == ("a=1 b=1", [limit], 1)
        assert ended.attempts[0].fault is not None
        assert ended.attempts[0].fault.kind is FaultKind.HEADERS_TIMEOUT
        assert ended.attempts[0].duration == limit


@both
async def test_s06_the_deadline_is_the_class_s_own(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml="[classes.quick]\nheaders_timeout = 3") as s:
        s.a.script(steps.silence())
        s.b.script(scripted())
        await assert_answered(s, await call(s, streamed, [("x-trioproxy-class", "quick")]), "b")
        assert trio.current_time() == 3
        await assert_answered(s, await call(s, streamed), "b")
        assert trio.current_time() == 3 + 240


@both
async def test_s06_a_connection_that_never_comes_about_fails_over(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel="connect_timeout = 4") as s:
        s.network.swallow("a.test", 80)
        s.b.script(scripted())
        ended = await assert_answered(s, await call(s, streamed), "b")
        assert trio.current_time() == 4
        assert [host for host, _, _ in s.network.dials[1:]] == ["a.test", "b.test"]
        assert ended.attempts[0].fault is not None
        assert ended.attempts[0].fault.kind is FaultKind.CONNECT
        assert (s.hits(), s.failures()) == ("a=0 b=1", 1)


def slow(text: str, seconds: float, *, pings: bool = False) -> Step:
    """Headers at once; the answer, in the form that was asked for, so much later."""

    async def step(x: Exchange) -> None:
        streamed = x.request.json.get("stream")
        await x.start(200, [("content-type", "text/event-stream" if streamed else "application/json")])
        for _ in range(int(seconds)):
            await trio.sleep(1)
            if pings:
                await x.write(b": ping\n\n" if streamed else b"\n")
        if streamed:
            frames = [
                steps.delta("", role=True, model="a-model"),
                *(steps.delta(w, model="a-model") for w in text.split("|")),
            ]
            await x.write(
                b"".join([*frames, steps.delta(finish="stop", model="a-model"), steps.usage_frame((9, 3), "a-model")])
            )
            await x.write(steps.DONE)
        else:
            await x.write(steps.frame(steps.completion(text.replace("|", ""), model="a-model")).removeprefix(b"data: "))
        await x.end()

    return step


@both
@pytest.mark.parametrize("pings", [False, True])
async def test_s07_a_first_token_that_is_late_fails_over_where_the_class_says_so(
    pings: bool, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml='[defaults]\ngate_timeout = 15\non_gate_timeout = "failover"') as s:
        s.a.script(slow("from| a", 20, pings=pings))
        s.b.script(scripted())
        ended = await assert_answered(s, await call(s, streamed), "b")
        assert (trio.current_time(), s.hits(), s.failures()) == (15, "a=1 b=1", 1)
        assert s.a.closed_at == [15]
        assert ended.attempts[0].fault is not None
        assert ended.attempts[0].fault.kind is FaultKind.FIRST_CONTENT_TIMEOUT


@both
@pytest.mark.parametrize("pings", [False, True])
async def test_s07_a_slow_model_answers_whole_behind_the_plain_gate(
    pings: bool, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(slow("from| a", 20, pings=pings))
        outcome = await call(s, streamed)
        await assert_answered(s, outcome, "a", "from a", attempts=1)
        assert (outcome.head_at, trio.current_time(), s.hits(), s.failures()) == (20, 20, "a=1 b=0", 0)


async def test_s07_past_the_plain_gate_the_stream_is_open_and_the_answer_still_comes(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", "b") as s:
        s.a.script(slow("from| a", 45))
        outcome = await call(s, True)
        await assert_answered(s, outcome, "a", "from a", attempts=1)
        assert (outcome.head_at, outcome.times[0], s.hits()) == (30, 45, "a=1 b=0")


async def test_s07_a_unary_answer_is_held_whole_past_the_plain_gate(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(slow("from| a", 45))
        await assert_answered(s, await call(s, False), "a", "from a", attempts=1)
        assert (trio.current_time(), s.hits()) == (45, "a=1 b=0")
