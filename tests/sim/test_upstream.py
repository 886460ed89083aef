"""The scripted upstream of `trioproxy demo`: answers like OpenAI, and fails in exactly the mode it was told."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.fakes.client import Client
from tests.fakes.network import open_network
from trioproxy.http.wire import dial
from trioproxy.sim.upstream import Manner, Mode, ScriptedUpstream

PATH = "/v1/chat/completions"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
STREAM = CHAT | {"stream": True}


@asynccontextmanager
async def visiting(manner: Manner = Manner()) -> AsyncGenerator[tuple[ScriptedUpstream, Client]]:
    async with open_network() as network:
        upstream = ScriptedUpstream("steady", ("m",), manner)
        network.listen("sim", 80, upstream.serve)
        yield upstream, Client(await network.dial("sim", 80))


async def test_it_answers_unary_and_streamed_on_one_connection(autojump_clock: MockClock) -> None:
    async with visiting() as (upstream, client):
        reply = await client.post(PATH, CHAT)
        stream = await client.stream(PATH, STREAM)
        await stream.rest()
        assert stream.text() == reply.json["choices"][0]["message"]["content"]
        assert stream.complete
        assert stream.frames[-1] == b"data: [DONE]\n\n"
        assert (upstream.calls, upstream.answered) == (2, 2)


async def test_it_takes_the_time_its_manner_says(autojump_clock: MockClock) -> None:
    async with visiting(Manner(first=2.0, every=0.5)) as (_, client):
        stream = await client.stream(PATH, STREAM)
        await stream.rest()
        assert stream.times[:3] == [2.0, 2.5, 3.0]


@pytest.mark.parametrize(("mode", "status"), [("500", 500), ("503", 503), ("429", 429), ("html", 200)])
async def test_an_order_breaks_it_for_as_long_as_it_says(mode: str, status: int, autojump_clock: MockClock) -> None:
    async with visiting() as (_, client):
        ordered = await client.post(f"/break?mode={mode}&for=30", b"")
        assert ordered.json["mode"] == mode
        broken = await client.post(PATH, CHAT)
        assert broken.status == status
        assert broken.headers.get("retry-after") == ("5" if mode == "429" else None)
        assert (b"<html" in broken.body) == (mode == "html")
        await trio.sleep(30)
        assert (await client.post(PATH, CHAT)).json["choices"]


async def test_ok_mends_it_at_once(autojump_clock: MockClock) -> None:
    async with visiting() as (_, client):
        await client.post("/break?mode=500", b"")
        assert (await client.post(PATH, CHAT)).status == 500
        await client.post("/break?mode=ok", b"")
        assert (await client.post(PATH, CHAT)).status == 200


@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_cut_gives_half_and_closes(body: object, autojump_clock: MockClock) -> None:
    async with visiting() as (upstream, client):
        upstream.break_down(Mode.CUT)
        stream = await client.stream(PATH, body)
        await stream.rest()
        assert stream.frames
        assert stream.complete is False


async def test_an_error_in_the_stream_comes_before_any_content(autojump_clock: MockClock) -> None:
    async with visiting() as (upstream, client):
        upstream.break_down(Mode.ERROR_IN_STREAM)
        stream = await client.stream(PATH, STREAM)
        await stream.rest()
        assert stream.status == 200
        assert stream.text() == ""
        assert any("error" in payload for payload in stream.payloads())
        assert "error" in (await client.post(PATH, CHAT)).json


async def test_a_stalled_call_ends_when_its_client_leaves(autojump_clock: MockClock) -> None:
    async with visiting() as (upstream, client):
        upstream.break_down(Mode.STALL)
        with trio.move_on_after(600) as scope:
            await client.post(PATH, CHAT)
        assert scope.cancelled_caught
        client.close()
        assert upstream.calls == 1


async def test_every_third_call_trips(autojump_clock: MockClock) -> None:
    async with visiting(Manner(trips=3)) as (_, client):
        assert [(await client.post(PATH, CHAT)).status for _ in range(6)] == [200, 200, 503, 200, 200, 503]


async def test_it_lists_its_models_and_tells_how_it_is() -> None:
    async with visiting() as (_, client):
        assert (await client.get("/v1/models")).json["data"][0]["id"] == "m"
        assert (await client.get("/")).json == {
            "upstream": "steady",
            "mode": "ok",
            "calls": 0,
            "answered": 0,
            "seconds_left": 0.0,
        }


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", PATH, b"{", 400),
        ("GET", PATH, None, 404),
        ("POST", "/break?mode=sideways", b"", 400),
        ("POST", "/break?mode=503&for=soon", b"", 400),
    ],
)
async def test_bad_requests_get_an_error_and_the_connection_lives(
    method: str, path: str, body: bytes | None, status: int
) -> None:
    async with visiting() as (_, client):
        await client.wire.send(client.request(method, path, body))
        assert (await client.reply()).status == status
        assert (await client.get("/")).status == 200


async def test_what_is_no_http_is_refused_and_closed() -> None:
    async with visiting() as (_, client):
        await client.wire.send(b"\x16\x03\x01 hello\r\n\r\n")
        assert (await client.reply()).status == 400
        assert await client.ended()


async def test_it_runs_on_a_port_of_the_systems_choice() -> None:
    upstream = ScriptedUpstream("steady", ("m",))
    async with trio.open_nursery() as nursery:
        port = await nursery.start(upstream.run)
        client = Client(await dial("127.0.0.1", port, None))
        assert (await client.get("/v1/models", [("connection", "close")])).status == 200
        assert await client.ended()
        client.close()
        nursery.cancel_scope.cancel()
