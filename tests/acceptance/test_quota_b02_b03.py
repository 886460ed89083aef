"""B02, B03, B16, B22: what a call holds is given back on every way out, and settled once at what it used."""

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, left
from tests.fakes import steps
from tests.fakes.steps import delta, sse
from tests.scene import CHAT, PROMPT, scene
from trioproxy.call import Request
from trioproxy.journal import EndReason, Usage
from trioproxy.phases.walk import Walk
from trioproxy.policy.hierarchy import Quota
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

DAY = Dimension.TOKENS_PER_DAY
REQUESTS = Dimension.REQUESTS_PER_DAY

# The prompt is taken for 11 tokens, with the margin of a channel that nobody has used; the answer's cap is the rest.
WORST = 100
CAPPED = {"max_tokens": 89}


def limited(limits: str, rest: str = "") -> str:
    return "[quota]\noutput = 100\n" + key(rest=f"limits = {{ {limits} }}\n{rest}")


async def test_b02_an_aborted_stream_settles_at_what_it_used(autojump_clock: MockClock) -> None:
    """Ten aborted streams of a budget for three worst cases leave room for the eleventh call."""
    async with scene("a", toml=limited(f"tokens_per_day = {3 * WORST}")) as s:
        s.a.script(*[steps.chat_stream(["x"] * 50, every=0.1)] * 10, steps.chat_answer("hello"))
        free = 3 * WORST
        for number in range(10):
            client = await s.client()
            stream = await client.stream(CHAT, {**PROMPT, "stream": True, **CAPPED}, bearer())
            assert [await stream.frame() is not None for _ in range(2)] == [True, True]
            assert s.gateway.quota().held.total_tokens == WORST
            client.close()
            await s.rest()
            assert s.held() == {}
            ended = s.ended[number]
            assert (ended.reason, ended.usage.estimated) == (EndReason.CLIENT_LEFT, True)
            used = ended.usage.input + ended.usage.output
            assert used < WORST / 4
            free -= used
            assert left(s, Rank.KEY, DAY) == free
        assert (await s.post(headers=bearer(), **CAPPED)).status == 200
        await s.rest()
        assert left(s, Rank.KEY, DAY) == free - 12
        assert [ended.estimated_input + ended.estimated_output for ended in s.ended] == [WORST] * 11


async def test_b03_a_slot_is_free_as_soon_as_its_stream_was_aborted(autojump_clock: MockClock) -> None:
    async with scene("a", toml=limited("concurrency = 1")) as s:
        for _ in range(100):
            s.a.script(steps.chat_stream(["x"] * 50, every=0.1), steps.chat_answer("hello"))
            client = await s.client()
            stream = await client.stream(CHAT, {**PROMPT, "stream": True}, bearer())
            await stream.frame()
            assert left(s, Rank.KEY, Dimension.CONCURRENCY) == 0
            busy = await s.post(headers=bearer())
            assert (busy.status, busy.json["error"]["limiter"]) == (429, "key.concurrency")
            client.close()
            await trio.testing.wait_all_tasks_blocked()
            assert (await s.post(headers=bearer())).status == 200
        await trio.testing.wait_all_tasks_blocked()
        assert left(s, Rank.KEY, Dimension.CONCURRENCY) == 1
        assert s.held() == {}


async def test_b16_an_unmetered_stream_is_settled_at_what_its_provider_says(autojump_clock: MockClock) -> None:
    async with scene("a", toml=limited("tokens_per_day = 1000")) as s:
        s.a.script(steps.chat_stream(["one", "two"], usage=(40, 5)))
        stream = await s.stream(headers=bearer())
        assert s.a.requests[0].json["stream_options"] == {"include_usage": True}
        assert b'"usage"' not in stream.raw
        await s.rest()
        assert s.ended[0].usage == Usage(input=40, output=5)
        assert left(s, Rank.KEY, DAY) == 1000 - 45


async def test_b16_where_usage_never_comes_an_estimate_is_settled_and_flagged(autojump_clock: MockClock) -> None:
    async with scene("a", toml=limited("tokens_per_day = 1000")) as s:
        s.a.script(steps.chat_stream(["one", "two"], usage=None))
        await s.stream(headers=bearer())
        await s.rest()
        usage = s.ended[0].usage
        assert usage.estimated
        assert usage.output > 0
        assert left(s, Rank.KEY, DAY) == 1000 - usage.input - usage.output


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
async def test_b22_a_bug_after_the_reservation_gives_it_back(
    streamed: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_walk: Walk, _nursery: trio.Nursery) -> None:
        raise ZeroDivisionError

    toml = limited("tokens_per_day = 1000, requests_per_day = 10, concurrency = 2")
    async with scene("a", toml=toml) as s:
        with monkeypatch.context() as patch:
            patch.setattr(Walk, "go", broken)
            request = Request.post("/v1/chat/completions", {**PROMPT, "stream": streamed}, dict(bearer()))
            with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
                async with s.gateway.dispatch(request):
                    raise AssertionError("there is no answer")
        assert s.held() == {}
        assert [ended.reason for ended in s.ended] == [EndReason.BUG]
        assert (left(s, Rank.KEY, DAY), left(s, Rank.KEY, REQUESTS)) == (1000, 10)


async def test_b22_each_call_is_settled_once_whatever_became_of_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed chain, a client's error, a failover whose first attempt was slow, a cut stream, a whole answer."""
    settled: list[object] = []  # kept, so that no two have one identity
    settle = Quota.settle

    def counting(quota: Quota, reservation: object, *args: object) -> None:
        settled.append(reservation)
        settle(quota, reservation, *args)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(Quota, "settle", counting)
    toml = limited("tokens_per_day = 1000, requests_per_day = 100")
    toml += "[defaults]\nheaders_timeout = 2.0\nbreaker = { failures = 100 }\n"
    bad = {"error": {"message": "no", "type": "invalid_request_error", "code": "context_length_exceeded"}}
    async with scene("a", "b", toml=toml) as s:
        late = steps.chat_answer("late", delay=3)
        cut = sse([delta("x"), delta("y")], end="reset")
        s.a.script(steps.error(503), steps.error(400, bad), late, cut, steps.chat_answer("hello"))
        s.b.script(steps.error(503), steps.chat_answer("hello"))
        statuses = [(await s.post(headers=bearer())).status for _ in range(3)]
        assert statuses == [503, 400, 200]
        await trio.testing.wait_all_tasks_blocked()
        assert (left(s, Rank.KEY, DAY), left(s, Rank.KEY, REQUESTS)) == (1000 - 12, 99)
        await s.stream(headers=bearer())
        assert (await s.post(headers=bearer())).status == 200
        await s.rest(5)
        used = [ended.usage.input + ended.usage.output for ended in s.ended]
        assert used[:3] == [0, 0, 12]
        assert (left(s, Rank.KEY, DAY), left(s, Rank.KEY, REQUESTS)) == (1000 - sum(used), 97)
        assert len(settled) == len(set(map(id, settled))) == len(s.ended) == 5
        assert s.held() == {}


async def test_b22_a_failover_moves_the_channels_part_and_leaves_the_callers(autojump_clock: MockClock) -> None:
    """While B has the call, A's tokens are free again and only the request that it got stays charged."""
    both = "limits = { tokens_per_minute = 6000, requests_per_minute = 60 }"
    async with scene("a", "b", toml=limited("tokens_per_day = 1000"), channel=both) as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat_answer("hello", delay=0.001))
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                assert (await s.post(headers=bearer(), **CAPPED)).status == 200

            nursery.start_soon(call)
            await trio.sleep(0.0005)
            assert left(s, Rank.KEY, DAY) == 1000 - WORST
            assert left(s, Rank.CHANNEL, Dimension.TOKENS_PER_MINUTE, "a") == 6000
            assert left(s, Rank.CHANNEL, Dimension.REQUESTS_PER_MINUTE, "a") == 59
            assert left(s, Rank.CHANNEL, Dimension.TOKENS_PER_MINUTE, "b") == 6000 - WORST
        assert left(s, Rank.KEY, DAY) == 1000 - 12
        assert left(s, Rank.CHANNEL, Dimension.TOKENS_PER_MINUTE, "b") == 6000 - 12
        assert s.held() == {}
