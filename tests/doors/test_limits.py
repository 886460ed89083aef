"""What the door bears from one connection: sizes, rates, silence; and what it says when that is over."""

import json

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.client import Client
from tests.scene import CHAT, PROMPT, Scene, scene

STREAM = {**PROMPT, "stream": True}
HOST = b"host: gateway.test\r\n"
BIG = "x" * 400_000
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /healthz HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
        (b"GET /healthz\r\n\r\n", 505),  # HTTP/0.9
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400),  # TLS on a plain port
        (POST + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"content-length: -1\r\n\r\n", 400),
        (POST + b"content-length: 0x10\r\n\r\n", 400),
        (POST + b"transfer-encoding: chunked\r\n\r\nxyz\r\n", 400),
        (POST + b"bad header\r\n\r\n", 400),
        (POST + b"transfer-encoding: gzip, chunked\r\n\r\n", 501),
        (b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (POST + b"content-length: 99999999999\r\n\r\n", 413),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"x: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"x: 1\r\n" * 100 + b"\r\n", 431),
    ],
)
async def test_what_breaks_http_is_told_so_in_json_and_closed(
    raw: bytes, status: int, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        client = await s.client()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.wire.send, raw)
            reply = await client.reply()
        assert reply.status == status
        assert reply.json["error"].keys() == {"message", "type", "param", "code"}
        assert reply.headers["connection"] == "close"
        assert reply.headers["x-should-retry"] == "false"
        assert await client.ended()
        await s.rest()
        (ended,) = s.ended
        assert (ended.reason.value, ended.status) == ("refused_request", status)


async def test_a_head_just_within_its_limits_is_read(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        client = await s.client()
        assert (await client.get("/healthz", [("x", "1")] * 99)).status == 200
        assert (await client.get("/healthz", [("x", "a" * 60_000)])).status == 200


async def test_a_head_has_fifteen_seconds(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        client = await s.client()
        await trio.sleep(10)  # being connected is not a request yet
        await client.wire.send(b"GET /healthz HTTP/1.1\r\n")
        began = trio.current_time()
        reply = await client.reply()
        assert (reply.status, trio.current_time()) == (408, began + 15)
        assert "15 s" in reply.json["error"]["message"]
        await s.rest()
        assert [ended.reason.value for ended in s.ended] == ["refused_request"]


async def test_a_second_requests_head_has_its_own_fifteen_seconds(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        client = await s.client()
        assert (await client.get("/healthz")).status == 200
        await trio.sleep(20)
        await client.wire.send(b"GET /heal")
        await trio.sleep(14)
        await client.wire.send(b"thz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.reply()).status == 200


async def test_a_pipelined_half_of_a_head_has_fifteen_seconds_too(autojump_clock: MockClock) -> None:
    """Its first bytes came with the request before it, so no byte of its own starts the clock."""
    async with scene("a") as s:
        client = await s.client()
        await client.wire.send(client.request("GET", "/healthz") + b"GET /healthz HT")
        began = trio.current_time()
        assert (await client.reply()).status == 200
        assert (await client.reply()).status == 408
        assert trio.current_time() == began + 15


async def test_a_body_that_stops_has_sixty_seconds(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, b"", [("content-length", "10")]))
        began = trio.current_time()
        reply = await client.reply()
        assert (reply.status, trio.current_time()) == (408, began + 60)
        assert s.hits() == "a=0"


async def test_a_big_body_on_a_slow_line_may_take_as_long_as_its_bytes_need(autojump_clock: MockClock) -> None:
    """64 KiB a second is twice the least rate: after 100 s of it the body is whole and the call is made."""
    async with scene("a") as s:
        s.a.script(steps.chat("patience"))
        client = await s.client()
        raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * (100 * 65_536)}]}).encode()
        whole = client.request("POST", CHAT, raw, [("x-request-timeout", "500")])
        for at in range(0, len(whole), 65_536):
            await client.wire.send(whole[at : at + 65_536])
            await trio.sleep(1)
        assert (await client.reply()).status == 200


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
async def test_an_idle_connection_is_closed_without_a_word_after_75_seconds(
    used: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        client = await s.client()
        if used:
            assert (await client.get("/healthz")).status == 200
        began = trio.current_time()
        assert await client.ended()
        assert trio.current_time() == began + 75
        assert s.ended == []


async def test_blank_lines_are_no_request(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        client = await s.client()
        began = trio.current_time()
        await trio.sleep(10)
        await client.wire.send(b"\r\n\r\n")
        assert await client.ended()
        assert trio.current_time() == began + 75
        assert s.ended == []


async def test_a_client_that_leaves_inside_a_head_or_a_body_leaves_nothing(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        for part in (b"GET /heal", POST, POST + b"content-length: 10\r\n\r\n12345"):
            client = await s.client()
            await client.wire.send(part)
            await trio.testing.wait_all_tasks_blocked()
            client.close()
        await s.rest()
        assert s.hits() == "a=0"
        assert s.bugs == []


async def read_slowly(client: Client, every: float, enough: int) -> int:
    """Take what has come every so many seconds; how many bytes that were in the end."""
    got = 0
    while got < enough:
        await trio.sleep(every)
        data = await client.wire.receive()
        got += len(data)
        if not data:
            break
    return got


async def test_a_client_that_takes_nothing_is_gone_after_30_seconds(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_answer(BIG))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, PROMPT))
        await s.rest(100)
        (ended,) = s.ended
        assert (ended.reason.value, ended.duration) == ("client_left", 30)
        assert s.held() == {}


async def test_a_client_that_takes_nothing_of_a_stream_is_gone_after_30_seconds(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_stream([BIG] * 3, end="hang"))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, STREAM))
        await s.rest(100)
        (ended,) = s.ended
        assert (ended.reason.value, ended.duration) == ("client_left", 30)
        assert s.a.open == 0
        assert (s.held(), s.failures()) == ({}, 0)


async def test_a_client_that_reads_slowly_gets_everything(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_answer(BIG))
        client = await s.client()
        began = trio.current_time()
        await client.wire.send(client.request("POST", CHAT, PROMPT))
        assert await read_slowly(client, 25, len(BIG)) > len(BIG)
        assert trio.current_time() - began > 100
        await s.rest()
        assert [ended.reason.value for ended in s.ended] == ["answered"]


async def test_a_client_that_reads_a_stream_slowly_gets_everything(autojump_clock: MockClock) -> None:
    """Its slowness is no idleness of the upstream, which is waiting for it."""
    async with scene("a") as s:
        s.a.script(steps.chat_stream([BIG]))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, STREAM))
        assert await read_slowly(client, 25, len(BIG)) > len(BIG)
        await s.rest(30)
        assert [ended.reason.value for ended in s.ended] == ["answered"]
        assert s.failures() == 0


async def filled(s: Scene) -> Client:
    client = await s.client()
    assert (await client.get("/healthz")).status == 200
    return client


async def test_one_connection_too_many_is_told_so(autojump_clock: MockClock) -> None:
    async with scene("a", toml="[listen]\nmax_connections = 2") as s:
        first, _second = await filled(s), await filled(s)
        third = await s.client()
        reply = await third.reply()
        assert reply.status == 503
        assert reply.json["error"]["code"] == "too_many_connections"
        assert await third.ended()
        assert (await first.get("/healthz")).status == 200  # the others notice nothing
        first.close()
        await s.rest()
        assert (await s.get("/healthz")).status == 200
