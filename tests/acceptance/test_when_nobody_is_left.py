"""When every channel is out: who may be asked all the same, how often, and who never is."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.asking import Said, ask
from tests.fakes import steps
from tests.scene import CHAT, PROMPT, Scene, scene
from trioproxy.journal import BreakerMoved

forms = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
presets = pytest.mark.parametrize(("preset", "failures"), [("four-layer", 3), ("consecutive", 5)])
RESORT = 'when_out = "last-resort"'
THROTTLED = steps.error(429)  # without a word about when


async def trip(s: Scene, failures: int) -> None:
    for upstream in s.upstreams.values():
        upstream.script(steps.error(500))
    for _ in range(failures):
        assert (await ask(s, streamed=False)).status == 500
    assert {s.breaker(name) for name in s.upstreams} == {"open"}


@forms
@presets
async def test_a_lone_channel_is_skipped_while_its_breaker_is_open(
    preset: str, failures: int, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", toml=f'[defaults]\nbreaker = "{preset}"') as s:
        await trip(s, failures)
        s.a.script(steps.chat("from a"))
        assert [(await ask(s, streamed=streamed)).status for _ in range(5)] == [503] * 5
        assert s.a.hits == failures
        assert s.gateway.statistics()["a"].rejected == 5


@forms
@presets
async def test_a_lone_channel_is_asked_as_a_last_resort_where_its_model_says_so(
    preset: str, failures: int, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", model=RESORT, toml=f'[defaults]\nbreaker = "{preset}"') as s:
        await trip(s, failures)
        await trio.sleep(20)
        assert (await ask(s, streamed=streamed)).status == 500
        assert (s.breaker(), s.failures(), s.a.hits) == ("open", failures, failures + 1)  # the count is left alone
        assert s.gateway.statistics()["a"].open_for == 60.0
        s.a.script(steps.chat("from a"))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text, said.took) == (200, "from a", 0.0)
        assert (s.breaker(), s.failures(), s.held()) == ("closed", 0, {})
        moves = [event.state for event in s.events if isinstance(event, BreakerMoved)]
        assert moves == ["open", "closed"]


@forms
async def test_the_last_resort_is_one_call_at_a_time(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", model=RESORT) as s:
        await trip(s, 3)
        s.a.script(steps.after(2.0, steps.error(500)))
        answers: list[Said] = []

        async def one() -> None:
            answers.append(await ask(s, streamed=streamed))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
        assert s.a.hits == 4
        assert sorted((said.status, said.took) for said in answers) == [(500, 2.0)] + [(503, 0.0)] * 19
        assert s.held() == {}


async def test_the_last_resort_is_the_channel_that_is_back_soonest(autojump_clock: MockClock) -> None:
    async with scene("a", "b", model=RESORT) as s:
        s.a.script(steps.error(500))
        s.b.script(*[steps.chat("from b")] * 3, steps.error(500))
        for _ in range(3):
            await s.post()
        await trio.sleep(10)
        for _ in range(3):
            await s.post()
        assert (s.breaker("a"), s.breaker("b"), s.hits()) == ("open", "open", "a=3 b=6")
        await trio.sleep(1)  # a is back in 49 s, b in 59
        assert (await ask(s, streamed=False)).status == 500
        assert s.hits() == "a=4 b=6"
        s.b.script(steps.chat("from b"))  # a's wait has begun again, so it is b's turn
        assert (await ask(s, streamed=False)).text == "from b"
        assert (s.breaker("a"), s.breaker("b"), s.hits()) == ("open", "closed", "a=4 b=7")


async def test_a_last_resort_whose_caller_leaves_gives_its_place_back(autojump_clock: MockClock) -> None:
    async with scene("a", model=RESORT) as s:
        await trip(s, 3)
        s.a.script(steps.silence())
        for hits in (4, 5):
            client = await s.client()
            await client.wire.send(client.request("POST", CHAT, PROMPT))
            await trio.sleep(1)
            client.close()
            await s.rest()
            assert (s.breaker(), s.failures(), s.a.hits, s.held()) == ("open", 3, hits, {})


async def test_a_channel_whose_key_was_refused_is_nobodys_last_resort(autojump_clock: MockClock) -> None:
    async with scene("a", "b", model=RESORT) as s:
        s.a.script(steps.error(401))
        s.b.script(THROTTLED)
        await ask(s, streamed=False)
        s.b.script(steps.error(429, headers=[("retry-after", "20")]))
        await trio.sleep(1)
        await ask(s, streamed=False)
        hits = s.hits()
        for _ in range(5):
            assert (await ask(s, streamed=False)).status in {429, 503}
        assert s.hits() == hits


# Rests that are our own guess


@forms
async def test_of_two_channels_that_rest_by_our_guess_one_is_asked_again(
    streamed: bool, autojump_clock: MockClock
) -> None:
    """Random throttling of both at once leaves nobody otherwise."""
    async with scene("a", "b") as s:
        s.a.script(THROTTLED, steps.chat("from a"))
        s.b.script(THROTTLED)
        first = await ask(s, streamed=streamed)
        assert (first.status, first.headers["retry-after"]) == (429, "1")
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text, said.took) == (200, "from a", 0.0)
        again = await ask(s, streamed=streamed)
        assert (again.text, s.hits()) == ("from a", "a=3 b=1")  # its rest is over
        assert s.held() == {}


@forms
async def test_a_guess_is_doubted_once_and_then_it_stands(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(THROTTLED)
        s.b.script(THROTTLED)
        for hits in ("a=1 b=1", "a=2 b=1", "a=2 b=2", "a=2 b=2", "a=2 b=2"):
            said = await ask(s, streamed=streamed)
            assert (said.status, said.took, s.hits()) == (429, 0.0, hits)
        await trio.sleep(1.5)  # each doubt was another strike: two seconds now
        assert ((await ask(s, streamed=streamed)).headers["retry-after"], s.hits()) == ("1", "a=2 b=2")
        await trio.sleep(0.5)
        s.a.script(steps.chat("from a"))
        assert (await ask(s, streamed=streamed)).text == "from a"
        assert s.held() == {}


@pytest.mark.parametrize("hint", [[("retry-after", "20")], []], ids=["hinted", "lone"])
async def test_what_a_provider_asked_for_is_never_doubted_nor_is_a_lone_channels_rest(
    hint: list[tuple[str, str]], autojump_clock: MockClock
) -> None:
    async with scene(*("a", "b") if hint else ("a",)) as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.error(429, headers=hint))
        await ask(s, streamed=False)
        hits = s.hits()
        for _ in range(5):
            assert (await ask(s, streamed=False)).status == 429
        assert s.hits() == hits


async def test_a_doubt_is_one_call_at_a_time(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(THROTTLED, steps.after(0.5, steps.chat("from a")))
        s.b.script(THROTTLED, steps.after(0.5, steps.chat("from b")))
        await ask(s, streamed=False)
        answers: list[Said] = []

        async def one() -> None:
            answers.append(await ask(s, streamed=False))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
        assert sorted(said.text for said in answers) == [""] * 18 + ["from a", "from b"]
        assert s.hits() == "a=2 b=2"
