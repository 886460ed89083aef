"""B46 (its OpenAI half): the classes of tokens are told apart, and priced alike whether streamed or not."""

import json
from typing import Any

import pytest
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, left
from tests.fakes.steps import DONE, completion, delta, frame, sse
from tests.fakes.upstream import Exchange, Step
from tests.scene import scene
from trioproxy.journal import Usage
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

# At 1 USD a million tokens of input, 0.1 cached, 4 of output.
CASES = {
    "cached": ({"prompt_tokens": 2000, "completion_tokens": 10, "cached": 1500}, Usage(500, 1500, 10), 690),
    "all cached": ({"prompt_tokens": 2000, "completion_tokens": 10, "cached": 2000}, Usage(0, 2000, 10), 240),
    "none cached": ({"prompt_tokens": 2000, "completion_tokens": 10, "cached": 0}, Usage(2000, 0, 10), 2040),
    "more cached than prompted": (
        {"prompt_tokens": 100, "completion_tokens": 10, "cached": 500},
        Usage(0, 100, 10),
        50,
    ),
    "less than nothing": ({"prompt_tokens": -5, "completion_tokens": -1, "cached": -3}, Usage(0, 0, 0), 0),
}


def answer(report: dict[str, int]) -> Step:
    """An answer with this usage, in the form that was asked for."""
    cached = {"prompt_tokens_details": {"cached_tokens": report["cached"]}}
    usage: dict[str, Any] = {**{name: n for name, n in report.items() if name != "cached"}, **cached}

    async def step(x: Exchange) -> None:
        if x.request.json.get("stream"):
            last = json.loads(delta(finish="stop").removeprefix(b"data: ")) | {"choices": [], "usage": usage}
            await sse([delta("hello"), delta(finish="stop"), frame(last), DONE])(x)
        else:
            await x.reply(200, completion("hello", usage=None) | {"usage": usage})

    return step


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
@pytest.mark.parametrize("case", CASES)
async def test_b46_each_class_of_tokens_has_its_price(case: str, streamed: bool, autojump_clock: MockClock) -> None:
    report, usage, cost = CASES[case]
    toml = "[quota]\noutput = 100\n" + key(rest="budget = { day = 1.0 }\nlimits = { tokens_per_day = 10000 }")
    async with scene("a", toml=toml) as s:
        s.a.script(answer(report))
        assert (await s.ask(streamed=streamed, headers=bearer()))[0] == 200
        await s.rest()
        assert (s.ended[0].usage, s.ended[0].cost) == (usage, cost)
        assert left(s, Rank.KEY, Dimension.MICRO_USD_PER_DAY) == 1_000_000 - cost
        assert left(s, Rank.KEY, Dimension.TOKENS_PER_DAY) == 10_000 - usage.input - usage.cached - usage.output
