"""The line: whose fault it is, what a trial may hold up, and what is given back when."""

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import CHAT, PROMPT, scene
from trioproxy.policy.breaker import Breaker, BreakerPolicy, State

RENAME = '[channels.params]\nrename = { user = "safety_identifier" }'


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_body_that_a_channel_cannot_be_given_is_the_callers_400(
    streamed: bool, autojump_clock: MockClock
) -> None:
    """Two parameters that are one there, and differ: not a bug of ours, and no news about the channel."""
    async with scene("a", channel=RENAME) as s:
        s.a.script(steps.chat("hello"))
        reply = await s.post(user="one", safety_identifier="another", stream=streamed)
        assert reply.status == 400
        assert reply.json["error"]["param"] == "safety_identifier"
        assert s.hits() == "a=0"
        await s.rest()
        assert s.ended[0].reason.value == "rejected_upstream"
        assert s.held() == {}


async def test_a_trial_that_is_not_refused_holds_nobody_up(autojump_clock: MockClock) -> None:
    """A provider refuses at once and answers late. One 429 must not close the gateway for as long as an answer takes."""
    async with scene("a") as s:
        s.a.script(
            steps.error(429, headers=[("retry-after", "2")]),
            steps.chat_answer("slow", delay=90),
            steps.chat_answer("hello"),
        )
        assert (await s.post()).status == 429
        await trio.sleep(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s.post)
            await s.a.wait_hits(2)
            await trio.sleep(5)
            assert (await s.post()).status == 200
            assert s.hits() == "a=3"
            nursery.cancel_scope.cancel("the slow one may go")


async def test_a_call_from_before_a_cooldown_does_not_end_the_trial_after_it(autojump_clock: MockClock) -> None:
    """Its caller leaves while the trial is out: that frees nothing, since it was no trial."""
    async with scene("a", "b") as s:
        s.b.script(steps.chat("hello"))
        s.a.script(
            steps.silence(),
            steps.error(429, headers=[("retry-after", "2")]),
            steps.after(1, steps.error(429, headers=[("retry-after", "2")])),
        )
        early = await s.client()
        await early.wire.send(early.request("POST", CHAT, PROMPT))
        await s.a.wait_hits(1)
        await s.post()
        await trio.sleep(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s.post)  # the trial
            await s.a.wait_hits(3)
            early.close()
            await trio.sleep(0.1)
            assert (await s.post()).status == 200
            assert s.hits() == "a=3 b=2"


def test_a_late_result_of_an_old_probe_changes_nothing() -> None:
    """Its stream had closed the breaker; that was two states ago."""
    breaker = Breaker(BreakerPolicy(failures=1, window=0.0, open_for=10.0, probes=1))
    first = breaker.try_enter(0)
    assert first is not None
    breaker.failure(first, 0)
    probe = breaker.try_enter(10)
    assert probe is not None
    breaker.success(probe, 11)
    assert breaker.state is State.CLOSED
    other = breaker.try_enter(12)
    assert other is not None
    breaker.failure(other, 12)
    assert breaker.try_enter(22) is not None
    assert breaker.state is State.HALF_OPEN
    breaker.strike(probe, 23)
    assert breaker.state is State.HALF_OPEN
    assert breaker.leases == 1


def test_a_probe_whose_stream_is_cut_counts_in_the_state_it_made() -> None:
    breaker = Breaker(BreakerPolicy(failures=1, window=0.0, open_for=10.0, probes=1))
    first = breaker.try_enter(0)
    assert first is not None
    breaker.failure(first, 0)
    probe = breaker.try_enter(10)
    assert probe is not None
    breaker.success(probe, 11)
    breaker.strike(probe, 12)
    assert breaker.state is State.OPEN


@pytest.mark.parametrize("told", [True, False])
async def test_our_credential_is_in_no_error_inside_a_stream(told: bool, autojump_clock: MockClock) -> None:
    """A key without a maker's prefix is known by its value only, after commit as before it."""
    said = {"message": "the key hunter2-hunter2 was revoked", "code": 401}
    frame = {"error": said} if told else {"object": "error", **said}
    async with scene("a", credentials={"a": "hunter2-hunter2"}) as s:
        s.a.script(steps.sse([steps.delta("hello"), steps.frame(frame)], every=1))
        stream = await s.stream()
        assert stream.text() == "hello"
        assert b"hunter2" not in stream.raw
        await s.rest()
        assert "hunter2" not in repr(s.events)


async def test_a_reader_that_is_slow_to_take_a_whole_answer_holds_no_slot(autojump_clock: MockClock) -> None:
    """The provider has long been done with it."""
    async with scene("a", channel="max_concurrency = 1") as s:
        s.a.script(steps.chat_answer("x" * 500_000), steps.chat_answer("hello"))
        slow = await s.client()
        await slow.wire.send(slow.request("POST", CHAT, PROMPT))
        await s.a.wait_hits(1)
        await trio.sleep(0.1)
        assert (await s.post()).status == 200
        slow.close()


async def test_time_that_a_channel_takes_is_not_our_overhead_behind_keepalives_either(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", toml="[defaults]\nkeepalive_after = 5") as s:
        s.a.script(steps.chat_stream(["hello"], delay=12))
        assert (await s.stream()).text() == "hello"
        await s.rest()
        assert s.ended[0].overhead < 1


async def test_an_answer_that_was_read_whole_is_answered_in_a_draining_class_too(autojump_clock: MockClock) -> None:
    """Its reader leaves right after `[DONE]`, while we wait a moment for the upstream to end the message."""
    async with scene("a", toml='[defaults]\non_disconnect = "drain"') as s:
        s.a.script(steps.sse([steps.delta("hello"), steps.delta(finish="stop"), steps.DONE], end="hang"))
        client = await s.client()
        stream = await client.stream(CHAT, {**PROMPT, "stream": True})
        while (await stream.frame()) != steps.DONE:
            pass
        client.close()
        await s.rest()
        assert [end.reason.value for end in s.ended] == ["answered"]


async def test_names_that_callers_invent_leave_nothing_behind(autojump_clock: MockClock) -> None:
    """Behind a wildcard every name is possible; what is remembered of them is bounded."""
    links = '[[models]]\nname = "any/*"\nchannels = [ { channel = "a", model = "*" } ]'
    async with scene("a", toml=links) as s:
        s.a.script(steps.error(404, {"error": {"message": "no such model", "code": "model_not_found"}}))
        client = await s.client()
        for number in range(1100):
            await client.post(CHAT, {**PROMPT, "model": f"any/{number}"})
        assert len(s.gateway.supervisor.channels.state["a"].models) <= 1000
        client.close()
