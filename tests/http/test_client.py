"""Asking an upstream: where it is, when a silent connection is worth a second try, and what becomes of each connection."""

import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.cancel import cancel_everywhere
from tests.fakes.network import MemoryWire, Network, open_network
from tests.fakes.upstream import Exchange as Theirs
from tests.fakes.upstream import FakeUpstream, Step
from trioproxy.errors import AttemptError, Blame, FaultKind
from trioproxy.http.client import Exchange, Origin, Upstream
from trioproxy.http.pool import Pool
from trioproxy.http.wire import Wire, WireBroken

REQUEST = b"POST /v1/chat HTTP/1.1\r\nhost: a.test\r\ncontent-length: 2\r\n\r\n{}"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


def kept(*writes: bytes) -> Step:
    """These bytes, and the connection stays open."""
    return steps.raw(*writes, end="clean")


@define(eq=False)
class Side:
    """The gateway's side: one upstream on a network, and every wire that was dialled to it."""

    peer: FakeUpstream
    network: Network
    upstream: Upstream = field(init=False)
    wires: list[MemoryWire] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self.upstream = Upstream(Origin.from_url(self.peer.base_url), self.dial, Pool(60.0), max_answer=100_000)

    async def dial(self, host: str, port: int, _tls: object) -> Wire:
        self.wires.append(await self.network.connect(host, port))
        return self.wires[-1]

    @property
    def idle(self) -> int:
        return len(self.upstream.pool)

    @property
    def open_wires(self) -> int:
        return sum(not wire._closed for wire in self.wires)

    async def ask(self, request: bytes = REQUEST) -> tuple[int, bytes, bool]:
        """One exchange to its end: status, body, and whether its connection had been used before."""
        exchange = Exchange(self.upstream)
        try:
            head = await exchange.open(request)
            return head.status, await rest(exchange), exchange.reused
        finally:
            exchange.close(trio.current_time())

    async def fails(self, request: bytes = REQUEST) -> FaultKind:
        with pytest.raises(AttemptError) as caught:
            await self.ask(request)
        fault = caught.value.fault
        assert (fault.blame, fault.retry, fault.counts) == (Blame.PROVIDER, True, True)
        return fault.kind


@asynccontextmanager
async def side(*script: Step, capacity: int = 65_536) -> AsyncGenerator[Side]:
    async with open_network(capacity) as network:
        yield Side(FakeUpstream("a").listen(network).script(*script), network)


async def rest(exchange: Exchange) -> bytes:
    body = b""
    while data := await exchange.receive():
        body += data
    return body


# Where a channel is.


@pytest.mark.parametrize(
    ("url", "origin", "authority"),
    [
        ("https://api.example/v1", Origin("api.example", 443, True, "/v1"), "api.example"),
        ("https://api.example/v1/", Origin("api.example", 443, True, "/v1"), "api.example"),
        ("http://api.example", Origin("api.example", 80, False, ""), "api.example"),
        ("http://api.example:80/v1", Origin("api.example", 80, False, "/v1"), "api.example"),
        ("https://api.example:443/v1", Origin("api.example", 443, True, "/v1"), "api.example"),
        ("http://api.example:443/v1", Origin("api.example", 443, False, "/v1"), "api.example:443"),
        ("https://api.example:8443/a/b", Origin("api.example", 8443, True, "/a/b"), "api.example:8443"),
        ("https://API.Example/v1", Origin("api.example", 443, True, "/v1"), "api.example"),
        ("http://127.0.0.1:8000/v1", Origin("127.0.0.1", 8000, False, "/v1"), "127.0.0.1:8000"),
        ("http://[::1]:8000/v1", Origin("::1", 8000, False, "/v1"), "[::1]:8000"),
        ("https://[2001:db8::1]/v1", Origin("2001:db8::1", 443, True, "/v1"), "[2001:db8::1]"),
        (
            "https://x.azure.example/openai/d?api-version=2024-10-21",
            Origin("x.azure.example", 443, True, "/openai/d", "api-version=2024-10-21"),
            "x.azure.example",
        ),
    ],
)
def test_a_base_url_says_what_to_dial_and_what_to_call_it(url: str, origin: Origin, authority: str) -> None:
    assert Origin.from_url(url) == origin
    assert origin.authority == authority


# Connecting.


async def test_a_connection_that_does_not_come_about_in_time_is_a_fault_to_the_second(
    autojump_clock: MockClock,
) -> None:
    async with side() as s:
        s.network.swallow("a.test", 80)
        assert await s.fails() is FaultKind.CONNECT
        assert trio.current_time() == 5.0


async def test_a_refused_connection_is_a_fault_at_once(autojump_clock: MockClock) -> None:
    async with side() as s:
        s.network.refuse("a.test", 80)
        assert await s.fails() is FaultKind.CONNECT
        assert trio.current_time() == 0.0
        assert s.peer.hits == 0


async def test_a_broken_handshake_is_a_fault_of_the_connection(autojump_clock: MockClock) -> None:
    async def broken(_host: str, _port: int, _tls: object) -> Wire:
        raise WireBroken("TLS handshake failed: certificate verify failed")

    async with side() as s:
        s.upstream.dial = broken
        assert await s.fails() is FaultKind.CONNECT


# A second try: reused, and not one byte of a reply.


async def test_a_kept_connection_is_used_again(autojump_clock: MockClock) -> None:
    async with side(kept(OK)) as s:
        assert await s.ask() == (200, b"hi", False)
        assert await s.ask() == (200, b"hi", True)
        assert (s.peer.hits, s.peer.connections, s.idle) == (2, 1, 1)


@pytest.mark.parametrize("end", ["fin", "reset"])
async def test_silence_on_a_kept_connection_is_asked_once_more_on_a_fresh_one(
    end: steps.End, autojump_clock: MockClock
) -> None:
    async with side(kept(OK), steps.raw(end=end), kept(OK)) as s:
        await s.ask()
        assert await s.ask() == (200, b"hi", False)
        assert (s.peer.hits, s.peer.connections) == (3, 2)
        assert [request.body for request in s.peer.requests] == [b"{}"] * 3
        assert (s.idle, s.open_wires) == (1, 1)


@pytest.mark.parametrize("end", ["fin", "reset"])
async def test_silence_on_the_fresh_one_too_is_a_cut_and_not_asked_again(
    end: steps.End, autojump_clock: MockClock
) -> None:
    async with side(kept(OK), steps.raw(end=end), steps.raw(end=end), kept(OK)) as s:
        await s.ask()
        assert await s.fails() is FaultKind.CUT
        assert s.peer.hits == 3
        assert s.open_wires == 0


@pytest.mark.parametrize("end", ["fin", "reset"])
async def test_silence_on_a_fresh_connection_is_a_cut(end: steps.End, autojump_clock: MockClock) -> None:
    async with side(steps.raw(end=end), kept(OK)) as s:
        assert await s.fails() is FaultKind.CUT
        assert (s.peer.hits, s.open_wires) == (1, 0)


@pytest.mark.parametrize("end", ["fin", "reset"])
@pytest.mark.parametrize(
    "said",
    [b"H", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"],
)
async def test_one_byte_of_a_reply_and_there_is_no_second_try(
    said: bytes, end: steps.End, autojump_clock: MockClock
) -> None:
    """The request was taken; asking again could do its work twice."""
    async with side(kept(OK), steps.raw(said, end=end), kept(OK)) as s:
        await s.ask()
        assert await s.fails() is FaultKind.CUT
        assert (s.peer.hits, s.open_wires) == (2, 0)


async def test_a_retry_that_cannot_connect_says_so(autojump_clock: MockClock) -> None:
    async with side(kept(OK), steps.hang_up()) as s:
        await s.ask()
        s.network.refuse("a.test", 80)
        assert await s.fails() is FaultKind.CONNECT
        assert (s.peer.hits, s.open_wires) == (2, 0)


async def test_a_connection_that_was_closed_while_idle_is_not_even_tried(autojump_clock: MockClock) -> None:
    async with side(steps.raw(OK, end="fin"), kept(OK)) as s:
        await s.ask()
        await trio.sleep(1)
        assert await s.ask() == (200, b"hi", False)
        assert (s.peer.hits, s.peer.connections) == (2, 2)


# The head.


async def test_a_head_may_come_in_pieces(autojump_clock: MockClock) -> None:
    pieces = [OK[at : at + 1] for at in range(len(OK))]
    async with side(steps.raw(*pieces, every=0.1, end="clean")) as s:
        assert await s.ask() == (200, b"hi", False)
        assert s.idle == 1


async def test_interim_responses_are_passed_over(autojump_clock: MockClock) -> None:
    interim = (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
    async with side(kept(*interim, OK)) as s:
        assert await s.ask() == (200, b"hi", False)
        assert s.idle == 1


@pytest.mark.parametrize("said", [b"hello\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"])
async def test_what_is_no_http_is_a_cut(said: bytes, autojump_clock: MockClock) -> None:
    async with side(kept(said)) as s:
        assert await s.fails() is FaultKind.CUT
        assert s.open_wires == 0


def long(size: int) -> bytes:
    return b"POST /v1/chat HTTP/1.1\r\nhost: a.test\r\ncontent-length: %d\r\n\r\n" % size + bytes(size)


@pytest.mark.parametrize("size", [50_000, 500_000])
@pytest.mark.parametrize("reused", [False, True])
async def test_an_answer_before_all_was_sent_is_the_answer(reused: bool, size: int, autojump_clock: MockClock) -> None:
    """413 and close, while we are still sending: our broken send is not what happened."""
    hits = 0

    async def hasty(wire: MemoryWire) -> None:
        nonlocal hits
        if reused:
            while REQUEST[-10:] not in await wire.receive():
                pass
            await wire.send(OK)
        await wire.receive()
        hits += 1
        await wire.send(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 4\r\n\r\nmuch")
        wire.reset()

    async with side(capacity=4096) as s:
        s.network.listen("a.test", 80, hasty)
        if reused:
            await s.ask()
        assert await s.ask(long(size)) == (413, b"much", reused)
        assert (hits, s.open_wires, s.idle) == (1, 0, 0)


async def test_a_refusal_by_one_who_reads_no_further_is_heard_and_ends_the_connection(
    autojump_clock: MockClock,
) -> None:
    """Half a request is on that connection, whatever its answer says of keeping it."""

    async def deaf(wire: MemoryWire) -> None:
        await wire.receive()
        await wire.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 4\r\n\r\nmuch")
        await trio.sleep_forever()

    async with side(capacity=4096) as s:
        s.network.listen("a.test", 80, deaf)
        assert await s.ask(long(500_000)) == (413, b"much", False)
        assert (trio.current_time(), s.open_wires, s.idle) == (0.0, 0, 0)


async def test_an_answer_that_begins_early_does_not_break_the_request_off(autojump_clock: MockClock) -> None:
    got = 0

    async def eager(wire: MemoryWire) -> None:
        nonlocal got
        got = len(await wire.receive())
        await wire.send(OK[:-2])
        await trio.sleep(1)
        while got < len(long(500_000)):
            got += len(await wire.receive())
        await wire.send(OK[-2:])
        await wire.receive()

    async with side(capacity=4096) as s:
        s.network.listen("a.test", 80, eager)
        assert await s.ask(long(500_000)) == (200, b"hi", False)
        assert (got, s.idle) == (len(long(500_000)), 1)


async def test_a_long_request_is_asked_once_more_too_and_then_kept(autojump_clock: MockClock) -> None:
    async with side(kept(OK), steps.hang_up(), kept(OK)) as s:
        await s.ask()
        assert await s.ask(long(500_000)) == (200, b"hi", False)
        assert (s.peer.hits, s.idle, s.open_wires) == (3, 1, 1)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 20"])
async def test_a_long_request_whose_answer_is_cut_is_a_cut(said: bytes, autojump_clock: MockClock) -> None:
    async with side(steps.raw(said)) as s:
        assert await s.fails(long(500_000)) is FaultKind.CUT
        assert (s.peer.hits, s.open_wires) == (1, 0)


# The body.


async def test_a_coding_that_nobody_asked_for_is_taken_off(autojump_clock: MockClock) -> None:
    async def zipped(x: Theirs) -> None:
        await x.reply(200, b"text " * 100, gzipped=True)

    async with side(zipped) as s:
        assert await s.ask() == (200, b"text " * 100, False)
        assert await s.ask() == (200, b"text " * 100, True)


async def test_a_coding_is_taken_off_in_any_pieces(autojump_clock: MockClock) -> None:
    """Its own header gives no bytes of the body; that is not the end."""
    raw = gzip.compress(b"hello")
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(raw)
    pieces = [raw[at : at + 1] for at in range(len(raw))]
    async with side(steps.raw(head, *pieces, every=0.1, end="clean")) as s:
        assert await s.ask() == (200, b"hello", False)
        assert s.idle == 1


async def test_a_zipped_stream_is_unpacked_as_it_comes(autojump_clock: MockClock) -> None:
    async with side(steps.sse([b"one", b"two", b"three"], every=1.0, gzipped=True)) as s:
        exchange = Exchange(s.upstream)
        await exchange.open(REQUEST)
        came = [(await exchange.receive(), trio.current_time()) for _ in range(3)]
        assert came == [(b"one", 0.0), (b"two", 1.0), (b"three", 2.0)]
        assert await exchange.receive() == b""
        exchange.close(trio.current_time())
        assert s.idle == 1


@pytest.mark.parametrize(
    "body",
    [
        b"content-encoding: br\r\ncontent-length: 2\r\n\r\nhi",
        b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\nhi",
    ],
)
async def test_a_coding_that_cannot_be_taken_off_is_no_answer(body: bytes, autojump_clock: MockClock) -> None:
    async with side(kept(b"HTTP/1.1 200 OK\r\n" + body)) as s:
        assert await s.fails() is FaultKind.NOT_AN_ANSWER
        assert s.open_wires == s.idle <= 1


async def test_an_answer_that_unpacks_to_too_much_is_no_answer(autojump_clock: MockClock) -> None:
    async def bomb(x: Theirs) -> None:
        await x.reply(200, bytes(1_000_000), gzipped=True)

    async with side(bomb) as s:
        assert await s.fails() is FaultKind.NOT_AN_ANSWER


@pytest.mark.parametrize("end", ["fin", "reset"])
@pytest.mark.parametrize("framing", [b"content-length: 9", b"transfer-encoding: chunked"])
async def test_a_body_that_ends_early_is_a_cut(framing: bytes, end: steps.End, autojump_clock: MockClock) -> None:
    async with side(steps.raw(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n2\r\nhi", end=end)) as s:
        assert await s.fails() is FaultKind.CUT
        assert s.open_wires == 0


async def test_a_cancelled_receive_loses_nothing(autojump_clock: MockClock) -> None:
    async with side(steps.sse([b"one", b"two"], every=1.0)) as s:
        exchange = Exchange(s.upstream)
        await exchange.open(REQUEST)
        got = b""
        while not exchange.whole():
            with trio.move_on_after(0.3):
                got += await exchange.receive()
        assert got == b"onetwo"
        exchange.close(trio.current_time())
        assert s.idle == 1


# What becomes of the connection.


@pytest.mark.parametrize(
    ("answer", "kept_open"),
    [
        (OK, True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nhi", True),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", False),
        (OK + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", False),
        (OK + b"x", False),
    ],
)
async def test_only_a_whole_message_that_allows_another_keeps_its_connection(
    answer: bytes, kept_open: bool, autojump_clock: MockClock
) -> None:
    """Bytes that nobody asked for would answer the next caller's question."""
    async with side(kept(answer)) as s:
        await s.ask()
        assert s.idle == s.open_wires == kept_open


async def test_a_body_that_ends_with_its_connection_is_whole_and_its_connection_gone(
    autojump_clock: MockClock,
) -> None:
    async with side(steps.raw(b"HTTP/1.1 200 OK\r\n\r\nhi")) as s:
        assert await s.ask() == (200, b"hi", False)
        assert s.idle == s.open_wires == 0


async def test_a_reply_that_was_not_read_to_its_end_closes_its_connection(autojump_clock: MockClock) -> None:
    async with side(kept(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhi")) as s:
        exchange = Exchange(s.upstream)
        await exchange.open(REQUEST)
        assert await exchange.receive() == b"hi"
        assert not exchange.whole()
        exchange.close(trio.current_time())
        assert s.idle == s.open_wires == 0


async def test_a_reply_whose_end_is_there_already_need_not_be_read_for_it(autojump_clock: MockClock) -> None:
    async with side(kept(OK)) as s:
        exchange = Exchange(s.upstream)
        assert not exchange.whole()
        await exchange.open(REQUEST)
        assert not exchange.whole()
        assert not exchange.whole()  # looks ahead, once; the body is still handed out
        assert await exchange.receive() == b"hi"
        exchange.close(trio.current_time())
        exchange.close(trio.current_time())
        assert exchange.whole()
        assert s.idle == s.open_wires == 1


async def test_closing_before_anything_was_opened_is_nothing(autojump_clock: MockClock) -> None:
    async with side() as s:
        Exchange(s.upstream).close(0.0)
        assert s.wires == []


@pytest.mark.parametrize(
    "script",
    [
        [kept(OK)],
        [steps.sse([b"one", b"two"], every=0.5)],
        [kept(OK), steps.hang_up(), kept(OK)],
        [kept(OK), kept(b"HTTP/1.1 100 Continue\r\n\r\n", OK)],
    ],
)
async def test_cut_at_any_step_a_connection_is_idle_or_closed(script: list[Step], autojump_clock: MockClock) -> None:
    async with side() as s:

        async def scenario() -> None:
            s.upstream.pool = Pool(60.0)
            s.wires.clear()
            s.peer.script(*script)
            for _ in script[:2]:
                await s.ask()

        def check() -> None:
            assert s.open_wires == s.idle <= 1
            s.upstream.pool.close()

        assert await cancel_everywhere(scenario, check) >= 3
