"""What is refused for want of quota, and how it is said: 429 in one schema, budgets, 402, headers, channels' own limits."""

from datetime import datetime

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, left, tenant
from tests.fakes import steps
from tests.scene import scene
from trioproxy.journal import EndReason
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

REQUESTS = Dimension.REQUESTS_PER_DAY
DAY = Dimension.TOKENS_PER_DAY


async def test_a_refusal_says_which_limit_whose_and_how_long(autojump_clock: MockClock) -> None:
    toml = tenant("limits = { requests_per_minute = 60, burst = 1.0 }") + key(rest='tenant = "acme"')
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello"))
        assert (await s.post(headers=bearer())).status == 200
        reply = await s.post(headers=[*bearer(), ("traceparent", trace)])
        assert (reply.status, reply.headers["retry-after"], reply.headers["x-should-retry"]) == (429, "1", "true")
        error = reply.json["error"]
        message = error.pop("message")
        assert "the tenant 'acme' has 0 left of requests_per_minute = 60 and this call needs 1; wait 1.0 s" in message
        assert error == {
            "type": "rate_limited",
            "param": None,
            "code": "rate_limit_exceeded",
            "limiter": "tenant.requests_per_minute",
            "provider": "a",
            "model": "m",
            "provider_model": "a-model",
            "retry_after_ms": 1000,
            "tenant_id": "acme",
            "api_key_id": "k",
            "request_class": "default",
            "estimated_input_tokens": 0,
            "estimated_output_tokens": 0,
            "gateway_decision": "rejected_before_dispatch",
            "fallback_allowed": False,
            "trace_id": "0af7651916cd43dd8448eb211c80319c",
        }
        ended = s.ended[1]
        assert (ended.reason, ended.status, ended.note) == (EndReason.REFUSED_QUOTA, 429, "rate_limit_exceeded")
        assert (ended.limiter, ended.scope, ended.wait) == ("tenant.requests_per_minute", "acme", 1.0)
        assert (ended.model, ended.key_id, ended.tenant, ended.usage.output) == ("m", "k", "acme", 0)
        await trio.sleep(1)
        assert (await s.post(headers=bearer())).status == 200
        assert s.gateway.quota().denials == {(Rank.TENANT, Dimension.REQUESTS_PER_MINUTE): 1}


@pytest.mark.parametrize("limits", ["", "limits = { tokens_per_day = 5000 }"], ids=["no limits", "limits"])
async def test_a_providers_429_has_the_same_schema_and_is_told_apart(limits: str, autojump_clock: MockClock) -> None:
    async with scene("a", toml=key(rest=limits), channel='provider = "openai"') as s:
        s.a.script(steps.error(429, headers=[("retry-after", "7")]))
        error = (await s.post(headers=bearer())).json["error"]
        assert (error["type"], error["code"]) == ("rate_limited", "rate_limit_exceeded")
        assert (error["gateway_decision"], error["limiter"]) == ("admitted_then_provider_rejected", "provider")
        assert (error["provider"], error["provider_model"], error["retry_after_ms"]) == ("openai", "a-model", 7000)
        assert error["estimated_output_tokens"] == (2048 if limits else 0)
        await s.rest()
        assert s.ended[0].reason is EndReason.CHAIN_EXHAUSTED
        assert s.held() == {}


async def test_every_answer_tells_what_the_caller_has_left(autojump_clock: MockClock) -> None:
    limits = "limits = { requests_per_minute = 60, tokens_per_minute = 6000, tokens_per_day = 50000, concurrency = 9 }"
    shared = "[organization]\nlimits = { requests_per_minute = 30 }\n"
    async with scene("a", toml=shared + key(rest=limits)) as s:
        s.a.script(steps.chat_answer("hello"))
        headers = (await s.post(headers=bearer(), max_tokens=89)).headers
        assert {name: value for name, value in headers.items() if "ratelimit" in name} == {
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-remaining-requests": "59",
            "x-ratelimit-reset-requests": "1s",
            "x-ratelimit-limit-tokens": "6000",
            "x-ratelimit-remaining-tokens": "5900",
            "x-ratelimit-reset-tokens": "1s",
            "ratelimit-policy": '"key.requests_per_minute";q=60;w=60, "key.tokens_per_minute";q=6000;qu="tokens";w=60, '
            '"key.tokens_per_day";q=50000;qu="tokens";w=86400',
            "ratelimit": '"key.requests_per_minute";r=59;t=1, "key.tokens_per_minute";r=5900;t=1, '
            '"key.tokens_per_day";r=49900;t=28800',
        }
        stream = await s.stream(headers=bearer())
        assert stream.headers["x-ratelimit-remaining-requests"] == "58"
        s.a.script(steps.error(503))
        failed = await s.post(headers=bearer())
        assert (failed.status, failed.headers["x-ratelimit-limit-requests"]) == (503, "60")


async def test_a_budget_stops_hard_with_its_own_code(autojump_clock: MockClock) -> None:
    """A call is 40 + 4 * 100 micro-dollars at most; a budget of 500 holds one at once."""
    toml = "[quota]\noutput = 100\n" + key(rest="budget = { day = 0.0005 }")
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello", usage=(40, 50), delay=1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s.post, None, bearer())
            await trio.sleep(0.5)
            reply = await s.post(headers=bearer())
            assert (reply.status, reply.json["error"]["code"]) == (429, "budget_exceeded")
        await trio.sleep(0.5)
        reply = await s.post(headers=bearer())
        error = reply.json["error"]
        assert (reply.status, error["code"], error["limiter"]) == (429, "budget_exceeded", "key.micro_usd_per_day")
        assert "has 0.000260 USD left" in error["message"]
        assert reply.headers["x-should-retry"] == "false"
        assert reply.headers["retry-after"] == str(8 * 3600 - 1)  # the scene begins at 16:00 UTC
        assert s.hits() == "a=1"


async def test_a_used_up_balance_is_402_and_final(autojump_clock: MockClock) -> None:
    """A call is 822 micro-dollars at most, at the price of the dearer channel, and 240 at that of the one that answers."""
    toml = "[quota]\noutput = 100\n" + tenant("balance = 0.001") + key(rest='tenant = "acme"')
    async with scene("a", "b", toml=toml) as s:
        s.a.script(steps.chat_answer("hello", usage=(40, 50)))
        assert (await s.post(headers=bearer())).status == 200
        await s.rest()
        reply = await s.post(headers=bearer())
        assert (reply.status, reply.json["error"]["code"]) == (402, "insufficient_balance")
        assert reply.headers["x-should-retry"] == "false"
        assert "retry-after" not in reply.headers
        assert s.hits() == "a=1 b=0"
        assert (s.ended[1].reason, s.ended[1].wait) == (EndReason.REFUSED_QUOTA, None)
        await trio.sleep(86_400)
        assert (await s.post(headers=bearer())).status == 402


async def test_a_key_has_its_tiers_limits_and_may_override_them(autojump_clock: MockClock) -> None:
    toml = key("free", 'tier = "free"') + key("own", 'tier = "free"\nlimits = { requests_per_minute = 7 }')
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello"))
        free, own = [(await s.post(headers=bearer(name))).headers for name in ("free", "own")]
        assert (free["x-ratelimit-limit-requests"], free["x-ratelimit-limit-tokens"]) == ("60", "10000")
        assert (own["x-ratelimit-limit-requests"], own["x-ratelimit-limit-tokens"]) == ("7", "10000")
        assert left(s, Rank.KEY, REQUESTS, "free") == left(s, Rank.KEY, REQUESTS, "own") == 999


async def test_each_end_user_has_a_day_of_its_own(autojump_clock: MockClock) -> None:
    """By the body's `user` or our header, which wins; a call that names nobody is its key's alone."""
    toml = tenant("end_user = { limits = { requests_per_day = 1 } }") + key(rest='tenant = "acme"')
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello"))
        assert [(await s.post(headers=bearer(), user=user)).status for user in ("ann", "bob", "ann")] == [200, 200, 429]
        header = [*bearer(), ("x-trioproxy-user", "cem")]
        assert [(await s.post(headers=header, user="ann")).status for _ in range(2)] == [200, 429]
        assert [(await s.post(headers=bearer())).status for _ in range(3)] == [200] * 3
        assert b"x-trioproxy-user" not in repr(s.a.requests[0].headers).encode()


async def test_a_limiter_that_observes_counts_and_refuses_nothing(autojump_clock: MockClock) -> None:
    toml = key(rest='limits = { requests_per_day = 1, concurrency = 5, observe = ["requests_per_day"] }')
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello"))
        replies = [await s.post(headers=bearer()) for _ in range(4)]
        assert [reply.status for reply in replies] == [200] * 4
        assert "x-ratelimit-limit-requests" not in replies[0].headers
        assert (s.gateway.quota().observed, s.gateway.quota().denials) == ({(Rank.KEY, REQUESTS): 3}, {})


async def test_a_channel_at_its_limit_is_passed_over_and_takes_no_place(autojump_clock: MockClock) -> None:
    one = "limits = { requests_per_minute = 60, burst = 1.0 }"
    async with scene("a", "b", "c", channel=one, model="chain_max = 2") as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.chat_answer("hello"))
        replies = [await s.post() for _ in range(4)]
        assert [reply.status for reply in replies] == [200, 200, 200, 429]
        assert s.hits() == "a=1 b=1 c=1"
        skipped = dict(s.ended[2].skipped)
        assert (
            skipped["a"] == "the channel 'a' has 0 left of requests_per_minute = 60 and this call needs 1; wait 1.0 s"
        )
        error = replies[3].json["error"]
        assert (error["limiter"], error["gateway_decision"]) == (
            "channel.requests_per_minute",
            "rejected_before_dispatch",
        )
        assert replies[3].headers["retry-after"] == "1"
        await trio.testing.wait_all_tasks_blocked()
        assert (s.ended[3].reason, s.ended[3].limiter) == (EndReason.REFUSED_QUOTA, "channel.requests_per_minute")
        assert s.held() == {}
        await s.rest()
        assert ((await s.post()).status, s.hits()) == (200, "a=2 b=1 c=1")


async def test_a_call_that_fits_no_channel_at_any_time_is_not_told_to_wait(autojump_clock: MockClock) -> None:
    """A prompt of 11 tokens and an answer of up to 2048 are more than a channel's whole day."""
    async with scene("a", channel="limits = { tokens_per_day = 2050 }") as s:
        reply = await s.post()
        assert (reply.status, reply.json["error"]["code"]) == (503, "all_channels_exhausted")
        assert (reply.headers["x-should-retry"], reply.headers.get("retry-after")) == ("false", None)
        await s.rest()
        assert (s.ended[0].reason, s.ended[0].limiter) == (EndReason.REFUSED_QUOTA, "channel.tokens_per_day")
        assert s.ended[0].skipped[0][1].endswith("it never fits")


async def test_estimates_follow_what_answers_really_take(autojump_clock: MockClock) -> None:
    """Twenty answers of 3 tokens: the reservation falls from the cautious 2048 to the least there is, 64."""
    async with scene("a", toml=key(rest="limits = { tokens_per_day = 100000 }")) as s:
        s.a.script(steps.chat_answer("hello", usage=(20, 3)))
        for _ in range(21):
            assert (await s.post(headers=bearer())).status == 200
        await s.rest()
        outputs = [ended.estimated_output for ended in s.ended]
        assert outputs == [2048] * 20 + [64]
        assert [s.ended[0].estimated_input, s.ended[-1].estimated_input] == [11, 25]
        assert left(s, Rank.KEY, DAY) == 100_000 - 21 * 23


async def test_a_deadline_that_passed_at_a_full_channel_is_a_deadline(autojump_clock: MockClock) -> None:
    one = "limits = { requests_per_minute = 60, burst = 1.0 }"
    async with scene("a", "b", channel=one, toml="[defaults]\nmin_attempt = 5.0") as s:
        s.a.script(steps.chat_answer("hello"))
        assert (await s.post()).status == 200
        s.b.script(steps.error(503, headers=[("retry-after", "9")]))
        reply = await s.post(headers=[("x-request-timeout", "4")])
        assert (reply.status, reply.json["error"]["code"]) == (504, "deadline_exceeded")
        await s.rest()
        assert s.ended[1].reason is EndReason.DEADLINE
        assert s.held() == {}


async def test_without_limits_there_is_no_admission_and_nothing_is_told_of_any(autojump_clock: MockClock) -> None:
    async with scene("a", toml=key()) as s:
        s.a.script(steps.chat_answer("hello"))
        reply = await s.post(headers=bearer())
        assert s.gateway.line.admitter is None
        assert (reply.status, [name for name in reply.headers if "ratelimit" in name]) == (200, [])
        await s.rest()
        assert (s.ended[0].estimated_input, s.gateway.limits()) == (0, [])


async def test_names_with_a_slash_in_them_are_no_way_into_anothers_quota(autojump_clock: MockClock) -> None:
    """Tenant `a` with the user `b/c` is not tenant `a/b` with the user `c`."""
    one = "end_user = { limits = { requests_per_day = 1 } }"
    toml = tenant(one, "a") + tenant(one, "a/b") + key("one", 'tenant = "a"') + key("two", 'tenant = "a/b"')
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello"))
        assert (await s.post(headers=bearer("one"), user="b/c")).status == 200
        assert (await s.post(headers=bearer("two"), user="c")).status == 200
        assert (await s.post(headers=bearer("two"), user="c")).status == 429


async def test_a_stream_ends_where_its_limit_of_time_is_over(autojump_clock: MockClock) -> None:
    async with scene("a", toml=key(rest="limits = { stream = 5.0 }")) as s:
        s.a.script(steps.chat_stream(["x"] * 100, every=1.0))
        stream = await s.stream(headers=bearer())
        await s.rest()
        ended = s.ended[0]
        assert (ended.reason, ended.duration) == (EndReason.DEADLINE, 6.0)  # committed at 1.0
        assert b"deadline_exceeded" in stream.raw


async def test_a_day_ends_at_the_zones_midnight_on_the_day_the_clocks_change(autojump_clock: MockClock) -> None:
    """29 March 2026 has 23 hours in Berlin: what was used at 00:30 is back 22.5 hours later and not before."""
    toml = '[quota]\nzone = "Europe/Berlin"\n' + key(rest="limits = { requests_per_day = 2 }")
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello"))
        s.wall = datetime.fromisoformat("2026-03-29T00:30:00+01:00").timestamp()
        assert [(await s.post(headers=bearer())).status for _ in range(3)] == [200, 200, 429]
        refused = await s.post(headers=bearer())
        assert (refused.status, refused.headers["retry-after"]) == (429, str(int(22.5 * 3600)))
        await trio.sleep(22.5 * 3600 - 1)
        assert (await s.post(headers=bearer())).status == 429
        await trio.sleep(1)
        assert [(await s.post(headers=bearer())).status for _ in range(3)] == [200, 200, 429]
