"""B29 to B32: whose clock runs out when, a kept connection that dies in between, and places that are always given back."""

from typing import Literal

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.asking import ask
from tests.fakes import steps
from tests.fakes.steps import delta, sse
from tests.fakes.upstream import Exchange, Step
from tests.scene import CHAT, PROMPT, scene
from trioproxy.errors import FaultKind
from trioproxy.journal import EndReason

forms = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
CALLERS = [("x-request-timeout", "3")]


@forms
@pytest.mark.parametrize("whose", ["caller", "class"])
async def test_b29_the_chain_has_one_deadline(whose: str, streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b", "c", toml="" if whose == "caller" else "[defaults]\ntotal_timeout = 3") as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.silence())
        said = await ask(s, streamed=streamed, headers=CALLERS if whose == "caller" else [])
        assert (said.status, said.took, said.error["code"]) == (504, 3.0, "deadline_exceeded")
        assert s.hits() == "a=1 b=0 c=0"
        assert s.ended[0].reason is EndReason.DEADLINE
        assert (s.failures(), s.a.closed_at, s.held()) == (0, [3.0], {})


@forms
async def test_b29_what_earlier_attempts_took_is_gone(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b", "c", toml="[defaults]\nheaders_timeout = 1.4") as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.silence())
        said = await ask(s, streamed=streamed, headers=CALLERS)
        assert (said.status, said.took) == (504, 3.0)
        assert [upstream.requests[0].arrived for upstream in s.upstreams.values()] == [0.0, 1.4, 2.8]
        assert s.ended[0].reason is EndReason.DEADLINE
        # two ran into our own bound, which counts; the third only into the caller's, which does not
        assert [s.failures(name) for name in "abc"] == [1, 1, 0]
        kinds = [record.fault.kind for record in s.ended[0].attempts if record.fault]
        assert kinds == [FaultKind.HEADERS_TIMEOUT, FaultKind.HEADERS_TIMEOUT, FaultKind.DEADLINE]
        assert s.held() == {}


@forms
async def test_b29_no_attempt_begins_with_less_than_the_minimum_left(streamed: bool, autojump_clock: MockClock) -> None:
    toml = "[defaults]\nheaders_timeout = 1.4\nmin_attempt = 0.5"
    async with scene("a", "b", "c", toml=toml) as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.silence())
        said = await ask(s, streamed=streamed, headers=CALLERS)
        assert (said.status, said.took, said.error["code"]) == (504, 2.8, "deadline_exceeded")
        assert s.hits() == "a=1 b=1 c=0"
        assert (s.ended[0].reason, s.held()) == (EndReason.DEADLINE, {})


@forms
@pytest.mark.parametrize("late", [2.0, 2.8, 2.995])
async def test_b29_the_reason_is_the_last_error_where_no_candidate_was_left(
    late: float, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", toml="[defaults]\nmin_attempt = 0.5") as s:
        s.a.script(steps.after(late, steps.error(503)))
        said = await ask(s, streamed=streamed, headers=CALLERS)
        assert (said.status, said.took) == (503, late)
        assert (s.ended[0].reason, s.failures(), s.held()) == (EndReason.CHAIN_EXHAUSTED, 1, {})


@forms
async def test_b29_the_reason_is_the_deadline_where_a_candidate_was_left(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml="[defaults]\nmin_attempt = 0.5") as s:
        s.a.script(steps.after(2.6, steps.error(503)))
        said = await ask(s, streamed=streamed, headers=CALLERS)
        assert (said.status, said.took, s.hits()) == (504, 2.6, "a=1 b=0")
        assert (s.ended[0].reason, s.failures()) == (EndReason.DEADLINE, 1)


async def test_b29_a_channel_that_cannot_be_reached_takes_its_share_of_the_same_deadline(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", "b") as s:
        s.network.swallow("a.test", 80)
        s.b.script(steps.silence())
        said = await ask(s, streamed=False, headers=[("x-request-timeout", "7")])
        assert (said.status, said.took) == (504, 7.0)
        assert s.b.requests[0].arrived == 5.0  # connect_timeout
        assert (s.failures("a"), s.failures("b"), s.held()) == (1, 0, {})


IDLE = "[defaults]\nidle_timeout = 2\n"


async def test_b30_silence_after_content_ends_with_an_error_frame(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=IDLE) as s:
        s.a.script(sse([delta("x"), delta("y"), delta("z")], every=0.5, end="hang"))
        stream = await s.stream()
        assert stream.times == [0.0, 0.5, 1.0, 3.0]
        assert stream.text() == "xyz"
        assert stream.payloads()[-1]["error"]["code"] == "upstream_timeout"
        assert stream.complete
        assert b"[DONE]" not in stream.raw
        await s.rest()
        assert (s.a.closed_at, s.hits(), s.failures()) == ([3.0], "a=1 b=0", 1)
        assert (s.ended[0].reason, s.held()) == (EndReason.CUT_AFTER_COMMIT, {})


@pytest.mark.parametrize("end", ["clean", "fin"])
async def test_b30_each_frame_renews_the_idle_deadline(end: steps.End, autojump_clock: MockClock) -> None:
    words = [delta("x") for _ in range(20)]
    async with scene("a", toml=IDLE) as s:
        s.a.script(sse([*words, delta(finish="stop"), steps.DONE], every=0.5, end=end))
        said = await ask(s, streamed=True)
        assert (said.text, said.took, said.complete) == ("x" * 20, 10.5, True)
        assert said.body.endswith(steps.DONE)
        await s.rest()
        assert (s.ended[0].reason, s.failures()) == (EndReason.ANSWERED, 0)


@pytest.mark.parametrize("half", [b": ping\n\n", b"data: {", b"\n", b":"], ids=["comment", "half", "newline", "colon"])
async def test_b30_after_commit_any_byte_shows_that_the_upstream_lives(half: bytes, autojump_clock: MockClock) -> None:
    async with scene("a", toml=IDLE) as s:
        s.a.script(sse([delta("x"), half, half], every=1.5, end="hang"))
        said = await ask(s, streamed=True)
        assert (said.text, said.took) == ("x", 5.0)
        assert (s.a.closed_at, s.ended[0].reason) == ([5.0], EndReason.CUT_AFTER_COMMIT)


async def test_b30_pings_for_ever_are_ended_by_the_first_content_deadline(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=IDLE + 'gate_timeout = 5\non_gate_timeout = "failover"') as s:
        s.a.script(sse([b": ping\n\n"] * 1000, every=1))
        s.b.script(steps.chat("from b"))
        said = await ask(s, streamed=True)
        assert (said.status, said.text, said.took, s.hits()) == (200, "from b", 5.0, "a=1 b=1")
        assert b"ping" not in said.body
        assert (s.a.closed_at, s.failures()) == ([5.0], 1)
        (fault,) = [record.fault for record in s.ended[0].attempts if record.fault]
        assert fault.kind is FaultKind.FIRST_CONTENT_TIMEOUT
        assert s.held() == {}


async def test_b30_pings_for_ever_are_ended_by_the_total_deadline_where_the_gate_lets_slow_models_through(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", toml=IDLE + "gate_timeout = 5\ntotal_timeout = 60") as s:
        s.a.script(sse([b": ping\n\n"] * 1000, every=1))
        stream = await s.open_stream()
        assert stream.status == 200
        assert 5 <= stream.arrived <= 6  # with the gate's end, or with the next byte after it
        await stream.rest()
        assert stream.times[-1] == 60.0
        assert stream.payloads()[-1]["error"]["code"] == "deadline_exceeded"
        await s.rest()
        assert (s.a.closed_at, s.failures(), s.ended[0].reason) == ([60.0], 0, EndReason.DEADLINE)


async def test_b30_a_trickle_of_newlines_does_not_stretch_a_unary_deadline(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml='[defaults]\ngate_timeout = 5\non_gate_timeout = "failover"') as s:
        s.a.script(sse([b"\n"] * 1000, every=1))
        s.b.script(steps.chat("from b"))
        said = await ask(s, streamed=False)
        assert (said.text, said.took, s.a.closed_at, s.failures()) == ("from b", 5.0, [5.0], 1)


async def test_b30_a_slow_reader_does_not_use_up_the_upstreams_time(autojump_clock: MockClock) -> None:
    async with scene("a", toml=IDLE) as s:
        s.a.script(sse([delta("x" * 100_000)] * 3 + [delta(finish="stop"), steps.DONE]))
        stream = await s.open_stream()
        await trio.sleep(20)  # ten times the idle deadline, within the write deadline
        await stream.rest()
        await s.rest()
        assert (len(stream.text()), s.ended[0].reason, s.failures()) == (300_000, EndReason.ANSWERED, 0)


def then(step: Step, *, wait: float, say: bytes = b"", reset: bool = False) -> Step:
    """The step, and a while later the end of its connection, perhaps with a last word."""

    async def both(x: Exchange) -> None:
        await step(x)
        await trio.sleep(wait)
        if say:
            await x.send(say)
        x.reset() if reset else x.fin()

    return both


TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@forms
@pytest.mark.parametrize(
    "say, reset", [(b"", False), (b"", True), (TIMED_OUT, False)], ids=["fin", "reset", "408 and fin"]
)
async def test_b31_a_kept_connection_that_was_closed_meanwhile_is_not_used(
    say: bytes, reset: bool, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(then(steps.chat("one"), wait=0.05, say=say, reset=reset), steps.chat("two"))
        assert (await ask(s, streamed=streamed)).text == "one"
        await trio.sleep(1)
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text, s.a.connections, s.hits()) == (200, "two", 2, "a=2 b=0")
        assert (s.breaker(), s.failures(), s.ended[-1].attempts[0].reused) == ("closed", 0, False)


@forms
@pytest.mark.parametrize("end", ["fin", "reset"])
@pytest.mark.parametrize("before", [1, 5])
async def test_b31_a_kept_connection_that_dies_on_the_next_request_is_replaced_silently_and_once(
    before: int, end: Literal["fin", "reset"], streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(*[steps.chat("fine")] * before, steps.hang_up(end), steps.chat("fresh"))
        for _ in range(before):
            assert (await ask(s, streamed=streamed)).text == "fine"
            await trio.sleep(1)
        assert s.a.connections == 1
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text, said.took) == (200, "fresh", 0.0)
        assert (s.a.connections, s.a.hits, s.b.hits) == (2, before + 2, 0)
        assert s.a.requests[-1].body == s.a.requests[-2].body
        (record,) = s.ended[-1].attempts
        assert (record.channel, record.fault, record.reused) == ("a", None, False)
        assert said.headers["x-trioproxy-attempts"] == "1"
        await s.rest()
        assert (s.breaker(), s.failures(), s.held()) == ("closed", 0, {})


@forms
async def test_b31_a_fresh_connection_that_dies_is_a_failure(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.chat("fine"), steps.hang_up(), steps.hang_up(), steps.chat("too late"))
        s.b.script(steps.chat("from b"))
        await ask(s, streamed=streamed)
        await trio.sleep(1)
        said = await ask(s, streamed=streamed)
        assert (said.text, s.hits(), s.failures(), s.held()) == ("from b", "a=3 b=1", 1, {})


@forms
@pytest.mark.parametrize("some", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_b31_after_one_byte_of_a_reply_nothing_is_sent_twice(
    some: bytes, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.chat("fine"), steps.raw(some))
        s.b.script(steps.chat("from b"))
        await ask(s, streamed=streamed)
        await trio.sleep(1)
        said = await ask(s, streamed=streamed)
        assert (said.text, s.hits(), s.failures(), s.held()) == ("from b", "a=2 b=1", 1, {})


@forms
async def test_b31_silence_on_a_kept_connection_is_not_mistaken_for_its_end(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml="[defaults]\nheaders_timeout = 10") as s:
        s.a.script(steps.chat("fine"), steps.silence())
        s.b.script(steps.chat("from b"))
        await ask(s, streamed=streamed)
        await trio.sleep(1)
        said = await ask(s, streamed=streamed)
        assert (said.text, said.took, s.hits(), s.failures()) == ("from b", 10.0, "a=2 b=1", 1)


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
@pytest.mark.parametrize("upstream", ["answers", "hangs"])
async def test_b32_cancelled_calls_leave_no_place_taken(
    upstream: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", channel="max_concurrency = 10\nslot_timeout = 5") as s:
        s.a.script(steps.after(0.025, steps.chat("a b c")) if upstream == "answers" else steps.silence())

        async def leave(after: float) -> None:
            client = await s.client()
            await client.wire.send(client.request("POST", CHAT, {**PROMPT, "stream": streamed}))
            await trio.sleep(after)
            client.close()

        for _ in range(50):
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(leave, number * 0.05 / 19)
        s.a.script(steps.chat("still here"))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text) == (200, "still here")
        assert said.took < 1
        await s.rest()
        assert 951 <= len(s.ended) <= 1001  # who leaves at 0 ms is gone before the request is read, or not
        assert {ended.reason for ended in s.ended} <= {EndReason.CLIENT_LEFT, EndReason.ANSWERED}
        assert (s.held(), s.failures(), s.breaker()) == ({}, 0, "closed")
        figures = s.gateway.statistics()["a"]
        assert (figures.in_flight, figures.waiting) == (0, 0)
        assert s.a.open == figures.idle_connections <= 10


@forms
async def test_b32_a_waiter_that_leaves_gives_its_place_in_the_queue_up(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", channel="max_concurrency = 1\nslot_timeout = 5") as s:
        s.a.script(steps.after(2, steps.chat("one")), steps.chat("two"))
        said: list[str] = []

        async def patient() -> None:
            said.append((await ask(s, streamed=streamed)).text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(patient)
            await trio.sleep(0.1)
            for _ in range(5):
                client = await s.client()
                await client.wire.send(client.request("POST", CHAT, PROMPT))
                await trio.sleep(0.1)
                client.close()
            await trio.sleep(0.1)
            assert s.gateway.statistics()["a"].waiting == 0
            nursery.start_soon(patient)
        assert (sorted(said), s.a.hits, s.held()) == (["one", "two"], 2, {})
