"""B33, B35, B37: bytes cut anywhere, every grammar of server-sent events, and keep-alives that say nothing."""

import json
from collections.abc import Iterator

import pytest
from trio.testing import MockClock

from tests.acceptance.asking import ask
from tests.fakes import steps
from tests.fakes.steps import DONE, delta, frame, sse
from tests.fakes.upstream import Exchange, Step
from tests.scene import Scene, chunk_payload, scene
from trioproxy.errors import FaultKind
from trioproxy.journal import EndReason, Usage

CITY = "北京😀"
BOM = b"\xef\xbb\xbf"


def said(delta: dict[str, object], finish: str | None = None) -> bytes:
    """A chunk as a provider writes it that does not escape."""
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def call(name: str | None, arguments: str) -> dict[str, object]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": 0, "function": function}]}


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def arguments(s_frames: list[bytes]) -> str:
    deltas = [chunk_payload(raw)["choices"][0]["delta"] for raw in s_frames if raw != DONE]
    return "".join(part["tool_calls"][0]["function"]["arguments"] for part in deltas if "tool_calls" in part)


async def test_b33_content_that_comes_byte_by_byte_arrives_as_it_was(autojump_clock: MockClock) -> None:
    frames = [said({"role": "assistant"}), said({"content": CITY}), said({"content": CITY * 2}, "stop"), DONE]
    async with scene("a") as s:
        s.a.script(sse(byte_by_byte(b"".join(frames)), every=0.05))
        stream = await s.stream()
        assert stream.text() == CITY * 3
        assert (stream.raw, stream.complete) == (b"".join(frames), True)
        assert "\ufffd" not in stream.raw.decode()
        await s.rest()
        assert s.ended[0].reason is EndReason.ANSWERED


async def test_b33_tool_arguments_that_come_byte_by_byte_arrive_as_they_were(autojump_clock: MockClock) -> None:
    whole = json.dumps({"city": CITY}, ensure_ascii=False)
    frames = [said(call("weather", whole[:3])), *(said(call(None, sign)) for sign in whole[3:])]
    frames += [said({}, "tool_calls"), DONE]
    async with scene("a") as s:
        s.a.script(sse(byte_by_byte(b"".join(frames)), every=0.05))
        stream = await s.stream()
        assert json.loads(arguments(stream.frames)) == {"city": CITY}
        assert stream.raw == b"".join(frames)


@pytest.mark.parametrize("gzipped", [False, True])
async def test_b33_every_cut_in_two(gzipped: bool, autojump_clock: MockClock) -> None:
    body = said({"content": CITY}, "stop") + DONE
    async with scene("a") as s:
        for at in range(1, len(body)):
            s.a.script(sse([body[:at], body[at:]], every=0.05, gzipped=gzipped))
            stream = await s.stream()
            assert (stream.text(), stream.raw) == (CITY, body), at
        assert {ended.reason for ended in s.ended} == {EndReason.ANSWERED}


async def test_b33_a_whole_answer_that_comes_byte_by_byte_arrives_as_it_was(autojump_clock: MockClock) -> None:
    body = json.dumps(steps.completion(CITY), ensure_ascii=False).encode()
    async with scene("a") as s:
        s.a.script(sse(byte_by_byte(body), every=0.05))
        assert (await ask(s, streamed=False)).text == CITY


async def test_b33_a_stream_for_one_that_asked_for_an_answer_is_put_together_whole(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(sse(byte_by_byte(said({"content": CITY}) + said({"content": CITY}, "stop") + DONE), every=0.05))
        assert (await ask(s, streamed=False)).text == CITY * 2


async def test_b33_half_a_surrogate_pair_per_chunk_is_passed_on_as_it_came(autojump_clock: MockClock) -> None:
    halves = [
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"},"finish_reason":"stop"}]}\n\n',
        DONE,
    ]
    async with scene("a") as s:
        s.a.script(sse(halves))
        stream = await s.stream()
        assert stream.raw == b"".join(halves)
        assert stream.text().encode("utf-16", "surrogatepass").decode("utf-16") == "😀"


# B35: small frames, so that every cut can be tried.
SMALL = [
    b'data:{"choices":[{"index":0,"delta":{"content":"a"}}]}',
    b'data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}',
    b'data:{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}',
    b"data:[DONE]",
]
ENDINGS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}
endings = pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
USAGE = Usage(input=9, output=3)


def stream_of(ending: bytes, *, usage: bool = True) -> bytes:
    return b"".join(line + ending * 2 for line in SMALL if usage or b"usage" not in line)


async def settled(s: Scene, step: Step, expected: bytes, note: object = None) -> None:
    """A streamed call that arrives as expected, ends well and is settled at what the provider told."""
    s.a.script(step)
    stream = await s.stream()
    assert (stream.status, stream.raw, stream.complete) == (200, expected, True), note
    await s.rest()
    assert (s.ended[-1].reason, s.ended[-1].usage) == (EndReason.ANSWERED, USAGE), note


@endings
@pytest.mark.parametrize("bom", [b"", BOM], ids=["bare", "BOM"])
async def test_b35_every_line_ending_cut_at_every_byte(ending: bytes, bom: bytes, autojump_clock: MockClock) -> None:
    body = bom + stream_of(ending)
    expected = stream_of(ending, usage=False)
    async with scene("a") as s:
        for at in range(1, len(body)):
            await settled(s, sse([body[:at], body[at:]], every=0.05), expected, at)
        await settled(s, sse(byte_by_byte(body), every=0.05), expected)
        await settled(s, sse([body]), expected)
        assert (s.failures(), s.held()) == (0, {})


@endings
async def test_b35_the_usage_frame_arrives_where_it_was_asked_for(ending: bytes, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(sse(byte_by_byte(BOM + stream_of(ending)), every=0.05))
        stream = await s.stream(stream_options={"include_usage": True})
        assert stream.raw == stream_of(ending)


async def test_b35_as_the_case_writes_it(autojump_clock: MockClock) -> None:
    pieces = [BOM[:2], BOM[2:], *(line + b"\r\n\r\n" for line in SMALL)]
    async with scene("a") as s:
        s.a.script(sse(pieces, every=0.05))
        stream = await s.stream()
        assert stream.text() == "ab"
        assert stream.raw == stream_of(b"\r\n", usage=False)
        assert stream.times[0] == pytest.approx(0.1)  # at once, the first one too
        await s.rest()
        assert (s.ended[0].reason, s.ended[0].usage, s.ended[0].usage.estimated) == (EndReason.ANSWERED, USAGE, False)


def dressed(ending: bytes) -> Iterator[bytes]:
    """The same events in the grammar's odder clothes."""
    yield b": comment" + ending * 2
    yield b"event: message" + ending + b"id: 1" + ending + SMALL[0] + ending * 2
    yield b"retry: 3000" + ending + SMALL[1] + ending * 3
    yield b"unknown: field" + ending + b"data" + ending * 2
    yield b'data: {"choices":[],"usage":' + ending + b'data: {"prompt_tokens":9,"completion_tokens":3}}' + ending * 2
    yield b"data: [DONE]" + ending * 2


@endings
async def test_b35_fields_comments_and_data_in_several_lines(ending: bytes, autojump_clock: MockClock) -> None:
    frames = list(dressed(ending))
    async with scene("a") as s:
        for pieces in (frames, byte_by_byte(b"".join(frames)), [b"".join(frames)]):
            s.a.script(sse(pieces, every=0.05))
            stream = await s.stream()
            assert (stream.text(), stream.complete) == ("ab", True)
            assert stream.raw.endswith(b"data: [DONE]" + ending * 2)
            assert b"usage" not in stream.raw
            await s.rest()
            assert (s.ended[-1].reason, s.ended[-1].usage) == (EndReason.ANSWERED, USAGE)


async def test_b35_line_endings_mixed_in_one_stream(autojump_clock: MockClock) -> None:
    body = SMALL[0] + b"\r\n\n" + SMALL[1] + b"\n\r\n" + SMALL[2] + b"\r\r" + SMALL[3] + b"\n\n"
    expected = SMALL[0] + b"\r\n\n" + SMALL[1] + b"\n\r\n" + SMALL[3] + b"\n\n"
    async with scene("a") as s:
        for at in range(1, len(body)):
            await settled(s, sse([body[:at], body[at:]], every=0.05), expected, at)


@endings
async def test_b35_a_last_line_without_its_ending_is_used(ending: bytes, autojump_clock: MockClock) -> None:
    body = stream_of(ending).removesuffix(ending * 2)
    async with scene("a") as s:
        s.a.script(sse([body]))
        stream = await s.stream()
        assert stream.text() == "ab"
        assert stream.raw.count(b"[DONE]") == 1
        assert stream.raw.endswith(b"\n\n")
        await s.rest()
        assert s.ended[0].usage == USAGE


PROCESSING = b": OPENROUTER PROCESSING\n\n"
KEEPALIVES = {
    "comment": PROCESSING,
    "comments": PROCESSING * 3,
    "bare colon": b":\n\n",
    "empty data": b"data: \nretry: 3000\n\n",
    "no colon": b"data\n\n",
    "retry": b"retry: 3000\n\n",
    "id": b"id: 7\n\n",
    "ping": b'event: ping\ndata: {"type": "ping"}\n\n',
    "ping without data": b"event: ping\n\n",
    "blank lines": b"\n\n\n\n",
    "empty object": b"data: {}\n\n",
}
keepalives = pytest.mark.parametrize("idle", KEEPALIVES.values(), ids=KEEPALIVES.keys())
ALL = b"".join(KEEPALIVES.values())


@keepalives
async def test_b37_none_of_them_opens_the_gate(idle: bytes, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(sse([idle, idle, idle, steps.error_frame()], every=1))
        s.b.script(steps.chat("from b"))
        said = await ask(s, streamed=True)
        assert (said.status, said.text, said.took, s.hits(), s.failures()) == (200, "from b", 3.0, "a=1 b=1", 1)
        assert said.body.startswith(b'data: {"id"')


@keepalives
async def test_b37_none_of_them_stops_the_first_content_clock(idle: bytes, autojump_clock: MockClock) -> None:
    toml = '[defaults]\ngate_timeout = 3.5\non_gate_timeout = "failover"'
    async with scene("a", "b", toml=toml) as s:
        s.a.script(sse([idle] * 50, every=1))
        s.b.script(steps.chat("from b"))
        said = await ask(s, streamed=True)
        assert (said.text, said.took, s.a.closed_at) == ("from b", 3.5, [3.5])
        (fault,) = [record.fault for record in s.ended[0].attempts if record.fault]
        assert fault.kind is FaultKind.FIRST_CONTENT_TIMEOUT


@keepalives
async def test_b37_none_of_them_is_content_at_the_end(idle: bytes, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(sse([idle, idle]), sse([idle, DONE]))
        s.b.script(steps.chat("from b"))
        for number in (1, 2):
            assert (await ask(s, streamed=True)).text == "from b"
            assert s.failures() == number


@keepalives
async def test_b37_content_after_them_is_the_answer(idle: bytes, autojump_clock: MockClock) -> None:
    content = [delta("", role=True), delta("x"), idle, delta("y", finish="stop"), DONE]
    async with scene("a", "b") as s:
        s.a.script(sse([idle, *content], every=1))
        said = await ask(s, streamed=True)
        assert (said.status, said.text, said.complete, s.hits()) == (200, "xy", True, "a=1 b=0")
        assert s.ended[0].attempts[0].first_content == 2.0
        assert said.body.endswith(b"".join(content))  # after commit they are relayed as they came
        if idle.startswith(b":"):
            assert said.body == b"".join(content)  # held comments are dropped
        comments = [line for line in said.body.splitlines() if b"PROCESSING" in line]
        assert all(line.startswith(b":") for line in comments)


async def test_b37_a_translated_stream_has_json_and_the_terminator_only(autojump_clock: MockClock) -> None:
    async def answer(x: Exchange) -> None:
        await x.start(headers=[("content-type", "application/json")])
        await x.write(b"\n \n")
        await x.write(json.dumps(steps.completion("from a")).encode())
        await x.end()

    async with scene("a") as s:
        s.a.script(answer)
        stream = await s.stream()
        assert stream.text() == "from a"
        assert all(raw == DONE or chunk_payload(raw)["choices"] for raw in stream.frames)
        assert stream.frames.count(DONE) == 1


async def test_b37_they_do_not_get_into_an_answer_that_is_put_together(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(sse([ALL, delta("x"), ALL, delta("y", finish="stop"), DONE]))
        said = await ask(s, streamed=False)
        assert (said.status, said.text) == (200, "xy")
        assert b"ping" not in said.body
        assert b"PROCESSING" not in said.body


@keepalives
async def test_b37_no_number_of_them_opens_the_gate(idle: bytes, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(sse([*[idle] * 500, steps.error_frame()], every=0.05))
        s.b.script(steps.chat("from b"))
        assert (await ask(s, streamed=True)).text == "from b"


@pytest.mark.parametrize(
    "filler, status",
    [(frame({"pad": "x" * 10_000}), 200), (b"data: {not JSON" + b"x" * 10_000 + b"\n\n", 502)],
    ids=["neutral", "unreadable"],
)
async def test_b37_what_one_stream_may_hold_is_bounded(filler: bytes, status: int, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(sse([*[filler] * 40, delta("x", finish="stop"), DONE]))
        said = await ask(s, streamed=True)
        assert (said.status, said.took) == (status, 0.0)
        assert s.failures() == (status != 200)


async def test_b37_an_error_frame_named_ping_is_still_an_error(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(sse([b"event: ping\n" + frame({"error": {"message": "x", "code": 502}})]))
        s.b.script(steps.chat("from b"))
        assert ((await ask(s, streamed=True)).text, s.failures()) == ("from b", 1)
