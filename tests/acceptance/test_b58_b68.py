"""B58 (over HTTP/1.1), B61, B64, B65 and B68: what one peer does, however odd, stays between it and us."""

import contextlib
import json
import math
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.client import Client
from tests.fakes.upstream import Exchange, Step
from tests.scene import CHAT, PROMPT, Scene, scene
from trioproxy.call import Request
from trioproxy.doors.connection import MIN_RATE
from trioproxy.http.wire import WireBroken

both = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
WORDS = ["one", " two", " three"]


def leaving(text: str) -> Step:
    """A whole answer that says `Connection: close`; the connection stays open for whoever does not believe it."""

    async def step(x: Exchange) -> None:
        headers = [("connection", "close")]
        if x.request.json.get("stream"):
            await x.start(headers=headers)
            for frame in (steps.delta(text), steps.delta(finish="stop"), steps.DONE):
                await x.write(frame)
            await x.end()
        else:
            await steps.chat_answer(text, headers=headers)(x)
        x.keep = True

    return step


@both
async def test_b58_a_connection_that_says_close_is_not_used_again(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(leaving("first"), steps.chat("second"))
        assert (await s.ask(streamed=streamed))[:2] == (200, "first")
        await s.rest()
        assert s.gateway.statistics()["a"].idle_connections == 0
        assert (await s.ask(streamed=streamed))[:2] == (200, "second")
        assert [request.connection for request in s.a.requests] == [1, 2]
        assert (s.failures(), s.breaker(), s.hits()) == (0, "closed", "a=2 b=0")


@both
async def test_b58_a_kept_connection_that_closes_under_a_request_is_retried_once_and_blames_nobody(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.chat("first"), steps.hang_up(), steps.chat("second"))
        assert (await s.ask(streamed=streamed))[:2] == (200, "first")
        assert (await s.ask(streamed=streamed))[:2] == (200, "second")
        assert [request.connection for request in s.a.requests] == [1, 1, 2]
        assert (s.failures(), s.hits()) == (0, "a=3 b=0")


@both
async def test_b58_the_retry_is_made_once_and_then_the_chain_goes_on(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.chat("first"), steps.hang_up())
        s.b.script(steps.chat("from b"))
        assert (await s.ask(streamed=streamed))[:2] == (200, "first")
        assert (await s.ask(streamed=streamed))[:2] == (200, "from b")
        assert (s.failures(), s.hits()) == (1, "a=3 b=1")


async def parallel(s: Scene, odd: Callable[[], object]) -> None:
    """A stream that runs for two seconds while `odd` happens; it must not notice."""
    s.a.script(steps.chat_stream(WORDS, every=0.5))
    stream = await s.open_stream()
    await stream.frame()
    held = odd()
    if held is not None:
        await held  # type: ignore[misc]
    await stream.rest()
    assert (stream.text(), stream.complete) == ("one two three", True)
    assert (await s.get("/healthz")).status == 200
    assert s.bugs == []


@pytest.mark.parametrize("behind", [b"", b"x", b"\x81\x85abcd"], ids=["alone", "x", "frame"])
async def test_b61_an_upgrade_with_bytes_behind_it_harms_nobody(behind: bytes, autojump_clock: MockClock) -> None:
    async with scene("a") as s:

        async def odd() -> None:
            client = await s.client()
            headers = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-key", "eA==")]
            await client.wire.send(client.request("GET", CHAT, None, headers) + behind)
            assert (await client.reply()).status == 405
            client.close()

        await parallel(s, odd)


async def test_b61_a_reset_while_we_send_ends_that_exchange_only(autojump_clock: MockClock) -> None:
    async with scene("a") as s:

        async def odd() -> None:
            other = await s.client()
            stream = await other.stream(CHAT, {**PROMPT, "stream": True})
            await stream.frame()
            other.reset()

        await parallel(s, odd)
        await s.rest()
        assert sorted(ended.reason.value for ended in s.ended) == ["answered", "client_left"]
        assert s.held() == {}


async def test_b61_bytes_after_our_close_harm_nobody(autojump_clock: MockClock) -> None:
    async with scene("a") as s:

        async def odd() -> None:
            client = await s.client()
            assert (await client.get("/healthz", [("connection", "close")])).status == 200
            assert await client.ended()
            with contextlib.suppress(WireBroken):
                await client.wire.send(b"\x89\x80ping")

        await parallel(s, odd)


async def test_b61_an_upstream_that_leaves_right_after_its_first_bytes_ends_that_exchange_only(
    autojump_clock: MockClock,
) -> None:
    async def brief(x: Exchange) -> None:
        await x.start()
        await x.write(steps.delta("hi"))
        await trio.sleep(0.002)
        x.reset()

    async with scene("a", "b", toml=OTHER) as s:
        s.b.script(brief)

        async def odd() -> None:
            stream = await s.stream(model="other")
            assert b'"error"' in stream.frames[-1]

        await parallel(s, odd)
        await s.rest()
        assert sorted(ended.reason.value for ended in s.ended) == ["answered", "cut_after_commit"]


OTHER = '[[models]]\nname = "other"\nchannels = [ { channel = "b", model = "b-model" } ]'


async def trickle(client: Client, data: bytes) -> None:
    """One byte a second, until all of it went or the door has closed."""
    with contextlib.suppress(WireBroken):
        for at in range(len(data)):
            await client.wire.send(data[at : at + 1])
            await trio.sleep(1)


async def test_b64_a_head_of_a_byte_a_second_is_408_after_fifteen_seconds(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("others"))
        client = await s.client()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle, client, b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n".ljust(100, b"y"))
            await trio.sleep(5)
            assert (await s.post()).status == 200  # others are served
            await s.rest(0.1)
            assert s.held() == {}
            reply = await client.reply()
            nursery.cancel_scope.cancel("answered")
        assert (reply.status, trio.current_time()) == (408, began + 15)
        assert reply.json["error"]["code"] == "request_timeout"
        assert await client.ended()
        assert s.hits() == "a=1"


async def test_b64_a_body_of_a_byte_a_second_is_408_at_its_deadline_and_holds_nothing(
    autojump_clock: MockClock,
) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("others"))
        client = await s.client()
        began = trio.current_time()
        body = json.dumps(PROMPT).encode().ljust(100)
        whole = client.request("POST", CHAT, body)
        async with trio.open_nursery() as nursery:
            await client.wire.send(whole[:-100])
            nursery.start_soon(trickle, client, body)
            await trio.sleep(30.5)
            assert (await s.post()).status == 200
            await s.rest(0.1)
            assert s.held() == {}
            assert s.hits() == "a=1"  # the slow one has asked nobody
            reply = await client.reply()
            nursery.cancel_scope.cancel("answered")
        came = 61  # bytes 1 to 61 came at 0 to 60 s, and each has bought its own time at the least rate
        assert reply.status == 408
        assert trio.current_time() == pytest.approx(began + 60 + came / MIN_RATE, abs=2 / MIN_RATE)
        await s.rest()
        assert s.hits() == "a=1"


async def test_b65_two_hundred_clients_that_leave_between_frames_leave_nothing_behind(
    autojump_clock: MockClock,
) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_stream(WORDS, every=0.25))

        async def visit(number: int) -> None:
            client = await s.client()
            stream = await client.stream(CHAT, {**PROMPT, "stream": True})
            for _ in range(number % 4):
                await stream.frame()
            if number % 2:
                client.close()
            else:
                client.reset()

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(visit, number)
        await s.rest()
        assert s.bugs == []
        assert s.held() == {}
        assert s.a.open == 0
        assert [ended.reason.value for ended in s.ended] == ["client_left"] * 200
        assert (s.failures(), s.breaker()) == (0, "closed")


async def test_b65_a_timeout_round_the_read_is_the_readers_own(autojump_clock: MockClock) -> None:
    """An embedder may wrap each read in a scope of its own, leave on it, or go on: nothing is lost or misnested."""
    async with scene("a") as s:
        s.a.script(steps.chat_stream(WORDS, every=1))
        request = Request.post(CHAT, {**PROMPT, "stream": True})
        async with s.gateway.dispatch(request) as answer:
            got, timeouts = b"", 0
            while not answer.ended:
                with trio.move_on_after(0.3) as scope:
                    got += await answer.receive()
                timeouts += scope.cancelled_caught
        assert timeouts > 5
        assert got.endswith(steps.DONE)
        assert all(word.strip().encode() in got for word in WORDS)
        async with s.gateway.dispatch(request) as answer:
            with trio.move_on_after(0.3):
                while not answer.ended:
                    await answer.receive()
        await s.rest()
        assert s.held() == {}
        assert [ended.reason.value for ended in s.ended] == ["answered", "client_left"]


@pytest.mark.parametrize("order", ["upstream first", "client first"])
async def test_b65_an_upstreams_error_and_a_leaving_client_at_one_moment(order: str, autojump_clock: MockClock) -> None:
    """Whoever was first is what the record says; there is one record, and no error of ours."""
    wires: list[Client] = []

    async def step(x: Exchange) -> None:
        await x.start()
        await x.write(steps.delta("hi"))
        await trio.sleep(1)
        if order == "client first":
            wires[0].reset()
            x.reset()
        else:
            x.reset()
            await trio.testing.wait_all_tasks_blocked()
            wires[0].reset()

    async with scene("a") as s:
        s.a.script(step)
        client = await s.client()
        wires.append(client)
        stream = await client.stream(CHAT, {**PROMPT, "stream": True})
        await stream.frame()
        await s.rest(3)
        (ended,) = s.ended
        fault = ended.attempts[0].fault
        if order == "client first":
            assert (ended.reason.value, fault) == ("client_left", None)
            assert s.failures() == 0
        else:
            assert ended.reason.value == "cut_after_commit"
            assert fault is not None
            assert fault.kind.value == "cut"
        assert s.bugs == []
        assert s.held() == {}


def no_number(word: str) -> bytes:
    """A chunk whose log probability is not a JSON number."""
    tokens = [{"token": "hi", "logprob": math.pi, "bytes": [104, 105]}]
    choice = {"index": 0, "delta": {"content": "hi"}, "logprobs": {"content": tokens}, "finish_reason": None}
    return steps.frame({"id": "c", "model": "m", "choices": [choice]}).replace(str(math.pi).encode(), word.encode())


def strict(text: bytes) -> object:
    """JSON as the standard has it: what Python adds to it is refused."""

    def refuse(word: str) -> object:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("place", [0, 1], ids=["first", "later"])
@pytest.mark.parametrize("word", ["-Infinity", "Infinity", "NaN"])
async def test_b68_numbers_that_json_has_not_are_null_and_the_stream_goes_on(
    word: str, place: int, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        frames = [*[steps.delta("well, ")] * place, no_number(word), steps.delta(" there")]
        s.a.script(steps.sse([*frames, steps.delta(finish="stop"), steps.DONE], every=0.1))
        stream = await s.stream()
        assert stream.text() == "well, " * place + "hi there"
        for frame in stream.frames[:-1]:
            strict(frame.removeprefix(b"data:"))
        assert stream.frames[place] == no_number("null")
        assert stream.frames[-1] == steps.DONE
        assert s.hits() == "a=1 b=0"


@pytest.mark.parametrize("word", ["-Infinity", "NaN"])
async def test_b68_the_same_in_a_unary_answer(word: str, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        answer = steps.completion("hi") | {"score": math.pi}
        body = json.dumps(answer).replace(str(math.pi), word).encode()

        async def step(x: Exchange) -> None:
            await x.reply(200, body)

        s.a.script(step)
        reply = await s.post()
        assert reply.status == 200
        assert strict(reply.body) == answer | {"score": None}
        assert s.hits() == "a=1 b=0"
