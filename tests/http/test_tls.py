"""Wires over TLS with real handshakes: bytes both ways, ends and resets, and handshakes that fail."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing

import pytest
import trio
import trustme
from trio.testing import wait_all_tasks_blocked

from tests.http.sockets import reset, tcp, watching
from trioproxy.http.wire import TlsWire, Wire, WireBroken, adopt, dial, secure


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
