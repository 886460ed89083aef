"""A family's lock: decisions wait for a holder only, and what is posted is never lost, however the holder leaves."""

import pytest
import trio
from attrs import define
from trio.testing import MockClock, wait_all_tasks_blocked

from trioproxy.family import Family


@define
class Count:
    value: int = 0
    seen: tuple[str, ...] = ()

    def add(self, amount: int, *, label: str = "") -> int:
        self.value += amount
        self.seen += (label,)
        return self.value

    def change(self, label: str) -> None:
        self.add(1, label=label)


async def test_a_decision_is_made_at_once_where_nobody_is_inside() -> None:
    family = Family(Count())
    deciding = family.decide(family.state.add, 2, label="x")
    with pytest.raises(StopIteration) as stopped:
        deciding.send(None)
    assert stopped.value.value == 2


async def test_a_decision_waits_for_a_holder(autojump_clock: MockClock) -> None:
    family = Family(Count())
    async with trio.open_nursery() as nursery, family.held() as state:
        nursery.start_soon(family.decide, state.add, 1)
        await wait_all_tasks_blocked()
        assert state.value == 0
    assert family.state.value == 1


async def test_a_decision_cancelled_while_it_waits_was_never_made(autojump_clock: MockClock) -> None:
    family = Family(Count())

    async def hold() -> None:
        async with family.held():
            await trio.sleep(2.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        await wait_all_tasks_blocked()
        with trio.move_on_after(1.0) as scope:
            await family.decide(family.state.add, 1)
    assert scope.cancelled_caught
    assert family.state.value == 0
    assert await family.decide(family.state.add, 5) == 5


def test_a_post_is_done_at_once_where_nobody_is_inside() -> None:
    family = Family(Count())
    family.post(family.state.change, label="now")
    assert (family.state.value, family.state.seen) == (1, ("now",))


async def test_posts_during_a_hold_are_done_in_order_when_the_holder_leaves(autojump_clock: MockClock) -> None:
    family = Family(Count())
    async with family.held() as state:
        family.post(state.change, "first")
        family.post(state.change, label="second")
        await trio.sleep(1)
        assert state.value == 0
    assert family.state.seen == ("first", "second")


async def test_posts_are_done_before_the_next_holder_enters(autojump_clock: MockClock) -> None:
    family = Family(Count())

    async def next_holder() -> None:
        async with family.held() as state:
            assert state.seen == ("posted", "by a post")
            state.change("next")

    async with trio.open_nursery() as nursery, family.held() as state:
        nursery.start_soon(next_holder)
        await wait_all_tasks_blocked()

        def posted() -> None:
            state.change("posted")
            family.post(state.change, "by a post")

        family.post(posted)
    assert family.state.seen == ("posted", "by a post", "next")


@pytest.mark.parametrize("how", ["raises", "is cancelled"])
async def test_posts_are_done_however_the_holder_leaves(how: str, autojump_clock: MockClock) -> None:
    family = Family(Count())

    async def hold() -> None:
        async with family.held() as state:
            family.post(state.change, "posted")
            if how == "raises":
                raise ZeroDivisionError
            await trio.sleep_forever()

    if how == "raises":
        with pytest.raises(ZeroDivisionError):
            await hold()
    else:
        with trio.move_on_after(1):
            await hold()
    assert await family.decide(family.state.add, 1) == 2


async def test_a_post_that_raises_neither_keeps_the_lock_nor_loses_the_others(autojump_clock: MockClock) -> None:
    family = Family(Count())

    def bug() -> None:
        raise ZeroDivisionError

    async def hold() -> None:
        async with family.held() as state:
            family.post(bug)
            family.post(state.change, "after the bug")

    with pytest.raises(ZeroDivisionError):
        await hold()
    assert family.state.seen == ("after the bug",)
    with trio.fail_after(1):
        assert await family.decide(family.state.add, 1) == 2
