"""The cases about breakers and cooldowns, once more with health checks beside the calls: what was promised holds with them."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.asking import Said, ask
from tests.acceptance.test_b13_probes import CONSECUTIVE, HALF_OPEN, Preset, forms, presets
from tests.acceptance.test_b14_b18 import KEYS, LENGTH, ONE, TWO, refused
from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step
from tests.scene import CHAT, PROMPT, Scene, scene
from trioproxy.journal import BreakerMoved, ChannelCooled, ProbeRan

CHECKS = "[probes]\nevery = 7\nevery_open = 10\njitter = 0\n"
DAMAGED = steps.error(500)
SILLY = steps.error(400, refused("invalid_value", "no"))  # says nothing of the channel


def apart(checks: Step, calls: Step) -> Step:
    """One answer for health checks, and another one for calls."""

    async def step(x: Exchange) -> None:
        await (checks if "max_tokens" in x.request.json else calls)(x)

    return step


def asked(s: Scene, name: str = "a") -> int:
    """How many calls reached a channel."""
    return sum("max_tokens" not in request.json for request in s.upstreams[name].requests)


def checked(s: Scene, name: str = "a") -> list[bool]:
    return [event.ok for event in s.events if isinstance(event, ProbeRan) and event.channel == name]


async def trip(s: Scene, checks: Step) -> None:
    s.a.script(apart(checks, DAMAGED))
    s.b.script(steps.chat("from b"))
    for _ in range(5):
        await s.post()
    assert (s.breaker(), asked(s)) == ("open", 5)


@pytest.mark.parametrize("end", ["client", "deadline", "400"])
@forms
@presets
async def test_b13_a_call_that_is_a_probe_and_proves_nothing_disturbs_no_check(
    preset: Preset, streamed: bool, end: str, autojump_clock: MockClock
) -> None:
    """Checks that say nothing leave it to calls; then one says that it is well, and no call was in the way."""
    async with scene("a", "b", channel=preset.channel, toml=CHECKS) as s:
        await trip(s, SILLY)
        await trio.sleep(preset.open_for + 2.5)
        s.a.script(apart(SILLY, SILLY if end == "400" else steps.silence()))
        before = asked(s)
        if end == "client":
            client = await s.client()
            await client.wire.send(client.request("POST", CHAT, {**PROMPT, "stream": streamed}))
            await trio.sleep(0.5)
            client.close()
        else:
            said = await ask(s, streamed=streamed, headers=[("x-request-timeout", "0.5")])
            assert said.status == (400 if end == "400" else 504)
        await s.rest()
        assert asked(s) == before + 1
        assert (s.breaker(), s.held()) == ("half_open", {})
        s.a.script(steps.chat("from a"))
        await trio.sleep(10.0 * preset.successes + 2)
        assert (s.breaker(), asked(s)) == ("closed", before + 1)
        assert (await ask(s, streamed=streamed)).text == "from a"
        assert s.held() == {}


@forms
@presets
async def test_b13_of_fifty_at_once_no_more_than_the_probes_reach_it_checks_included(
    preset: Preset, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel=preset.channel, toml=CHECKS) as s:
        await trip(s, DAMAGED)
        s.a.script(steps.silence())
        await trio.sleep(preset.open_for * 3)  # failed checks keep it open
        assert s.breaker() == "open"
        assert asked(s) == 5
        answers: list[Said] = []

        async def one() -> None:
            answers.append(await ask(s, streamed=streamed))

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
        assert {(said.status, said.text) for said in answers} == {(200, "from b")}
        assert (asked(s), s.held()) == (5, {})
        s.a.script(steps.chat("from a"))
        await trio.sleep(10.0 * preset.successes + 3)
        assert (s.breaker(), asked(s)) == ("closed", 5)


@forms
async def test_b14_request_faults_and_checks_do_not_mix(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", toml=KEYS + CHECKS) as s:
        s.a.script(apart(steps.chat("well"), steps.error(400, LENGTH)))
        for _ in range(10):
            assert (await ask(s, streamed=streamed, headers=ONE)).status == 400
            await trio.sleep(3)
        assert (s.breaker(), s.failures()) == ("closed", 0)
        s.a.script(apart(steps.chat("well"), steps.chat("fine")))
        assert (await ask(s, streamed=streamed, headers=TWO)).text == "fine"
        s.a.script(apart(steps.chat("well"), DAMAGED))
        assert (await ask(s, streamed=streamed, headers=TWO)).status == 500
        assert (s.breaker(), s.failures()) == ("closed", 1)
        assert set(checked(s)) == {True}
        assert s.held() == {}


async def test_b14_a_check_that_finds_no_credit_takes_the_channel_out_before_a_call_does(
    autojump_clock: MockClock,
) -> None:
    poor = steps.error(400, refused(None, "Your credit balance is too low to access the API."))
    async with scene("a", "b", toml=CHECKS) as s:
        s.a.script(poor)
        s.b.script(steps.chat("from b"))
        await trio.sleep(1)
        assert (await ask(s, streamed=False)).text == "from b"
        assert (asked(s), checked(s)) == (0, [False])
        await trio.sleep(60)
        assert checked(s) == [False]  # nobody asks a parked channel


@forms
async def test_b15_callers_tiny_deadlines_and_checks_do_not_mix(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", toml=KEYS + CHECKS) as s:
        s.a.script(steps.after(0.3, steps.chat("in time")))
        for _ in range(10):
            said = await ask(s, streamed=streamed, headers=[*ONE, ("x-request-timeout", "0.05")])
            assert (said.status, said.took) == (504, 0.05)
            await trio.sleep(2)
        assert (s.breaker(), s.failures(), asked(s)) == ("closed", 0, 10)
        other = await ask(s, streamed=streamed, headers=TWO)
        assert (other.status, other.text, other.took) == (200, "in time", 0.3)
        assert checked(s) == [True] * 3
        assert not [event for event in s.events if isinstance(event, BreakerMoved)]
        await s.rest()
        assert s.held() == {}


@forms
@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["one", "two"])
async def test_b27_a_channel_that_rests_is_not_checked_and_rests_no_longer_for_it(
    names: tuple[str, ...], streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene(*names, toml=CHECKS) as s:
        limited = steps.error(429, headers=[("retry-after", "20")])
        for upstream in s.upstreams.values():
            upstream.script(apart(steps.chat("well"), limited))
        await trio.sleep(1)
        began = trio.current_time()
        assert (await ask(s, streamed=streamed)).headers["retry-after"] == "20"
        before = s.hits()
        await trio.sleep(1)
        said = await ask(s, streamed=streamed)
        assert (said.status, said.took, said.headers["retry-after"]) == (429, 0.0, "19")
        await trio.sleep_until(began + 19.9)
        assert (await ask(s, streamed=streamed)).headers["retry-after"] == "1"
        assert s.hits() == before
        s.a.script(steps.chat("from a"))
        await trio.sleep_until(began + 20)
        assert (await ask(s, streamed=streamed)).text == "from a"
        assert [event.seconds for event in s.events if isinstance(event, ChannelCooled)] == [20.0] * len(names)
        assert s.held() == {}


@pytest.mark.parametrize("preset", [CONSECUTIVE, HALF_OPEN], ids=lambda preset: preset.name)
async def test_s15_with_checks_traffic_is_back_within_thirty_seconds_and_no_call_finds_out(
    preset: Preset, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel=preset.channel, toml=CHECKS) as s:
        s.a.script(DAMAGED)
        s.b.script(steps.chat("from b"))
        answers = []
        for moment in range(100):
            await trio.sleep(moment + 0.5 - trio.current_time())
            if moment == 60:
                s.a.script(steps.chat("from a"))
            answers.append((await ask(s, streamed=False)).text)
        back = answers.index("from a")
        assert 60 <= back <= 90
        assert answers == ["from b"] * back + ["from a"] * (100 - back)
        assert asked(s) == 5 + 100 - back
