"""The failover exam, S08 to S11: what goes wrong once there is content, in a plain class and in an assured one.

Plain: what was said stands, and a truthful error follows it. Assured: the whole stream is held until it has ended well, so
another channel's whole answer takes its place. Unary answers are always held whole.
"""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.verdict import WHOLE, assert_answered, assert_cut, assert_refused, both, call, scripted
from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step
from tests.scene import Scene, scene
from trioproxy.errors import FaultKind

ASSURED = '[defaults]\nmode = "assured"\nidle_timeout = 10'
PLAIN = "[defaults]\nidle_timeout = 10"

TOKENS = [f" {number}" for number in range(60)]
SAID = "".join(TOKENS[:40])
ROLE = steps.delta("", role=True, model="a-model")
FORTY = [steps.delta(token, model="a-model") for token in TOKENS[:40]]
TWENTY = [steps.delta(token, model="a-model") for token in TOKENS[40:]]
FINISH = steps.delta(finish="stop", model="a-model")
USAGE = steps.usage_frame((9, 60), "a-model")


def cut(how: steps.End, *, chunked: bool = True, tail: bytes = b"", every: float = 0) -> Step:
    """Role and 40 tokens, perhaps the beginning of another frame, and an end that is none."""

    async def step(x: Exchange) -> None:
        await x.start(chunked=chunked)
        for frame in (ROLE, *FORTY):
            await x.write(frame)
            await trio.sleep(every)
        if tail:
            await x.write(tail)
        await steps.finish(x, how)

    return step


CUTS = {
    "fin in a chunked body": cut("fin"),
    "reset": cut("reset"),
    "fin ends the body": cut("fin", chunked=False),
    "a well-formed end without a finish": cut("clean"),
    "inside a frame, fin": cut("fin", tail=TWENTY[0][:-20]),
    "inside a frame, reset": cut("reset", tail=TWENTY[0][:9]),
    "inside a frame, well-formed end": cut("clean", tail=TWENTY[0][:-20]),
    "[DONE] without a finish": cut("clean", tail=steps.DONE),
    "an error frame": cut("clean", tail=steps.error_frame("the engine died", 500) + steps.DONE),
    "finish_reason error": cut("clean", tail=steps.delta("", finish="error", model="a-model") + steps.DONE),
}


@pytest.mark.parametrize("fault", CUTS)
async def test_s08_a_cut_stream_is_replaced_whole_in_an_assured_class(fault: str, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=ASSURED) as s:
        s.a.script(CUTS[fault])
        s.b.script(scripted())
        outcome = await call(s, True)
        await assert_answered(s, outcome, "b")
        assert b"a-model" not in outcome.raw
        assert (s.hits(), s.failures(), trio.current_time()) == ("a=1 b=1", 1, 0)


@pytest.mark.parametrize("fault", CUTS)
async def test_s08_a_cut_stream_ends_with_a_truthful_error_in_a_plain_class(
    fault: str, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=PLAIN) as s:
        s.a.script(CUTS[fault])
        outcome = await call(s, True)
        own = fault == "finish_reason error"  # that frame is relayed; no SDK takes it for an error, so ours follows
        await assert_cut(s, outcome, SAID, finishes=["error"] if own else [])
        assert outcome.raw.startswith(ROLE + b"".join(FORTY))
        assert outcome.raw.count(b"data:") == 42 + own
        assert (s.hits(), s.failures()) == ("a=1 b=0", 1)


async def test_s08_without_another_channel_an_assured_class_has_a_status_and_no_stream(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", toml=ASSURED) as s:
        s.a.script(CUTS["reset"])
        outcome = await call(s, True)
        await assert_refused(s, outcome, 502)
        assert SAID.encode() not in outcome.raw


async def test_s08_what_an_assured_class_holds_is_relayed_untouched(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=ASSURED) as s:
        s.a.script(steps.sse([ROLE, *FORTY, *TWENTY, FINISH, USAGE, steps.DONE], every=0.1))
        outcome = await call(s, True)
        await assert_answered(s, outcome, "a", "".join(TOKENS), attempts=1, usage=(9, 60))
        assert outcome.raw == b"".join([ROLE, *FORTY, *TWENTY, FINISH, steps.DONE])
        assert outcome.head_at == pytest.approx(6.3)


@pytest.mark.parametrize("end", ["fin", "reset"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("mode", ["plain", "assured"])
async def test_s08_a_unary_answer_that_is_cut_fails_over(
    mode: str, framing: str, end: steps.End, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=f'[defaults]\nmode = "{mode}"') as s:
        s.a.script(half_a_body(framing, end))
        s.b.script(scripted())
        await assert_answered(s, await call(s, False), "b")
        assert (s.hits(), s.failures(), trio.current_time()) == ("a=1 b=1", 1, 0)


def half_a_body(framing: str, end: steps.End) -> Step:
    body = steps.frame(steps.completion("the whole answer of a", model="a-model")).removeprefix(b"data: ")

    async def step(x: Exchange) -> None:
        sized = [("content-length", str(len(body)))] if framing == "length" else []
        await x.start(200, [("content-type", "application/json"), *sized], chunked=framing == "chunked")
        await x.write(body[:100])
        await steps.finish(x, end)

    return step


@pytest.mark.parametrize("stall", [30, 3000])
async def test_s09_a_stall_after_content_is_decided_by_the_idle_deadline(
    stall: float, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=PLAIN) as s:
        s.a.script(stalling(stall, every=0.5))
        outcome = await call(s, True)
        assert trio.current_time() == 40 * 0.5 + 10
        await assert_cut(s, outcome, SAID)
        assert (s.hits(), s.failures(), s.a.closed_at) == ("a=1 b=0", 1, [30])
        assert s.ended[-1].attempts[0].fault is not None
        assert s.ended[-1].attempts[0].fault.kind is FaultKind.IDLE_TIMEOUT


async def test_s09_a_stall_is_replaced_whole_in_an_assured_class(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=ASSURED) as s:
        s.a.script(stalling(3000, every=0.5))
        s.b.script(scripted())
        await assert_answered(s, await call(s, True), "b")
        assert (trio.current_time(), s.hits(), s.failures()) == (30, "a=1 b=1", 1)
        assert s.a.closed_at == [30]


@pytest.mark.parametrize("mode", ["plain", "assured"])
async def test_s09_a_stall_shorter_than_the_idle_deadline_is_no_fault(mode: str, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=f'[defaults]\nmode = "{mode}"') as s:
        s.a.script(stalling(30))
        outcome = await call(s, True)
        await assert_answered(s, outcome, "a", "".join(TOKENS), attempts=1, usage=(9, 60))
        assert (trio.current_time(), s.hits(), s.failures()) == (30, "a=1 b=0", 0)


async def test_s09_a_stall_inside_a_unary_answer_is_decided_by_the_idle_deadline(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=PLAIN) as s:
        s.a.script(half_a_body("length", "hang"))
        s.b.script(scripted())
        ended = await assert_answered(s, await call(s, False), "b")
        assert (trio.current_time(), s.hits(), s.failures()) == (10, "a=1 b=1", 1)
        assert ended.attempts[0].fault is not None
        assert ended.attempts[0].fault.kind is FaultKind.IDLE_TIMEOUT


def stalling(seconds: float, *, every: float = 0) -> Step:
    """40 tokens, silence, and then the rest of a good answer."""

    async def step(x: Exchange) -> None:
        await x.start()
        await x.write(ROLE)
        for frame in FORTY:
            await trio.sleep(every)
            await x.write(frame)
        await trio.sleep(seconds)
        for frame in (*TWENTY, FINISH, USAGE, steps.DONE):
            await x.write(frame)
        await x.end()

    return step


MALFORMED = {
    "cut JSON": b'data: {"id":"chatcmpl-1","choices":[{"index":0,"del\n\n',
    "no JSON": b"data: the engine says hello\n\n",
    "not UTF-8": b'data: {"model":"a-model","choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n',
    "a bare number": b"data: 17\n\n",
    "a list": b"data: [1, 2]\n\n",
    "two objects in one": b'data: {"model":"a-model"}{"model":"a-model"}\n\n',
    "JSON without data:": b'{"model":"a-model","choices":[]}\n\n',
}
PLACES = {"first": 0, "between": 20, "before the finish": 61}
GOOD = [ROLE, *FORTY, *TWENTY]
NOT_UTF8 = b'{"model":"a-model","choices":[{"message":{"role":"assistant","content":"\xff"},"finish_reason":"stop"}]}'


def with_malformed(kind: str, place: str) -> list[bytes]:
    at = PLACES[place]
    return [*GOOD[:at], MALFORMED[kind], *GOOD[at:], FINISH, USAGE, steps.DONE]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", MALFORMED)
async def test_s10_a_malformed_chunk_is_relayed_untouched_in_a_plain_class(
    kind: str, place: str, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        frames = with_malformed(kind, place)
        s.a.script(steps.sse(frames, every=0.1))
        s.b.script(scripted())
        stream = await s.stream()
        assert (stream.status, stream.complete) == (200, True)
        if (kind, place) == ("JSON without data:", "first"):  # what begins as JSON is no stream
            assert (stream.text(), s.hits()) == (WHOLE, "a=1 b=1")
            return
        frames.remove(USAGE)
        assert stream.raw == b"".join(frames)
        assert (s.hits(), s.failures()) == ("a=1 b=0", 0)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", MALFORMED)
async def test_s10_a_malformed_chunk_fails_over_in_an_assured_class(
    kind: str, place: str, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=ASSURED) as s:
        s.a.script(steps.sse(with_malformed(kind, place)))
        s.b.script(scripted())
        await assert_answered(s, await call(s, True), "b")
        assert (s.hits(), s.failures()) == ("a=1 b=1", 1)


@pytest.mark.parametrize("mode", ["plain", "assured"])
@pytest.mark.parametrize("kind", MALFORMED)
async def test_s10_a_stream_of_nothing_but_a_malformed_chunk_fails_over(
    kind: str, mode: str, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=f'[defaults]\nmode = "{mode}"') as s:
        s.a.script(steps.sse([ROLE, MALFORMED[kind]]))
        s.b.script(scripted())
        await assert_answered(s, await call(s, True), "b")
        assert (s.hits(), s.failures()) == ("a=1 b=1", 1)


@pytest.mark.parametrize(
    "body", [b'{"choices":[{"message":{"content":"hi"', b"hello", b'{"model":"a"}{}', b"17", b"\xff", NOT_UTF8]
)
async def test_s10_a_malformed_unary_answer_fails_over(body: bytes, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(200, body))
        s.b.script(scripted())
        await assert_answered(s, await call(s, False), "b")
        assert (s.hits(), s.failures()) == ("a=1 b=1", 1)


@pytest.mark.parametrize("mode", ["plain", "assured"])
@pytest.mark.parametrize("usage", [True, False], ids=["usage", "no usage"])
@pytest.mark.parametrize("end", ["clean", "fin", "reset", "hang"])
async def test_s11_a_finish_without_a_terminator_is_a_complete_answer(
    end: steps.End, usage: bool, mode: str, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=f'[defaults]\nmode = "{mode}"\nidle_timeout = 10') as s:
        s.a.script(steps.sse([*GOOD, FINISH, *([USAGE] if usage else [])], end=end))
        outcome = await call(s, True)
        assert outcome.raw == b"".join([*GOOD, FINISH, steps.DONE])
        assert outcome.complete
        assert trio.current_time() == (2 if end == "hang" else 0)
        await s.rest()
        if usage:
            await assert_answered(s, outcome, "a", "".join(TOKENS), attempts=1, usage=(9, 60))
        else:
            await assert_estimated(s)
        assert (s.hits(), s.failures()) == ("a=1 b=0", 0)


async def assert_estimated(s: Scene) -> None:
    await trio.testing.wait_all_tasks_blocked()
    (ended,) = s.ended
    assert ended.reason.value == "answered"
    assert ended.usage.estimated
    assert ended.usage.output > 0
    assert s.held() == {}


@pytest.mark.parametrize("mode", ["plain", "assured"])
@pytest.mark.parametrize("end", ["clean", "fin", "reset"])
async def test_s11_the_last_frame_may_lack_its_blank_line(end: steps.End, mode: str, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=f'[defaults]\nmode = "{mode}"') as s:
        s.a.script(steps.sse([*GOOD, FINISH.rstrip(b"\n")], end=end))
        outcome = await call(s, True)
        assert (outcome.text, outcome.finishes, outcome.dones) == ("".join(TOKENS), ["stop"], 1)
        assert s.hits() == "a=1 b=0"


@both
async def test_s11_of_several_choices_every_one_has_to_finish(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        other = FINISH.replace(b'"index":0', b'"index":1')
        s.a.script(steps.sse([*GOOD, FINISH, other], end="fin") if streamed else scripted(), steps.sse([*GOOD, FINISH]))
        s.b.script(scripted())
        outcome = await call(s, streamed, n=2)
        assert outcome.status == 200
        if streamed:
            assert (outcome.finishes, outcome.dones) == (["stop", "stop"], 1)
            cut_short = await call(s, True, n=2)
            assert (cut_short.finishes, cut_short.dones, cut_short.text) == (["stop"], 0, "".join(TOKENS))
            assert "error" in cut_short.payloads[-1]
        assert s.b.hits == 0
