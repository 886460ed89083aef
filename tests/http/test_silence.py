"""Who has been silent for too long: exact, cheap, and without holding on to anybody."""

import gc
import math

import trio
from attrs import define, field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from trioproxy.http.silence import SilenceWatch


@define(eq=False)
class Reading:
    """A stream that may be silent for `patience` seconds; `heard` is when something came last."""

    patience: float
    heard: float = field(factory=trio.current_time)
    gave_up: list[float] = field(init=False, factory=list)
    over: bool = False

    def due(self, now: float) -> float:
        return math.inf if self.over else self.heard + self.patience

    def give_up(self, now: float) -> None:
        self.gave_up.append(now)


async def test_a_stream_is_told_exactly_when_its_time_is_up_and_once(autojump_clock: MockClock) -> None:
    watch = SilenceWatch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.watch)
        reading = Reading(60.0)
        watch.add(reading, trio.current_time())
        await trio.sleep(59.5)
        assert reading.gave_up == []
        await trio.sleep(100)
        assert reading.gave_up == [60.0]
        nursery.cancel_scope.cancel()


async def test_whatever_comes_puts_it_off_without_anybody_being_told(autojump_clock: MockClock) -> None:
    watch = SilenceWatch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.watch)
        reading = Reading(60.0)
        watch.add(reading, trio.current_time())
        for _ in range(5):
            await trio.sleep(45)
            reading.heard = trio.current_time()
        await trio.sleep(1000)
        assert reading.gave_up == [5 * 45 + 60.0]
        nursery.cancel_scope.cancel()


async def test_a_shorter_patience_is_heeded_when_it_is_told_of(autojump_clock: MockClock) -> None:
    watch = SilenceWatch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.watch)
        slow, hasty = Reading(60.0), Reading(60.0)
        for reading in (slow, hasty):
            watch.add(reading, trio.current_time())
        await trio.sleep(10)
        hasty.patience = 12.0
        watch.add(hasty, trio.current_time())
        await trio.sleep(100)
        assert (hasty.gave_up[0], slow.gave_up) == (12.0, [60.0])
        nursery.cancel_scope.cancel()


async def test_a_stream_that_is_over_or_gone_is_forgotten(autojump_clock: MockClock) -> None:
    watch = SilenceWatch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.watch)
        over, gone = Reading(5.0), Reading(5.0)
        for reading in (over, gone):
            watch.add(reading, trio.current_time())
        over.over = True
        del gone, reading
        gc.collect()
        await trio.sleep(6)
        assert over.gave_up == []
        assert watch.waiting == 0
        nursery.cancel_scope.cancel()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # conftest makes a fresh clock for each
# Eighths of a second have no rounding, so that the moments can be compared as they are.
@given(patiences=st.lists(st.integers(4, 400).map(lambda eighths: eighths / 8), min_size=1, max_size=20))
async def test_each_has_its_own_time_whatever_the_order(patiences: list[float], autojump_clock: MockClock) -> None:
    watch = SilenceWatch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.watch)
        began = trio.current_time()
        readings = [Reading(patience) for patience in patiences]
        for reading in readings:
            watch.add(reading, trio.current_time())
        await trio.sleep(51)
        assert [reading.gave_up for reading in readings] == [[began + patience] for patience in patiences]
        nursery.cancel_scope.cancel()
