"""Wires over real sockets: what is sent at once, what waits, and how a peer's end or a reset is told."""

import socket
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from tests.http.sockets import pair, reset, tcp
from trioproxy.http.wire import READ_SIZE, WireBroken, dial


def drained(peer: socket.socket) -> int:
    """How many bytes lie there to be read."""
    count = 0
    try:
        while data := peer.recv(READ_SIZE):
            count += len(data)
    except BlockingIOError:
        pass
    return count


# Sending.


async def test_a_small_send_needs_no_scheduler() -> None:
    with pair() as (wire, peer):
        sending = wire.send(b"hello")
        with pytest.raises(StopIteration):
            sending.send(None)
        assert peer.recv(10) == b"hello"


async def test_send_now_sends_what_there_is_room_for_and_then_nothing() -> None:
    data = bytes(10_000_000)
    with pair() as (wire, peer):
        sent = wire.send_now(data)
        assert 0 < sent < len(data)
        while more := wire.send_now(data):
            sent += more
        assert wire.send_now(b"x") == 0
        assert drained(peer) == sent


async def test_send_waits_until_the_peer_takes_the_rest() -> None:
    data = bytes(range(256)) * 20_000
    with pair() as (wire, peer):
        got = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, data)
            await wait_all_tasks_blocked()
            assert nursery.child_tasks  # it waits
            while len(got) < len(data):
                await trio.lowlevel.wait_readable(peer)
                got += peer.recv(READ_SIZE)
        assert got == data


@pytest.mark.parametrize("waiting", [False, True])
async def test_sending_to_a_peer_that_has_gone_breaks(waiting: bool) -> None:
    with pair() as (wire, peer):
        if not waiting:
            peer.close()
            with pytest.raises(WireBroken):
                wire.send_now(b"x")
            with pytest.raises(WireBroken):
                await wire.send(b"x")
            return
        broke = []

        async def send() -> None:
            with pytest.raises(WireBroken):
                await wire.send(bytes(10_000_000))
            broke.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await wait_all_tasks_blocked()
            peer.close()
        assert broke == [True]


# Receiving.


async def test_received_is_what_was_sent_and_then_the_end() -> None:
    with pair() as (wire, peer):
        peer.send(b"one")
        assert await wire.receive() == b"one"
        peer.send(b"two")
        peer.shutdown(socket.SHUT_WR)
        assert [await wire.receive() for _ in range(3)] == [b"two", b"", b""]


async def test_a_burst_comes_in_one_piece() -> None:
    with pair() as (wire, peer):
        for _ in range(200):
            peer.send(b"data: x\n\n")
        assert len(await wire.receive()) == 1800


async def test_a_cancelled_receive_loses_nothing() -> None:
    with pair() as (wire, peer):
        with trio.CancelScope() as scope:
            scope.cancel()
            peer.send(b"kept")
            await wire.receive()
        assert scope.cancelled_caught
        assert await wire.receive() == b"kept"


async def test_receiving_always_yields_so_that_a_relaying_loop_does_too() -> None:
    with pair() as (wire, peer):
        peer.send(b"there already")
        with assert_checkpoints():
            assert await wire.receive() == b"there already"


class Snatcher(trio.abc.Instrument):
    """Does something between the kernel's word that a socket is ready and the task that waits for it; once."""

    def __init__(self, snatch: Callable[[], object]) -> None:
        self.snatch = snatch
        self.done = 0

    def after_io_wait(self, timeout: float) -> None:
        if not self.done:
            self.snatch()
            self.done += 1


@contextmanager
def snatched(snatch: Callable[[], object]) -> Generator[Snatcher]:
    instrument = Snatcher(snatch)
    trio.lowlevel.add_instrument(instrument)
    yield instrument
    trio.lowlevel.remove_instrument(instrument)


async def test_a_readiness_that_was_none_is_waited_out() -> None:
    with pair() as (wire, peer), closing(wire._sock.dup()) as twin:
        got: list[bytes] = []

        async def receive() -> None:
            got.append(await wire.receive())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await wait_all_tasks_blocked()
            peer.send(b"snatched")
            with snatched(lambda: twin.recv(100)) as snatcher:
                await wait_all_tasks_blocked(0.01)
            assert (snatcher.done, got) == (1, [])
            peer.send(b"received")
        assert got == [b"received"]


async def test_room_that_was_none_is_waited_out() -> None:
    with pair() as (wire, peer), closing(wire._sock.dup()) as twin:
        twin.setblocking(False)

        def fill() -> None:
            with suppress(BlockingIOError):
                while True:
                    twin.send(bytes(READ_SIZE))

        fill()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, b"last")
            await wait_all_tasks_blocked()
            drained(peer)
            with snatched(fill) as snatcher:
                await wait_all_tasks_blocked(0.01)
            assert snatcher.done == 1
            assert nursery.child_tasks  # still waiting
            drained(peer)
        assert peer.recv(10) == b"last"


async def test_a_reset_breaks_the_one_who_receives() -> None:
    async with tcp() as (near, far):
        reset(far)
        with pytest.raises(WireBroken):
            await near.receive()


# Closing.


@pytest.mark.parametrize("verb", ["receive", "send"])
async def test_close_wakes_whoever_waits(verb: str) -> None:
    with pair() as (wire, _):
        woken = []

        async def wait() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await (wire.receive() if verb == "receive" else wire.send(bytes(10_000_000)))
            woken.append(verb)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            wire.close()
        assert woken == [verb]


async def test_close_is_seen_by_the_peer_and_may_be_repeated() -> None:
    with pair() as (wire, peer):
        wire.close()
        wire.close()
        assert peer.recv(1) == b""
        assert wire.stale()


# Idle.


async def test_a_quiet_wire_is_not_stale() -> None:
    with pair() as (wire, _):
        assert not wire.stale()


@pytest.mark.parametrize("how", ["fin", "unasked"])
async def test_a_wire_whose_peer_left_or_spoke_is_stale_and_nothing_is_taken_from_it(how: str) -> None:
    with pair() as (wire, peer):
        if how == "fin":
            peer.close()
        else:
            peer.send(b"unasked")
        assert wire.stale()
        assert wire.stale()
        assert await wire.receive() == (b"" if how == "fin" else b"unasked")


async def test_a_wire_that_was_reset_is_stale() -> None:
    async with tcp() as (near, far):
        reset(far)
        await trio.lowlevel.wait_readable(near._sock)
        assert near.stale()


async def test_both_ends_of_a_dialled_connection_send_at_once() -> None:
    async with tcp() as (near, far):
        for wire in (near, far):
            assert wire._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_dialling_where_nobody_listens_is_an_os_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match=r"refused|failed"):
            await dial("127.0.0.1", taken.getsockname()[1], None)
