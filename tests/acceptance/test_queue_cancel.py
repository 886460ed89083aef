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
