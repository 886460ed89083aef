"""Wires over real sockets: what is sent at once, what waits, how a peer's leaving is noticed, and TLS with a real handshake."""

import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager

import pytest
import trio
import trustme
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from trioproxy.http.wire import READ_SIZE, HangupWatch, SocketWire, TlsWire, Wire, WireBroken, adopt, dial, secure


@contextmanager
def pair(hangups: HangupWatch | None = None) -> Generator[tuple[SocketWire, socket.socket]]:
    """A wire and its peer's bare socket, which blocks nobody."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    wire = SocketWire(near, hangups)
    with closing(wire), closing(far):
        yield wire, far


@asynccontextmanager
async def tcp() -> AsyncGenerator[tuple[SocketWire, SocketWire]]:
    """Two wires over a TCP connection on loopback."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        near = await dial("127.0.0.1", listener.socket.getsockname()[1], None)
        far = adopt(await listener.accept())
    assert isinstance(near, SocketWire)
    with closing(near), closing(far):
        yield near, far


def reset(wire: SocketWire) -> None:
    wire._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()


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
        with pytest.raises(OSError, match="refused|failed"):
            await dial("127.0.0.1", taken.getsockname()[1], None)


# Hang-ups: one epoll for all, or a sweep twice a second.


@asynccontextmanager
async def watching(swept: bool) -> AsyncGenerator[HangupWatch]:
    watch = HangupWatch()
    if swept:
        watch.close()
        watch._epoll = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        yield watch
        nursery.cancel_scope.cancel("the test is over")
    watch.close()


async def noticed(swept: bool) -> None:
    """Long enough for the watch to have looked: epoll needs a turn, the sweep half a second of the test's own clock."""
    if swept:
        await trio.sleep(0.6)
    else:
        await wait_all_tasks_blocked(0.01)


either = pytest.mark.parametrize("swept", [False, True], ids=["epoll", "sweep"])


@either
async def test_a_peer_that_leaves_is_told_once(swept: bool, autojump_clock: MockClock) -> None:
    async with watching(swept) as watch:
        with pair(watch) as (wire, peer):
            calls: list[str] = []
            wire.watch_hangup(lambda: calls.append("gone"))
            await noticed(swept)
            assert calls == []
            peer.close()
            await noticed(swept)
            await noticed(swept)
            assert calls == ["gone"]


@either
async def test_a_peer_that_only_closed_its_sending_half_counts_as_gone(swept: bool, autojump_clock: MockClock) -> None:
    async with watching(swept) as watch:
        with pair(watch) as (wire, peer):
            calls: list[str] = []
            wire.watch_hangup(lambda: calls.append("gone"))
            peer.shutdown(socket.SHUT_WR)
            await noticed(swept)
            assert calls == ["gone"]


@either
async def test_a_peer_that_had_left_before_the_watch_began_is_told_too(swept: bool, autojump_clock: MockClock) -> None:
    async with watching(swept) as watch:
        with pair(watch) as (wire, peer):
            calls: list[str] = []
            peer.close()
            wire.watch_hangup(lambda: calls.append("gone"))
            await noticed(swept)
            assert calls == ["gone"]


@either
async def test_bytes_are_no_hang_up(swept: bool, autojump_clock: MockClock) -> None:
    """A pipelined request comes while the first one is still being answered."""
    async with watching(swept) as watch:
        with pair(watch) as (wire, peer):
            calls: list[str] = []
            wire.watch_hangup(lambda: calls.append("gone"))
            peer.send(b"GET / HTTP/1.1\r\n\r\n")
            await noticed(swept)
            assert calls == []


@either
async def test_a_watch_that_was_given_up_tells_nothing_and_can_begin_again(
    swept: bool, autojump_clock: MockClock
) -> None:
    async with watching(swept) as watch:
        with pair(watch) as (wire, peer):
            calls: list[str] = []
            wire.watch_hangup(lambda: calls.append("first"))
            wire.watch_hangup(None)
            wire.watch_hangup(None)
            peer.close()
            await noticed(swept)
            assert calls == []
            wire.watch_hangup(lambda: calls.append("second"))
            await noticed(swept)
            assert calls == ["second"]


@either
async def test_one_that_was_told_can_be_watched_again(swept: bool, autojump_clock: MockClock) -> None:
    async with watching(swept) as watch:
        with pair(watch) as (wire, peer):
            calls: list[str] = []
            wire.watch_hangup(lambda: calls.append("first"))
            peer.close()
            await noticed(swept)
            wire.watch_hangup(lambda: calls.append("second"))
            await noticed(swept)
            assert calls == ["first", "second"]


@either
async def test_the_callback_may_be_replaced(swept: bool, autojump_clock: MockClock) -> None:
    async with watching(swept) as watch:
        with pair(watch) as (wire, peer):
            calls: list[str] = []
            wire.watch_hangup(lambda: calls.append("first"))
            wire.watch_hangup(lambda: calls.append("second"))
            peer.close()
            await noticed(swept)
            assert calls == ["second"]


@either
async def test_a_closed_wire_is_forgotten_also_by_a_callback_of_another(swept: bool, autojump_clock: MockClock) -> None:
    async with watching(swept) as watch:
        with pair(watch) as (one, one_peer), pair(watch) as (other, other_peer):
            calls: list[str] = []
            one.watch_hangup(lambda: (calls.append("one"), other.close()) and None)
            other.watch_hangup(lambda: (calls.append("other"), one.close()) and None)
            one_peer.close()
            other_peer.close()
            await noticed(swept)
            assert len(calls) == 1
            assert watch._watched == {}


async def test_without_a_watch_there_is_nothing_to_tell() -> None:
    with pair() as (wire, peer):
        calls: list[str] = []
        wire.watch_hangup(lambda: calls.append("gone"))
        peer.close()
        await wait_all_tasks_blocked()
        assert calls == []


# TLS.


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
def serving(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@asynccontextmanager
async def tls(trusting: ssl.SSLContext, serving: ssl.SSLContext) -> AsyncGenerator[tuple[Wire, TlsWire]]:
    """Two wires over TLS on loopback: the dialled one and the server's."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    accepted: list[TlsWire] = []

    async def accept() -> None:
        accepted.append(await secure(adopt(await listener.accept()), serving))

    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        near = await dial("localhost", listener.socket.getsockname()[1], trusting)
    with closing(near), closing(accepted[0]):
        yield near, accepted[0]


async def test_bytes_go_both_ways_over_tls(trusting: ssl.SSLContext, serving: ssl.SSLContext) -> None:
    async with tls(trusting, serving) as (near, far):
        assert near.send_now(b"x") == 0  # what TLS makes of it can only be sent by waiting
        await near.send(b"question")
        assert await far.receive() == b"question"
        await far.send(b"answer")
        assert await near.receive() == b"answer"


async def test_a_peer_that_leaves_without_a_farewell_is_an_end(
    trusting: ssl.SSLContext, serving: ssl.SSLContext
) -> None:
    """Framing tells a whole message from a cut one; many providers never send `close_notify`."""
    async with tls(trusting, serving) as (near, far):
        assert not near.stale()
        far.close()
        assert await near.receive() == b""
        assert near.stale()


async def test_a_reset_breaks_both_directions_of_tls(trusting: ssl.SSLContext, serving: ssl.SSLContext) -> None:
    async with tls(trusting, serving) as (near, far):
        reset(far._raw)
        with pytest.raises(WireBroken):
            await near.receive()
        with pytest.raises(WireBroken):
            await near.send(b"x")


async def test_junk_inside_tls_breaks(trusting: ssl.SSLContext, serving: ssl.SSLContext) -> None:
    async with tls(trusting, serving) as (near, far):
        far._raw.send_now(b"HTTP/1.1 200 in the clear\r\n\r\n")
        with pytest.raises(WireBroken):
            await near.receive()


async def test_close_wakes_whoever_waits_inside_tls(trusting: ssl.SSLContext, serving: ssl.SSLContext) -> None:
    async with tls(trusting, serving) as (near, _):
        woken = []

        async def wait() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await near.receive()
            woken.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            near.close()
        assert woken == [True]


async def test_a_hang_up_is_noticed_under_tls(trusting: ssl.SSLContext, serving: ssl.SSLContext) -> None:
    async with watching(swept=False) as watch, tls(trusting, serving) as (near, far):
        far._raw._hangups = watch
        gone = trio.Event()
        far.watch_hangup(gone.set)
        near.close()
        await gone.wait()
        assert watch._watched == {}


@pytest.mark.parametrize("fault", ["unknown authority", "wrong name", "no tls", "eof"])
async def test_a_handshake_that_fails_closes_the_wire_and_says_why(
    fault: str, trusting: ssl.SSLContext, serving: ssl.SSLContext
) -> None:
    client = ssl.create_default_context() if fault == "unknown authority" else trusting
    name = "elsewhere.test" if fault == "wrong name" else "localhost"
    async with tcp() as (near, far):

        async def serve() -> None:
            if fault == "eof":
                far.close()
            elif fault == "no tls":
                await far.receive()
                await far.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            else:
                with pytest.raises(WireBroken, match="TLS handshake failed"):
                    await secure(far, serving)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            with pytest.raises(WireBroken, match="TLS handshake failed"):
                await secure(near, client, server_hostname=name)
        assert near._closed


async def test_a_cancelled_handshake_closes_the_wire(trusting: ssl.SSLContext) -> None:
    async with tcp() as (near, far):
        with trio.move_on_after(0.01) as scope:
            await secure(near, trusting, server_hostname="localhost")
        assert scope.cancelled_caught
        assert near._closed
        assert await far.receive() != b""  # the hello had gone out
        assert await far.receive() == b""
