"""B13: the probes of a half-open breaker. One that proves nothing gives its place back; a late one changes nothing."""

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock

from tests.acceptance.asking import Said, ask
from tests.fakes import steps
from tests.scene import CHAT, PROMPT, Scene, scene


@frozen
class Preset:
    """What a breaker preset promises: seconds open, probes at once, successes that close it."""

    name: str
    open_for: float
    probes: int
    successes: int

    @property
    def channel(self) -> str:
        return f'breaker = "{self.name}"'


CONSECUTIVE = Preset("consecutive", 60.0, 1, 1)
HALF_OPEN = Preset("half-open", 30.0, 3, 3)
presets = pytest.mark.parametrize("preset", [CONSECUTIVE, HALF_OPEN], ids=lambda preset: preset.name)
forms = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])


async def trip(s: Scene) -> None:
    """Five failures in a row open A's breaker; B answers meanwhile."""
    s.a.script(steps.error(500))
    s.b.script(steps.chat("from b"))
    for _ in range(5):
        assert (await s.post()).headers["x-trioproxy-channel"] == "b"
    assert (s.breaker(), s.failures(), s.a.hits) == ("open", 5, 5)


async def recover(s: Scene, preset: Preset) -> None:
    """A is healthy: its probes close the breaker, no sooner and no later than the preset says."""
    s.a.script(steps.chat("from a"))
    for _ in range(preset.successes):
        assert s.breaker() != "closed"
        assert (await ask(s, streamed=False)).text == "from a"
    assert (s.breaker(), s.failures()) == ("closed", 0)
    await s.rest()


@forms
@presets
async def test_b13_a_probe_that_its_client_cancels_gives_its_place_back(
    preset: Preset, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel=preset.channel) as s:
        await trip(s)
        await trio.sleep(preset.open_for)
        s.a.script(steps.silence())
        for _ in range(preset.probes + 1):
            client = await s.client()
            await client.wire.send(client.request("POST", CHAT, {**PROMPT, "stream": streamed}))
            await trio.sleep(0.5)
            client.close()
            await s.rest()
            assert s.ended[-1].reason.value == "client_left"
            assert (s.breaker(), s.failures(), s.held()) == ("half_open", 5, {})
        assert s.a.hits == 5 + preset.probes + 1
        assert s.a.open == 0
        await recover(s, preset)
        assert s.held() == {}


@forms
@presets
async def test_b13_a_probe_that_hangs_to_its_callers_deadline_gives_its_place_back(
    preset: Preset, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel=preset.channel) as s:
        await trip(s)
        await trio.sleep(preset.open_for)
        s.a.script(steps.silence())
        for _ in range(preset.probes + 1):
            said = await ask(s, streamed=streamed, headers=[("x-request-timeout", "2")])
            assert (said.status, said.took) == (504, 2.0)
            assert s.ended[-1].reason.value == "deadline"
            assert (s.breaker(), s.failures()) == ("half_open", 5)
        assert s.b.hits == 5
        await recover(s, preset)
        assert s.held() == {}


@presets
async def test_b13_a_probe_that_hangs_to_the_gateways_own_deadline_renews_the_cooldown_only(
    preset: Preset, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel=preset.channel, toml="[defaults]\nheaders_timeout = 10") as s:
        await trip(s)
        await trio.sleep(preset.open_for)
        s.a.script(steps.silence())
        said = await ask(s, streamed=False)
        assert (said.status, said.text, said.took) == (200, "from b", 10.0)
        assert (s.breaker(), s.failures()) == ("open", 5)  # the count of failures is left alone
        await trio.sleep(preset.open_for - 0.5)
        assert (await ask(s, streamed=False)).text == "from b"
        assert s.a.hits == 6
        await trio.sleep(0.5)
        await recover(s, preset)
        assert s.held() == {}


@presets
async def test_b13_a_400_on_a_probe_is_the_clients_and_gives_the_place_back(
    preset: Preset, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel=preset.channel) as s:
        await trip(s)
        await trio.sleep(preset.open_for)
        s.a.script(steps.error(400, {"error": {"message": "no", "type": "invalid_request_error"}}))
        for _ in range(preset.probes + 1):
            said = await ask(s, streamed=False)
            assert (said.status, said.error["message"]) == (400, "no")
            assert (s.breaker(), s.failures()) == ("half_open", 5)
        assert s.b.hits == 5
        await recover(s, preset)
        assert s.held() == {}


@presets
async def test_b13_a_429_on_a_probe_is_no_evidence_either(preset: Preset, autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel=preset.channel) as s:
        await trip(s)
        await trio.sleep(preset.open_for)
        s.a.script(steps.error(429, headers=[("retry-after", "5")]))
        assert (await ask(s, streamed=False)).text == "from b"
        assert (s.breaker(), s.failures()) == ("half_open", 5)
        await trio.sleep(5)
        await recover(s, preset)
        assert s.held() == {}


@forms
@presets
async def test_b13_of_fifty_at_once_only_the_probes_reach_a_half_open_channel(
    preset: Preset, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel=preset.channel) as s:
        await trip(s)
        await trio.sleep(preset.open_for)
        s.a.script(steps.after(1.0, steps.chat("from a")))
        answers: list[Said] = []

        async def one() -> None:
            answers.append(await ask(s, streamed=streamed))

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
        assert [said.status for said in answers] == [200] * 50
        assert s.a.hits == 5 + preset.probes
        assert sum(said.text == "from b" for said in answers) == 50 - preset.probes
        assert all(said.took == (1.0 if said.text == "from a" else 0.0) for said in answers)
        assert s.breaker() == "closed"
        await s.rest()
        assert s.held() == {}


async def test_b13_a_probe_that_succeeds_after_another_failed_changes_nothing(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel=HALF_OPEN.channel) as s:
        await trip(s)
        await trio.sleep(30)
        s.a.script(steps.after(5.0, steps.chat("late")), steps.error(500))
        late: list[Said] = []

        async def slow() -> None:
            late.append(await ask(s, streamed=False))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow)
            await trio.sleep(1)
            assert (await ask(s, streamed=False)).text == "from b"
            opened = trio.current_time()
            assert s.breaker() == "open"
        assert [(said.text, said.took) for said in late] == [("late", 5.0)]
        assert (s.breaker(), s.held()) == ("open", {})
        assert s.gateway.statistics()["a"].open_for == opened + 30 - trio.current_time()
        await trio.sleep(26)
        await recover(s, HALF_OPEN)
        assert s.held() == {}


@presets
async def test_b13_a_success_from_before_the_breaker_opened_does_not_close_it(
    preset: Preset, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel=preset.channel) as s:
        s.a.script(steps.after(5.0, steps.chat("late")), steps.error(500))
        s.b.script(steps.chat("from b"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s.post)
            await trio.sleep(1)
            for _ in range(5):
                await s.post()
            assert s.breaker() == "open"
        assert trio.current_time() >= 5.0
        assert (s.breaker(), s.failures()) == ("open", 5)


@presets
async def test_b13_a_failure_from_before_the_breaker_opened_does_not_open_it_again(
    preset: Preset, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel=preset.channel) as s:
        s.a.script(steps.after(preset.open_for + 20, steps.error(500)), steps.error(500))
        s.b.script(steps.chat("from b"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s.post)
            await trio.sleep(1)
            for _ in range(5):
                await s.post()
            assert s.breaker() == "open"
            await trio.sleep(preset.open_for)
            await recover(s, preset)
        assert (s.breaker(), s.failures(), s.held()) == ("closed", 0, {})


@presets
async def test_b13_a_streamed_probe_proves_itself_by_content_and_a_later_cut_counts_by_itself(
    preset: Preset, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", channel=preset.channel) as s:
        await trip(s)
        await trio.sleep(preset.open_for)
        s.a.script(
            *[steps.chat("from a")] * (preset.successes - 1), steps.chat_stream(["x", "y"], every=1, end="reset")
        )
        for _ in range(preset.successes - 1):
            await s.post()
        stream = await s.open_stream()
        await stream.frame()
        await stream.frame()
        assert (stream.text(), s.breaker(), s.failures()) == ("x", "closed", 0)
        await stream.rest()
        await s.rest()
        assert s.ended[-1].reason.value == "cut_after_commit"
        assert (s.breaker(), s.failures(), s.held()) == ("closed", 1, {})
