"""What else speaks against a channel: silence that outlasts its callers, and slow beginnings. And what does not."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.asking import ask
from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step
from tests.scene import CHAT, PROMPT, Scene, scene
from trioproxy.journal import EndReason

forms = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
ROLE = steps.delta("", role=True)


def patient(seconds: float) -> list[tuple[str, str]]:
    return [("x-request-timeout", f"{seconds:g}")]


async def leave(s: Scene, seconds: float, *, streamed: bool) -> None:
    """Ask, and hang up after so long."""
    client = await s.client()
    await client.wire.send(client.request("POST", CHAT, {**PROMPT, "stream": streamed}))
    await trio.sleep(seconds)
    client.close()
    await s.rest()


@pytest.mark.parametrize(("streamed", "seconds"), [(True, 10.5), (False, 30.5)], ids=["streamed", "unary"])
async def test_a_black_hole_opens_its_breaker_although_nobody_waits_for_its_headers(
    streamed: bool, seconds: float, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.silence())
        s.b.script(steps.chat("from b"))
        for failures in (1, 2, 3):
            said = await ask(s, streamed=streamed, headers=patient(seconds))
            assert (said.status, said.took, s.ended[-1].reason) == (504, seconds, EndReason.DEADLINE)
            assert s.failures() == failures
        said = await ask(s, streamed=streamed, headers=patient(seconds))
        assert (said.text, said.took, s.breaker(), s.hits()) == ("from b", 0.0, "open", "a=3 b=1")
        assert s.held() == {}


async def test_callers_that_hang_up_after_long_silence_are_believed_too(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.silence())
        s.b.script(steps.chat("from b"))
        for _ in range(3):
            await leave(s, 11, streamed=True)
        assert (s.breaker(), s.failures(), s.held()) == ("open", 3, {})
        assert (await ask(s, streamed=True)).text == "from b"


@forms
@pytest.mark.parametrize("seconds", [0.05, 2, 9.9])
async def test_a_deadline_below_silence_is_never_evidence(
    seconds: float, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.silence())
        for _ in range(10):
            assert (await ask(s, streamed=streamed, headers=patient(seconds))).status == 504
            await leave(s, seconds, streamed=streamed)
        assert (s.breaker(), s.failures(), s.a.hits) == ("closed", 0, 20)


@pytest.mark.parametrize("silence", [0, 20])
async def test_silence_is_a_setting(silence: int, autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel=f'breaker = {{ preset = "four-layer", silence = {silence} }}') as s:
        s.a.script(steps.silence())
        for _ in range(4):
            await ask(s, streamed=True, headers=patient(15))
        assert (s.breaker(), s.failures()) == ("closed", 0)
        await ask(s, streamed=True, headers=patient(25))
        assert s.failures() == (1 if silence else 0)


async def test_a_byte_of_an_answer_is_no_silence(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.sse([ROLE], end="hang"))
        for _ in range(5):
            assert (await ask(s, streamed=True, headers=patient(20))).status == 504
        assert (s.breaker(), s.failures()) == ("closed", 0)


@pytest.mark.parametrize("answer", [steps.chat("from a"), steps.error(400)], ids=["answers", "refusals"])
async def test_while_others_hear_from_the_channel_it_is_not_silent(answer: Step, autojump_clock: MockClock) -> None:
    """One caller's requests take too long for it; that is between the two of them."""
    swallow = steps.silence()

    async def by_user(x: Exchange) -> None:
        await (swallow if x.request.json.get("user") == "long" else answer)(x)

    async with scene("a", "b") as s:
        s.a.script(by_user)

        async def others() -> None:
            for _ in range(60):
                await trio.sleep(1)
                assert (await s.stream()).status in {200, 400}

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            for _ in range(4):
                assert (await ask(s, streamed=True, headers=patient(14.5), user="long")).status == 504
        assert (s.breaker(), s.failures(), s.b.hits) == ("closed", 0, 0)


async def test_what_is_silence_is_learned_from_what_is_usual(autojump_clock: MockClock) -> None:
    """Where streams begin after 8 s, 15 s of silence are nothing, and 20 s are."""
    slow: Step = steps.after(8.0, steps.chat("from a"))
    async with scene("a", "b") as s:
        s.a.script(*[slow] * 20, steps.silence())
        for _ in range(20):
            await ask(s, streamed=True)
        for _ in range(5):
            await ask(s, streamed=True, headers=patient(15))
        assert (s.breaker(), s.failures()) == ("closed", 0)
        for failures in (1, 2, 3):
            await ask(s, streamed=True, headers=patient(20))
            assert s.failures() == failures
        assert s.breaker() == "open"


async def test_a_probe_that_is_swallowed_renews_the_wait_although_its_caller_left(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel='breaker = "consecutive"') as s:
        s.a.script(steps.error(500))
        s.b.script(steps.chat("from b"))
        for _ in range(5):
            await s.post()
        await trio.sleep(60)
        s.a.script(steps.silence())
        assert (await ask(s, streamed=True, headers=patient(12))).status == 504
        assert (s.breaker(), s.failures(), s.gateway.statistics()["a"].open_for) == ("open", 5, 60.0)
        assert s.held() == {}


# Slow beginnings


async def test_a_channel_whose_streams_begin_late_is_left_alone(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel='breaker = "half-open"') as s:
        s.a.script(steps.chat_stream(["from a"], delay=5.5))
        s.b.script(steps.chat("from b"))
        took = [(await ask(s, streamed=True)).took for _ in range(40)]
        slow = sum(seconds == 5.5 for seconds in took[:30])
        assert took[: slow + 1] == [5.5] * slow + [0.0]
        assert 20 <= slow <= 25  # twenty that count, the first of them faded
        assert s.failures() == 0
        reading = s.gateway.statistics()["a"]
        assert reading.first_content_p95 == pytest.approx(5.5, rel=0.1)
        assert (reading.breaker, reading.rejected, reading.whole_p95) == ("open", 40 - slow, None)


async def test_one_channel_may_bear_more_or_all(autojump_clock: MockClock) -> None:
    for slow in (0, 6):
        async with scene("a", channel=f'breaker = {{ preset = "half-open", slow = {slow} }}') as s:
            s.a.script(steps.chat_stream(["from a"], delay=5.5))
            for _ in range(40):
                assert (await ask(s, streamed=True)).status == 200
            assert s.breaker() == "closed"


async def test_how_long_a_whole_answer_takes_is_a_matter_of_its_length(autojump_clock: MockClock) -> None:
    async with scene("a", channel='breaker = "half-open"') as s:
        s.a.script(steps.after(60.0, steps.chat("a long one")))
        for _ in range(30):
            assert (await ask(s, streamed=False)).took == 60.0
        reading = s.gateway.statistics()["a"]
        assert (reading.breaker, reading.first_content_p95) == ("closed", None)
        assert reading.whole_p95 == pytest.approx(60.0, rel=0.1)


async def test_a_long_stream_that_begins_at_once_is_not_slow(autojump_clock: MockClock) -> None:
    async with scene("a", channel='breaker = "half-open"') as s:
        s.a.script(steps.chat_stream(["word"] * 20, every=1.0))
        for _ in range(25):
            await ask(s, streamed=True)
        assert s.breaker() == "closed"


async def test_a_slow_probe_opens_again(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel='breaker = "half-open"') as s:
        s.a.script(steps.error(500))
        s.b.script(steps.chat("from b"))
        for _ in range(5):
            await s.post()
        await trio.sleep(30)
        s.a.script(steps.chat_stream(["late"], delay=6.0))
        said = await ask(s, streamed=True)
        assert (said.text, said.took) == ("late", 6.0)  # its caller has the answer all the same
        assert (s.breaker(), s.failures(), s.held()) == ("open", 5, {})


# What it tells


async def test_statistics_of_a_breaker(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel='breaker = "half-open"') as s:
        s.a.script(*[steps.chat("from a")] * 15, steps.error(500))
        s.b.script(steps.chat("from b"))
        before = s.gateway.statistics()["a"]
        assert (before.successes, before.failed, before.rejected, before.success_rate) == (0, 0, 0, None)
        for _ in range(15):
            await ask(s, streamed=True)
        for _ in range(7):
            await ask(s, streamed=False)
        await trio.sleep(10)
        a, b = (s.gateway.statistics()[name] for name in ("a", "b"))
        assert (a.successes, a.failed, a.rejected, a.success_rate, a.open_for) == (15, 5, 2, 0.75, 20.0)
        assert (b.successes, b.failed, b.rejected, b.success_rate) == (7, 0, 0, 1.0)


async def test_a_callers_own_mistake_is_in_no_total(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(400, {"error": {"message": "no", "type": "invalid_request_error"}}))
        await ask(s, streamed=False)
        reading = s.gateway.statistics()["a"]
        assert (reading.successes, reading.failed, reading.success_rate) == (0, 0, None)
