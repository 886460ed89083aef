"""The hang-up watch: one epoll for all sockets, or a sweep twice a second where the system has none; the same promises."""

import socket
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.http.sockets import pair, watching
from trioproxy.http.wire import SocketWire


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

            def gone(name: str, neighbour: SocketWire) -> None:
                calls.append(name)
                neighbour.close()

            one.watch_hangup(partial(gone, "one", other))
            other.watch_hangup(partial(gone, "other", one))
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
