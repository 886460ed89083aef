"""How late the loop runs, and when the log says so."""

import io
import json
import time

import pytest
import trio
from trio.testing import MockClock

from tests.scene import scene
from trioproxy.config.model import Logging
from trioproxy.lag import BOUNDS, LagStatistics, LoopLag
from trioproxy.ops.lag import report
from trioproxy.ops.log import Log


def lag_of(*lags: float) -> LagStatistics:
    lag = LoopLag()
    for one in lags:
        lag.note(one)
    return lag.statistics()


def test_a_quantile_is_the_upper_end_of_its_bucket_and_never_above_the_worst() -> None:
    taken = lag_of(*[0.0015] * 98, 0.015, 0.3)
    assert sum(taken.counts) == 100
    assert (taken.quantile(0.5), taken.quantile(0.99), taken.quantile(1.0)) == (0.002, 0.02, 0.3)
    assert lag_of(0.0004).quantile(0.5) == 0.0004
    assert lag_of(7.0).quantile(0.5) == 7.0


def test_without_a_measurement_there_is_none() -> None:
    assert lag_of().quantile(0.99) == 0.0
    assert len(lag_of().counts) == len(BOUNDS) + 1


def test_a_report_begins_anew() -> None:
    lag = LoopLag()
    lag.note(0.3)
    assert lag.take().worst == 0.3
    assert lag.take() == lag_of()
    lag.note(0.2)
    assert lag.take() == lag_of(0.2)
    assert lag.statistics() == lag_of(0.3, 0.2), "the whole is still to be read"


@pytest.mark.parametrize(("held_up", "level"), [(0.0, "debug"), (0.25, "warning")])
async def test_the_log_hears_of_it_once_a_minute(held_up: float, level: str, autojump_clock: MockClock) -> None:
    sink = io.BytesIO()
    log = Log.to(sink, Logging("json", "debug"), lambda: 0.0)
    lag = LoopLag()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(report, lag, log)
        await trio.sleep(1)
        lag.note(held_up)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    log.writer.flush()
    (line,) = map(json.loads, sink.getvalue().splitlines())
    assert (line["event"], line["level"], line["worst_ms"]) == ("lag", level, held_up * 1000)


async def test_a_loop_that_is_blocked_is_late() -> None:
    lag = LoopLag()
    with trio.move_on_after(0.35):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lag.watch)
            await trio.sleep(0.05)
            time.sleep(0.2)  # noqa: ASYNC251 - the fault itself
            await trio.sleep_forever()
    assert lag.statistics().worst >= 0.1


async def test_a_gateway_tells_how_late_its_loop_has_run(autojump_clock: MockClock) -> None:
    async with scene("a") as s, trio.open_nursery() as nursery:
        nursery.start_soon(s.gateway.supervisor.lag.watch)
        await trio.sleep(10.05)
        assert sum(s.gateway.lag().counts) == 100
        nursery.cancel_scope.cancel()
