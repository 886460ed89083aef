"""The line: whose fault it is, what a trial may hold up, and what is given back when."""

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.network import MemoryWire
from tests.scene import CHAT, PROMPT, scene
from trioproxy.assembly import build
from trioproxy.config.load import parse_config
from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.http.wire import dial
from trioproxy.journal import Journal

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


@pytest.mark.parametrize("probe_status", [200, 429])
async def test_who_comes_while_a_trial_is_out_is_told_to_come_back(
    probe_status: int, autojump_clock: MockClock
) -> None:
    """It is a matter of seconds, so an SDK may try again."""
    async with scene("a") as s:
        refused = steps.error(429, headers=[("retry-after", "2")])
        s.a.script(refused, steps.after(3, steps.chat("hello") if probe_status == 200 else refused))
        await s.post()
        await trio.sleep(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s.post)
            await s.a.wait_hits(2)
            await trio.sleep(1)
            reply = await s.post()
            assert reply.status == 503
            assert (reply.headers["retry-after"], reply.headers["x-should-retry"]) == ("4", "true")
        assert s.hits() == "a=2"


async def test_a_stream_of_nothing_but_rubbish_is_no_answer_however_long_it_is(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.sse([b"data: rubbish\n\n"] * 100))
        s.b.script(steps.chat("hello"))
        stream = await s.stream()
        assert stream.text() == "hello"
        assert b"rubbish" not in stream.raw
        assert s.failures() == 1


@pytest.mark.parametrize("link", ["same", "m-at-a"])
async def test_an_unknown_model_is_the_same_thing_inside_a_stream(link: str, autojump_clock: MockClock) -> None:
    """By the caller's own name it is the caller's; by ours, this channel is not asked for it again soon."""
    links = f'[[models]]\nname = "same"\nchannels = [ {{ channel = "a", model = "{link}" }}, {{ channel = "b", model = "x" }} ]'
    async with scene("a", "b", toml=links) as s:
        s.a.script(steps.sse([steps.error_frame("no such model", code="model_not_found")]))
        s.b.script(steps.chat("hello"))
        statuses = [(await s.stream(model="same")).status, (await s.stream(model="same")).status]
        assert (statuses, s.hits()) == (([404, 404], "a=2 b=0") if link == "same" else ([200, 200], "a=1 b=2"))


async def test_a_provider_that_refuses_before_it_has_read_all_is_heard(autojump_clock: MockClock) -> None:
    """A 413 comes while the body is still on its way, and the provider reads no further."""
    async with scene("a") as s:

        async def serve(wire: MemoryWire) -> None:
            await wire.receive()
            await wire.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await trio.sleep_forever()

        s.network.listen(s.a.host, s.a.port, serve)
        began = trio.current_time()
        reply = await s.post(messages=[{"role": "user", "content": "x" * 1_000_000}])
        assert reply.status == 413
        assert trio.current_time() - began < 10
        assert s.failures() == 0


ASSURED = '[defaults]\nmode = "assured"'
ONE_PROBE = "[defaults]\nbreaker = { failures = 1, window = 0, open_for = 10, probes = 1 }"


async def test_an_assured_class_is_assured_of_slow_models_too(autojump_clock: MockClock) -> None:
    """The gate's time runs out before the first token. Nothing has to be committed then, and a cut still fails over."""
    async with scene("a", "b", toml=ASSURED) as s:
        s.a.script(steps.chat_stream(["one", " two"], delay=40, end="reset"))
        s.b.script(steps.chat("hello there"))
        stream = await s.stream()
        assert (stream.text(), stream.complete) == ("hello there", True)
        assert s.hits() == "a=1 b=1"


async def test_an_assured_class_waits_for_a_slow_model(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=ASSURED) as s:
        s.a.script(steps.chat_stream(["one", " two"], delay=80))
        assert (await s.stream()).text() == "one two"
        assert s.hits() == "a=1 b=0"


async def test_an_assured_class_leaves_a_provider_that_says_nothing_more(autojump_clock: MockClock) -> None:
    """After the gate's time and the idle deadline, as a plain class would give up."""
    async with scene("a", "b", toml=ASSURED) as s:
        s.a.script(steps.sse([], end="hang"))
        s.b.script(steps.chat("hello"))
        began = trio.current_time()
        assert (await s.stream()).text() == "hello"
        assert trio.current_time() - began == pytest.approx(90, abs=0.1)
        assert s.failures() == 1


async def test_an_assured_answer_that_has_finished_is_not_kept_for_a_provider_that_forgets_to_close(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", toml=ASSURED) as s:
        s.a.script(steps.sse([steps.delta("hello"), steps.delta(finish="stop")], end="hang"))
        began = trio.current_time()
        stream = await s.stream()
        assert (stream.text(), stream.frames[-1]) == ("hello", steps.DONE)
        assert trio.current_time() - began < 5


async def test_a_probe_that_has_only_outlasted_the_gate_has_proved_nothing(autojump_clock: MockClock) -> None:
    """A commit without content lets a slow model through. It is no reason to send everybody there."""
    async with scene("a", "b", toml=ONE_PROBE) as s:
        s.b.script(steps.chat("hello"))
        s.a.script(steps.error(500), steps.sse([steps.delta("", role=True)], end="hang"))
        await s.post()
        assert s.breaker() == "open"
        await trio.sleep(10)
        probe = await s.open_stream()
        assert (probe.status, probe.headers["x-trioproxy-channel"]) == (200, "a")
        assert s.breaker() == "half_open"
        await probe.rest()
        await s.rest()
        assert s.breaker() == "open"
        assert s.held() == {}


async def test_a_whole_answer_proves_the_channel_whether_or_not_its_caller_takes_it(autojump_clock: MockClock) -> None:
    """The probe is over with its last byte; a caller who reads slowly does not keep others from the channel."""
    async with scene("a", "b", toml=ONE_PROBE) as s:
        s.b.script(steps.chat("hello"))
        s.a.script(steps.error(500), steps.chat_answer("x" * 500_000))
        await s.post()
        await trio.sleep(10)
        slow = await s.client()
        await slow.wire.send(slow.request("POST", CHAT, PROMPT))
        await s.a.wait_hits(2)
        await trio.sleep(0.1)
        assert s.breaker() == "closed"
        slow.close()


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_over_the_limit_is_another_channels_to_give(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel="max_answer = 2000") as s:
        s.a.script(steps.chat_answer("x" * 5000))
        s.b.script(steps.chat("hello"))
        assert (await s.ask(streamed=streamed))[:2] == (200, "hello")
        await s.rest()
        (record, _) = s.ended[0].attempts
        assert record.fault is not None
        assert "2000 bytes" in record.fault.message


@pytest.mark.parametrize(("host", "key"), [("model", "sk-secret-of-ours"), ("a.test", "error")])
def test_a_host_or_a_placeholder_key_that_is_a_plain_word_spoils_no_error(host: str, key: str) -> None:
    """Inside a cluster hosts are called `model`, and local servers are given keys such as `none`: neither is a secret."""
    text = f"""[[channels]]
name = "a"
base_url = "http://{host}:8000/v1"
api_key = {{ env = "KEY" }}
[[models]]
name = "m"
channels = [ {{ channel = "a", model = "m" }} ]
"""
    gateway = build(parse_config(text, "test"), {"a": key}, dial=dial, journal=Journal(), wall=float)
    body = b'{"error":{"message":"this model is full","param":"model"}}'
    fault = Fault(FaultKind.BAD_REQUEST, Blame.CLIENT, "an error: this model is full", body=body)
    assert gateway.supervisor.channels.state["a"].shown(fault) == fault


async def test_patience_with_silence_begins_when_there_is_some(autojump_clock: MockClock) -> None:
    """A long upload is not silence. The status is still free while the chain has had the call for a moment only."""
    async with scene("a", toml="[defaults]\nkeepalive_after = 5") as s:
        s.a.script(steps.after(1, steps.error(503)))
        client = await s.client()
        request = client.request("POST", CHAT, {**PROMPT, "stream": True})
        await client.wire.send(request[:-10])
        await trio.sleep(8)
        await client.wire.send(request[-10:])
        assert (await client.reply()).status == 503
        client.close()


async def test_a_name_that_no_channel_has_stays_a_404_while_they_are_not_asked_again(autojump_clock: MockClock) -> None:
    """The same mistake gets the same answer, asked or remembered: an SDK would try a 503 again."""
    async with scene("a", "b") as s:
        for upstream in (s.a, s.b):
            upstream.script(steps.error(404, {"error": {"message": "no such model", "code": "model_not_found"}}))
        for _ in range(3):
            reply = await s.post()
            assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")
        assert s.hits() == "a=1 b=1"


async def test_words_of_a_provider_do_not_make_a_rate_limit(autojump_clock: MockClock) -> None:
    """It is parked, whatever its message says about cooling down."""
    async with scene("a") as s:
        s.a.script(steps.error(402, {"error": {"message": "your account is cooling down"}}))
        await s.post()
        reply = await s.post()
        assert (reply.status, reply.json["error"]["code"]) == (503, "all_channels_exhausted")
