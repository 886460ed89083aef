"""B40: bytes are believed, labels are not. What is an answer is given in the form asked for; what is none goes to B."""

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.asking import ask
from tests.fakes import steps
from tests.fakes.steps import DONE, completion, delta, sse, usage_frame
from tests.fakes.upstream import Exchange, Step
from tests.scene import scene
from trioproxy.errors import FaultKind
from trioproxy.journal import ChannelCooled, EndReason, Usage

TEXT = "hello 北京"
JSON = json.dumps(completion(TEXT), ensure_ascii=False).encode()
SSE = b"".join([delta("", role=True), delta("hello "), delta("北京"), delta(finish="stop"), usage_frame(), DONE])
PAGE = b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>\n"
BOM = b"\xef\xbb\xbf"
USAGE = Usage(input=9, output=3)

forms = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
labels = pytest.mark.parametrize(
    "label",
    ["application/json", "text/event-stream", "text/plain", "text/html", "application/octet-stream", "", "nonsense;;"],
)


def labelled(label: str, *pieces: bytes, every: float = 0, status: int = 200) -> Step:
    """These pieces under this label."""

    async def step(x: Exchange) -> None:
        await x.start(status, [("content-type", label)])
        for piece in pieces:
            await x.write(piece)
            await trio.sleep(every)
        await x.end()

    return step


@labels
@forms
@pytest.mark.parametrize("body", [JSON, SSE], ids=["JSON", "SSE"])
async def test_b40_an_answer_is_one_under_any_label_and_in_either_form(
    body: bytes, label: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(labelled(label, body))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text, said.complete, s.hits()) == (200, TEXT, True, "a=1 b=0")
        form = "text/event-stream" if streamed else "application/json"
        assert said.headers["content-type"].partition(";")[0] == form
        if streamed:
            assert (said.body.endswith(DONE), said.body.count(DONE)) == (True, 1)
            assert b'"finish_reason":"stop"' in said.body
            assert b"usage" not in said.body  # nobody asked for it
        else:
            answer = json.loads(said.body)
            assert (answer["object"], answer["choices"][0]["finish_reason"]) == ("chat.completion", "stop")
            assert answer["usage"]["total_tokens"] == 12
        await s.rest()
        assert (s.ended[0].reason, s.ended[0].usage) == (EndReason.ANSWERED, USAGE)
        assert (s.failures(), s.held()) == (0, {})


@forms
@pytest.mark.parametrize("every", [0.0, 0.05], ids=["at once", "apart"])
@pytest.mark.parametrize(
    "body",
    [BOM + JSON, b"\n \r\n\t" + JSON, BOM + b"\n" + JSON, JSON + b"\n\n", BOM + SSE, b"\n\n" + SSE],
    ids=["BOM", "whitespace", "both", "whitespace after", "BOM and SSE", "blank lines and SSE"],
)
async def test_b40_a_mark_or_whitespace_before_the_answer_hides_nothing_however_it_is_cut(
    body: bytes, every: float, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(labelled("text/plain", body[:1], body[1:2], body[2:3], body[3:6], body[6:], every=every))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text, s.hits(), s.failures()) == (200, TEXT, "a=1 b=0", 0)
        await s.rest()
        assert (s.ended[0].reason, s.ended[0].usage) == (EndReason.ANSWERED, USAGE)


async def test_b40_whitespace_as_a_keepalive_before_a_whole_answer(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(labelled("application/json", *[b"\n"] * 20, JSON, every=1))
        said = await ask(s, streamed=False)
        assert (said.status, said.text, said.took) == (200, TEXT, 21.0)


async def test_b40_a_whole_answer_that_is_slow_is_not_torn_by_the_gate(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(labelled("application/json", JSON[:50], JSON[50:], every=40))  # the gate's bound is 30 s
        said = await ask(s, streamed=True)
        assert (said.status, said.text, said.complete, s.hits()) == (200, TEXT, True, "a=1 b=0")
        assert said.body.endswith(DONE)


@forms
async def test_b40_the_usage_survives_where_it_was_asked_for(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(labelled("application/json", JSON))
        fields: dict[str, Any] = {"stream_options": {"include_usage": True}} if streamed else {}
        said = await ask(s, streamed=streamed, **fields)
        assert b'"total_tokens":12' in said.body.replace(b": ", b":")


ZIPPED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "GZIP": ("GZIP", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "identity": ("identity", bytes),
}


@forms
@pytest.mark.parametrize("coding", ZIPPED)
@pytest.mark.parametrize("body", [JSON, SSE], ids=["JSON", "SSE"])
async def test_b40_a_coding_that_nobody_asked_for_is_taken_off(
    body: bytes, coding: str, streamed: bool, autojump_clock: MockClock
) -> None:
    name, pack = ZIPPED[coding]
    async with scene("a", "b") as s:
        s.a.script(steps.error(200, pack(body), [("content-encoding", name)]))
        said = await ask(s, streamed=streamed)
        assert s.a.requests[0].headers["accept-encoding"] == "identity"
        assert (said.status, said.text, s.hits(), s.failures()) == (200, TEXT, "a=1 b=0", 0)
        assert "content-encoding" not in said.headers
        assert said.complete


async def test_b40_a_stream_that_is_zipped_frame_by_frame_arrives_frame_by_frame(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(sse([delta("a"), delta("b"), delta("c", finish="stop"), DONE], every=1, gzipped=True))
        stream = await s.stream()
        assert (stream.text(), stream.times, stream.complete) == ("abc", [0.0, 1.0, 2.0, 3.0], True)


@forms
@pytest.mark.parametrize(
    "coding, body",
    [
        ("br", b"\x0b\x02\x80..."),
        ("gzip", JSON),
        ("gzip", gzip.compress(JSON)[:-20]),
        ("gzip", b"\x1f\x8b"),
        ("gzip", gzip.compress(b"")),
        ("gzip, br", gzip.compress(JSON)),
    ],
    ids=["unknown", "a lie", "cut", "head only", "empty", "two"],
)
async def test_b40_a_coding_that_cannot_be_taken_off_is_the_channels_failure(
    coding: str, body: bytes, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(200, body, [("content-encoding", coding)]))
        s.b.script(steps.chat("from b"))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text, s.hits(), s.failures()) == (200, "from b", "a=1 b=1", 1)
        assert s.held() == {}


@forms
async def test_b40_an_error_that_is_zipped_is_understood(streamed: bool, autojump_clock: MockClock) -> None:
    body = gzip.compress(b'{"error":{"message":"too long","code":"context_length_exceeded"}}')
    async with scene("a", "b") as s:
        s.a.script(steps.error(400, body, [("content-encoding", "gzip")]))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.error["code"], s.hits()) == (400, "context_length_exceeded", "a=1 b=0")
        assert "content-encoding" not in said.headers


NO_ANSWERS = {
    "page": PAGE,
    "page behind a mark": BOM + b"\r\n " + PAGE,
    "xml": b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
    "nothing": b"",
    "whitespace": b" \n\n",
    "text": b"upstream connect error or disconnect/reset before headers",
    "half": JSON[:-10],
    "no object": b'"ok"',
    "list": b"[]",
    "number": b"1",
    "null": b"null",
    "other object": b'{"status":"ok"}',
    "binary": b"\x1f\x8b\x08\x00\xff\xfe",
}
no_answers = pytest.mark.parametrize("body", NO_ANSWERS.values(), ids=NO_ANSWERS.keys())


@forms
@no_answers
@pytest.mark.parametrize("label", ["text/html", "application/json", "text/event-stream"])
async def test_b40_what_is_no_answer_is_the_channels_failure(
    body: bytes, label: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(labelled(label, body) if body else steps.error(200, b"", [("content-type", label)]))
        s.b.script(steps.chat("from b"))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text, said.headers["x-trioproxy-channel"]) == (200, "from b", "b")
        assert (s.hits(), s.failures()) == ("a=1 b=1", 1)
        (fault,) = [record.fault for record in s.ended[0].attempts if record.fault]
        assert fault.kind in (FaultKind.NOT_AN_ANSWER, FaultKind.EMPTY)


@forms
@no_answers
async def test_b40_without_another_channel_the_client_gets_an_error_in_its_dialect(
    body: bytes, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(200, body, [("content-type", "text/html")]))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.error["code"]) == (502, "upstream_unavailable")
        assert b"<" not in said.body
        await s.rest()
        assert (s.failures(), s.ended[0].cost, s.ended[0].usage, s.held()) == (1, 0, Usage(), {})


@forms
@pytest.mark.parametrize("status", [204, 205])
async def test_b40_a_status_that_has_no_body_is_no_answer(
    status: int, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.raw(b"HTTP/1.1 %d Nothing\r\ncontent-length: 0\r\n\r\n" % status, end="clean"))
        s.b.script(steps.chat("from b"))
        assert (await ask(s, streamed=streamed)).text == "from b"
        assert (s.failures(), s.hits()) == (1, "a=1 b=1")


@forms
@pytest.mark.parametrize("label", ["text/html", "application/json"])
@pytest.mark.parametrize("status", [200, 403, 500, 502, 503, 504])
async def test_b40_a_page_is_the_channels_failure_under_any_status(
    status: int, label: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(status, PAGE, [("content-type", label)]))
        s.b.script(steps.chat("from b"))
        assert (await ask(s, streamed=streamed)).text == "from b"
        assert (s.hits(), s.failures()) == ("a=1 b=1", 1)


@forms
@pytest.mark.parametrize("status", [200, 403, 500, 502, 503, 504])
async def test_b40_without_another_channel_a_page_becomes_json_and_its_retry_after_is_kept(
    status: int, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(status, PAGE, [("content-type", "text/html"), ("retry-after", "7")]))
        said = await ask(s, streamed=streamed)
        assert said.status == (502 if status in (200, 403) else status)
        assert said.error["type"] == "server_error"
        assert b"<" not in said.body
        assert b"nginx" not in said.body
        assert said.headers["retry-after"] == "7"
        assert [event.seconds for event in s.events if isinstance(event, ChannelCooled)] == [7.0]
        assert s.ended[0].reason is EndReason.CHAIN_EXHAUSTED


@forms
@labels
async def test_b40_an_error_is_one_under_any_label(label: str, streamed: bool, autojump_clock: MockClock) -> None:
    body = b'{"error":{"message":"ResourceExhausted","code":502}}'
    async with scene("a", "b") as s:
        s.a.script(labelled(label, body), labelled(label, b"data: " + body + b"\n\n" + DONE))
        s.b.script(steps.chat("from b"))
        for number in (1, 2):
            assert (await ask(s, streamed=streamed)).text == "from b"
            assert s.failures() == number


@forms
@labels
@pytest.mark.parametrize("wrapped", [False, True], ids=["JSON", "SSE"])
async def test_b40_the_clients_own_error_is_its_own_under_any_label(
    wrapped: bool, label: str, streamed: bool, autojump_clock: MockClock
) -> None:
    body = b'{"error":{"message":"too long","code":"context_length_exceeded"}}'
    async with scene("a", "b") as s:
        s.a.script(labelled(label, b"data: " + body + b"\n\n" + DONE if wrapped else body))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.error["code"]) == (400, "context_length_exceeded")
        assert (s.hits(), s.failures()) == ("a=1 b=0", 0)
        assert s.ended[0].reason is EndReason.REJECTED_UPSTREAM
