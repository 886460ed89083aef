"""B51, B55 and B56: large bodies, keep-alives against the gate, and bodies whose framing does not hold."""

import gzip
import json
import tracemalloc
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step, chunk
from tests.scene import PROMPT, Scene, scene

MIB = 1024 * 1024
PATIENCE = 1.0  # seconds of real time that one poll may take at most; 0.1 is the aim, the rest is for a loaded machine
GZIP = [("content-encoding", "gzip")]
WARM = "[defaults]\nkeepalive_after = 1.0"
COMMENT = b": keepalive\n\n"
both = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])


def picture(size: int) -> list[dict[str, object]]:
    """Messages with an image of so many bytes of base64."""
    url = "data:image/png;base64," + "QUJD" * (size // 4)
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


async def poll_health(s: Scene, taken: list[float]) -> None:
    """Ask for /healthz on one connection without a pause, noting how long each answer took."""
    client = await s.client()
    while True:
        began = trio.current_time()
        assert (await client.get("/healthz")).status == 200
        taken.append(trio.current_time() - began)


@both
async def test_b51_a_body_of_20_mb_holds_up_nobody(streamed: bool) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("seen"))
        taken: list[float] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll_health, s, taken)
            status, text, _ = await s.ask(streamed=streamed, messages=picture(20 * MIB))
            nursery.cancel_scope.cancel("the answer is there")
        assert (status, text) == (200, "seen")
        assert len(s.a.requests[0].body) > 20 * MIB
        assert len(taken) > 100  # the loop went on all the while
        assert max(taken) < PATIENCE


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
async def test_b51_a_body_over_the_limit_is_413_in_json(chunked: bool, autojump_clock: MockClock) -> None:
    async with scene("a", toml="[listen]\nmax_body = 1000") as s:
        s.a.script(steps.chat("seen"))
        body = b'{"model":"m","messages":"' + b"x" * 2000 + b'"}'
        framing = [("transfer-encoding", "chunked")] if chunked else []
        reply = await s.post(chunk(body) + b"0\r\n\r\n" if chunked else body, framing)
        assert reply.status == 413
        assert reply.json["error"]["code"] == "request_too_large"
        assert "1000" in reply.json["error"]["message"]
        assert reply.headers["connection"] == "close"
        assert s.hits() == "a=0"


async def test_b51_a_body_just_within_the_limit_is_served(autojump_clock: MockClock) -> None:
    async with scene("a", toml="[listen]\nmax_body = 1000") as s:
        s.a.script(steps.chat("seen"))
        body = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"user":"%b"}' % (b"x" * 933)
        assert len(body) == 1000
        assert (await s.post(body)).status == 200


async def test_b51_a_zstd_body_is_415(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        reply = await s.post(b"(\xb5/\xfd\x04\x00\x99", [("content-encoding", "zstd")])
        assert reply.status == 415
        assert "gzip" in reply.json["error"]["message"]
        assert reply.json["error"]["type"] == "invalid_request_error"
        assert s.hits() == "a=0"


@both
async def test_b51_a_gzip_body_reaches_the_upstream_plain(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("seen"))
        raw = gzip.compress(json.dumps({**PROMPT, "stream": streamed}).encode())
        if streamed:
            stream = await s.stream(raw, GZIP)
            assert (stream.status, stream.text()) == (200, "seen")
        else:
            assert (await s.post(raw, GZIP)).status == 200
        (request,) = s.a.requests
        assert request.json["messages"] == PROMPT["messages"]
        assert "content-encoding" not in request.headers


async def test_b51_a_cut_gzip_body_is_refused_as_the_clients_fault(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        reply = await s.post(gzip.compress(json.dumps(PROMPT).encode())[:-9], GZIP)
        assert 400 <= reply.status < 500
        assert s.hits() == "a=0"


async def test_b51_a_gzip_bomb_is_413_and_never_unpacked(autojump_clock: MockClock) -> None:
    async with scene("a", toml=f"[listen]\nmax_body = {MIB}") as s:
        bomb = gzip.compress(bytes(64 * MIB))
        tracemalloc.start()
        try:
            reply = await s.post(bomb, GZIP)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert reply.status == 413
        assert reply.json["error"]["code"] == "request_too_large"
        assert peak < 8 * MIB
        assert s.hits() == "a=0"


@both
async def test_b51_an_upstreams_413_is_the_clients_and_cools_nobody(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(413), steps.chat("small enough"))
        s.b.script(steps.chat("from b"))
        status, _, _ = await s.ask(streamed=streamed)
        assert status == 413
        assert (s.failures(), s.breaker(), s.gateway.statistics()["a"].objection) == (0, "closed", None)
        status, text, headers = await s.ask(streamed=streamed)
        assert (status, text, headers["x-trioproxy-channel"]) == (200, "small enough", "a")
        assert s.hits() == "a=2 b=0"


async def test_b55_by_default_not_a_byte_goes_out_before_the_gate_decides(autojump_clock: MockClock) -> None:
    """The status is free until then: a 429 after three seconds of silence is a 429."""
    async with scene("a") as s:
        s.a.script(steps.after(3, steps.error(429, headers=[("retry-after", "7")])))
        began = trio.current_time()
        stream = await s.open_stream()
        assert (stream.status, stream.arrived) == (429, began + 3)
        assert stream.headers["retry-after"] == "7"


async def test_b55_behind_keep_alives_a_late_429_fails_over(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=WARM) as s:
        s.a.script(steps.after(3.5, steps.error(429)))
        s.b.script(steps.chat("from b"))
        began = trio.current_time()
        stream = await s.stream()
        assert (stream.status, stream.text(), stream.complete) == (200, "from b", True)
        comments = [time - began for frame, time in zip(stream.frames, stream.times, strict=True) if frame == COMMENT]
        assert comments == [1, 2, 3]
        assert stream.frames[3:][-1] == steps.DONE


async def test_b55_behind_keep_alives_a_failed_chain_is_told_inside_the_stream(autojump_clock: MockClock) -> None:
    async with scene("a", toml=WARM) as s:
        s.a.script(steps.after(3.5, steps.error(429)))
        stream = await s.stream()
        assert stream.status == 200
        *comments, last = stream.frames
        assert comments == [COMMENT] * 3
        assert b'"error"' in last
        assert steps.DONE not in stream.frames
        await s.rest()
        assert [ended.reason.value for ended in s.ended] == ["chain_exhausted"]


async def half_and_half(x: Exchange) -> None:
    """Half a frame, three and a half seconds, the other half, and a regular end."""
    frame = steps.delta("whole")
    await x.start()
    await x.write(frame[:20])
    await trio.sleep(3.5)
    await x.write(frame[20:])
    await trio.sleep(2)
    for rest in (steps.delta(finish="stop"), steps.DONE):
        await x.write(rest)
    await x.end()


async def test_b55_keep_alives_come_between_frames_only(autojump_clock: MockClock) -> None:
    async with scene("a", toml=WARM) as s:
        s.a.script(half_and_half)
        stream = await s.stream()
        assert stream.frames == [
            *[COMMENT] * 3,
            steps.delta("whole"),
            steps.delta(finish="stop"),
            steps.DONE,
        ]


async def test_b55_a_committed_stream_is_never_mixed_with_keep_alives(autojump_clock: MockClock) -> None:
    """Half a frame after commit: the client gets it in one piece, whatever the time between its halves."""

    async def step(x: Exchange) -> None:
        await x.start()
        await x.write(steps.delta("first"))
        await half_and_half_after(x)

    async def half_and_half_after(x: Exchange) -> None:
        frame = steps.delta("second")
        await x.write(frame[:20])
        await trio.sleep(3.5)
        for rest in (frame[20:], steps.delta(finish="stop"), steps.DONE):
            await x.write(rest)
        await x.end()

    async with scene("a", toml=WARM) as s:
        s.a.script(step)
        stream = await s.stream()
        assert stream.frames == [
            *(steps.delta("first"), steps.delta("second")),
            *(steps.delta(finish="stop"), steps.DONE),
        ]


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n"
JSON = b"application/json"
SSE = b"text/event-stream"
ANSWER = json.dumps(steps.completion("x" * 700)).encode().ljust(1000)


def short(streamed: bool) -> Step:
    """Half of what Content-Length promised."""
    body = (steps.delta("", role=True) * 9)[:500] if streamed else ANSWER[:500]
    return steps.raw(HEAD % (SSE if streamed else JSON, b"content-length: 1000") + body)


def unended(streamed: bool) -> Step:
    """Chunks, but never the last one."""
    body = steps.delta("", role=True) if streamed else ANSWER
    return steps.raw(HEAD % (SSE if streamed else JSON, b"transfer-encoding: chunked") + chunk(body))


cuts = pytest.mark.parametrize("cut", [short, unended], ids=["length", "chunked"])


@both
@cuts
async def test_b56_a_cut_body_is_answered_by_b(
    cut: Callable[[bool], Step], streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(cut(streamed))
        s.b.script(steps.chat("from b"))
        status, text, headers = await s.ask(streamed=streamed)
        assert (status, text, headers["x-trioproxy-channel"]) == (200, "from b", "b")
        assert s.failures() == 1
        assert s.gateway.statistics()["a"].idle_connections == 0


@both
@cuts
async def test_b56_without_b_a_cut_body_is_502_and_its_connection_is_gone(
    cut: Callable[[bool], Step], streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(cut(streamed), steps.chat("again"))
        status, _, _ = await s.ask(streamed=streamed)
        assert status == 502
        await s.rest()
        assert s.a.open == 0
        assert (await s.ask(streamed=streamed))[:2] == (200, "again")
        assert s.a.connections == 2


async def test_b56_a_stream_cut_after_content_says_so_and_its_connection_is_gone(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        body = chunk(steps.delta("half")) + b"1000\r\n" + steps.delta("never whole")[:20]
        s.a.script(steps.raw(HEAD % (SSE, b"transfer-encoding: chunked") + body))
        stream = await s.stream()
        assert (stream.status, stream.complete) == (200, True)
        assert stream.frames[0] == steps.delta("half")
        assert b'"error"' in stream.frames[-1]
        assert len(stream.frames) == 2
        await s.rest()
        assert s.a.open == 0
        assert [ended.reason.value for ended in s.ended] == ["cut_after_commit"]


@both
async def test_b56_chunk_extensions_and_trailers_are_read_over(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        body = (
            b"".join([steps.delta("whole"), steps.delta(finish="stop"), steps.DONE])
            if streamed
            else json.dumps(steps.completion("whole")).encode()
        )
        pieces = b"".join(b'%x;name=value;q="a;b"\r\n%b\r\n' % (len(p), p) for p in (body[:30], body[30:]))
        end = b"0;last\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"
        head = HEAD % (SSE if streamed else JSON, b"transfer-encoding: chunked\r\ntrailer: x-sum, x-more")
        s.a.script(steps.raw(head + pieces + end, end="clean"))
        for _ in range(2):
            assert (await s.ask(streamed=streamed))[:2] == (200, "whole")
            await s.rest()
        assert s.a.connections == 1  # the end was understood, so the connection served again
