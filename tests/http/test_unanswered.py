"""When a request counts as one that nobody answered: only once it was sent whole, and until the first head."""

import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.network import MemoryWire, open_network
from tests.fakes.upstream import FakeUpstream, Step
from trioproxy.http.client import Exchange, Origin, Upstream
from trioproxy.http.pool import Pool

ASK = b"POST /v1 HTTP/1.1\r\nhost: a.test\r\ncontent-length: %d\r\n\r\n"


async def given_up(*script: Step, size: int = 2, deaf: bool = False) -> bool:
    """Ask, wait for five seconds, and say what it was."""
    async with open_network(4096) as network:
        peer = FakeUpstream("a").listen(network).script(*script)

        async def never_reads(_wire: MemoryWire) -> None:
            await trio.sleep_forever()

        origin = Origin.from_url(peer.base_url)
        if deaf:
            network.listen(origin.host, origin.port, never_reads)
        exchange = Exchange(Upstream(origin, network.dial, Pool(60.0)))
        assert not exchange.unanswered
        try:
            with trio.move_on_after(5):
                await exchange.open(ASK % size + bytes(size))
                while await exchange.receive():
                    pass
            return exchange.unanswered
        finally:
            exchange.close(trio.current_time())


async def test_silence_after_the_whole_request_is(autojump_clock: MockClock) -> None:
    assert await given_up(steps.silence())


async def test_a_request_that_the_other_side_does_not_take_is_not(autojump_clock: MockClock) -> None:
    assert not await given_up(steps.silence(), size=500_000, deaf=True)


async def test_a_head_is_an_answer(autojump_clock: MockClock) -> None:
    assert not await given_up(steps.sse([], end="hang"))
