"""What providers teach: pacing before the 429, limits found by trying, and never more than is configured."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key
from tests.fakes import steps
from tests.fakes.metered import Metered
from tests.scene import PROMPT, Scene, scene
from tests.test_lifecycle import cut_everywhere, embedded, scripted
from trioproxy.call import Request
from trioproxy.journal import EndReason, LimitLearned
from trioproxy.policy.throttle import Reading

LIMITED = "limits = { requests_per_minute = 60 }"


def told(
    limit: object = None, remaining: object = None, reset: object = None, what: str = "requests"
) -> list[tuple[str, str]]:
    """OpenAI's headers; None leaves one out."""
    values = {"limit": limit, "remaining": remaining, "reset": reset}
    return [(f"x-ratelimit-{kind}-{what}", str(value)) for kind, value in values.items() if value is not None]


def lane(s: Scene, channel: str = "a", name: str = "requests_per_minute") -> Reading:
    (found,) = [each for each in s.gateway.paces()[channel].lanes if each.name == name]
    return found


def learned(s: Scene) -> list[tuple[float, float]]:
    return [(event.was, event.limit) for event in s.events if isinstance(event, LimitLearned)]


async def every_second(s: Scene, seconds: int) -> list[str]:
    """A call a second; who answered, or which limiter did not let it."""
    ends = []
    for _ in range(seconds):
        reply = await s.post()
        ends.append("ok" if reply.status == 200 else reply.json["error"]["limiter"])
        await trio.sleep(1)
    return ends


async def test_a_limit_that_is_halved_without_a_word_is_found_and_found_again_when_it_is_back(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", channel=LIMITED) as s:
        provider = Metered(60)
        s.a.script(provider)
        start = trio.current_time()
        assert await every_second(s, 120) == ["ok"] * 120
        provider.limit = 30
        ends = await every_second(s, 480)
        # Its bucket lasts for the first minute. Then one refusal a minute teaches, and later one in two.
        assert [round(at - start) for at in provider.refused] == [179, 227, 291, 407, 539]
        assert (ends.count("provider"), ends.count("learned.requests_per_minute")) == (5, 212)
        settled = [at for at in provider.answered if 300 <= at - start < 600]
        assert len(settled) == 148  # of the 150 that it gives in five minutes
        provider.limit = 60
        await every_second(s, 120)
        assert lane(s).allowance == 60
        assert await every_second(s, 300) == ["ok"] * 300
        assert learned(s)[0] == (60, 39.5)
        assert learned(s)[-1][1] == 60
        assert max(limit for _, limit in learned(s)) <= 60
        readings = s.gateway.paces()["a"]
        assert (readings.rejected, readings.passed_over) == (5, 239)


async def test_a_limit_that_is_halved_with_headers_costs_no_refusal(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        provider = Metered(60, tells=True)
        s.a.script(provider)
        assert await every_second(s, 30) == ["ok"] * 30
        provider.limit = 30
        ends = await every_second(s, 300)
        assert provider.refused == []
        assert (ends.count("ok"), ends.count("provider.requests_per_minute")) == (179, 121)
        assert learned(s) == [(0, 60), (60, 30)]
        provider.limit = 60
        await trio.sleep(2)
        await every_second(s, 1)
        assert (lane(s).announced, lane(s).allowance, learned(s)[-1]) == (60, 60, (30, 60))


async def test_a_refusal_for_reasons_of_its_own_takes_little(autojump_clock: MockClock) -> None:
    """Its headers show plenty left: mild, once per news, and all is back after two minutes at the latest."""
    async with scene("a", channel=LIMITED) as s:
        provider = Metered(600, tells=True, retry_after="2")
        s.a.script(provider)
        await every_second(s, 60)
        provider.quirk = True
        assert await every_second(s, 1) == ["provider"]
        provider.quirk = False
        assert lane(s).tried == pytest.approx(0.85 * lane(s).used, abs=1)
        ((was, limit),) = learned(s)
        assert (was, round(limit)) == (60, 32)
        await trio.sleep(2)
        ends = await every_second(s, 240)
        assert len(provider.refused) == 1
        assert ends.count("learned.requests_per_minute") == 54
        assert lane(s).tried is None


async def test_a_refusal_of_a_channel_that_is_hardly_used_leaves_a_tenth_at_least(autojump_clock: MockClock) -> None:
    async with scene("a", channel=LIMITED) as s:
        s.a.script(steps.error(429, headers=[("retry-after", "1")]), steps.chat_answer("hello"))
        await s.post()
        assert lane(s).allowance == 6
        await trio.sleep(1)
        assert await every_second(s, 3) == ["ok"] * 3


@pytest.mark.parametrize("limit", [60, None], ids=["limit", "no limit"])
async def test_nothing_is_sent_until_what_is_used_up_is_back(limit: int | None, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_answer("hello", headers=told(limit, 0, "3s")), steps.chat_answer("hello"))
        assert (await s.post()).status == 200
        await trio.sleep(0.5)
        reply = await s.post()
        error = reply.json["error"]
        assert (reply.status, reply.headers["retry-after"], reply.headers["x-should-retry"]) == (429, "3", "true")
        assert (error["gateway_decision"], error["limiter"]) == (
            "rejected_before_dispatch",
            "provider.requests_per_minute",
        )
        assert error["retry_after_ms"] == 2500
        await trio.sleep(2.375)
        assert (await s.post()).json["error"]["retry_after_ms"] == 125
        assert s.hits() == "a=1"
        await trio.sleep(0.125)
        assert (await s.post()).status == 200
        assert s.hits() == "a=2"
        await s.rest(0)
        refusals = [ended for ended in s.ended if ended.reason is EndReason.REFUSED_QUOTA]
        assert [(each.limiter, each.scope, each.wait) for each in refusals] == [
            ("provider.requests_per_minute", "a", 2.5),
            ("provider.requests_per_minute", "a", 0.125),
        ]
        assert (s.gateway.paces()["a"].passed_over, s.gateway.paces()["a"].rejected) == (2, 0)


async def test_a_channel_that_has_nothing_left_is_passed_over_for_the_next(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.chat_answer("hello", headers=told(60, 0, "3s")), steps.chat_answer("hello"))
        s.b.script(steps.chat_answer("hello"))
        await s.post()
        reply = await s.post()
        assert (reply.status, reply.headers["x-trioproxy-channel"]) == (200, "b")
        await s.rest(0)
        why = "its provider has 0 left of requests_per_minute = 60 and this call needs 1; wait 3.0 s"
        assert s.ended[1].skipped == (("a", why),)
        await trio.sleep(3)
        assert (await s.post()).headers["x-trioproxy-channel"] == "a"


async def test_tokens_that_do_not_cover_the_next_call_let_smaller_ones_pass(autojump_clock: MockClock) -> None:
    """A bucket: what a call needs is back long before the reset."""
    async with scene(
        "a", toml=key(rest="limits = { tokens_per_minute = 1000000 }"), channel='provider = "openai"'
    ) as s:
        s.a.script(steps.chat_answer("hello", headers=told(60_000, 500, "59.5s", "tokens")), steps.chat_answer("hello"))
        await s.post(headers=bearer())
        assert (await s.post(headers=bearer(), max_tokens=400)).status == 200  # leaves 100
        error = (await s.post(headers=bearer(), max_tokens=600)).json["error"]
        assert (error["limiter"], error["retry_after_ms"]) == ("provider.tokens_per_minute", 500)
        assert error["estimated_output_tokens"] == 600
        await trio.sleep(0.5)
        assert (await s.post(headers=bearer(), max_tokens=600)).status == 200


@pytest.mark.parametrize("provider, status", [("openai", 429), ("anthropic", 200), ("other", 200)])
async def test_a_cap_counts_where_the_provider_charges_it_up_front(
    provider: str, status: int, autojump_clock: MockClock
) -> None:
    """No limits are configured, so nothing was measured."""
    header = "anthropic-ratelimit-tokens-" if provider == "anthropic" else "x-ratelimit-%s-tokens"
    names = [header % kind if "%" in header else header + kind for kind in ("limit", "remaining", "reset")]
    async with scene("a", channel=f'provider = "{provider}"') as s:
        headers = list(zip(names, ("60000", "500", "59"), strict=True))
        s.a.script(steps.chat_answer("hello", headers=headers), steps.chat_answer("hello"))
        await s.post()
        assert lane(s, name="tokens_per_minute").remaining == 500
        assert (await s.post(max_tokens=5000)).status == status


@pytest.mark.parametrize(
    "headers",
    [
        told("-1", "-1", "3s"),
        told("abc", "", "soon"),
        told("0", "0", "0"),
        told("1e400", "NaN", "inf"),
        told("9" * 400, "9" * 400, "9" * 400),
        told(60, "-5", "3s"),
        told(None, 0),
    ],
    ids=str,
)
async def test_what_cannot_be_changes_nothing(headers: list[tuple[str, str]], autojump_clock: MockClock) -> None:
    async with scene("a", channel=LIMITED) as s:
        s.a.script(steps.chat_answer("hello", headers=headers))
        assert [(await s.post()).status for _ in range(3)] == [200, 200, 200]
        assert (lane(s).allowance or 0) <= 60
        assert (lane(s).remaining or 0) >= 0


async def test_a_provider_that_lies_about_its_end_is_asked_once_a_minute(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_answer("hello", headers=told(60, 0, "24h")))
        ends = await every_second(s, 181)
        assert [second for second, end in enumerate(ends) if end == "ok"] == [0, 60, 120, 180]


async def test_an_announced_limit_above_the_configured_one_raises_nothing(autojump_clock: MockClock) -> None:
    async with scene("a", channel="limits = { requests_per_minute = 3 }") as s:
        s.a.script(steps.chat_answer("hello", headers=told(10_000, 9_999, "6ms")))
        assert [(await s.post()).status for _ in range(4)] == [200, 200, 200, 429]
        assert (lane(s).allowance, lane(s).announced, learned(s)) == (3, 10_000, [])


async def test_calls_at_once_share_what_is_left(autojump_clock: MockClock) -> None:
    """Three are left and five come: what is on its way counts, although no answer has told of it yet."""
    async with scene("a") as s:
        s.a.script(
            steps.chat_answer("hello", headers=told(600, 3, "59.7s")), steps.after(1, steps.chat_answer("hello"))
        )
        await s.post()
        ends: list[int] = []

        async def call() -> None:
            ends.append((await s.post()).status)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
        assert sorted(ends) == [200, 200, 200, 429, 429]
        assert s.hits() == "a=4"


async def test_limits_that_only_observe_bound_nothing(autojump_clock: MockClock) -> None:
    async with scene("a", channel=LIMITED, toml="[quota]\nobserve = true") as s:
        s.a.script(steps.error(429, headers=[("retry-after", "1")]), steps.chat_answer("hello"))
        await s.post()
        assert s.gateway.paces()["a"].lanes == ()
        await trio.sleep(1)
        assert [(await s.post()).status for _ in range(20)] == [200] * 20


async def test_whose_word_a_429_was_is_counted_apart(autojump_clock: MockClock) -> None:
    """Ours, the provider's, and those that came while the channel rested after that."""
    async with scene("a", toml=key(rest="limits = { requests_per_day = 6 }")) as s:
        s.a.script(
            steps.error(429, headers=[("retry-after", "2")]),
            steps.chat_answer("hello", headers=told(60, 0, "3s")),
            steps.chat_answer("hello"),
        )
        ends = []
        for _ in range(10):
            ends.append((await s.post(headers=bearer())).json.get("error", {}).get("limiter", "ok"))
            await trio.sleep(1)
        paced = "provider.requests_per_minute"
        assert ends == ["provider", "provider", "ok", paced, paced, "ok", "ok", "ok", "ok", "ok"]
        assert (await s.post(headers=bearer())).json["error"]["limiter"] == "key.requests_per_day"
        await s.rest(0)
        counted = s.gateway.rejections
        assert counted.rejected_before_dispatch == 3
        assert (counted.admitted_then_provider_rejected, counted.resting) == (1, 1)


async def test_a_call_that_could_not_be_sent_counts_for_nothing(autojump_clock: MockClock) -> None:
    async with scene("a", channel="limits = { requests_per_minute = 60, concurrency = 1 }\nslot_timeout = 0.0") as s:
        s.a.script(steps.after(5, steps.chat_answer("hello", headers=told(60, 50, "10s"))))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s.post)
            await trio.sleep(1)
            assert lane(s).used == pytest.approx(1, abs=0.02)
            assert (await s.post()).status == 429  # of the channel's own concurrency, after the pace had let it pass
            assert lane(s).used == pytest.approx(1, abs=0.02)


async def test_a_caller_who_leaves_before_its_call_was_sent_counts_for_nothing(autojump_clock: MockClock) -> None:
    async with scene("a", channel=f"{LIMITED}\nmax_concurrency = 1\nslot_timeout = 60.0") as s:
        s.a.script(steps.after(5, steps.chat_answer("hello", headers=told(60, 50, "10s"))))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s.post)
            await trio.sleep(1)
            with trio.move_on_after(1):
                async with s.gateway.dispatch(Request.post("/v1/chat/completions", PROMPT)):
                    pytest.fail("there is no place for it")
            assert lane(s).used == pytest.approx(1, abs=0.06)
        assert s.hits() == "a=1"
        await s.rest()
        assert s.held() == {}


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
async def test_wherever_a_caller_leaves_what_was_sent_is_counted(streamed: bool, autojump_clock: MockClock) -> None:
    """Never less than the provider saw; and a call more only where it was cut while we were connecting or sending."""
    between = []

    async def visit(s: Scene, streamed: bool, at: int) -> bool:
        hits = s.a.hits
        used = sum(each.used for each in s.gateway.paces()["a"].lanes)
        cut = await embedded(s, streamed, at)
        await trio.testing.wait_all_tasks_blocked()
        counted = round(lane(s).used - used) if s.gateway.paces()["a"].lanes else 0
        assert s.a.hits - hits <= counted <= 1
        between.append(counted - (s.a.hits - hits))
        return cut

    async with scene("a", channel="limits = { requests_per_minute = 100000 }") as s:
        await cut_everywhere(s, visit, streamed=streamed, script=scripted(steps.chat("hello")))
        assert len(between) > 5
        assert between[-1] == 0
