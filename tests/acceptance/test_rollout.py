"""Rollouts end to end: who gets the candidate, what is compared, and what happens by itself and when."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step
from tests.scene import CHAT, PROMPT, Scene, scene
from trioproxy.journal import RolloutMoved
from trioproxy.policy.rollout import Verb
from trioproxy.policy.sticky import place

ROLLOUT = """
[[rollouts]]
model = "m"
candidate = [{ channel = "new", model = "newer" }]
hold = 600
tolerance = { sample = 20 }
"""


@asynccontextmanager
async def on_rollout(extra: str = "") -> AsyncGenerator[Scene]:
    """Channel `a` is the model's, and `new` the candidate's alone."""
    async with scene("a", "new", toml=ROLLOUT + extra, links=("a",)) as s:
        yield s


def due(percent: float, number: int = 400) -> set[str]:
    sessions = {f"s{n}" for n in range(number)}
    return {each for each in sessions if place("m", f"session default {each}") < percent * 100}


async def ask(s: Scene, session: str, **fields: object) -> tuple[str, str]:
    reply = await s.post(headers=[("x-trioproxy-session", session)], **fields)
    return reply.headers.get("x-trioproxy-channel", str(reply.status)), reply.headers["x-trioproxy-arm"]


async def crowd(s: Scene, number: int = 400) -> set[str]:
    """Every session once; those that were answered by the candidate's channel."""
    return {f"s{n}" for n in range(number) if await ask(s, f"s{n}") == ("new", "candidate")}


def moves(s: Scene) -> list[tuple[int, str, str]]:
    return [(each.percent, each.state, each.why) for each in s.events if isinstance(each, RolloutMoved)]


def good(s: Scene) -> None:
    s.upstreams["a"].script(steps.chat("from a"))
    s.upstreams["new"].script(steps.chat("from new"))


async def test_each_step_gives_its_share_the_candidate_and_takes_it_from_nobody(autojump_clock: MockClock) -> None:
    async with on_rollout() as s:
        good(s)
        assert "x-trioproxy-arm" not in (await s.post()).headers  # declared is not begun
        await s.gateway.order_rollout("m", Verb.START)
        tenth = await crowd(s)
        assert tenth == due(10)
        await trio.sleep(599)
        assert await crowd(s) == due(10)
        await trio.sleep(2)
        half = await crowd(s)
        assert half == due(50)
        assert half > tenth
        await trio.sleep(601)
        assert len(await crowd(s)) == 400
        await trio.sleep(601)
        assert moves(s) == [
            (10, "running", "by hand"),
            (50, "running", "held and well"),
            (100, "running", "held and well"),
            (100, "done", "held and well"),
        ]
        assert [event.arm for event in s.ended[:1]] == [""]
        assert {(event.arm, event.session) for event in s.ended[1:401]} == {
            ("candidate" if name in tenth else "baseline", name) for name in (f"s{n}" for n in range(400))
        }


async def test_a_step_with_too_few_calls_never_ends(autojump_clock: MockClock) -> None:
    async with on_rollout() as s:
        good(s)
        await s.gateway.order_rollout("m", Verb.START)
        for session in sorted(due(10))[:19]:
            assert await ask(s, session) == ("new", "candidate")
        for session in sorted({f"s{n}" for n in range(100)} - due(50)):
            assert await ask(s, session) == ("a", "baseline")
        await trio.sleep(86_400)
        assert moves(s) == [(10, "running", "by hand")]
        assert s.gateway.rollouts()["m"].verdict.startswith("not enough data: 19 calls of the candidate")
        await ask(s, min(due(10)))
        await trio.sleep(2)
        assert moves(s)[1:] == [(50, "running", "held and well")]


def refusal_in_message() -> Step:
    async def step(x: Exchange) -> None:
        answer = steps.completion("", model="newer")
        answer["choices"][0]["message"] |= {"content": None, "refusal": "I cannot help with that."}
        await x.reply(200, answer)

    return step


def refusal_in_stream() -> Step:
    said = steps.frame({"choices": [{"index": 0, "delta": {"refusal": "I cannot"}, "finish_reason": None}]})
    return steps.sse([steps.delta("", role=True), said, steps.delta(finish="stop"), steps.DONE])


def filtered_stream() -> Step:
    return steps.sse([steps.delta("well"), steps.delta(finish="content_filter"), steps.DONE])


def filtered() -> Step:
    async def step(x: Exchange) -> None:
        await x.reply(200, json.dumps(steps.completion("", finish="content_filter")).encode())

    return step


def refused_by_status() -> Step:
    return steps.error(
        400, {"error": {"message": "flagged", "type": "invalid_request_error", "code": "content_filter"}}
    )


@pytest.mark.parametrize(
    ("step", "streamed"),
    [
        (refusal_in_message, False),
        (filtered, False),
        (refused_by_status, False),
        (refusal_in_stream, True),
        (filtered_stream, True),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
async def test_a_candidate_that_refuses_is_rolled_back_at_the_call_that_settles_it(
    step: Callable[[], Step], streamed: bool, autojump_clock: MockClock
) -> None:
    async with on_rollout() as s:
        good(s)
        s.upstreams["new"].script(step())
        await s.gateway.order_rollout("m", Verb.START)
        for session in sorted({f"s{n}" for n in range(100)} - due(50))[:30]:
            await s.ask(streamed=streamed, headers=[("x-trioproxy-session", session)])
        sessions = sorted(due(10))
        for number in range(20):
            assert moves(s) == [(10, "running", "by hand")]
            await s.ask(streamed=streamed, headers=[("x-trioproxy-session", sessions[number])])
        await trio.sleep(0.1)
        told = "20 of 20 calls refused, 0 of 30 at the baseline"
        assert moves(s)[1:] == [(0, "rolled_back", told)]
        hits = s.upstreams["new"].hits
        status, text, headers = await s.ask(streamed=streamed, headers=[("x-trioproxy-session", sessions[0])])
        assert (status, text, s.upstreams["new"].hits) == (200, "from a", hits)
        assert "x-trioproxy-arm" not in headers


async def test_a_candidate_that_fails_costs_nobody_an_answer_and_goes_back(autojump_clock: MockClock) -> None:
    async with on_rollout() as s:
        good(s)
        s.upstreams["new"].script(steps.error(500))
        await s.gateway.order_rollout("m", Verb.START)
        for session in sorted({f"s{n}" for n in range(100)} - due(50))[:30]:
            await ask(s, session)
        for session in sorted(due(10))[:20]:
            assert await ask(s, session) == ("a", "candidate")
        await trio.sleep(0.1)
        assert moves(s)[1:] == [(0, "rolled_back", "20 of 20 calls failed, 0 of 30 at the baseline")]


async def test_a_slow_candidate_pauses_at_its_step(autojump_clock: MockClock) -> None:
    async with on_rollout() as s:
        good(s)
        s.upstreams["a"].script(steps.chat_answer("quick", delay=0.5))
        s.upstreams["new"].script(steps.chat_answer("slow", delay=2.0))
        await s.gateway.order_rollout("m", Verb.START)
        await crowd(s)
        await trio.sleep(1)
        assert [move[:2] for move in moves(s)] == [(10, "running"), (10, "paused")]
        assert moves(s)[1][2].startswith("p95 latency is 2.")
        await trio.sleep(86_400)
        assert await ask(s, min(due(10))) == ("new", "candidate")  # who has it keeps it


async def test_a_caller_who_leaves_counts_for_nothing(autojump_clock: MockClock) -> None:
    async with on_rollout("started = true") as s:
        s.upstreams["new"].script(steps.chat_stream(["a", "b"], every=5))
        client = await s.client()
        await client.stream(CHAT, {**PROMPT, "stream": True}, [("x-trioproxy-session", min(due(10)))])
        client.close()
        await s.rest(30)
        assert [event.arm for event in s.ended] == ["candidate"]
        assert s.gateway.rollouts()["m"].candidate.calls == 0


async def test_callers_are_kept_together_as_the_rollout_says(autojump_clock: MockClock) -> None:
    """By the session, then the end user, then (nobody has a key here) not at all."""
    async with on_rollout() as s:
        good(s)
        await s.gateway.order_rollout("m", Verb.START)
        users = {f"u{n}" for n in range(200)}
        due_users = {each for each in users if place("m", f"user default {each}") < 1000}
        found = set()
        for user in users:
            reply = await s.post(user=user)
            if reply.headers["x-trioproxy-arm"] == "candidate":
                found.add(user)
        assert found == due_users
        assert await ask(s, min(due(10)), user=min(users - due_users)) == ("new", "candidate")
        arms = {(await s.post()).headers["x-trioproxy-arm"] for _ in range(200)}
        assert arms == {"baseline", "candidate"}


async def test_a_session_that_cannot_be_one_is_refused(autojump_clock: MockClock) -> None:
    async with on_rollout() as s:
        good(s)
        reply = await s.post(headers=[("x-trioproxy-session", "two words")])
        assert reply.status == 400
        assert reply.json["error"]["param"] == "x-trioproxy-session"
        assert s.hits() == "a=0 new=0"


async def test_a_rollout_may_begin_with_the_process(autojump_clock: MockClock) -> None:
    async with on_rollout("started = true") as s:
        assert moves(s) == [(10, "running", "with the process")]


async def test_a_restart_goes_on_where_it_was(autojump_clock: MockClock) -> None:
    async with on_rollout() as s:
        good(s)
        await s.gateway.order_rollout("m", Verb.START)
        await s.gateway.order_rollout("m", Verb.STEP)
        told = s.gateway.supervisor.traffic.state.snapshot(trio.current_time())
    async with on_rollout("started = true") as s:
        good(s)
        traffic = s.gateway.supervisor.traffic.state
        assert traffic.restore(json.loads(json.dumps(told)), trio.current_time()) == []
        assert await crowd(s) == due(50)
        assert traffic.restore({"rollouts": {"m": {"state": "odd"}}}, 0.0) == ["m"]


async def test_the_chain_shows_the_arms(autojump_clock: MockClock) -> None:
    async with on_rollout() as s:
        chains = s.gateway.chains("m")
        shown = {arm: [(step.channel, step.model) for step in chain.steps] for arm, chain in chains.items()}
        assert shown == {
            "baseline": [("a", "a-model")],
            "candidate": [("new", "newer"), ("a", "a-model")],
        }
        await s.gateway.order_rollout("m", Verb.START)
        assert list(s.gateway.chains("m", ("default", min(due(10))))) == ["candidate"]
        assert list(s.gateway.chains("m", ("default", min({f"s{n}" for n in range(99)} - due(10))))) == ["baseline"]
