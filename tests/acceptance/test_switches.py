"""Switches are seen: each with its cause, what it changed, and what the detour cost over the first choice."""

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step
from tests.scene import Scene, scene
from trioproxy.journal import Reading, Switched, SwitchWeighed


def answer(prompt: int, cached: int, output: int, *, delay: float = 0.0) -> Step:
    """A unary answer with this usage."""

    async def step(x: Exchange) -> None:
        await trio.sleep(delay)
        told: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        told["prompt_tokens_details"] = {"cached_tokens": cached}
        await x.reply(200, steps.completion("well", usage=None) | {"usage": told})

    return step


def rounded(reading: Reading) -> tuple[float | None, ...]:
    return tuple(None if value is None else round(value, 6) for value in attrs.astuple(reading))


def switches(s: Scene) -> list[tuple[str, str, str]]:
    return [(each.was, each.channel, each.cause) for each in s.events if isinstance(each, Switched)]


async def test_the_detour_s_cost_is_told_against_the_first_choice(autojump_clock: MockClock) -> None:
    """1,000 prompt tokens, 400 of them cached, and 100 of output: a is 1 / 0.1 / 4 USD per million, b twice and c three times that."""
    async with scene("a", "b", "c") as s:
        s.a.script(answer(1000, 400, 100), steps.error(500))
        s.b.script(answer(1000, 400, 100), steps.error(500))
        s.c.script(answer(1000, 400, 100))
        for _ in range(3):
            await s.post()
        await s.rest()
        assert [(each.cost, each.preferred_cost) for each in s.ended] == [(1040, None), (2080, 1040), (3120, 1040)]


async def test_a_first_choice_that_is_skipped_is_compared_with_all_the_same(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml="[defaults]\nbreaker = { failures = 1 }\n") as s:
        s.a.script(steps.error(500))
        s.b.script(answer(1000, 0, 100))
        for _ in range(2):
            await s.post()
        await s.rest()
        assert s.a.hits == 1
        assert [(each.cost, each.preferred_cost) for each in s.ended] == [(2800, 1400), (2800, 1400)]


async def test_where_nobody_answered_there_is_no_detour(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.error(500))
        assert (await s.post()).status >= 500
        await s.rest()
        assert s.ended[0].preferred_cost is None


@pytest.mark.parametrize(
    ("fault", "cause", "rest"),
    [
        (steps.error(500), "breaker open", 60.0),
        (steps.error(401), "parked", 300.0),
        (steps.error(429, headers=[("retry-after", "7")]), "cooling", 7.0),
    ],
    ids=["breaker", "parked", "cooling"],
)
async def test_every_switch_has_its_cause(fault: Step, cause: str, rest: float, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml="[defaults]\nbreaker = { failures = 1 }\n") as s:
        s.a.script(fault, steps.chat("from a"))
        s.b.script(steps.chat("from b"))
        await s.post()
        assert switches(s) == []  # nobody has been sent elsewhere yet
        await s.post()
        await s.post()
        assert switches(s) == [("a", "b", cause)]
        await trio.sleep(rest)
        await s.post()  # the trial
        await s.post()
        await s.post()
        assert switches(s)[1:] == [("b", "a", "recovered")]


async def test_probes_of_a_half_open_breaker_are_no_switch(autojump_clock: MockClock) -> None:
    """Three at once, of which the last success closes it."""
    async with scene("a", "b", toml='[defaults]\nbreaker = { preset = "half-open", failures = 1 }\n') as s:
        s.a.script(steps.error(500), steps.chat_answer("slowly", delay=5))
        s.b.script(steps.chat("from b"))
        await s.post()
        await s.post()
        await trio.sleep(30)
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(s.post)
        await s.post()
        assert switches(s) == [("a", "b", "breaker open"), ("b", "a", "recovered")]


async def test_nobody_left_is_told_too(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml="[defaults]\nbreaker = { failures = 1 }\n") as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.error(500), steps.chat("back"))
        await s.post()
        await s.post()
        assert switches(s) == [("a", "", "breaker open")]
        await trio.sleep(60)
        await s.post()
        await s.post()
        assert switches(s)[1:] == [("", "a", "recovered")]


async def test_a_limit_of_the_channel_s_own_is_a_cause(autojump_clock: MockClock) -> None:
    """Twelve a minute: the next ten calls in a row go elsewhere, and when its time has come ten go there again."""
    toml = '[[models]]\nname = "n"\norder = "listed"\nchannels = [{ channel = "tight", model = "x" }, { channel = "b", model = "y" }]\n'
    toml += '[[channels]]\nname = "tight"\nbase_url = "http://a.test:80/v1"\nauth = "none"\n'
    toml += "limits = { requests_per_minute = 12 }\n"
    async with scene("a", "b", toml=toml) as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.chat("well"))
        for _ in range(12 + 9):
            await s.post(model="n")
        await s.rest()
        assert switches(s) == []
        await s.post(model="n")
        await s.rest()
        assert switches(s) == [("tight", "b", "limit")]
        await trio.sleep(60)
        for _ in range(10):
            await s.post(model="n")
        await s.rest()
        assert switches(s)[1:] == [("b", "tight", "recovered")]


async def test_a_cold_cache_shows_as_what_it_is(autojump_clock: MockClock) -> None:
    """Before: 80 % cached, half a second, 0.68 USD per million tokens at a; after: nothing cached, two seconds, at b."""
    async with scene("a", "b", toml="[defaults]\nbreaker = { failures = 1 }\n") as s:
        s.a.script(*[answer(1000, 800, 100, delay=0.5)] * 10, steps.error(500))
        s.b.script(answer(1000, 0, 100, delay=2.0))
        for _ in range(11):
            await s.post()
        s.events.clear()
        for _ in range(151):
            await s.post()
        (weighed,) = [each for each in s.events if isinstance(each, SwitchWeighed)]
        # a call is 200 + 800 / 10 + 100 * 4 micro-USD at a, and at b 1000 * 2 + 100 * 8; for 1,100 tokens
        assert (weighed.was, weighed.channel) == ("a", "b")
        assert rounded(weighed.before) == (10, 0.8, 0.5, round(680 / 1.1, 6))
        assert rounded(weighed.after) == (150, 0.0, 2.0, round(2800 / 1.1, 6))  # two seconds each: 300 s were over
        assert s.gateway.readings()["m"]["b"].cached_share == 0.0


async def test_a_model_that_a_channel_lacks_is_a_cause(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(404, {"error": {"message": "no such model", "code": "model_not_found"}}))
        s.b.script(steps.chat("from b"))
        await s.post()
        await s.post()
        assert switches(s) == [("a", "b", "model not found")]


async def test_a_pattern_s_switch_is_told_by_the_pattern(autojump_clock: MockClock) -> None:
    toml = '[[models]]\nname = "any/*"\nchannels = [{ channel = "a", model = "x-*" }, { channel = "b", model = "*" }]\n'
    async with scene("a", "b", toml=toml + "[defaults]\nbreaker = { failures = 1 }\n") as s:
        s.a.script(steps.error(500))
        s.b.script(steps.chat("from b"))
        for name in ("any/one", "any/two", "any/three"):
            await s.post(model=name)
        await s.rest()
        assert [(each.model, each.cause) for each in s.events if isinstance(each, Switched)] == [
            ("any/*", "breaker open")
        ]
        assert s.gateway.readings()["any/*"]["b"].calls == 3
