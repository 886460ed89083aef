"""The network in memory keeps TCP's promises, so that what passes on it can pass on sockets."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.fakes.network import MemoryWire, open_network, wire_pair
from trioproxy.http.wire import Wire, WireBroken


async def test_bytes_arrive_in_order_and_a_half_close_ends_them() -> None:
    near, far = wire_pair()
    await near.send(b"ab")
    await near.send(b"cd")
    near.send_eof()
    assert await far.receive() == b"abcd"
    assert await far.receive() == b""
    await far.send(b"still here")
    assert await near.receive() == b"still here"


async def test_a_slow_reader_blocks_the_sender_at_the_bound(autojump_clock: MockClock) -> None:
    near, far = wire_pair(capacity=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(near.send, b"x" * 25)
        await trio.sleep(100)
        assert await far.receive() == b"x" * 10
        await wait_all_tasks_blocked()
        assert await far.receive() == b"x" * 10
        await wait_all_tasks_blocked()
        assert await far.receive() == b"x" * 5
    assert trio.current_time() == 100


async def test_a_reset_lets_buffered_bytes_through_first() -> None:
    near, far = wire_pair()
    await near.send(b"last words")
    near.reset()
    assert far.stale()
    assert await far.receive() == b"last words"
    with pytest.raises(WireBroken):
        await far.receive()
    with pytest.raises(WireBroken):
        await far.send(b"x")


async def test_a_reset_wakes_a_blocked_sender() -> None:
    near, far = wire_pair(capacity=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expect_broken, near)
        await wait_all_tasks_blocked()
        far.reset()
    assert near.stale()


async def _expect_broken(wire: MemoryWire) -> None:
    with pytest.raises(WireBroken):
        await wire.send(b"too much")


async def test_closing_with_unread_bytes_resets_the_peer() -> None:
    near, far = wire_pair()
    await near.send(b"never read")
    await far.send(b"error page")
    far.close()
    assert await near.receive() == b"error page"
    with pytest.raises(WireBroken):
        await near.receive()


async def test_closing_is_idempotent_and_wakes_the_own_reader() -> None:
    near, far = wire_pair()

    async def read() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await near.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        near.close()
        near.close()
    assert await far.receive() == b""
    with pytest.raises(WireBroken):
        await far.send(b"nobody")


async def test_an_idle_wire_is_stale_once_the_peer_spoke_or_left() -> None:
    near, far = wire_pair()
    assert not near.stale()
    await far.send(b"unasked")
    assert near.stale()
    one, two = wire_pair()
    two.close()
    assert one.stale()


async def test_a_hangup_is_told_once_and_also_to_those_who_ask_late() -> None:
    told: list[str] = []
    near, far = wire_pair()
    near.watch_hangup(lambda: told.append("early"))
    far.send_eof()
    far.close()
    assert told == ["early"]
    near.watch_hangup(lambda: told.append("late"))
    assert told == ["early", "late"]


async def test_a_cancelled_receive_loses_nothing() -> None:
    near, far = wire_pair()
    await near.send(b"kept")
    with trio.CancelScope() as scope:
        scope.cancel()
        await far.receive()
    assert scope.cancelled_caught
    assert await far.receive() == b"kept"


async def test_dial_reaches_listeners_and_counts_them() -> None:
    async def echo(wire: Wire) -> None:
        await wire.send(await wire.receive())

    async with open_network() as network:
        network.listen("a.test", 80, echo)
        for _ in range(2):
            wire = await network.dial("a.test", 80)
            await wire.send(b"ping")
            assert await wire.receive() == b"ping"
            assert await wire.receive() == b""
        assert network.connections["a.test", 80] == 2


async def test_dial_raises_oserror_where_nobody_listens_or_for_as_often_as_told() -> None:
    async def ignore(wire: Wire) -> None:
        await wire.receive()

    async with open_network() as network:
        with pytest.raises(OSError, match=r"nobody\.test"):
            await network.dial("nobody.test", 80)
        network.listen("a.test", 80, ignore)
        network.refuse("a.test", 80, times=1)
        with pytest.raises(ConnectionRefusedError):
            await network.dial("a.test", 80)
        (await network.dial("a.test", 80)).close()
        assert len(network.dials) == 3
        assert network.connections["a.test", 80] == 1


async def test_a_swallowed_dial_hangs_until_its_caller_gives_up(autojump_clock: MockClock) -> None:
    async with open_network() as network:
        network.swallow("a.test", 80)
        with trio.move_on_after(5) as scope:
            await network.dial("a.test", 80)
    assert scope.cancelled_caught
    assert trio.current_time() == 5


async def test_a_bug_in_a_handler_is_not_hidden() -> None:
    async def broken(wire: Wire) -> None:
        raise ValueError("a bug")

    async def visit() -> None:
        async with open_network() as network:
            network.listen("a.test", 80, broken)
            await network.dial("a.test", 80)
            await trio.sleep_forever()

    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a bug"), flatten_subgroups=True):
        await visit()
