"""The instrument counts a known program exactly, keeps groups apart, and a call's figures are what they were a moment ago."""

import pytest
import trio

from bench.steps import REST, Count, Row, StepCounter, measure, table, whole


async def yielding(times: int) -> None:
    for _ in range(times):
        await trio.lowlevel.checkpoint()


async def parent() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(yielding, 2)
        nursery.start_soon(yielding, 3)


async def counted(counter: StepCounter) -> None:
    await trio.testing.wait_all_tasks_blocked()  # Trio's own tasks have begun
    trio.lowlevel.add_instrument(counter)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(parent)
    trio.lowlevel.remove_instrument(counter)


async def test_a_known_program_is_counted_exactly() -> None:
    counter = StepCounter({f"{__name__}.parent": "program"})
    await counted(counter)
    # The parent yields once, in its nursery; the children twice and three times; each of the three ends in a step of its own.
    count = counter.of("program")
    assert count == Count(steps=1 + 2 + 3 + 3, spawned=3, ended=3)
    assert count.checkpoints == 6
    assert counter.of(REST).steps == 1  # the test's own task, after its nursery
    assert counter.polls >= 4


async def test_a_child_may_be_of_another_group_than_its_parent() -> None:
    counter = StepCounter({f"{__name__}.parent": "parent", f"{__name__}.yielding": "children"})
    await counted(counter)
    assert counter.of("parent") == Count(steps=2, spawned=1, ended=1)
    assert counter.of("children") == Count(steps=7, spawned=2, ended=2)


async def test_after_a_reset_nothing_is_counted_and_groups_are_known() -> None:
    counter = StepCounter({f"{__name__}.yielding": "children"})
    trio.lowlevel.add_instrument(counter)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(yielding, 2)
        await trio.testing.wait_all_tasks_blocked()
        counter.reset()
        nursery.start_soon(yielding, 1)
    trio.lowlevel.remove_instrument(counter)
    assert counter.of("children") == Count(steps=2, spawned=1, ended=1)
    assert counter._groups == {}


def test_what_a_call_costs_is_counted_for_the_gateway_alone() -> None:
    rows = trio.run(measure, 20)
    assert [row.name for row in rows] == [
        "unary, embedded",
        "unary, by the door",
        "stream, embedded",
        "stream, by the door",
    ]
    for row in rows:
        assert row.spawned == 1, "one attempt is one child task"
        assert row.steps - row.checkpoints == pytest.approx(1, abs=0.1)
        assert 2 <= row.checkpoints <= 30, row
    assert [round(row.steps, 1) for row in rows[:2]] == [3, 4], "a unary call is woken no oftener than it must"


def test_the_table_has_a_line_for_each() -> None:
    lines = table([Row("unary", 5.04, 4, 1, 9)]).splitlines()
    assert [line.split() for line in lines] == [
        ["per", "call", "steps", "checkpoints", "tasks", "polls"],
        ["unary", "5.0", "4.0", "1.0", "9.0"],
    ]


@pytest.mark.parametrize(
    ("reply", "ended"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n", False),
        (b"HTTP/1.1 200 OK\r\n\r\n3\r\nabc\r\n", False),
        (b"HTTP/1.1 200 OK\r\n\r\n3\r\nabc\r\n0\r\n\r\n", True),
    ],
)
def test_the_end_of_a_reply_is_known(reply: bytes, ended: bool) -> None:
    assert whole(reply) is ended
