"""The scripted upstream and the raw client, against each other: each verb does on the wire what it says."""

import gzip
import json
import zlib
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.client import Client
from tests.fakes.network import Network, open_network
from tests.fakes.upstream import Exchange, FakeUpstream, on_loopback
from trioproxy.http.wire import dial

CHAT = {"model": "m1", "messages": [{"role": "user", "content": "hi"}]}
STREAM = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
PATH = "/v1/chat/completions"


async def visit(network: Network, upstream: FakeUpstream) -> Client:
    return Client(await network.dial(upstream.host, upstream.port))


async def test_an_answer_arrives_and_the_request_is_recorded_as_it_came() -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.chat_answer("hello")).listen(network)
        client = await visit(network, upstream)
        reply = await client.post(PATH, CHAT, [("X-Mixed-Case", "Yes")])
        assert reply.status == 200
        assert reply.json["choices"][0]["message"]["content"] == "hello"
        assert reply.json["model"] == "m1"
        (request,) = upstream.requests
        assert (request.method, request.target) == ("POST", PATH)
        assert b"X-Mixed-Case: Yes" in request.head.raw
        assert request.headers["x-mixed-case"] == "Yes"
        assert request.json == CHAT


async def test_the_script_runs_by_request_and_its_last_entry_repeats_on_one_connection() -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.error(500), steps.chat_answer("ok")).listen(network)
        client = await visit(network, upstream)
        assert [(await client.post(PATH, CHAT)).status for _ in range(3)] == [500, 200, 200]
        assert (upstream.hits, upstream.connections) == (3, 1)


async def test_a_stream_has_role_tokens_finish_usage_and_done_at_their_times(autojump_clock: MockClock) -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.chat_stream(["He", "llo"], delay=2, every=1)).listen(network)
        client = await visit(network, upstream)
        stream = await client.stream(PATH, STREAM)
        assert trio.current_time() == 0
        frames = await stream.rest()
        assert stream.text() == "Hello"
        assert frames[-1] == steps.DONE
        assert json.loads(frames[-2][5:])["usage"]["total_tokens"] == 12
        assert stream.times == [2, 3, 4, 5, 6, 7]
        assert stream.complete


async def test_usage_comes_only_where_it_was_asked_for() -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.chat("two words")).listen(network)
        stream = await (await visit(network, upstream)).stream(PATH, CHAT | {"stream": True})
        await stream.rest()
        assert stream.text() == "two words"
        assert not any("usage" in payload for payload in stream.payloads())


@pytest.mark.parametrize("end", ["fin", "reset"])
async def test_a_cut_stream_is_seen_as_cut(end: steps.End) -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.chat_stream(["He", "llo"], end=end)).listen(network)
        stream = await (await visit(network, upstream)).stream(PATH, STREAM)
        await stream.rest()
        assert stream.text() == "Hello"
        assert stream.complete is False


async def test_a_wrong_content_length_is_seen_as_cut() -> None:
    async with open_network() as network:
        short = steps.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", b"x" * 500)
        upstream = FakeUpstream("a").script(short).listen(network)
        reply = await (await visit(network, upstream)).post(PATH, CHAT)
        assert (len(reply.body), reply.complete) == (500, False)


async def test_extra_bytes_after_a_reply_make_the_wire_stale() -> None:
    async def chatty(x: Exchange) -> None:
        await x.reply(200, {"ok": True})
        await x.send(b"HTTP/1.1 408 Timeout\r\n\r\n")

    async with open_network() as network:
        upstream = FakeUpstream("a").script(chatty).listen(network)
        client = await visit(network, upstream)
        assert (await client.post(PATH, CHAT)).complete
        assert client._reader.buffer or client.wire.stale()


async def test_separate_writes_arrive_separately(autojump_clock: MockClock) -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.raw(b"on", b"e\r\n", every=0.05)).listen(network)
        wire = await network.dial(upstream.host, upstream.port)
        await wire.send(b"GET / HTTP/1.1\r\n\r\n")
        assert [await wire.receive() for _ in range(3)] == [b"on", b"e\r\n", b""]


async def test_gzip_is_per_frame_on_streams_and_whole_on_replies() -> None:
    async def zipped(x: Exchange) -> None:
        await x.reply(200, {"a": 1}, gzipped=True)

    async with open_network() as network:
        upstream = FakeUpstream("a").script(zipped, steps.sse([b"data: 1\n\n", b"data: 2\n\n"], gzipped=True))
        client = await visit(network, upstream.listen(network))
        reply = await client.post(PATH, CHAT)
        assert json.loads(gzip.decompress(reply.body)) == {"a": 1}
        streamed = await client.post(PATH, CHAT)
        assert zlib.decompressobj(wbits=31).decompress(streamed.body) == b"data: 1\n\ndata: 2\n\n"


async def test_a_silent_upstream_learns_at_once_that_the_other_side_left(autojump_clock: MockClock) -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.silence()).listen(network)
        client = await visit(network, upstream)
        with trio.move_on_after(7):
            await client.post(PATH, CHAT)
        client.close()
        await trio.sleep(1)
        assert upstream.closed_at == [7]
        assert upstream.open == 0


async def test_held_requests_are_answered_once_enough_are_in(autojump_clock: MockClock) -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.hold(3, steps.chat_answer("all in"))).listen(network)

        async def call(at: float) -> None:
            await trio.sleep(at)
            reply = await (await visit(network, upstream)).post(PATH, CHAT)
            assert reply.status == 200
            assert trio.current_time() == 30

        async with trio.open_nursery() as nursery:
            for at in (10, 20, 30):
                nursery.start_soon(call, at)
        assert upstream.hits == 3


async def test_hang_up_without_an_answer_is_a_clean_fin_or_a_reset() -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.hang_up("fin"), steps.hang_up("reset")).listen(network)
        for _ in range(2):
            client = await visit(network, upstream)
            await client.wire.send(client.request("POST", PATH, CHAT, []))
            assert await client.ended()


async def test_pipelined_requests_get_their_answers_in_order() -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.error(500), steps.error(503)).listen(network)
        client = await visit(network, upstream)
        await client.wire.send(client.request("POST", PATH, CHAT, []) * 2)
        assert [(await client.reply()).status for _ in range(2)] == [500, 503]


async def test_a_chunked_request_body_is_put_together() -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.chat_answer("ok")).listen(network)
        client = await visit(network, upstream)
        body = b'4\r\n{"mo\r\n8;x=y\r\ndel":"m"\r\n1\r\n}\r\n0\r\nTrailer: 1\r\n\r\n'
        reply = await client.post(PATH, body, [("transfer-encoding", "chunked")])
        assert reply.status == 200
        assert upstream.requests[0].json == {"model": "m"}


async def test_connection_close_is_honoured() -> None:
    async with open_network() as network:
        upstream = FakeUpstream("a").script(steps.chat_answer("bye")).listen(network)
        client = await visit(network, upstream)
        assert (await client.post(PATH, CHAT, [("connection", "close")])).status == 200
        assert await client.ended()


@pytest.mark.parametrize("leave", [Client.close, Client.reset])
async def test_the_same_script_runs_over_real_sockets(leave: Callable[[Client], None]) -> None:
    upstream = FakeUpstream("a").script(steps.chat("over the wire"), steps.silence())
    async with on_loopback(upstream):
        client = Client(await dial(upstream.host, upstream.port, None))
        stream = await client.stream(PATH, STREAM)
        await stream.rest()
        assert stream.text() == "over the wire"
        await client.wire.send(client.request("POST", PATH, CHAT, []))
        await upstream.wait_hits(2)
        leave(client)
        while upstream.open:
            await trio.lowlevel.checkpoint()
        assert len(upstream.closed_at) == 1
