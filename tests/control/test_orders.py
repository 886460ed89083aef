"""Orders: every verb over a live gateway, and that what cannot be followed is said in a sentence."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import Scene, scene
from trioproxy.control.orders import Orders

ROLLOUT = '[[rollouts]]\nmodel = "m"\ncandidate = [{ channel = "b", model = "b-model" }, { channel = "a", model = "newer" }]\n'


@asynccontextmanager
async def orders(toml: str = ROLLOUT) -> AsyncGenerator[tuple[Scene, Orders]]:
    async with scene("a", "b", toml=toml) as s:
        yield s, Orders(s.gateway)


async def told(made: Orders, **order: str) -> Any:
    return json.loads(await made.answer(json.dumps(order).encode()))


async def test_a_rollout_is_started_moved_and_taken_back(autojump_clock: MockClock) -> None:
    async with orders() as (_, made):
        seen = []
        for do in ("start", "pause", "start", "step", "step", "rollback"):
            result = (await told(made, do=f"rollout.{do}", model="m"))["result"]
            seen.append((result["state"], result["percent"]))
        assert seen == [
            ("running", 10),
            ("paused", 10),
            ("running", 10),
            ("running", 50),
            ("running", 100),
            ("rolled_back", 0),
        ]


async def test_the_status_has_the_arms(autojump_clock: MockClock) -> None:
    async with orders() as (s, made):
        s.a.script(steps.chat("well"))
        s.b.script(steps.chat("well"))
        await told(made, do="rollout.start", model="m")
        for number in range(30):
            await s.post(headers=[("x-trioproxy-session", f"s{number}")])
        await s.rest(2)
        (status,) = (await told(made, do="rollout.status"))["result"]
        assert [status] == (await told(made, do="rollout.status", model="m"))["result"]
        assert (status["model"], status["state"], status["steps"], status["held"]) == (
            "m",
            "running",
            [10, 50, 100],
            2.0,
        )
        assert status["candidate"]["calls"] + status["baseline"]["calls"] == 30
        assert status["baseline"]["mean_cost"] == 21.0  # 9 tokens at 1 and 3 at 4 USD per million
        assert status["verdict"].startswith("not enough data")


async def test_without_rollouts_there_is_nothing_to_tell(autojump_clock: MockClock) -> None:
    async with orders("") as (_, made):
        assert await told(made, do="rollout.status") == {"result": []}


async def test_the_chain_is_the_one_a_call_would_get(autojump_clock: MockClock) -> None:
    async with orders() as (s, made):
        chains = (await told(made, do="chain", model="m"))["result"]
        assert {arm: [step["channel"] for step in chain["steps"]] for arm, chain in chains.items()} == {
            "baseline": ["a", "b"],
            "candidate": ["b", "a", "a"],
        }
        await told(made, do="rollout.start", model="m")
        for session in map(str, range(20)):
            (arm,) = (await told(made, do="chain", model="m", session=session))["result"]
            s.a.script(steps.chat("well"))
            s.b.script(steps.chat("well"))
            reply = await s.post(headers=[("x-trioproxy-session", session)])
            assert reply.headers["x-trioproxy-arm"] == arm


async def test_the_readings_are_told(autojump_clock: MockClock) -> None:
    async with orders("") as (s, made):
        s.a.script(steps.chat("well"))
        await s.post()
        await s.rest()
        reading = (await told(made, do="readings"))["result"]["m"]["a"]
        assert reading == {"calls": 1, "cached_share": 0.0, "first_content": 0.0, "unit_cost": 1750.0}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "an order is a JSON object of strings"),
        (b"[]", "an order is a JSON object of strings"),
        (b'{"do": 1}', "an order is a JSON object of strings"),
        (b"[" * 100_000, "an order is a JSON object of strings"),
        (b"{}", "there is no order ''; there are rollout.status, rollout.start,"),
        (b'{"do": "rollout.undo"}', "there is no order 'rollout.undo'"),
        (b'{"do": "rollout.start"}', "the model '' has no rollout; there are m"),
        (b'{"do": "rollout.status", "model": "n"}', "the model 'n' has no rollout; there are m"),
        (b'{"do": "rollout.pause", "model": "m"}', "a rollout that is idle takes no pause; it takes start"),
        (b'{"do": "chain", "model": "n"}', "no model answers to 'n'"),
    ],
)
async def test_what_cannot_be_followed_is_said(line: bytes, why: str, autojump_clock: MockClock) -> None:
    async with orders() as (_, made):
        answer = json.loads(await made.answer(line))
        assert list(answer) == ["error"]
        assert answer["error"].startswith(why)
