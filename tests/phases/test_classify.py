"""Our own headers: deadlines that are honest about garbage, request ids that are safe to echo, traces that go on."""

import re

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.fakes import steps
from tests.scene import Scene, scene
from trioproxy.journal import EndReason, ExchangeEnded

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OURS = re.compile(r"req_[0-9a-f]{24}")


async def ended(s: Scene) -> list[ExchangeEnded]:
    """The records, once the gateway has made them; a client may have its answer a moment earlier."""
    await wait_all_tasks_blocked()
    return s.ended


# The caller's deadline.


@pytest.mark.parametrize("given", ["soon", "", "0", "-1", "nan", "inf", "-inf", "1e999", "5s", "0x5", "1,5"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_deadline_that_is_none_is_refused_by_its_value(
    given: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        reply = await s.post(headers=[("x-request-timeout", given)], stream=streamed)
        error = reply.json["error"]
        assert (reply.status, error["param"]) == (400, "x-request-timeout")
        assert repr(given) in error["message"]
        assert "a positive number of seconds" in error["message"]
        assert (s.hits(), (await ended(s))[0].reason) == ("a=0", EndReason.REFUSED_REQUEST)


async def test_an_endless_value_is_not_repeated_in_full(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        reply = await s.post(headers=[("x-request-timeout", "9x" * 5000)])
        assert reply.status == 400
        assert len(reply.json["error"]["message"]) < 300


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_callers_deadline_bounds_the_whole_call_to_the_second(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.silence())
        reply = await s.post(headers=[("x-request-timeout", "2.5")], stream=streamed)
        assert (reply.status, trio.current_time()) == (504, 2.5)
        assert (s.hits(), s.failures("a")) == ("a=1 b=0", 0)
        assert (await ended(s))[0].reason is EndReason.DEADLINE


async def test_a_callers_deadline_bounds_a_stream_that_has_begun(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_stream(["one"] * 10, every=1.0))
        stream = await s.stream(headers=[("x-request-timeout", "3.5")])
        assert trio.current_time() == 3.5
        assert b"timeout" in stream.frames[-1]
        await s.rest()
        assert ((await ended(s))[0].reason, s.failures()) == (EndReason.DEADLINE, 0)


# What an SDK says of its own timeout.


@pytest.mark.parametrize("given", ["soon", "", "0", "-1", "nan", "inf", "NOT_GIVEN"])
async def test_an_sdks_garbage_is_passed_over(given: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        assert (await s.post(headers=[("x-stainless-timeout", given)])).status == 200


async def test_an_sdks_timeout_bounds_the_start_of_a_stream_only(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_stream(["one", " two", " three"], every=5.0))
        stream = await s.stream(headers=[("x-stainless-timeout", "6")])
        assert (stream.status, stream.text()) == (200, "one two three")
        assert trio.current_time() >= 15.0
        await s.rest()
        assert (await ended(s))[0].reason is EndReason.ANSWERED


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_sdks_timeout_ends_a_call_that_has_not_begun(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.silence())
        reply = await s.post(headers=[("x-stainless-timeout", "4")], stream=streamed)
        assert (reply.status, trio.current_time(), s.failures("a")) == (504, 4.0, 0)


# Request ids.


@pytest.mark.parametrize("given", ["abc", "req_1", "A.b-c:d/e=f+g", "x" * 128])
async def test_a_callers_request_id_is_echoed_and_on_record(given: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        reply = await s.post(headers=[("x-request-id", given)])
        assert reply.headers["x-request-id"] == given == (await ended(s))[0].request_id


@pytest.mark.parametrize(
    "given", ["", "x" * 129, "a b", 'a"b', "<script>", "a\tb", "\xfc", "a,b", "${jndi:x}", "\x1b[2J"]
)
async def test_a_request_id_that_could_do_harm_is_replaced(given: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        client = await s.client()
        reply = await client.post("/v1/chat/completions", {"model": "m", "messages": []}, [("x-request-id", given)])
        client.close()
        if "\x1b" in given:  # no header may hold it at all
            assert reply.status == 400
            return
        assert OURS.fullmatch(reply.headers["x-request-id"])
        assert (await ended(s))[0].request_id == reply.headers["x-request-id"]


async def test_without_one_every_call_gets_its_own(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        ids = {(await s.post()).headers["x-request-id"] for _ in range(20)}
        assert len(ids) == 20
        assert all(map(OURS.fullmatch, ids))


@pytest.mark.parametrize("path", ["/v1/models/none", "/nothing/here"])
async def test_what_the_gateway_refuses_itself_has_the_id_too(path: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        reply = await s.get(path, [("x-request-id", "mine")])
        assert (reply.status, reply.headers["x-request-id"]) == (404, "mine")
        assert "(request id: mine)" in reply.json["error"]["message"]


async def test_an_error_names_the_request_in_head_and_body(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(503))
        reply = await s.post(headers=[("x-request-id", "mine")])
        assert reply.headers["x-request-id"] == "mine"
        assert "(request id: mine)" in reply.json["error"]["message"]


# Traces.


async def test_a_trace_goes_on_to_the_provider_and_is_on_record(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        await s.post(headers=[("traceparent", TRACE), ("tracestate", "vendor=1")])
        sent = s.a.requests[0].headers
        assert (sent["traceparent"], sent["tracestate"]) == (TRACE, "vendor=1")
        assert (await ended(s))[0].traceparent == TRACE


@pytest.mark.parametrize("given", ["garbage", TRACE.upper(), TRACE + "-x", TRACE[:-1], ""])
async def test_what_is_no_trace_is_not_on_record(given: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        assert (await s.post(headers=[("traceparent", given)])).status == 200
        assert (await ended(s))[0].traceparent == ""


async def test_every_attempt_carries_the_same_trace(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat("hello"))
        await s.post(headers=[("traceparent", TRACE)])
        assert s.a.requests[0].headers["traceparent"] == s.b.requests[0].headers["traceparent"] == TRACE
