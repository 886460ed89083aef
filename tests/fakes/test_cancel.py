"""The scalpel cuts where it says, leaves bystanders alone, and finds a planted leak."""

import pytest
import trio
from trio.testing import MockClock

from tests.fakes.cancel import cancel_everywhere


async def test_it_finds_a_slot_that_leaks_at_one_checkpoint_only() -> None:
    held: list[str] = []

    async def leaky() -> None:
        held.append("slot")
        await trio.lowlevel.checkpoint()  # a cancellation here skips the release below
        try:
            await trio.lowlevel.checkpoint()
        finally:
            held.clear()

    def nothing_held() -> None:
        assert held == []

    with pytest.raises(AssertionError) as caught:
        await cancel_everywhere(leaky, nothing_held)
    assert caught.value.__notes__ == ["cut at step 1"]


async def test_a_tight_scenario_passes_and_every_checkpoint_was_cut(autojump_clock: MockClock) -> None:
    held: list[str] = []
    reached: set[int] = set()

    async def child() -> None:
        for number in range(5):
            await trio.sleep(1)
            reached.add(number)

    async def tight() -> None:
        held.append("slot")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child)
                await trio.sleep(2.5)
        finally:
            held.clear()

    def nothing_held() -> None:
        assert held == []

    assert await cancel_everywhere(tight, nothing_held) >= 7
    assert reached == {0, 1, 2, 3, 4}


async def test_tasks_outside_the_scenario_are_neither_counted_nor_cut(autojump_clock: MockClock) -> None:
    ticks = 0

    async def bystander() -> None:
        nonlocal ticks
        while True:
            await trio.sleep(0.1)
            ticks += 1

    async def scenario() -> None:
        await trio.sleep(1)
        await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander)
        assert await cancel_everywhere(scenario, lambda: None) == 2
        before = ticks
        await trio.sleep(1)
        assert ticks >= before + 9
        nursery.cancel_scope.cancel()


async def test_an_error_of_the_scenario_carries_the_step() -> None:
    async def careless() -> None:
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            raise ValueError("swallowed the cancellation") from None

    with pytest.raises(ValueError, match="swallowed") as caught:
        await cancel_everywhere(careless, lambda: None)
    assert caught.value.__notes__ == ["cut at step 1"]


async def test_an_endless_scenario_is_given_up() -> None:
    async def endless() -> None:
        for _ in range(100):
            await trio.lowlevel.checkpoint()

    with pytest.raises(AssertionError, match="after 10"):
        await cancel_everywhere(endless, lambda: None, most=10)
