"""Cases from the field: who left, and errors that hide in a 200 (chat dialect)."""

import json

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.verdict import WHOLE, assert_answered, assert_cut, assert_refused, both, call, scripted, settled
from tests.fakes import steps
from tests.fakes.client import Client
from tests.fakes.upstream import Exchange, Step
from tests.scene import CHAT, PROMPT, Scene, scene
from trioproxy.errors import FaultKind
from trioproxy.journal import EndReason

ROLE = steps.delta("", role=True, model="a-model")
HELLO = steps.delta("Hello", model="a-model")
FINISH = steps.delta(finish="stop", model="a-model")
MARK = "the engine of a has gone"


async def for_ever(x: Exchange) -> None:
    """A frame every 100 ms, without an end."""
    await x.start()
    while True:
        await x.write(HELLO)
        await trio.sleep(0.1)


@pytest.mark.parametrize("leave", [Client.close, Client.reset], ids=["close", "reset"])
async def test_b01_a_reader_that_leaves_takes_its_upstream_along(leave: object, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(for_ever)
        client = await s.client()
        stream = await client.stream(CHAT, {**PROMPT, "stream": True})
        for _ in range(3):
            assert await stream.frame() == HELLO
        assert stream.times == pytest.approx([0, 0.1, 0.2])
        leave(client)  # type: ignore[operator]
        await s.rest()
        assert s.a.closed_at == pytest.approx([0.2])
        await assert_left(s)
        assert s.ended[-1].usage.output > 0
        assert s.ended[-1].usage.estimated


UNDECIDED = {
    "silence": steps.silence(),
    "a slow answer": steps.after(20, scripted()),
    "headers and no frame": steps.sse([], end="hang"),
    "a role and no content": steps.sse([ROLE], end="hang"),
    "half a body": steps.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", end="hang"),
    "half an error": steps.raw(b"HTTP/1.1 500 Oops\r\ncontent-length: 99\r\n\r\n{", end="hang"),
}


@both
@pytest.mark.parametrize("leave", [Client.close, Client.reset], ids=["close", "reset"])
@pytest.mark.parametrize("state", UNDECIDED)
async def test_b01_a_client_that_leaves_while_the_upstream_thinks_takes_it_along(
    state: str, leave: object, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(UNDECIDED[state])
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, {**PROMPT, "stream": streamed}))
        await trio.sleep(1)
        assert s.held() == {"a: in flight": 1}
        leave(client)  # type: ignore[operator]
        await s.rest()
        assert s.a.closed_at == [1]
        await assert_left(s)
        assert (s.ended[-1].usage.output, s.ended[-1].cost) == (0, 0)


async def assert_left(s: Scene) -> None:
    ended = await settled(s)
    assert ended.reason is EndReason.CLIENT_LEFT
    assert len(s.ended) == 1
    assert (s.hits(), s.failures(), s.breaker()) == ("a=1 b=0", 0, "closed")
    assert s.a.open == 0


async def test_b01_where_the_class_drains_the_upstream_is_heard_out_for_so_long(autojump_clock: MockClock) -> None:
    async with scene("a", toml='[defaults]\non_disconnect = "drain"\ndrain_timeout = 5') as s:
        s.a.script(for_ever)
        client = await s.client()
        stream = await client.stream(CHAT, {**PROMPT, "stream": True})
        await stream.frame()
        client.close()
        await s.rest(10)
        assert s.a.closed_at == pytest.approx([5])
        await settled(s)
        assert (len(s.ended), s.failures()) == (1, 0)


def code_in(code: int | str) -> dict[str, bytes]:
    """Every shape in which a provider tells this error inside a stream."""
    said = {"message": MARK, "type": "upstream_error", "param": None, "code": code}
    empty = [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]
    chunk = {"id": "g1", "object": "chat.completion.chunk", "provider": "P"}
    return {
        "OpenAI": steps.frame({"error": said}),
        "with no choices": steps.frame({**chunk, "choices": [], "error": said}),
        "older vLLM": steps.frame({"error": {"object": "error", **said}}),
        "vLLM, flat": steps.frame({"object": "error", **said}),
        "OpenRouter": steps.frame({**chunk, "error": {"code": code, "message": MARK}, "choices": empty}),
        "OpenRouter, in the choice": steps.frame({"choices": [{**empty[0], "error": {"code": code, "message": MARK}}]}),
        "a numeric string": steps.frame({"error": {**said, "code": str(code)}}),
        "an event of its own": b"event: error\n" + steps.frame({"error": said}),
        "an event, flat": b"event: error\n" + steps.frame(said),
        "as Anthropic says it": b"event: error\n" + steps.frame({"type": "error", "error": said}),
        "several lines without data:": json.dumps({"error": said}, indent=2).encode() + b"\n\n",
        "in a list without data:": json.dumps([{"error": said}]).encode() + b"\n\n",
        "in a list": steps.frame([{"error": said}]),
        "over several data lines": b"".join(
            b"data: " + line + b"\n" for line in json.dumps({"error": said}, indent=1).encode().split(b"\n")
        )
        + b"\n",
    }


BAD = code_in(502)
WORDS = {
    "Groq": steps.frame(
        {"x_groq": {"error": "over_capacity"}, "choices": [{"index": 0, "delta": {"role": "assistant"}}]}
    ),
    "DeepSeek": steps.delta("", finish="insufficient_system_resource", model="a-model"),
    "Mistral": steps.delta("", finish="error", model="a-model"),
    "a string": steps.frame({"error": MARK}),
    "a word for a code": steps.frame({"error": {"message": MARK, "code": "server_error"}}),
    "no code": steps.frame({"error": {"message": MARK, "type": "server_error", "param": None, "code": None}}),
    "an unreadable event": b"event: error\ndata: " + MARK.encode() + b"\n\n",
}
BEFORE = {"first": [], "after a comment": [b": ping\n\n"], "after the role": [ROLE]}


@pytest.mark.parametrize("apart", [0, 0.05], ids=["at once", "apart"])
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("shape", [*BAD, *WORDS])
async def test_b05_an_error_inside_a_200_stream_fails_over(
    shape: str, before: str, apart: float, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.sse([*BEFORE[before], (BAD | WORDS)[shape], steps.DONE], every=apart))
        s.b.script(scripted())
        outcome = await call(s, True)
        await assert_answered(s, outcome, "b")
        assert (s.hits(), s.failures()) == ("a=1 b=1", 1)
        assert MARK.encode() not in outcome.raw
        assert b"a-model" not in outcome.raw


CLIENTS_OWN = code_in(400)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("shape", CLIENTS_OWN)
async def test_b05_a_400_inside_a_200_stream_is_the_client_s_own(
    shape: str, before: str, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.sse([*BEFORE[before], CLIENTS_OWN[shape], steps.DONE]))
        outcome = await call(s, True)
        await assert_refused(s, outcome, 400, reason=EndReason.REJECTED_UPSTREAM)
        assert outcome.error["message"].startswith(MARK)
        assert outcome.headers["x-should-retry"] == "false"
        assert (s.hits(), s.failures()) == ("a=1 b=0", 0)


NEUTRAL = {
    "a role": [ROLE],
    "a role with null": [ROLE.replace(b'"content":""', b'"content":null')],
    "two roles": [ROLE, ROLE],
    "a filter's verdict": [steps.frame({"id": "", "model": "", "choices": [], "prompt_filter_results": []}), ROLE],
    "a usage": [ROLE, steps.usage_frame((9, 0), "a-model")],
    "comments": [b": OPENROUTER PROCESSING\n\n", ROLE, b": OPENROUTER PROCESSING\n\n"],
    "a retry hint": [b"retry: 3000\n\n", b"event: ping\ndata: {}\n\n", ROLE],
    "an empty call": [steps.frame({"model": "a-model", "choices": [{"index": 0, "delta": {"tool_calls": []}}]})],
}


@pytest.mark.parametrize("apart", [0, 0.05], ids=["at once", "apart"])
@pytest.mark.parametrize("frames", NEUTRAL)
async def test_b06_a_frame_that_decides_nothing_does_not_open_the_gate(
    frames: str, apart: float, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.sse([*NEUTRAL[frames], steps.error_frame(MARK, 502)], every=apart))
        s.b.script(scripted())
        outcome = await call(s, True)
        await assert_answered(s, outcome, "b")  # exactly one role delta included
        assert (s.hits(), s.failures()) == ("a=1 b=1", 1)
        assert MARK.encode() not in outcome.raw


EMPTY = {
    "nothing": [],
    "a role": [ROLE],
    "a comment": [b": ping\n\n"],
    "the terminator": [steps.DONE],
    "a role and the terminator": [ROLE, steps.DONE],
    "a usage and the terminator": [steps.usage_frame((9, 0), "a-model"), steps.DONE],
    "half a frame": [ROLE, HELLO[:30]],
}


@pytest.mark.parametrize("end", ["clean", "fin", "reset"])
@pytest.mark.parametrize("frames", EMPTY)
async def test_b07_an_empty_stream_is_no_success(frames: str, end: steps.End, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.sse(EMPTY[frames], end=end))
        s.b.script(steps.chat_stream(["one", " two", " three"], every=1))
        outcome = await call(s, True)
        await assert_answered(s, outcome, "b", "one two three")
        assert outcome.head_at == 1  # the role is held, the first token opens
        # as they came: role and token, tokens, finish, [DONE]; the usage at 5 is not for the client
        assert list(outcome.times) == [1, 1, 2, 3, 4, 6]
        assert (s.hits(), s.failures()) == ("a=1 b=1", 1)


@pytest.mark.parametrize("end", ["clean", "fin", "reset"])
@pytest.mark.parametrize("frames", EMPTY)
async def test_b07_without_another_channel_it_is_a_502(frames: str, end: steps.End, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.sse(EMPTY[frames], end=end))
        outcome = await call(s, True)
        await assert_refused(s, outcome, 502)
        assert (s.a.hits, s.failures()) == (1, 1)


async def test_b07_every_attempt_is_gated_the_last_one_too(autojump_clock: MockClock) -> None:
    async with scene("a", "b", "c") as s:
        for upstream, frames in ((s.a, [ROLE]), (s.b, [b": ping\n\n"]), (s.c, [steps.DONE])):
            upstream.script(steps.sse(frames))
        await assert_refused(s, await call(s, True), 502, attempts=3)
        assert s.hits() == "a=1 b=1 c=1"


FINAL: dict[str, tuple[Step, int]] = {
    "overloaded, by code": (steps.sse([ROLE, steps.error_frame("busy", "server_is_overloaded")]), 503),
    "overloaded, by status": (steps.sse([ROLE, steps.error_frame("busy", 503, "overloaded_error")]), 503),
    "overloaded, 529": (steps.sse([ROLE, steps.error_frame("busy", 529, "overloaded_error")]), 529),
    "server error": (steps.sse([ROLE, steps.error_frame("boom", 500)]), 500),
    "bad gateway": (steps.sse([ROLE, steps.error_frame("boom", 502)]), 502),
    "throttled": (steps.sse([ROLE, steps.error_frame("slow", 429, "rate_limit_error")]), 429),
    "our key": (steps.sse([ROLE, steps.error_frame("key", "invalid_api_key", "authentication_error")]), 502),
    "no words": (steps.sse([ROLE], end="reset"), 502),
    "before the headers": (steps.hang_up("reset"), 502),
    "a plain 503": (steps.error(503), 503),
}


@pytest.mark.parametrize("fault", FINAL)
async def test_b08_the_final_failure_of_a_stream_has_a_status_and_the_dialect_s_body(
    fault: str, autojump_clock: MockClock
) -> None:
    step, status = FINAL[fault]
    async with scene("a", "b") as s:
        s.a.script(step)
        s.b.script(step)
        outcome = await call(s, True)
        await assert_refused(s, outcome, status, attempts=2)
        assert set(outcome.error) >= {"message", "type", "param", "code"}
        assert ("gateway_decision" in outcome.error) == (status == 429)
        assert outcome.headers["x-should-retry"] == ("true" if status == 429 else "false")
        assert s.hits() == "a=1 b=1"


FORTY = [ROLE, *(steps.delta(f" {number}", model="a-model") for number in range(40))]
SAID = "".join(f" {number}" for number in range(40))


def cut(how: str, *, finished: bool, mid_frame: bool = False) -> Step:
    async def step(x: Exchange) -> None:
        await x.start(chunked=how != "fin")
        for frame in FORTY:
            await x.write(frame)
        if finished:
            await x.write(FINISH)
        if mid_frame:
            await x.write(HELLO[:40])
        match how:
            case "fin" | "no last chunk":
                x.fin()
            case "reset":
                x.reset()
            case _:
                await x.end()

    return step


@pytest.mark.parametrize("mid_frame", [False, True], ids=["between frames", "inside a frame"])
@pytest.mark.parametrize("how", ["fin", "reset", "no last chunk", "clean end"])
async def test_b09_a_truncated_answer_does_not_look_complete(
    how: str, mid_frame: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(cut(how, finished=False, mid_frame=mid_frame))
        outcome = await call(s, True)
        ended = await assert_cut(s, outcome, SAID)
        assert outcome.raw.startswith(b"".join(FORTY) + b'data: {"error":')
        assert outcome.complete  # the error is said, so the gateway's own message ends well
        assert ended.attempts[0].fault is not None
        assert ended.attempts[0].fault.kind is FaultKind.CUT
        assert (s.hits(), s.failures()) == ("a=1 b=0", 1)


@pytest.mark.parametrize("mid_frame", [False, True], ids=["between frames", "inside a frame"])
@pytest.mark.parametrize("how", ["fin", "reset", "no last chunk", "clean end"])
async def test_b09_with_its_finish_reason_seen_it_is_complete(
    how: str, mid_frame: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(cut(how, finished=True, mid_frame=mid_frame))
        outcome = await call(s, True)
        assert outcome.raw == b"".join([*FORTY, FINISH, steps.DONE])
        assert outcome.complete
        ended = await settled(s)
        assert ended.reason is EndReason.ANSWERED
        assert ended.usage.estimated
        assert (s.hits(), s.failures()) == ("a=1 b=0", 0)


PIECES = [ROLE, steps.delta("Hello", model="a-model"), steps.delta(" wor", model="a-model")]
AFTER_COMMIT: dict[str, Step] = {
    "reset": steps.sse(PIECES, end="reset", every=0.1),
    "fin": steps.sse(PIECES, end="fin", every=0.1),
    "an error": steps.sse([*PIECES, steps.error_frame(MARK, 502), steps.DONE], every=0.1),
    "a 429": steps.sse([*PIECES, steps.error_frame(MARK, 429, "rate_limit_error")], every=0.1),
    "a stall": steps.sse(PIECES, end="hang", every=0.1),
    "all at once": steps.sse([b"".join(PIECES)], end="reset"),
}


@pytest.mark.parametrize("fault", AFTER_COMMIT)
async def test_b10_nothing_is_replayed_once_content_has_left(fault: str, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(AFTER_COMMIT[fault])
        s.b.script(scripted("Hello world"))
        await assert_cut(s, await call(s, True), "Hello wor")
        assert (s.hits(), s.failures()) == ("a=1 b=0", 0 if fault == "a 429" else 1)


CHOICE = {"index": 0, "finish_reason": "error", "message": {"role": "assistant", "content": ""}}
NO_ANSWER: dict[str, object] = {
    "an error": {"error": {"message": "ResourceExhausted", "code": 502}},
    "an error beside choices": {
        "error": {"message": "x", "code": 502},
        "choices": [{**CHOICE, "finish_reason": "stop"}],
    },
    "an error in a list": [{"error": {"message": "x", "code": 503, "status": "UNAVAILABLE"}}],
    "an error in the choice": {"choices": [{**CHOICE, "error": {"code": 502, "message": "x"}}]},
    "a finish that says error": {"choices": [{**CHOICE, "native_finish_reason": "error"}]},
    "flat": {"object": "error", "message": "x", "type": "InternalServerError", "code": 500},
    "a string": {"error": "over capacity"},
    "null choices": {"choices": None},
    "no choices": {"id": "x", "object": "chat.completion"},
    "empty choices": {"choices": []},
    "an empty object": {},
    "null": b"null",
    "nothing": b"",
    "HTML": b"<html><body>502 Bad Gateway</body></html>",
}


@pytest.mark.parametrize("fault", NO_ANSWER)
async def test_b11_an_error_inside_a_200_body_fails_over(fault: str, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(200, NO_ANSWER[fault]))
        s.b.script(scripted())
        await assert_answered(s, await call(s, False), "b")
        assert (s.hits(), s.failures()) == ("a=1 b=1", 1)


@pytest.mark.parametrize("fault", NO_ANSWER)
async def test_b11_without_another_channel_it_is_an_error_with_a_status(fault: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(200, NO_ANSWER[fault]))
        outcome = await call(s, False)
        status = {"an error in a list": 503, "flat": 500}.get(fault, 502)
        await assert_refused(s, outcome, status)
        assert b"<html" not in outcome.raw
        assert s.failures() == 1


@both
async def test_b11_a_429_inside_a_200_cools_the_channel_and_is_no_failure(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        throttled = {"error": {"message": "slow down", "code": 429}}
        s.a.script(steps.sse([ROLE, steps.frame(throttled)]) if streamed else steps.error(200, throttled))
        s.b.script(scripted())
        await assert_answered(s, await call(s, streamed), "b")
        await assert_answered(s, await call(s, streamed), "b", attempts=1)
        assert (s.hits(), s.failures()) == ("a=1 b=2", 0)


@both
async def test_b12_a_429_fails_over_and_leaves_the_breaker_alone(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        throttle = steps.error(429, headers=[("retry-after", "1")])
        s.a.script(steps.error(500), steps.error(500), throttle, steps.error(500))
        s.b.script(scripted())
        seen = []
        for moment in (0, 0, 0, 0.5, 0.99, 1, 1):
            await trio.sleep(moment - trio.current_time())
            outcome = await call(s, streamed)
            assert (outcome.status, outcome.text, outcome.headers["x-trioproxy-channel"]) == (200, WHOLE, "b")
            await settled(s)
            seen.append((s.a.hits, s.failures(), s.breaker()))
        closed, opened = [(1, 1), (2, 2), (3, 2), (3, 2), (3, 2)], [(4, 3)] * 2
        assert seen == [(*pair, "closed") for pair in closed] + [(*pair, "open") for pair in opened]
