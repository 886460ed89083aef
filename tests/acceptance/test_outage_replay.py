"""Forty minutes without the first provider, minute by minute: noticed in seconds, paid for by the calls of those seconds alone.

Before there was a breaker such an outage cost every caller eight seconds of waiting, and was noticed by people.
"""

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.outage import MINUTE, WAIT, Log, heal, strike, traffic
from tests.fakes import steps
from tests.scene import scene

EVERY = 2.0  # seconds between calls
DIES, BACK, END = 5 * MINUTE + 5.0, 45 * MINUTE + 5.0, 50 * MINUTE
# Micro-USD of an answer of the fakes (9 and 3 tokens) at each channel's price.
AT_A, AT_B = 9 * 1 + 3 * 4, 9 * 2 + 3 * 8
FILE = f"""
[defaults]
breaker = "consecutive"
headers_timeout = {WAIT:g}
[probes]
jitter = 0
"""


async def replay(toml: str) -> Log:
    async with scene("a", "b", toml=toml) as s:
        s.a.script(steps.chat("from a"))
        s.b.script(steps.chat("from b"))
        log = Log(s)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(strike, s, DIES)
            nursery.start_soon(heal, s, BACK)
            nursery.start_soon(traffic, log, END, EVERY)
        await s.rest()
        assert s.held() == {}
        assert s.gateway.statistics()["a"].breaker == "closed"
        return log


async def test_the_outage_minute_by_minute(autojump_clock: MockClock) -> None:
    log = await replay(FILE)
    calls = len(log.calls)
    assert calls == END / EVERY
    assert {call.status for call in log.calls} == {200}

    # Noticed: the first failure a wait after the first call, the breaker eight seconds later, at the fifth.
    first_lost = DIES + 1.0
    (_, opened), (_, closed) = log.moves()
    assert [state for state, _ in log.moves()] == ["open", "closed"]
    assert log.first_failure() == first_lost + WAIT
    assert opened == log.first_failure() + 4 * EVERY == DIES + 17.0

    # Who waited: the calls that were begun before that, and nobody after.
    waited = [call for call in log.calls if call.took]
    assert [call.at for call in waited] == [first_lost + EVERY * n for n in range(len(waited))]
    assert {call.took for call in waited} == {WAIT}
    assert len(waited) == 8
    assert not [at for at in log.asked() if opened < at < closed]
    without = sum(DIES < call.at < BACK for call in log.calls)
    assert (without, without - len(waited)) == (1200, 1192)  # waits of eight seconds that nobody had

    # Health checks: one a minute, then at once and every ten seconds; each failed one took three.
    probes = log.probes()
    before = [probe for probe in probes if probe.now < DIES]
    during = [probe for probe in probes if opened <= probe.now < BACK]
    assert [probe.now for probe in before] == [MINUTE * n for n in range(6)]
    assert [probe.now for probe in during[:3]] == [opened + 3.0, opened + 13.0, opened + 23.0]
    assert {(probe.ok, probe.seconds) for probe in during} == {(False, 3.0)}
    assert len(during) == 238

    # Back: by a check, at most ten seconds after the provider, and with no call's help.
    assert BACK <= closed <= BACK + 10.0
    assert next(probe.now for probe in probes if probe.ok and probe.now > BACK) == closed
    assert min(at for at in log.asked() if at > opened) >= closed

    per_minute = int(MINUTE / EVERY)
    assert log.minutes("a") == [30] * 5 + [3] + [0] * 39 + [per_minute - log.minutes("b")[45]] + [30] * 4
    assert log.minutes("b")[:45] == [0] * 5 + [27] + [30] * 39
    assert 3 <= log.minutes("b")[45] <= 8

    # The bill: callers pay for answers alone, and what the checks cost stands by itself.
    probed = log.s.gateway.statistics()["a"].probed
    assert probed is not None
    good = [probe for probe in probes if probe.ok]
    assert probed.cost == sum(probe.cost or 0 for probe in probes) == AT_A * len(good)
    assert (probed.runs, probed.failed) == (len(probes), len(probes) - len(good))
    assert log.cost("a") == AT_A * sum(log.minutes("a"))
    assert log.cost("b") == AT_B * sum(log.minutes("b"))
    assert sum(log.minutes("a")) + sum(log.minutes("b")) == calls


async def test_without_health_checks_one_call_a_minute_finds_out(autojump_clock: MockClock) -> None:
    """A probe that is a call costs its caller the wait: once in a cooldown and a wait, 68 s, as long as it lasts."""
    log = await replay(FILE.partition("[probes]")[0])
    opened = log.moves()[0][1]
    waited = [call.at for call in log.calls if call.took and call.at > opened]
    assert {call.took for call in log.calls} == {0.0, WAIT}
    assert waited == [at for at in log.asked() if opened < at < BACK]
    assert len(waited) == 35
    assert all(after - before == 68.0 for before, after in pairwise(waited))
    states = [state for state, _ in log.moves()]
    assert states == ["open", *["half_open", "open"] * 35, "half_open", "closed"]
    assert log.moves()[-1][1] - BACK <= 60.0 + EVERY


@pytest.mark.parametrize("preset", ["four-layer", "consecutive", "half-open"])
async def test_a_channel_that_flaps_costs_a_few_calls_each_time_and_is_back_within_half_a_minute(
    preset: str, autojump_clock: MockClock
) -> None:
    """Ten times down for a minute and up for a minute, a call a second."""
    needed = {"four-layer": 3, "consecutive": 5, "half-open": 5}[preset]
    async with scene("a", "b", toml=f'[defaults]\nbreaker = "{preset}"\n[probes]\njitter = 0\n') as s:
        s.a.script(steps.chat("from a"))
        s.b.script(steps.chat("from b"))
        log = Log(s)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic, log, 20 * MINUTE, 1.0)
            for cycle in range(10):
                await trio.sleep(cycle * 2 * MINUTE + 0.5 - trio.current_time())
                s.a.script(steps.error(503))
                await trio.sleep(MINUTE)
                s.a.script(steps.chat("from a"))
        assert {call.status for call in log.calls} == {200}
        for cycle in range(10):
            down = cycle * 2 * MINUTE + 0.5
            lost = [at for at in log.asked() if down <= at < down + MINUTE]
            assert len(lost) == needed, cycle
            back = min(at for at in log.asked() if at >= down + MINUTE)
            assert back - (down + MINUTE) <= 30.0, cycle
        states = [state for state, _ in log.moves()]
        assert states.count("open") == 10
        assert s.held() == {}
