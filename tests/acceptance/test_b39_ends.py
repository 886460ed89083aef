"""B39: when a stream has ended. The finish is what counts; the terminator is told once, and nothing comes after it."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.asking import ask
from tests.fakes import steps
from tests.fakes.steps import DONE, delta, sse, usage_frame
from tests.fakes.upstream import Exchange
from tests.scene import CHAT, PROMPT, scene
from trioproxy.journal import EndReason, Usage

USAGE = Usage(input=9, output=3)
TEXT = [delta("", role=True), delta("x"), delta("y")]
FINISH = delta(finish="stop")
ASSURED = '[defaults]\nmode = "assured"\nidle_timeout = 20'
PLAIN = "[defaults]\nidle_timeout = 20"
modes = pytest.mark.parametrize("toml", [PLAIN, ASSURED], ids=["plain", "assured"])
ends = pytest.mark.parametrize("end", ["clean", "fin", "reset"])


@ends
@modes
@pytest.mark.parametrize("finish", ["stop", "length", "tool_calls", "content_filter"])
async def test_b39_a_finish_alone_is_a_complete_answer(
    finish: str, end: steps.End, toml: str, autojump_clock: MockClock
) -> None:
    frames = [*TEXT, delta(finish=finish)]
    async with scene("a", "b", toml=toml) as s:
        s.a.script(sse(frames, end=end))
        said = await ask(s, streamed=True)
        assert (said.status, said.body, said.complete) == (200, b"".join(frames) + DONE, True)
        await s.rest()
        assert (s.ended[0].reason, s.hits(), s.failures(), s.held()) == (EndReason.ANSWERED, "a=1 b=0", 0, {})


@ends
@modes
async def test_b39_finish_and_usage_without_a_terminator(end: steps.End, toml: str, autojump_clock: MockClock) -> None:
    async with scene("a", toml=toml) as s:
        s.a.script(sse([*TEXT, FINISH, usage_frame()], end=end))
        said = await ask(s, streamed=True)
        assert said.body == b"".join([*TEXT, FINISH, DONE])
        await s.rest()
        assert (s.ended[0].reason, s.ended[0].usage) == (EndReason.ANSWERED, USAGE)


@modes
async def test_b39_a_finish_and_then_silence_is_a_complete_answer_too(toml: str, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=toml) as s:
        s.a.script(sse([*TEXT, FINISH], end="hang"))
        stream = await s.stream()
        assert (stream.raw, stream.complete) == (b"".join([*TEXT, FINISH, DONE]), True)
        assert stream.times[-1] <= 20.0
        await s.rest()
        assert (s.ended[0].reason, s.failures(), s.hits(), s.held()) == (EndReason.ANSWERED, 0, "a=1 b=0", {})
        assert len(s.a.closed_at) == 1


@modes
async def test_b39_a_deadline_after_the_finish_takes_nothing_from_the_answer(
    toml: str, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=toml) as s:
        s.a.script(sse([*TEXT, FINISH], end="hang"))
        stream = await s.stream(headers=[("x-request-timeout", "5")])
        assert stream.raw == b"".join([*TEXT, FINISH, DONE])
        assert stream.times[-1] <= 5.0
        await s.rest()
        assert (s.ended[0].reason, s.failures(), s.held()) == (EndReason.ANSWERED, 0, {})


@modes
@pytest.mark.parametrize("split", [True, False], ids=["apart", "in one write"])
@pytest.mark.parametrize("after", [DONE, DONE * 3, b"data: more\n\n", b": bye\n\n", b"<html>", delta("z")])
async def test_b39_nothing_comes_after_the_terminator(
    after: bytes, split: bool, toml: str, autojump_clock: MockClock
) -> None:
    body = b"".join([*TEXT, FINISH, DONE])
    async with scene("a", toml=toml) as s:
        s.a.script(sse([body, after] if split else [body + after], every=0.05))
        said = await ask(s, streamed=True)
        assert (said.body, said.complete) == (body, True)
        await s.rest()
        assert (s.ended[0].reason, s.failures(), s.held()) == (EndReason.ANSWERED, 0, {})
        s.a.script(steps.chat("next"))  # and what came then is not taken for the next answer
        assert (await ask(s, streamed=True)).text == "next"


@modes
@pytest.mark.parametrize("after", [b"", DONE, b": ping\n\n"])
async def test_b39_after_the_terminator_the_slot_is_free_though_the_provider_stays_open(
    after: bytes, toml: str, autojump_clock: MockClock
) -> None:
    async with scene("a", channel="max_concurrency = 1", toml=toml) as s:
        s.a.script(sse([*TEXT, FINISH, usage_frame(), DONE + after], end="hang"), steps.chat("next"))
        said = await ask(s, streamed=True)
        assert (said.body, said.took) == (b"".join([*TEXT, FINISH, DONE]), 0.0)
        await trio.sleep(0.99)
        assert s.held() == {}
        assert len(s.a.closed_at) == 1
        assert s.a.closed_at[0] < 1
        assert (s.ended[0].reason, s.ended[0].usage, s.failures()) == (EndReason.ANSWERED, USAGE, 0)
        assert (await ask(s, streamed=True)).text == "next"


async def test_b39_the_client_is_not_kept_waiting_behind_the_terminator(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(sse([*TEXT, FINISH, DONE], end="hang"), steps.chat("next"))
        client = await s.client()
        began = trio.current_time()
        for text in ("xy", "next"):
            await client.wire.send(client.request("POST", CHAT, {**PROMPT, "stream": True}))
            stream = await client.streamed()
            await stream.rest()
            assert (stream.text(), stream.complete) == (text, True)
        assert trio.current_time() - began < 0.5


@modes
@pytest.mark.parametrize("cut", [1, 2], ids=["no blank line", "no line end"])
@pytest.mark.parametrize("last", [FINISH, DONE], ids=["finish", "terminator"])
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "until close"])
async def test_b39_an_unterminated_last_line_is_used(
    last: bytes, cut: int, chunked: bool, toml: str, autojump_clock: MockClock
) -> None:
    frames = [*TEXT, FINISH] + ([DONE] if last is DONE else [])

    async def answer(x: Exchange) -> None:
        await x.start(chunked=chunked)
        await x.write(b"".join(frames)[:-cut])
        await x.end()

    async with scene("a", "b", toml=toml) as s:
        s.a.script(answer)
        said = await ask(s, streamed=True)
        assert (said.body, said.complete) == (b"".join([*TEXT, FINISH, DONE]), True)
        await s.rest()
        assert (s.ended[0].reason, s.hits(), s.failures()) == (EndReason.ANSWERED, "a=1 b=0", 0)


@pytest.mark.parametrize("said", [b"data: {", b'data: {"choices":[{"ind', b"dat"])
async def test_b39_half_a_frame_at_the_end_is_not_passed_on(said: bytes, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(sse([*TEXT, said], end="fin"))
        stream = await s.stream()
        assert stream.raw.startswith(b"".join(TEXT) + b'data: {"error"')
        assert b"[DONE]" not in stream.raw
        await s.rest()
        assert (s.ended[0].reason, s.failures()) == (EndReason.CUT_AFTER_COMMIT, 1)


@pytest.mark.parametrize("said", [b"data: {", b'data: {"choices":[{"ind', b"dat"])
async def test_b39_half_a_frame_after_the_finish_spoils_nothing(said: bytes, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(sse([*TEXT, FINISH, said], end="fin"))
        stream = await s.stream()
        assert stream.raw == b"".join([*TEXT, FINISH, DONE])
        await s.rest()
        assert (s.ended[0].reason, s.failures()) == (EndReason.ANSWERED, 0)


@modes
async def test_b39_of_two_choices_both_must_finish(toml: str, autojump_clock: MockClock) -> None:
    def part(index: int, finish: str | None) -> bytes:
        return steps.frame({"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": finish}]})

    both = [part(0, None), part(1, None), part(0, "stop"), part(1, "stop")]
    async with scene("a", "b", toml=toml) as s:
        s.a.script(sse(both), sse(both[:3]))
        s.b.script(sse(both))
        whole = await ask(s, streamed=True, n=2)
        assert whole.body == b"".join(both) + DONE
        half = await ask(s, streamed=True, n=2)
        assert (b"[DONE]" in half.body) == (toml == ASSURED)  # from B
        assert (s.failures(), s.b.hits) == (1, int(toml == ASSURED))


async def test_b39_a_put_together_answer_needs_a_finish_and_no_terminator(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(sse([*TEXT, FINISH]), sse([*TEXT, FINISH, DONE, DONE]), sse([*TEXT, DONE]))
        s.b.script(steps.chat("from b"))
        assert [(await ask(s, streamed=False)).text for _ in range(3)] == ["xy", "xy", "from b"]
        assert (s.hits(), s.failures()) == ("a=3 b=1", 1)
