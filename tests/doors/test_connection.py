"""One downstream connection: requests in any shape, answers in their order."""

import gzip
import json

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.client import Client
from tests.fakes.upstream import chunk
from tests.scene import CHAT, PROMPT, Scene, scene

STREAM = {**PROMPT, "stream": True}
CHUNKED = [("transfer-encoding", "chunked")]
BODY = json.dumps(PROMPT).encode()
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def said(text: str) -> bytes:
    return json.dumps(text).encode()


async def old(s: Scene, body: object, *lines: str) -> Client:
    """A request of HTTP/1.0, sent."""
    client = await s.client()
    raw = json.dumps(body).encode()
    head = [f"POST {CHAT} HTTP/1.0", f"content-length: {len(raw)}", *lines]
    await client.wire.send("\r\n".join(head).encode() + b"\r\n\r\n" + raw)
    return client


async def test_a_connection_serves_one_call_after_the_other(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("one"), steps.chat("two"), steps.chat("three"))
        client = await s.client()
        first = await client.post(CHAT, PROMPT)
        stream = await client.stream(CHAT, STREAM)
        await stream.rest()
        third = await client.post(CHAT, PROMPT)
        assert said("one") in first.body
        assert (stream.text(), stream.complete) == ("two", True)
        assert said("three") in third.body
        assert "connection" not in first.headers
        assert first.headers["date"] == "Mon, 24 Nov 2025 16:00:00 GMT"


async def test_connection_close_is_honoured(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("bye"))
        client = await s.client()
        reply = await client.post(CHAT, PROMPT, [("connection", "close")])
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await client.ended()


@pytest.mark.parametrize("count", [2, 3])
async def test_pipelined_requests_are_answered_in_order(count: int, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        answers = [f"answer {number}" for number in range(count)]
        s.a.script(*(steps.after(count - number, steps.chat(text)) for number, text in enumerate(answers)))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, PROMPT) * count)
        replies = [await client.reply() for _ in range(count)]
        assert [reply.json["choices"][0]["message"]["content"] for reply in replies] == answers


async def test_a_request_behind_a_streamed_one_waits_for_its_end(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_stream(["one", " two"], every=1), steps.chat("after"))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, STREAM) + client.request("POST", CHAT, PROMPT))
        stream = await client.streamed()
        await stream.rest()
        assert stream.text() == "one two"
        assert said("after") in (await client.reply()).body


@pytest.mark.parametrize(
    "broken",
    [b"NONSENSE\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n"],
)
async def test_what_came_whole_before_a_broken_request_is_answered_first(
    broken: bytes, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("one"))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, PROMPT) + client.request("GET", "/healthz") + broken)
        first, second, third = [await client.reply() for _ in range(3)]
        assert (first.status, second.status, third.status) == (200, 200, 400)
        assert said("one") in first.body
        assert third.json["error"]["code"] == "bad_http"
        assert third.headers["connection"] == "close"
        assert await client.ended()
        await s.rest()
        assert [ended.reason.value for ended in s.ended] == ["answered", "refused_request"]


async def test_a_request_may_come_byte_by_byte(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("patience"))
        client = await s.client()
        whole = client.request("POST", CHAT, BODY)
        for at in range(len(whole)):
            await client.wire.send(whole[at : at + 1])
            await trio.testing.wait_all_tasks_blocked()
        assert said("patience") in (await client.reply()).body
        assert s.a.requests[0].json["messages"] == PROMPT["messages"]


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_chunked_body_is_put_together(size: int, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("whole"))
        client = await s.client()
        pieces = [chunk(BODY[at : at + size]) for at in range(0, len(BODY), size)]
        await client.wire.send(client.request("POST", CHAT, b"", CHUNKED))
        for piece in (*pieces, b"0\r\nx-trailer: 1\r\n\r\n"):
            await client.wire.send(piece)
            await trio.testing.wait_all_tasks_blocked()
        assert (await client.reply()).status == 200
        assert s.a.requests[0].json["messages"] == PROMPT["messages"]
        assert (await client.get("/healthz")).status == 200


async def test_a_chunked_body_may_be_gzip_as_a_whole(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("whole"))
        packed = chunk(gzip.compress(BODY)) + b"0\r\n\r\n"
        assert (await s.post(packed, [*CHUNKED, ("content-encoding", "gzip")])).status == 200


async def test_a_client_that_expects_to_be_told_is_told_before_it_sends(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("go on"))
        client = await s.client()
        whole = client.request("POST", CHAT, BODY, [("expect", "100-continue")])
        await client.wire.send(whole[: -len(BODY)])
        assert await client.wire.receive() == CONTINUE
        assert s.hits() == "a=0"
        await client.wire.send(BODY)
        assert (await client.reply()).status == 200


async def test_a_body_that_came_along_needs_no_100(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("go on"))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, BODY, [("expect", "100-continue")]))
        assert (await client.wire.receive()).startswith(b"HTTP/1.1 200 ")


async def test_a_body_that_is_too_long_is_refused_instead_of_asked_for(autojump_clock: MockClock) -> None:
    async with scene("a", toml="[listen]\nmax_body = 1000") as s:
        client = await s.client()
        headers = [("expect", "100-continue"), ("content-length", "1001")]
        await client.wire.send(client.request("POST", CHAT, b"", headers))
        answer = await client.wire.receive()
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert await client.ended()


async def test_a_rejected_client_that_goes_on_sending_can_still_read_why(autojump_clock: MockClock) -> None:
    async with scene("a", toml="[listen]\nmax_body = 1000") as s:
        client = await s.client()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.wire.send, client.request("POST", CHAT, b"x" * 300_000))
            reply = await client.reply()
        assert (reply.status, reply.complete) == (413, True)
        assert await client.ended()
        assert trio.current_time() == began + 1  # what came was read for a moment, and no longer


@pytest.mark.parametrize(
    "name", ["authorization", "x-api-key", "content-type", "x-request-timeout", "x-trioproxy-class"]
)
async def test_what_may_come_once_only_is_refused_when_it_comes_twice(name: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        reply = await s.post(headers=[(name, "1"), (name.title(), "1")])
        assert reply.status == 400
        assert reply.json["error"]["code"] == "duplicate_header"
        assert name in reply.json["error"]["message"]
        assert s.hits() == "a=0"


async def test_http_1_0_gets_a_length_and_the_end_of_the_connection(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("old"))
        client = await old(s, PROMPT)
        reply = await client.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert int(reply.headers["content-length"]) == len(reply.body)
        assert await client.ended()


async def test_http_1_0_may_ask_to_keep_the_connection(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("old"))
        client = await old(s, PROMPT, "connection: keep-alive")
        assert (await client.reply()).headers["connection"] == "keep-alive"
        assert (await client.get("/healthz")).status == 200


@pytest.mark.parametrize("lines", [(), ("connection: keep-alive",)], ids=["plain", "keep-alive"])
async def test_a_stream_for_http_1_0_ends_with_its_connection(
    lines: tuple[str, ...], autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_stream(["one", " two"]))
        client = await old(s, STREAM, *lines)
        began = trio.current_time()
        stream = await client.streamed()
        await stream.rest()
        assert stream.headers["connection"] == "close"
        assert not {"transfer-encoding", "content-length"} & stream.headers.keys()
        assert stream.frames[-1] == steps.DONE
        assert trio.current_time() == began  # not when some idle deadline passes
        assert stream.text() == "one two"


async def test_a_client_that_half_closes_after_its_request_counts_as_gone(autojump_clock: MockClock) -> None:
    """As in nginx: a FIN is all the sign there is of a client that left."""
    async with scene("a") as s:
        s.a.script(steps.silence())
        wire = await s.wire()
        await wire.send(Client(wire).request("POST", CHAT, PROMPT))
        await s.a.wait_hits(1)
        wire.send_eof()
        await s.rest()
        assert [ended.reason.value for ended in s.ended] == ["client_left"]
        assert s.a.open == 0
