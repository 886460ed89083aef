"""Cut at every checkpoint while a call waits in its class's queue, and any crowd of calls that come, leave and end: nothing stays."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.acceptance.queued import ONE, line
from tests.fakes import steps
from tests.fakes.cancel import Scalpel
from tests.scene import CHAT, PROMPT, Scene, scene
from trioproxy.call import Request
from trioproxy.journal import EndReason

QUEUE = "[defaults.queue]\nmax_wait = 60\n"
POOL = "[defaults.queue]\nmax_wait = 60\ntokens_per_minute = 60000\n"
OTHER = '[[models]]\nname = "n"\nchannels = [{ channel = "b", model = "small" }]\n'
SCENES = {
    "an organization's place": (ONE + QUEUE, "", ""),
    "a channel's place": ("[organization]\nlimits = { concurrency = 9 }\n" + QUEUE, "max_concurrency = 1", ""),
    "a channel's tokens": (QUEUE, "limits = { concurrency = 1, tokens_per_minute = 100000 }", ""),
    "a pool too": (ONE + POOL, "", ""),
    "then a fallback": (
        "[defaults.queue]\nmax_wait = 0.5\notherwise = 'fallback'\n" + OTHER,
        "",
        'limits = { concurrency = 1 }\nfallback = [{ model = "n" }]',
    ),
}
MOST = 300


async def asked(s: Scene, headers: dict[str, str] | None = None, **fields: object) -> int:
    request = Request.post(CHAT, {**PROMPT, **fields}, headers)
    async with s.gateway.dispatch(request) as answer:
        await answer.read()
        return answer.status


async def cut(s: Scene, visit: Callable[[], Awaitable[object]], at: int) -> bool:
    """The visit, cancelled at its `at`-th step; whether it came to that."""
    with trio.CancelScope() as scope:
        scalpel = Scalpel(trio.lowlevel.current_task(), scope, at)
        trio.lowlevel.add_instrument(scalpel)
        try:
            await visit()
        finally:
            trio.lowlevel.remove_instrument(scalpel)
    return scalpel.steps >= at


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
@pytest.mark.parametrize("what", SCENES)
async def test_wherever_a_waiting_caller_leaves_nothing_stays(
    what: str, streamed: bool, autojump_clock: MockClock
) -> None:
    """One is under way, one waits and is cut, and one behind it still gets its turn."""
    toml, channel, model = SCENES[what]
    fallback = "fallback" in what
    async with scene(*("a", "b")[: 1 + fallback], toml=toml, channel=channel, model=model) as s:
        for at in range(1, MOST):
            s.events.clear()
            s.a.script(steps.chat_answer("before", delay=1), steps.chat("hello"))
            if fallback:
                s.b.script(steps.chat("hello"))
            statuses: list[int] = []

            async def ask(statuses: list[int] = statuses) -> None:
                statuses.append(await asked(s))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await wait_all_tasks_blocked()
                was_cut = await cut(s, lambda: asked(s, stream=streamed), at)
                assert line(s, "default").waiting == 0
                nursery.start_soon(ask)
            assert statuses == [200, 200], f"cut at step {at}"
            await wait_all_tasks_blocked()
            assert s.held() == {}, f"cut at step {at}"
            reasons = {ended.reason for ended in s.ended}
            assert reasons <= {EndReason.ANSWERED, EndReason.CLIENT_LEFT}
            if not was_cut:
                assert len(s.ended) == 3
                return
    raise AssertionError(f"still steps after {MOST}")


CALL = st.tuples(
    st.sampled_from(["interactive", "agentic", "batch", "eval", "background"]),
    st.sampled_from([0.0, 0.1, 0.4, 3.0]),  # when it comes after the one before
    st.sampled_from([0.05, 0.5, 2.0, 100.0]),  # when its caller loses patience
    st.booleans(),  # streamed
)
EVERYTHING = """
[organization]
limits = { concurrency = 2, tokens_per_minute = 60000, burst = 10.0 }
[classes.interactive]
[classes.agentic]
[classes.batch]
[classes.batch.queue]
bound = 3
[classes.eval]
[classes.background]
"""
FAULTS = [steps.chat("hello"), steps.error(503), steps.after(1, steps.chat("late")), steps.hang_up("reset")]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALL, min_size=1, max_size=14), script=st.lists(st.integers(0, 3), min_size=1, max_size=6))
async def test_whatever_comes_and_goes_all_is_given_back_and_nobody_is_forgotten(
    calls: list[tuple[str, float, float, bool]], script: list[int], autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=EVERYTHING, channel="max_concurrency = 1") as s:
        for upstream in s.upstreams.values():
            upstream.script(*[FAULTS[each] for each in script], FAULTS[0])

        async def visit(name: str, patience: float, *, streamed: bool) -> None:
            with trio.move_on_after(patience):
                await asked(s, {"x-trioproxy-class": name}, stream=streamed)

        async with trio.open_nursery() as nursery:
            for name, pause, patience, streamed in calls:
                await trio.sleep(pause)
                nursery.start_soon(lambda n=name, p=patience, t=streamed: visit(n, p, streamed=t))  # type: ignore[misc]
                await wait_all_tasks_blocked()
                assert s.gateway.quota().held.calls <= 2
        await wait_all_tasks_blocked()
        assert s.held() == {}
        assert len(s.ended) == len(calls)
        told = s.gateway.queues().values()
        answered = sum(each.granted for each in told)
        assert answered + sum(sum(each.refused.values()) for each in told) <= len(calls)
        left = [gauge for gauge in s.gateway.limits() if gauge.dimension.value == "concurrency"]
        assert all(gauge.remaining == gauge.limit for gauge in left)


@pytest.mark.parametrize("order", ["leaves, then its grant", "its grant, then leaves"])
async def test_a_caller_that_leaves_in_the_moment_of_its_grant_passes_it_on(
    order: str, autojump_clock: MockClock
) -> None:
    """The holder ends and the first in line is cancelled in one breath: the second has the place at once."""
    async with scene("a", toml=ONE + QUEUE) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat("hello"))
        leaving = trio.CancelScope()
        ended: list[str] = []

        async def first() -> None:
            with leaving:
                await asked(s)
            ended.append("first")

        async def second() -> None:
            assert await asked(s) == 200
            ended.append("second")

        async with s.gateway.dispatch(Request.post(CHAT, PROMPT)) as answer:
            await answer.read()
            for call in (first, second):
                nursery.start_soon(call)
                await wait_all_tasks_blocked()
            assert line(s, "default").waiting == 2
            if order == "leaves, then its grant":
                leaving.cancel()
        assert (line(s, "default").waiting, s.a.hits) == (1, 1)  # granted, and not yet run
        leaving.cancel()
        await wait_all_tasks_blocked()
        assert ended == ["first", "second"]
        assert s.a.hits == (2 if order == "leaves, then its grant" else 3)  # a woken one is on its way already
        assert s.held() == {}
        assert [each.reason for each in s.ended] == [EndReason.ANSWERED, EndReason.CLIENT_LEFT, EndReason.ANSWERED]
        assert trio.current_time() == 0.0


@pytest.mark.parametrize("door", [False, True], ids=["embedded", "through the door"])
async def test_the_record_of_one_who_left_the_queue_says_what_it_was_and_how_long_it_stood(
    door: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", toml=ONE + QUEUE) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=9))
        nursery.start_soon(asked, s)
        await wait_all_tasks_blocked()
        with trio.move_on_after(2.5):
            if door:
                client = await s.client()
                try:
                    await client.post(CHAT, {**PROMPT, "stream": True})
                finally:
                    client.close()
            else:
                await asked(s, stream=True)
        await wait_all_tasks_blocked()
        (left,) = s.ended
        assert (left.reason, left.model, left.traffic_class, left.stream) == (
            EndReason.CLIENT_LEFT,
            "m",
            "default",
            True,
        )
        assert (left.queued, left.duration, left.tenant, left.endpoint) == (2.5, 2.5, s.ended[0].tenant, CHAT)
        assert line(s, "default").left == 1
        nursery.cancel_scope.cancel()


async def test_one_who_left_the_queue_of_a_stand_in_stood_in_both(autojump_clock: MockClock) -> None:
    toml, _, model = SCENES["then a fallback"]
    async with (
        scene("a", "b", toml=toml, channel="max_concurrency = 1", model=model) as s,
        trio.open_nursery() as nursery,
    ):
        for upstream in s.upstreams.values():
            upstream.script(steps.chat_answer("hello", delay=9))
        nursery.start_soon(asked, s)
        nursery.start_soon(lambda: asked(s, model="n"))
        await wait_all_tasks_blocked()
        with trio.move_on_after(0.75):
            await asked(s)
        (left,) = s.ended
        assert (left.reason, left.model, left.queued) == (EndReason.CLIENT_LEFT, "m", 0.75)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("state", ["full", "late"])
async def test_whoever_is_turned_away_holds_nothing(state: str, autojump_clock: MockClock) -> None:
    bound = "bound = 0" if state == "full" else "max_wait = 0.5"
    async with scene("a", toml=f"{ONE}[defaults.queue]\n{bound}\n") as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=2))
        nursery.start_soon(asked, s)
        await wait_all_tasks_blocked()
        assert await asked(s) == 429
        assert line(s, "default").waiting == 0
        assert s.gateway.quota().open == 1
        await trio.sleep(3)
        assert s.held() == {}
