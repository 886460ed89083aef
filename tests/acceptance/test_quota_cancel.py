"""Cut at every checkpoint with limits at every scope: whatever was reserved comes back, and the ledger is what was spent."""

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.upstream import Step
from tests.scene import Scene, scene
from tests.test_lifecycle import ANSWER, REFUSED, Visit, cut_everywhere, embedded, scripted, through_the_door
from trioproxy.journal import EndReason
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

LIMITS = (
    "limits = { concurrency = 3, requests_per_day = 100000, tokens_per_day = 1000000, tokens_per_minute = 1000000 }"
)
TOML = f"""
[quota]
output = 50
[organization]
{LIMITS}
budget = {{ day = 100.0, month = 1000.0 }}
[[tenants]]
name = "default"
{LIMITS}
balance = 100.0
end_user = {{ {LIMITS} }}
"""
LINES: dict[str, tuple[str, list[Step]]] = {
    "one attempt": ("", [ANSWER]),
    "two attempts": ("", [REFUSED, ANSWER]),
    "assured": ('[defaults]\nmode = "assured"', [ANSWER]),
    "keepalive": ("[defaults]\nkeepalive_after = 0.75", [steps.after(1, REFUSED), ANSWER]),
}


WHAT = {
    Dimension.REQUESTS_PER_DAY: "requests",
    Dimension.TOKENS_PER_DAY: "tokens",
    Dimension.MICRO_USD_PER_DAY: "micro_usd",
    Dimension.MICRO_USD_PER_MONTH: "micro_usd",
    Dimension.BALANCE: "micro_usd",
}


def spent(s: Scene, dimension: Dimension) -> dict[str, int]:
    """What is gone of the limits of this kind, by scope."""
    gauges = [gauge for gauge in s.gateway.limits() if gauge.dimension is dimension]
    return {
        gauge.scope.rank.value: gauge.limit - gauge.remaining
        for gauge in gauges
        if gauge.scope.rank is not Rank.CHANNEL
    }


@pytest.mark.parametrize("visit", [embedded, through_the_door])
@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
@pytest.mark.parametrize("line", LINES)
async def test_b02_wherever_a_caller_leaves_its_quota_is_what_it_used(
    visit: Visit, streamed: bool, line: str, autojump_clock: MockClock
) -> None:
    extra, script = LINES[line]
    ledger = {"requests": 0, "tokens": 0, "micro_usd": 0}

    async def counted(s: Scene, streamed: bool, at: int) -> bool:
        cut = await visit(s, streamed, at)
        await trio.testing.wait_all_tasks_blocked()
        for ended in s.ended:
            ledger["requests"] += ended.usage.output > 0
            ledger["tokens"] += ended.usage.input + ended.usage.output
            ledger["micro_usd"] += ended.cost or 0
        assert s.gateway.quota().open == 0
        for dimension, what in WHAT.items():
            assert set(spent(s, dimension).values()) <= {ledger[what]}
        assert not any(spent(s, Dimension.CONCURRENCY).values())
        return cut

    async with scene(*("a", "b")[: len(script)], toml=TOML + extra, channel=LIMITS, model=LIMITS) as s:
        reasons = await cut_everywhere(s, counted, streamed=streamed, script=scripted(*script))
        assert set(reasons) == {EndReason.ANSWERED, EndReason.CLIENT_LEFT}
        assert ledger["requests"] > 0
        assert spent(s, Dimension.TOKENS_PER_DAY) == dict.fromkeys(
            ("organization", "tenant", "model"), ledger["tokens"]
        )
