"""The data door and its upstreams over real sockets: TCP, Unix and TLS, names that do not resolve, clients that hang up."""

import gc
import socket
import ssl
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme

from tests.fakes import steps
from tests.fakes.client import Client, Reply
from tests.fakes.upstream import Exchange, FakeUpstream, on_loopback
from tests.scene import CHAT, PROMPT
from trioproxy.app import open_gateway
from trioproxy.config.load import parse_config
from trioproxy.doors.data import DataDoor
from trioproxy.gateway import Gateway
from trioproxy.http.wire import HangupWatch, WireBroken, adopt, dial, secure
from trioproxy.journal import Event, ExchangeEnded, Journal

STREAM = {**PROMPT, "stream": True}
WALL = 1_764_000_000.0


def configuration(listen: str, *channels: str) -> str:
    """TOML with these channels (`name base_url extra…`), in this order, for the model `m`."""
    parts = [line.split(" ", 2) for line in channels]
    tables = "".join(
        f'[[channels]]\nname = "{name}"\nbase_url = "{url}"\nauth = "none"\n{"".join(extra)}\n'
        for name, url, *extra in parts
    )
    links = ", ".join(f'{{ channel = "{name}", model = "x" }}' for name, *_ in parts)
    return f'[listen]\ndata = "{listen}"\n{tables}[[models]]\nname = "m"\norder = "listed"\nchannels = [ {links} ]\n'


@asynccontextmanager
async def opened(listen: str, *channels: str) -> AsyncGenerator[tuple[Gateway, DataDoor, list[ExchangeEnded]]]:
    """A gateway on the real network, its door not yet running."""
    config = parse_config(configuration(listen, *channels), "sockets.toml")
    journal = Journal()
    ended: list[ExchangeEnded] = []

    def keep(event: Event) -> None:
        if isinstance(event, ExchangeEnded):
            ended.append(event)

    journal.subscribe(keep)
    bugs: list[Exception] = []
    async with open_gateway(config, journal=journal) as gateway:
        yield gateway, DataDoor(gateway, config.listen, lambda: WALL, bugs.append), ended
    assert bugs == []


@asynccontextmanager
async def served(listen: str, *channels: str) -> AsyncGenerator[tuple[str, Gateway, list[ExchangeEnded]]]:
    """The same with its door running; the address first."""
    async with opened(listen, *channels) as (gateway, door, ended), trio.open_nursery() as nursery:
        (address,) = await nursery.start(door.run)
        yield address, gateway, ended
        door.stop()


async def client_of(address: str) -> Client:
    if address.startswith("unix:"):
        return Client(adopt(await trio.open_unix_socket(address.removeprefix("unix:"))))
    host, _, port = address.rpartition(":")
    return Client(await dial(host.strip("[]"), int(port), None))


@asynccontextmanager
async def visiting(address: str) -> AsyncGenerator[Client]:
    client = await client_of(address)
    try:
        yield client
    finally:
        client.close()


async def ask(address: str) -> Reply:
    async with visiting(address) as client:
        return await client.post(CHAT, PROMPT)


async def alive(address: str) -> bool:
    async with visiting(address) as client:
        return (await client.get("/healthz")).status == 200


async def records(ended: list[ExchangeEnded], count: int) -> list[ExchangeEnded]:
    """So many records, once they are made: a client has its answer a step earlier."""
    while len(ended) < count:
        await trio.lowlevel.checkpoint()
    return ended


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_the_door_answers_both_ways(kind: str, tmp_path: Path) -> None:
    listen = "127.0.0.1:0" if kind == "tcp" else f"unix:{tmp_path}/door"
    upstream = FakeUpstream("a").script(steps.chat("over the wire"))
    async with on_loopback(upstream), served(listen, f"a {upstream.base_url}") as (address, _, ended):
        async with visiting(address) as client:
            reply = await client.post(CHAT, PROMPT)
            assert reply.json["choices"][0]["message"]["content"] == "over the wire"
            stream = await client.stream(CHAT, STREAM)
            await stream.rest()
        assert (stream.text(), stream.complete) == ("over the wire", True)
        assert not address.endswith(":0")
        assert [record.reason.value for record in await records(ended, 2)] == ["answered", "answered"]


async def test_an_answer_larger_than_the_kernels_buffers_arrives_whole() -> None:
    text = "x" * 20_000_000
    upstream = FakeUpstream("a").script(steps.chat(text))
    async with on_loopback(upstream), served("127.0.0.1:0", f"a {upstream.base_url}") as (address, _, _):
        reply = await ask(address)
        assert reply.json["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize("leave", [Client.close, Client.reset], ids=["fin", "reset"])
@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("body", [PROMPT, STREAM], ids=["unary", "streamed"])
async def test_a_hang_up_is_seen_while_the_upstream_is_silent(
    body: object, kind: str, leave: Callable[[Client], None], tmp_path: Path
) -> None:
    listen = "127.0.0.1:0" if kind == "tcp" else f"unix:{tmp_path}/door"
    upstream = FakeUpstream("a").script(steps.silence())
    async with on_loopback(upstream), served(listen, f"a {upstream.base_url}") as (address, _, ended):
        client = await client_of(address)
        await client.wire.send(client.request("POST", CHAT, body))
        await upstream.wait_hits(1)
        with trio.fail_after(1):
            leave(client)
            while upstream.open or not ended:
                await trio.lowlevel.checkpoint()
        assert [record.reason.value for record in ended] == ["client_left"]


async def test_a_kept_alive_connection_is_used_again() -> None:
    upstream = FakeUpstream("a").script(steps.chat("hi"))
    async with on_loopback(upstream), served("127.0.0.1:0", f"a {upstream.base_url}") as (address, gateway, ended):
        for _ in range(3):
            assert (await ask(address)).status == 200
        assert upstream.connections == 1
        assert gateway.statistics()["a"].idle_connections == 1
        assert [record.attempts[0].reused for record in await records(ended, 3)] == [False, True, True]


async def test_a_kept_alive_connection_that_the_upstream_closed_is_not_used() -> None:
    async def once(x: Exchange) -> None:
        await steps.chat("hi")(x)
        x.fin()

    upstream = FakeUpstream("a").script(once)
    async with on_loopback(upstream), served("127.0.0.1:0", f"a {upstream.base_url}") as (address, gateway, _):
        for _ in range(3):
            assert (await ask(address)).status == 200
        assert (upstream.connections, upstream.hits) == (3, 3)
        assert gateway.statistics()["a"].failures == 0


async def failing_over(channel: str) -> str:
    """What the record says of a channel that B has to stand in for."""
    b = FakeUpstream("b").script(steps.chat("from b"))
    async with on_loopback(b), served("127.0.0.1:0", f"a {channel}", f"b {b.base_url}") as (address, gateway, ended):
        reply = await ask(address)
        assert (reply.status, reply.headers["x-trioproxy-channel"]) == (200, "b")
        assert gateway.statistics()["a"].failures == 1
        first, second = (await records(ended, 1))[0].attempts
        assert second.fault is None
        assert first.fault is not None
        return first.fault.kind.value


async def test_a_name_that_does_not_resolve_fails_over() -> None:
    assert await failing_over("http://nobody.invalid/v1") == "connect"


async def test_a_port_where_nobody_listens_fails_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else can have it
        assert await failing_over(f"http://127.0.0.1:{taken.getsockname()[1]}/v1") == "connect"


@asynccontextmanager
async def on_tls(upstream: FakeUpstream, ca: trustme.CA, host: str = "127.0.0.1") -> AsyncGenerator[str]:
    """Serve over TLS with a certificate of this authority's; gives the base URL."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(host).configure_cert(context)
    hangups = HangupWatch()

    async def handler(stream: trio.SocketStream) -> None:
        try:
            wire = await secure(adopt(stream, hangups), context)
        except WireBroken:
            return  # the other side did not like our certificate
        await upstream.serve(wire)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hangups.run)
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handler, [listener])
        yield f"https://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        nursery.cancel_scope.cancel("the upstream's block has ended")
    hangups.close()


async def test_a_private_authority_that_is_named_is_trusted(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    upstream = FakeUpstream("a").script(steps.chat("in secret"))
    async with on_tls(upstream, ca) as url:
        channel = f'a {url} ca_file = "{tmp_path}/ca.pem"'
        async with served("127.0.0.1:0", channel) as (address, _, ended):
            for _ in range(2):
                reply = await ask(address)
                assert reply.json["choices"][0]["message"]["content"] == "in secret"
            async with visiting(address) as client:
                stream = await client.stream(CHAT, STREAM)
                await stream.rest()
            assert stream.text() == "in secret"
            assert [record.attempts[0].reused for record in await records(ended, 3)] == [False, True, True]


async def test_an_unknown_authority_fails_over_before_anything_is_sent() -> None:
    upstream = FakeUpstream("a").script(steps.chat("in secret"))
    async with on_tls(upstream, trustme.CA()) as url:
        assert await failing_over(url) == "connect"
    assert upstream.hits == 0


async def test_a_certificate_for_another_name_fails_over(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    upstream = FakeUpstream("a").script(steps.chat("in secret"))
    async with on_tls(upstream, ca, host="elsewhere.example") as url:
        assert await failing_over(f'{url} ca_file = "{tmp_path}/ca.pem"') == "connect"
    assert upstream.hits == 0


async def test_a_plain_upstream_behind_https_fails_over() -> None:
    async def plain(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, plain, [listener])
        assert await failing_over(f"https://127.0.0.1:{listener.socket.getsockname()[1]}/v1") == "connect"
        nursery.cancel_scope.cancel("seen")


CHANNEL = "a http://127.0.0.1:9/v1"


async def test_a_unix_socket_is_its_owners_only_and_goes_with_the_door(tmp_path: Path) -> None:
    path = tmp_path / "door"
    async with served(f"unix:{path}", CHANNEL) as (address, _, _):
        assert address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_ISSOCK(path.stat().st_mode)
    assert not path.exists()


async def test_what_a_dead_process_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "door"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with served(f"unix:{path}", CHANNEL) as (address, _, _):
        assert await alive(address)


async def test_a_socket_that_somebody_serves_is_left_alone(tmp_path: Path) -> None:
    listen = f"unix:{tmp_path}/door"
    async with served(listen, CHANNEL) as (address, _, _):
        async with opened(listen, CHANNEL) as (_, second, _):
            with pytest.raises(OSError, match="in use"):
                await second.run()
        assert await alive(address)


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "door"
    path.write_text("precious")
    async with opened(f"unix:{path}", CHANNEL) as (_, door, _):
        with pytest.raises(OSError, match="in use"):
            await door.run()
    assert path.read_text() == "precious"


async def test_a_port_in_use_is_an_error_that_says_so() -> None:
    async with served("127.0.0.1:0", CHANNEL) as (address, _, _), opened(address, CHANNEL) as (_, second, _):
        with pytest.raises(OSError, match="in use"):
            await second.run()


def descriptors() -> int:
    gc.collect()  # what earlier tests left to the collector is not ours to count
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_a_stopped_door_leaves_no_descriptor_open() -> None:
    before = descriptors()
    async with served("127.0.0.1:0", CHANNEL) as (address, _, _):
        clients = [await client_of(address) for _ in range(5)]
        for client in clients:
            assert (await client.get("/healthz")).status == 200
    for client in clients:
        client.close()
    assert descriptors() == before
