"""Two features at once: what each promises holds beside the other."""

from pathlib import Path

import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, left
from tests.acceptance.queued import Crowd, line, of_class
from tests.fakes import steps
from tests.scene import CHAT, PROMPT, scene
from tests.store.test_memory import killed
from trioproxy.journal import BudgetNearing, EndReason, Switched
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

OTHER = '[[models]]\nname = "n"\nchannels = [{ channel = "b", model = "n" }]\n'
THROTTLED = steps.error(429, headers=[("retry-after", "7")])


async def test_a_limit_and_a_rest_agree_on_one_wait(autojump_clock: MockClock) -> None:
    """A is at its limit for a minute and B rests for 7 s: header and body say 7 s, and then B answers."""
    limits = {"a": "limits = { requests_per_minute = 1 }"}
    async with scene("a", "b", channel=limits) as s:
        s.a.script(steps.chat("from a"))
        s.b.script(THROTTLED, steps.chat("from b"))
        assert (await s.post()).status == 200
        await s.post()  # brings B to rest
        reply = await s.post()
        error = reply.json["error"]
        assert (reply.status, reply.headers["retry-after"], error["retry_after_ms"]) == (429, "7", 7000)
        assert (error["limiter"], error["gateway_decision"]) == (
            "channel.requests_per_minute",
            "rejected_before_dispatch",
        )
        await trio.sleep(7)
        assert (await s.post()).json["choices"][0]["message"]["content"] == "from b"


async def test_where_everybody_rests_nothing_was_dispatched(autojump_clock: MockClock) -> None:
    async with scene("a", toml=key()) as s:
        s.a.script(THROTTLED)
        first, second = [(await s.post(headers=bearer())).json["error"] for _ in range(2)]
        assert (first["gateway_decision"], second["gateway_decision"], s.a.hits) == (
            "admitted_then_provider_rejected",
            "rejected_before_dispatch",
            1,
        )
        assert (second["limiter"], second["retry_after_ms"]) == ("provider", 7000)


async def test_a_stand_in_that_fails_too_is_named_by_no_header(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OTHER, model='fallback = [{ model = "n" }]', links=("a",)) as s:
        s.a.script(steps.error(503))
        s.b.script(steps.error(503), steps.chat("from n"))
        failed, answered = await s.post(), await s.post()
        assert (failed.status, failed.headers.get("x-trioproxy-fallback")) == (503, None)
        assert (answered.status, answered.headers["x-trioproxy-fallback"]) == (200, "n")


async def test_a_drain_that_cuts_a_queued_call_is_recorded_as_it_was_told(autojump_clock: MockClock) -> None:
    toml = "[classes.batch]\n[organization]\nlimits = { concurrency = 1 }\n"
    async with scene("a", toml=toml) as s, trio.open_nursery() as nursery:
        s.a.script(steps.silence())
        crowd = Crowd(s, nursery)
        crowd.send("holds", of_class("batch"))
        await s.rest(1)
        crowd.send("waits", of_class("batch"))
        await s.rest(1)
        assert line(s, "batch").waiting == 1
        s.door.stop()
        await s.rest(1)
        assert crowd.statuses() == {"holds": 503, "waits": 503}
        assert [(each.reason, each.status) for each in s.ended] == [(EndReason.DRAINED, 503)] * 2
        assert s.held() == {}


async def test_a_candidate_that_fails_is_blamed_although_a_stand_in_answered(autojump_clock: MockClock) -> None:
    """The rollout learns of it, its arm is told, nobody takes the stand-in for the model's own channel."""
    rollout = (
        '[[rollouts]]\nmodel = "m"\ncandidate = [{ channel = "c", model = "new" }]\nsteps = [100]\nstarted = true\n'
    )
    fallback = 'fallback = [{ model = "n" }]'
    async with scene("a", "b", "c", toml=OTHER + rollout, model=fallback, links=("a",)) as s:
        s.a.script(steps.error(503))
        s.c.script(steps.error(503))
        s.b.script(steps.chat("from n"))
        for _ in range(2):
            reply = await s.post()
            assert (reply.status, reply.headers["x-trioproxy-fallback"], reply.headers["x-trioproxy-arm"]) == (
                200,
                "n",
                "candidate",
            )
        await s.rest()
        assert [(each.arm, each.fallback, each.refused) for each in s.ended] == [("candidate", "n", False)] * 2
        (arms,) = s.gateway.rollouts().values()
        assert (arms.candidate.calls, arms.candidate.failed) == (2, 1.0)
        assert s.gateway.readings()["m"].keys().isdisjoint({"b"})
        preferred = 9 * 3 + 3 * 12  # of nine tokens and three at the candidate's price
        assert s.ended[0].preferred_cost == preferred


async def test_a_full_queue_says_nothing_of_a_rollouts_arm(autojump_clock: MockClock) -> None:
    rollout = (
        '[[rollouts]]\nmodel = "m"\ncandidate = [{ channel = "a", model = "new" }]\nsteps = [100]\nstarted = true\n'
    )
    model = 'limits = { concurrency = 1 }\nfallback = [{ model = "n" }]'
    async with scene("a", "b", toml=OTHER + rollout + "[classes.interactive]\n", model=model) as s:
        s.a.script(steps.chat_answer("from a", delay=5))
        s.b.script(steps.chat("from n"))
        async with trio.open_nursery() as nursery:
            crowd = Crowd(s, nursery)
            crowd.send("first", of_class("interactive"))
            await s.rest(1)
            crowd.send("second", of_class("interactive"))
        assert [crowd.replies[name].headers.get("x-trioproxy-arm") for name in ("first", "second")] == [
            "candidate",
            None,
        ]
        (arms,) = s.gateway.rollouts().values()
        assert (arms.candidate.calls, arms.candidate.failed) == (1, 0.0)


async def test_a_stand_in_is_no_switch_and_what_was_passed_over_is_told(autojump_clock: MockClock) -> None:
    """A is at its limit and B out: the stand-in's channel becomes no first choice of the model, however often it answers."""
    limits = {"a": "limits = { requests_per_minute = 1 }", "b": 'breaker = { preset = "consecutive", failures = 1 }'}
    spare = '[[models]]\nname = "n"\nchannels = [{ channel = "c", model = "n" }]\n'
    fallback = 'fallback = [{ model = "n" }]'
    async with scene("a", "b", "c", toml=spare, channel={"c": "", **limits}, model=fallback, links=("a", "b")) as s:
        s.a.script(steps.chat("from a"))
        s.b.script(steps.error(503))
        s.c.script(steps.chat("from n"))
        for _ in range(12):
            assert (await s.post()).status == 200
        assert "c" not in {event.channel for event in s.events if isinstance(event, Switched)}
        assert [channel for channel, _ in s.ended[-1].skipped] == ["b", "a"]
        s.c.script(steps.error(503))
        for _ in range(12):
            assert (await s.post()).status in {429, 503}
        assert "c" not in {event.channel for event in s.events if isinstance(event, Switched)}


async def test_a_model_that_the_last_channel_does_not_know_is_not_why_the_chain_failed(
    autojump_clock: MockClock,
) -> None:
    """Answer and record name the same fault."""
    wild = '[[models]]\nname = "w/*"\nchannels = [{ channel = "a", model = "*" }, { channel = "b", model = "*" }]\n'
    async with scene("a", "b", toml=wild) as s:
        s.a.script(steps.error(529))
        s.b.script(steps.error(404))
        assert (await s.post(model="w/x")).status == 529
        await s.rest()
        assert (s.ended[0].reason, s.ended[0].status) == (EndReason.CHAIN_EXHAUSTED, 529)


async def test_a_queue_that_waits_for_a_channels_limit_says_the_same_wait_twice(autojump_clock: MockClock) -> None:
    queue = "[classes.batch]\n[classes.batch.queue]\nmax_wait = 3\n"
    async with scene("a", toml=queue, channel="limits = { concurrency = 1 }") as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("slow", delay=10))
        crowd = Crowd(s, nursery)
        crowd.send("holds", of_class("batch"))
        await s.rest(1)
        crowd.send("waits", of_class("batch"))
        await s.rest(4)
        refused = crowd.replies["waits"]
        assert (refused.status, refused.json["error"]["code"]) == (429, "queue_timeout")
        assert (refused.headers["retry-after"], refused.json["error"]["retry_after_ms"]) == ("1", 1000)
        assert refused.headers["x-should-retry"] == "true"


async def test_keepalives_begin_behind_the_queue(autojump_clock: MockClock) -> None:
    """Two seconds in the queue are silent and keep the status free; then silence of the upstream is filled."""
    toml = "[classes.kept]\nkeepalive_after = 1\n[classes.kept.queue]\nmax_wait = 5\n[organization]\nlimits = { concurrency = 1 }\n"
    async with scene("a", toml=toml) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("first", delay=2), steps.chat_stream(["second"], delay=3.5))
        crowd = Crowd(s, nursery)
        crowd.send("first", of_class("kept"))
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        stream = await s.open_stream(headers=of_class("kept"))
        assert (stream.status, stream.arrived - began) == (200, 3.0)
        await stream.rest()
        assert stream.frames[:3] == [b": keepalive\n\n"] * 3
        assert stream.text() == "second"
        await s.rest()
        assert (s.ended[-1].queued, s.ended[-1].reason, s.held()) == (2.0, EndReason.ANSWERED, {})


async def test_an_assured_call_holds_its_turn_until_it_ended_well_somewhere(autojump_clock: MockClock) -> None:
    """Cut at A after content, whole from B: the next in line is served only then, and both places are free afterwards."""
    toml = '[classes.assured]\nmode = "assured"\n[classes.assured.queue]\nmax_wait = 30\n[organization]\nlimits = { concurrency = 1 }\n'
    async with scene("a", "b", toml=toml) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_stream(["x"] * 3, every=1, end="reset"), steps.chat("second"))
        s.b.script(steps.chat_stream(["whole ", "answer"], every=2))
        crowd = Crowd(s, nursery)
        first = await s.client()
        await first.wire.send(first.request("POST", CHAT, {**PROMPT, "stream": True}, of_class("assured")))
        await s.a.wait_hits(1)
        crowd.send("second", of_class("assured"))
        stream = await first.streamed()
        await stream.rest()
        assert (stream.text(), s.b.hits) == ("whole answer", 1)
        await s.rest()
        first.close()
        assert crowd.statuses() == {"second": 200}
        assert crowd.when["second"] >= 7.0
        assert s.held() == {}


async def test_what_only_observes_lets_a_queues_pool_pass_too(autojump_clock: MockClock) -> None:
    toml = (
        "[quota]\nobserve = true\n[classes.eval]\n[classes.eval.queue]\nmax_wait = 5\ntokens_per_minute = 100\n"
        "[organization]\nlimits = { concurrency = 1, requests_per_minute = 1 }\n"
    )
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat_answer("hello", delay=1))
        async with trio.open_nursery() as nursery:
            crowd = Crowd(s, nursery)
            for number in range(4):
                crowd.send(str(number), of_class("eval"))
        assert set(crowd.statuses().values()) == {200}
        assert s.gateway.quota().observed
        assert s.held() == {}


async def test_a_place_at_a_channel_is_handed_over_and_failover_waits_for_the_next_one(
    autojump_clock: MockClock,
) -> None:
    """A's place came with the turn; B's is waited for by `slot_timeout`, and not longer."""
    toml = "[classes.batch]\n[classes.batch.queue]\nmax_wait = 20\n[organization]\nlimits = { concurrency = 9 }\n"
    async with scene("a", "b", toml=toml, channel="max_concurrency = 1\nslot_timeout = 2") as s:
        s.a.script(steps.after(1, steps.error(503)))
        s.b.script(steps.chat_answer("from b", delay=2), steps.chat_answer("from b", delay=9))
        async with trio.open_nursery() as nursery:
            crowd = Crowd(s, nursery)
            for name in ("a first", "b first", "third"):
                crowd.send(name, of_class("batch"))
                await trio.testing.wait_all_tasks_blocked()
        # The third has A's place as soon as the first one fails there, and then waits for B in vain: the first one has it.
        assert crowd.statuses() == {"b first": 200, "third": 503, "a first": 200}
        assert crowd.when == {"b first": 2.0, "third": 4.0, "a first": 11.0}
        assert s.held() == {}
        assert s.a.open <= 1


async def test_a_budget_is_told_of_when_a_queue_grants_the_call_that_nears_it(autojump_clock: MockClock) -> None:
    toml = (
        "[classes.batch]\n[organization]\nlimits = { concurrency = 1 }\n"
        '[[tenants]]\nname = "default"\nbudget = { day = 0.004, alert_at = 0.8 }\n'
    )
    async with scene("a", toml=toml, channel={"a": ""}) as s:
        s.a.script(steps.chat_answer("hello", delay=2, usage=(9, 3)))
        async with trio.open_nursery() as nursery:
            crowd = Crowd(s, nursery)
            crowd.send("small", of_class("batch"), max_tokens=10)
            await trio.testing.wait_all_tasks_blocked()
            crowd.send("large", of_class("batch"), max_tokens=850)
            await s.rest(1)
            assert [event for event in s.events if isinstance(event, BudgetNearing)] == []
            await s.rest(2)
            (near,) = [event for event in s.events if isinstance(event, BudgetNearing)]
            assert (near.limiter, near.now) == ("tenant.micro_usd_per_day", 2.0)
        assert crowd.statuses() == {"small": 200, "large": 200}


async def test_a_balance_that_is_used_up_is_no_reason_for_another_model(autojump_clock: MockClock) -> None:
    toml = OTHER + '[[tenants]]\nname = "default"\nbalance = 0.000001\n[classes.interactive]\n'
    async with scene("a", "b", toml=toml, model='fallback = [{ model = "n" }]', links=("a",)) as s:
        reply = await s.post(headers=of_class("interactive"))
        assert (reply.status, s.hits()) == (402, "a=0 b=0")
        assert reply.headers["x-should-retry"] == "false"


async def test_a_provider_that_is_not_paid_is_one(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OTHER, model='fallback = [{ model = "n" }]', links=("a",)) as s:
        s.a.script(steps.error(402))
        s.b.script(steps.chat("from n"))
        assert [(await s.post()).headers["x-trioproxy-fallback"] for _ in range(2)] == ["n", "n"]
        assert s.hits() == "a=1 b=2"


async def test_a_channel_with_nothing_left_by_its_providers_word_leads_to_the_stand_in(
    autojump_clock: MockClock,
) -> None:
    nothing = [
        ("x-ratelimit-limit-requests", "10"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "30s"),
    ]
    toml = OTHER
    async with scene(
        "a",
        "b",
        toml=toml,
        channel={"a": 'provider = "openai"', "b": ""},
        model='fallback = [{ model = "n" }]',
        links=("a",),
    ) as s:
        s.a.script(steps.chat_answer("from a", headers=nothing))
        s.b.script(steps.chat("from n"))
        assert [(await s.post()).headers.get("x-trioproxy-fallback") for _ in range(3)] == [None, "n", "n"]
        assert s.hits() == "a=1 b=2"
        await trio.sleep(31)
        assert "x-trioproxy-fallback" not in (await s.post()).headers


async def test_a_last_resort_has_one_call_at_a_time_for_those_who_wait(autojump_clock: MockClock) -> None:
    breaker = 'breaker = { preset = "consecutive", failures = 1 }'
    toml = "[classes.batch]\n[classes.batch.queue]\nmax_wait = 10\n[organization]\nlimits = { concurrency = 2 }\n"
    async with scene("a", toml=toml, channel=breaker, model='when_out = "last-resort"') as s:
        s.a.script(steps.error(500), steps.after(2, steps.chat("well")))
        assert (await s.post(headers=of_class("batch"))).status == 500
        async with trio.open_nursery() as nursery:
            crowd = Crowd(s, nursery)
            for number in range(3):
                crowd.send(str(number), of_class("batch"))
        assert s.held() == {}
        assert 200 in crowd.statuses().values()
        assert s.a.hits <= 4
        assert s.breaker() == "closed"


async def test_a_restart_counts_what_a_stand_in_answered_for_the_stand_in(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """What came behind the last snapshot is counted anew where it was counted before, and not for the model asked for."""
    (tmp_path / "state").mkdir()
    spare = OTHER.replace("[[models]]\n", "[[models]]\nlimits = { tokens_per_day = 10000 }\n", 1)
    model = 'limits = { tokens_per_day = 20000 }\nfallback = [{ model = "n" }]'

    def toml(path: Path) -> str:
        return f'{spare}[state]\npath = "{path}"\nsnapshot_every = 1000\n'

    async with scene("a", "b", toml=toml(tmp_path / "state" / "ledger.db"), model=model, links=("a",)) as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat("from n"))
        assert (await s.post()).headers["x-trioproxy-fallback"] == "n"
        await s.rest()
        assert left(s, Rank.MODEL, Dimension.TOKENS_PER_DAY, "n") == 10_000 - 12
        copy = killed(tmp_path / "state")
    async with scene("a", "b", toml=toml(copy), model=model, links=("a",)) as s:
        assert left(s, Rank.MODEL, Dimension.TOKENS_PER_DAY, "n") == 10_000 - 12
        assert not [gauge for gauge in s.gateway.limits() if gauge.scope.name == "m" and gauge.remaining < gauge.limit]


async def test_a_drain_ends_a_stream_of_keepalives_with_a_word(autojump_clock: MockClock) -> None:
    """Nothing is decided when the time is over: the reader, who has a 200, is told that there is no answer."""
    toml = '[classes.kept]\nkeepalive_after = 1\n[listen]\ndata = "127.0.0.1:0"\ndrain_timeout = 5\n'
    async with scene("a", toml=toml) as s, trio.open_nursery() as nursery:
        await nursery.start(s.door.run)
        s.a.script(steps.silence())
        stream = await s.open_stream(headers=of_class("kept"))
        await stream.frame()
        began = trio.current_time()
        s.door.drain()
        await stream.rest()
        assert (stream.complete, trio.current_time() - began) == (True, 5.0)
        assert '"code":"shutting_down"' in stream.frames[-1].decode()
        await s.rest()
        assert [(each.reason, each.status) for each in s.ended] == [(EndReason.DRAINED, 200)]
        assert (s.held(), s.failures()) == ({}, 0)
