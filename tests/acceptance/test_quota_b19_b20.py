"""B19, B20: admission is atomic over the hierarchy; estimates are bounded, and money is whole numbers."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, left, tenant
from tests.fakes import steps
from tests.fakes.client import Reply
from tests.fakes.upstream import Exchange
from tests.scene import Scene, scene
from trioproxy.journal import EndReason
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

DAY = Dimension.TOKENS_PER_DAY
HUNDRED = {"max_tokens": 89}  # with the prompt's 11: a reservation of 100
QUOTA = "[quota]\noutput = 100\n"
PARENT = QUOTA + tenant("limits = { tokens_per_day = 1000 }")
CHILD = 'tenant = "acme"\nlimits = { tokens_per_day = %d }'


async def fifty(s: Scene) -> list[Reply]:
    """Fifty calls at once; A holds its replies until all are in. Remaining is sampled all along."""
    all_in = trio.Event()
    replies: list[Reply] = []

    async def hold(x: Exchange) -> None:
        await all_in.wait()
        await steps.chat_answer("hello")(x)

    async def call() -> None:
        replies.append(await s.post(headers=bearer(), **HUNDRED))

    async def sample() -> None:
        while True:
            await trio.sleep(0.001)
            assert all(gauge.remaining >= 0 for gauge in s.gateway.limits())

    s.a.script(hold)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sample)
        async with trio.open_nursery() as calls:
            for _ in range(50):
                calls.start_soon(call)
            await trio.sleep(0.5)
            assert s.a.hits == 10
            assert s.gateway.quota().held.total_tokens == 1000
            all_in.set()
        nursery.cancel_scope.cancel("all calls have ended")
    return replies


@pytest.mark.parametrize(
    "toml",
    [
        QUOTA + key(rest="limits = { tokens_per_day = 1000 }"),
        PARENT + key(rest=CHILD % 100_000),
        PARENT + key(rest='tenant = "acme"'),
    ],
    ids=["the key's own", "the parent's, a roomier child", "the parent's alone"],
)
async def test_b19_of_fifty_at_once_exactly_ten_are_sent(toml: str, autojump_clock: MockClock) -> None:
    async with scene("a", toml=toml) as s:
        replies = await fifty(s)
        assert sorted(reply.status for reply in replies) == [200] * 10 + [429] * 40
        assert {ended.reason for ended in s.ended} == {EndReason.ANSWERED, EndReason.REFUSED_QUOTA}
        await s.rest()
        assert s.held() == {}
        assert {gauge.limit - gauge.remaining for gauge in s.gateway.limits()} == {10 * 12}


async def test_b19_where_the_parent_refuses_the_child_holds_nothing(autojump_clock: MockClock) -> None:
    toml = QUOTA + tenant("limits = { requests_per_day = 1 }") + key(rest=CHILD % 5000)
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello"))
        assert (await s.post(headers=bearer())).status == 200
        await s.rest()
        before = left(s, Rank.KEY, DAY)
        for _ in range(20):
            assert (await s.post(headers=bearer())).status == 429
        assert left(s, Rank.KEY, DAY) == before == 5000 - 12
        assert s.hits() == "a=1"


@pytest.mark.parametrize("asked", [{}, {"max_tokens": None}, {"max_tokens": 999_999_999}], ids=str)
async def test_b20_an_estimate_is_bounded_by_what_a_model_can_say(
    asked: dict[str, object], autojump_clock: MockClock
) -> None:
    """Two calls fit one after the other into a limit of a hundred tokens, and two at once do not."""
    toml = QUOTA.replace("100", "50") + key(rest="limits = { tokens_per_minute = 100 }")
    async with scene("a", toml=toml, model="max_output = 50") as s:
        s.a.script(*[steps.chat_answer("hello", delay=0.01)] * 3)
        statuses: list[int] = []

        async def call() -> None:
            statuses.append((await s.post(headers=bearer(), **asked)).status)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            nursery.start_soon(call)
        assert sorted(statuses) == [200, 429]
        assert (await s.post(headers=bearer(), **asked)).status == 200
        await s.rest()
        assert {ended.estimated_input + ended.estimated_output for ended in s.ended} == {11 + 50}
        assert s.held() == {}


async def test_b20_no_channel_reserves_more_than_a_model_can_say(autojump_clock: MockClock) -> None:
    """A provider that counts the cap is charged for what the model can say."""
    one = 'provider = "azure"\nlimits = { tokens_per_minute = 200 }'
    async with scene("a", channel=one, model="max_output = 60") as s:
        s.a.script(steps.chat_answer("hello", delay=0.01), steps.chat_answer("hello"))
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                assert (await s.post(max_tokens=999_999_999)).status == 200

            nursery.start_soon(call)
            await trio.sleep(0.005)
            assert left(s, Rank.CHANNEL, Dimension.TOKENS_PER_MINUTE) == 200 - 11 - 60
            nursery.start_soon(call)
        await s.rest()
        assert s.held() == {}


@pytest.mark.parametrize("value", [0, -1, "10"], ids=repr)
async def test_b20_a_cap_that_is_none_is_refused_and_holds_nothing(value: object, autojump_clock: MockClock) -> None:
    async with scene("a", toml=QUOTA + key(rest="limits = { tokens_per_day = 1000 }")) as s:
        reply = await s.post(headers=bearer(), max_tokens=value)
        assert (reply.status, reply.json["error"]["param"]) == (400, "max_tokens")
        assert (s.hits(), s.held(), s.gateway.limits()) == ("a=0", {}, [])


async def test_b20_a_budget_matches_the_ledger_to_the_micro_dollar(autojump_clock: MockClock) -> None:
    """Prices are 1, 0.1 and 4 USD per million tokens: 40 input and 7 output tokens are 68 micro-dollars."""
    spent = Dimension.MICRO_USD_PER_DAY
    async with scene("a", toml=QUOTA + key(rest="budget = { day = 0.01 }")) as s:
        s.a.script(*[steps.chat_answer("hello", usage=(40, 7))] * 13)
        for _ in range(13):
            assert (await s.post(headers=bearer())).status == 200
        await s.rest()
        assert [ended.cost for ended in s.ended] == [68] * 13
        assert left(s, Rank.KEY, spent) == 10_000 - 13 * 68
