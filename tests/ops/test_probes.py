"""Health checks in a whole gateway: when they go out, what they ask, what follows from them, and what they cost."""

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.asking import ask
from tests.acceptance.limited import left
from tests.fakes import steps
from tests.fakes.cancel import cancel_everywhere
from tests.fakes.upstream import Exchange, FakeUpstream, Step
from tests.scene import Scene, scene
from trioproxy.codec.chat_probe import question
from trioproxy.config.probes import Probes
from trioproxy.journal import BreakerMoved, ExchangeEnded, ProbeRan, Usage
from trioproxy.ops.probes import Prober, Subject
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

WELL = steps.chat("pong")
SICK = steps.error(500)
# Of the fakes' usage (9, 3) at channel a's 1 and 4 USD per million tokens.
COST = 9 + 3 * 4


def probes(rest: str = "") -> str:
    """The section, without chance."""
    return f"[probes]\njitter = 0\n{rest}\n"


def runs(s: Scene, channel: str = "a") -> list[ProbeRan]:
    return [event for event in s.events if isinstance(event, ProbeRan) and event.channel == channel]


def moves(s: Scene) -> list[tuple[str, float]]:
    return [(event.state, event.now) for event in s.events if isinstance(event, BreakerMoved)]


def sent(upstream: FakeUpstream) -> list[float]:
    return [request.arrived for request in upstream.requests]


def split(probe: Step, call: Step) -> Step:
    """Answer health checks and calls apart."""

    async def step(x: Exchange) -> None:
        await (probe if x.request.json.get("max_tokens") == 1 else call)(x)

    return step


async def test_without_the_section_nothing_is_sent(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        await trio.sleep(3600)
        assert (s.hits(), s.gateway.statistics()["a"].probed) == ("a=0 b=0", None)


async def test_with_it_every_channel_is_asked_for_one_token_once_a_minute(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=probes()) as s:
        for upstream in s.upstreams.values():
            upstream.script(WELL)
        await trio.sleep(181)
        assert sent(s.a) == sent(s.b) == [0.0, 60.0, 120.0, 180.0]
        (request, *_) = s.a.requests
        assert request.json == {"model": "a-model", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        assert request.headers["authorization"] == "Bearer sk-secret-a"
        assert request.target.endswith("/chat/completions")
        assert [(run.ok, run.why, run.model) for run in runs(s)] == [(True, "", "a-model")] * 4


async def test_its_rhythm_is_spread_by_chance(autojump_clock: MockClock) -> None:
    async with scene("a", toml="[probes]\njitter = 0.5") as s:
        s.a.script(WELL)
        await trio.sleep(3600)
        times = sent(s.a)
        gaps = [after - before for before, after in pairwise(times)]
        assert times[0] <= 30
        assert all(30 <= gap <= 90 for gap in gaps)
        assert max(gaps) - min(gaps) > 10


async def test_its_cost_is_its_own_and_no_exchange(autojump_clock: MockClock) -> None:
    async with scene("a", toml=probes()) as s:
        s.a.script(WELL)
        await trio.sleep(130)
        (reading,) = (each.probed for each in s.gateway.statistics().values())
        assert reading is not None
        assert (reading.runs, reading.failed, reading.cost, reading.ok, reading.at) == (3, 0, 3 * COST, True, 120.0)
        assert [(run.usage, run.cost) for run in runs(s)] == [(Usage(9, 0, 3), COST)] * 3
        assert not [event for event in s.events if isinstance(event, ExchangeEnded)]
        assert s.gateway.statistics()["a"].successes == 0


async def test_it_counts_in_the_channels_own_limits(autojump_clock: MockClock) -> None:
    limits = "limits = { requests_per_day = 100, tokens_per_day = 100000, concurrency = 5 }"
    async with scene("a", channel=limits, toml=probes()) as s:
        s.a.script(WELL, SICK, WELL)
        await trio.sleep(130)
        assert left(s, Rank.CHANNEL, Dimension.REQUESTS_PER_DAY) == 97
        assert left(s, Rank.CHANNEL, Dimension.TOKENS_PER_DAY) == 100_000 - 2 * 12
        assert s.held() == {}


async def test_its_model_and_parameter_are_the_channels_own(autojump_clock: MockClock) -> None:
    own = 'probe = { model = "small", limit = "max_completion_tokens", tokens = 16 }'
    async with scene("a", channel=own, toml=probes()) as s:
        s.a.script(WELL)
        await trio.sleep(1)
        (request,) = s.a.requests
        assert (request.json["model"], request.json["max_completion_tokens"]) == ("small", 16)
        assert "max_tokens" not in request.json


async def test_a_channel_may_be_left_out(autojump_clock: MockClock) -> None:
    async with scene("a", channel="probe = { enabled = false }", toml=probes()) as s:
        await trio.sleep(300)
        assert s.a.hits == 0


async def test_content_must_be_there_within_three_seconds(autojump_clock: MockClock) -> None:
    async with scene("a", toml=probes()) as s:
        s.a.script(steps.after(2.9, WELL), steps.after(3.1, WELL), steps.silence(), steps.chat(""))
        await trio.sleep(185)
        assert [(run.ok, round(run.seconds, 3)) for run in runs(s)][:3] == [(True, 2.9), (False, 3.0), (False, 3.0)]
        assert [run.why for run in runs(s)] == [
            "",
            *["no answer to a health check within 3 s"] * 2,
            "the answer has no content",
        ]
        assert s.a.open <= 1


@pytest.mark.parametrize("failures", [0, 2, 3])
async def test_so_many_failed_ones_in_a_row_open_the_breaker(failures: int, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=probes(f"failures = {failures}")) as s:
        s.a.script(SICK)
        s.b.script(WELL)
        await trio.sleep(60.0 * max(failures, 5) - 59.0 if failures == 0 else 60.0 * failures - 59.0)
        assert moves(s) == ([("open", 60.0 * (failures - 1))] if failures else [])
        assert s.failures() == 0  # no call has failed


async def test_an_answered_call_between_begins_the_count_anew(autojump_clock: MockClock) -> None:
    async with scene("a", toml=probes("failures = 2")) as s:
        s.a.script(split(SICK, steps.chat("fine")))
        await trio.sleep(30)
        for _ in range(10):
            assert (await ask(s, streamed=False)).text == "fine"
            await trio.sleep(60)
        assert moves(s) == []
        await trio.sleep(120)
        assert [state for state, _ in moves(s)] == ["open"]


async def test_a_good_one_ends_no_streak_of_calls_that_fail(autojump_clock: MockClock) -> None:
    """A provider that says one token and no more is not well."""
    async with scene("a", "b", channel='breaker = "consecutive"', toml=probes()) as s:
        s.a.script(split(WELL, SICK))
        s.b.script(steps.chat("from b"))
        for failures in range(1, 6):
            await ask(s, streamed=False)
            assert s.failures() == failures
            if failures < 5:
                await trio.sleep(61)
        assert s.breaker() == "open"


async def fail(s: Scene, calls: int = 5) -> None:
    s.a.script(SICK)
    s.b.script(WELL)
    for _ in range(calls):
        await s.post()
    assert s.breaker() == "open"


CHANNEL = 'breaker = "consecutive"'


async def test_an_open_breaker_is_asked_at_once_and_then_faster(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel=CHANNEL, toml=probes()) as s:
        s.a.script(WELL)
        s.b.script(WELL)
        await trio.sleep(30)
        await fail(s)
        s.a.script(SICK)
        opened = trio.current_time()
        await trio.sleep(35)
        assert [run.now - opened for run in runs(s)[1:]] == [0.0, 10.0, 20.0, 30.0]
        assert not any(run.ok for run in runs(s)[1:])


async def test_a_failed_one_renews_the_wait_and_leaves_the_count_so_no_call_finds_out(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", "b", channel=CHANNEL, toml=probes()) as s:
        await fail(s)
        for _ in range(60):
            await trio.sleep(5)
            assert (await ask(s, streamed=False)).text == "pong"
        assert s.failures() == 5
        assert s.a.hits == 5 + len(runs(s))  # the checks, and not one call
        assert s.gateway.statistics()["a"].open_for >= 50.0


async def test_a_short_wait_is_renewed_in_time_too(autojump_clock: MockClock) -> None:
    short = 'breaker = { preset = "consecutive", open_for = 8 }'
    async with scene("a", "b", channel=short, toml=probes()) as s:
        await fail(s)
        for _ in range(60):
            await trio.sleep(1)
            assert (await ask(s, streamed=False)).text == "pong"
        assert s.a.hits == 5 + len(runs(s))


@pytest.mark.parametrize(("preset", "needed"), [("four-layer", 1), ("consecutive", 1), ("half-open", 3)])
async def test_good_ones_close_it_as_the_preset_says(preset: str, needed: int, autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel=f'breaker = "{preset}"', toml=probes()) as s:
        await fail(s)
        s.a.script(WELL)
        await trio.sleep(45)
        assert s.breaker() == "closed"
        good = [run for run in runs(s) if run.ok]
        closed = next(now for state, now in moves(s) if state == "closed")
        assert closed == good[needed - 1].now
        assert s.failures() == 0
        assert (await ask(s, streamed=False)).headers["x-trioproxy-channel"] == "a"
        assert s.held() == {}


async def test_where_they_may_not_close_it_calls_find_out(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel=CHANNEL, toml=probes("closes = false")) as s:
        await fail(s)
        s.a.script(WELL)
        await trio.sleep(59)
        assert (s.breaker(), runs(s)[-1].ok) == ("open", True)
        await trio.sleep(1)
        assert (await ask(s, streamed=False)).headers["x-trioproxy-channel"] == "a"
        assert s.breaker() == "closed"


async def test_one_that_waits_behind_a_calls_probe_is_left_out(autojump_clock: MockClock) -> None:
    """Of a half-open breaker's leases a check takes none that is not free."""
    async with scene("a", "b", channel=CHANNEL, toml=probes("closes = true\nevery_open = 1000")) as s:
        await fail(s)
        subject = s.gateway.supervisor.channels.state["a"]
        subject.breaker.until = trio.current_time()
        s.a.script(steps.after(20.0, steps.chat("late")))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s.post)
            await trio.sleep(15)
            assert (s.breaker(), subject.breaker.leases) == ("half_open", 1)
            assert subject.enter_probe("a-model", trio.current_time(), closes=True) is None
        assert (s.breaker(), s.held()) == ("closed", {})


async def test_a_parked_channel_is_not_checked_and_a_check_may_park_it(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=probes()) as s:
        s.a.script(steps.error(401))
        s.b.script(WELL)
        await trio.sleep(7200)  # the park's first end is long over: that trial is a call's
        assert s.a.hits == 1
        assert "401" in runs(s)[0].why
        assert s.gateway.supervisor.channels.state["a"].standing.parked
        s.a.script(WELL)
        assert (await ask(s, streamed=False)).headers["x-trioproxy-channel"] == "a"
        await trio.sleep(61)
        assert s.a.hits >= 3


async def test_a_channel_that_cools_down_is_left_in_peace(autojump_clock: MockClock) -> None:
    async with scene("a", toml=probes()) as s:
        s.a.script(steps.error(429, headers=[("retry-after", "150")]), WELL)
        await trio.sleep(181)
        assert sent(s.a) == [0.0, 180.0]
        assert moves(s) == []


async def test_it_takes_no_callers_place(autojump_clock: MockClock) -> None:
    async with scene("a", channel="max_concurrency = 1\nslot_timeout = 0", toml=probes()) as s:
        s.a.script(split(steps.after(2.0, WELL), steps.chat("fine")))
        await trio.sleep(61)
        said = await ask(s, streamed=False)
        assert (said.text, said.took) == ("fine", 0.0)
        assert len(runs(s)) == 1
        await trio.sleep(5)
        assert len(runs(s)) == 2


async def test_a_mistake_of_ours_is_told_and_opens_nothing(autojump_clock: MockClock) -> None:
    refused = steps.error(400, {"error": {"message": "use another parameter", "code": "unsupported_parameter"}})
    async with scene("a", toml=probes()) as s:
        s.a.script(refused)
        await trio.sleep(600)
        assert moves(s) == []
        assert {(run.ok, run.why) for run in runs(s)} == {(False, "use another parameter")}


async def test_the_gateways_end_cancels_one_that_is_out_and_it_is_no_evidence(autojump_clock: MockClock) -> None:
    async with scene("a", "b", channel=CHANNEL, toml=probes()) as s:
        await fail(s)
        s.a.script(steps.silence())
        await trio.sleep(11)
        state = s.gateway.supervisor.channels.state["a"]
        assert state.breaker.leases == 1
    assert state.breaker.leases == 0
    assert state.breaker.count(0.0) == 5


async def test_no_secret_is_in_what_it_says(autojump_clock: MockClock) -> None:
    async with scene("a", toml=probes()) as s:
        host = s.gateway.supervisor.channels.state["a"].upstream.origin.host
        s.a.script(steps.error(500, {"error": {"message": f"no such key sk-secret-a at {host}"}}))
        await trio.sleep(1)
        said = repr(s.events) + repr(s.gateway.statistics())
        assert "no such key" in said
        assert "sk-secret" not in said
        assert host not in said


@pytest.mark.parametrize("answer", [WELL, SICK], ids=["well", "sick"])
async def test_cut_anywhere_a_check_holds_nothing(answer: Step, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(answer)
        family = s.gateway.supervisor.channels
        state = family.state["a"]
        request = state.request("/chat/completions", b"", question("a-model", state.shape, "max_tokens", 1))
        subject = Subject(state, "a-model", request, lambda _usage: None)
        prober = Prober({"a": subject}, Probes(), family, s.gateway.journal, lambda: s.wall, lambda: 0.5)

        async def scenario() -> None:
            state.trip(trio.current_time())
            await prober.check(subject)

        def nothing_is_held() -> None:
            assert state.breaker.leases == 0
            assert state.breaker.state.value in {"open", "closed"}

        assert await cancel_everywhere(scenario, nothing_is_held) >= 3
        assert state.breaker.state.value == ("closed" if answer is WELL else "open")
        await s.rest()
        assert s.a.open <= 1
