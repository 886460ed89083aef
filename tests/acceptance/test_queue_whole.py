"""Conservation over the whole gateway: whatever callers and providers do, what was held is given back and what was used is charged once.

Everything at once: failover, streams that are cut, callers who leave while their answer is read to its end for the account,
another model that stands in, limits that only observe, classes with and without a queue.
"""

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.acceptance.queued import of_class
from tests.fakes import steps
from tests.scene import CHAT, PROMPT, Scene, scene
from trioproxy.journal import EndReason
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

TOML = """
[organization]
limits = { concurrency = 3, tokens_per_day = 1000000000, requests_per_day = 1000000 }
[defaults]
on_disconnect = "drain"
drain_timeout = 2.0
[classes.interactive]
[classes.batch]
[classes.batch.queue]
bound = 4
[[models]]
name = "n"
channels = [{ channel = "c", model = "small" }]
"""
MODEL = """
limits = { requests_per_minute = 3, observe = ["requests_per_minute"] }
fallback = [{ model = "n" }]
"""
CHANNEL = "limits = { concurrency = 1, tokens_per_minute = 100000 }"
FAULTS = [
    steps.chat("hello"),
    steps.error(503),
    steps.chat_stream(["one", " two", " three"], every=0.5),
    steps.chat_stream(["one", " two"], every=0.2, end="reset"),
    steps.after(1, steps.chat("late")),
    steps.hang_up("reset"),
    steps.error(429),
]
CALL = st.tuples(
    st.sampled_from(["", "interactive", "batch"]),
    st.sampled_from([0.0, 0.1, 0.7]),  # when it comes after the one before
    st.sampled_from([0.05, 0.6, 2.0, 100.0]),  # when its caller loses patience
    st.booleans(),  # streamed
)


async def visit(s: Scene, name: str, patience: float, *, streamed: bool) -> None:
    """One call through the door, whose client hangs up after so many seconds, or at its end."""
    client = await s.client()
    headers = of_class(name) if name else []
    with trio.move_on_after(patience):
        if streamed:
            stream = await client.stream(CHAT, {**PROMPT, "stream": True}, headers)
            await stream.rest()
        else:
            await client.post(CHAT, PROMPT, headers)
    client.close()


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(CALL, min_size=1, max_size=14),
    script=st.lists(st.integers(0, len(FAULTS) - 1), min_size=1, max_size=8),
)
async def test_what_was_used_is_charged_once_and_all_else_is_given_back(
    calls: list[tuple[str, float, float, bool]], script: list[int], autojump_clock: MockClock
) -> None:
    async with scene("a", "b", "c", toml=TOML, channel=CHANNEL, model=MODEL, links=("a", "b")) as s:
        for upstream in s.upstreams.values():
            upstream.script(*[FAULTS[each] for each in script], FAULTS[0])

        async with trio.open_nursery() as nursery:
            for name, pause, patience, streamed in calls:
                await trio.sleep(pause)
                nursery.start_soon(lambda n=name, p=patience, t=streamed: visit(s, n, p, streamed=t))  # type: ignore[misc]
                await wait_all_tasks_blocked()
                assert s.gateway.quota().held.calls <= 3
                assert all(gauge.remaining >= 0 for gauge in s.gateway.limits())
        await s.rest(10)
        assert s.held() == {}
        assert len(s.ended) == len(calls)
        assert EndReason.BUG not in {ended.reason for ended in s.ended}
        charged = [ended for ended in s.ended if ended.usage.input + ended.usage.cached + ended.usage.output]
        left = {(each.scope.rank, each.dimension): each for each in s.gateway.limits()}
        tokens, requests = (
            left.get((Rank.ORGANIZATION, each)) for each in (Dimension.TOKENS_PER_DAY, Dimension.REQUESTS_PER_DAY)
        )
        spent = sum(ended.usage.input + ended.usage.cached + ended.usage.output for ended in charged)
        assert (tokens.limit - tokens.remaining if tokens else 0) == spent
        assert (requests.limit - requests.remaining if requests else 0) == len(charged)
        at_channels = [
            each for (rank, what), each in left.items() if rank is Rank.CHANNEL and what is Dimension.CONCURRENCY
        ]
        assert all(each.remaining == each.limit for each in at_channels)


async def test_its_crowds_come_to_all_that_it_is_about(autojump_clock: MockClock) -> None:
    """One fixed crowd, so that nobody need trust to luck that failover, cuts, drains, stand-ins and observers are met."""
    async with scene("a", "b", "c", toml=TOML, channel=CHANNEL, model=MODEL, links=("a", "b")) as s:
        s.a.script(steps.error(503), FAULTS[3], FAULTS[2], steps.after(9, steps.chat("late")))
        s.b.script(steps.chat("hello"), steps.after(9, steps.chat("late")))
        s.c.script(steps.chat("stood in"))

        await visit(s, "batch", 100, streamed=False)
        await visit(s, "", 100, streamed=True)
        await visit(s, "batch", 0.6, streamed=True)
        await s.rest(5)
        async with trio.open_nursery() as nursery:
            for name in ("batch", "batch", "interactive"):
                nursery.start_soon(lambda n=name: visit(s, n, 100, streamed=False))  # type: ignore[misc]
                await wait_all_tasks_blocked()
        reasons = [ended.reason for ended in s.ended]
        assert reasons[:3] == [EndReason.ANSWERED, EndReason.CUT_AFTER_COMMIT, EndReason.CLIENT_LEFT]
        assert len(s.ended[0].attempts) == 2
        assert not s.ended[2].usage.estimated
        assert "n" in {ended.fallback for ended in s.ended}
        assert s.gateway.quota().observed == pytest.approx({(Rank.MODEL, Dimension.REQUESTS_PER_MINUTE): 2})
        assert s.held() == {}
