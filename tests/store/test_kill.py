"""`kill -9` on a real gateway under load, again and again: what a client has seen answered is in the ledger, exactly once."""

import collections
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import trio
from attrs import define, field

from tests.acceptance.limited import bearer, key
from tests.cli.test_serve import SOON, serving
from tests.fakes import steps
from tests.fakes.client import Client
from tests.fakes.http1 import Cut
from tests.fakes.upstream import Exchange, FakeUpstream, on_loopback
from tests.scene import CHAT, PROMPT
from tests.store.ledgers import Books, postgres, sqlite
from trioproxy.app import open_gateway
from trioproxy.config.load import load_config
from trioproxy.http.wire import WireBroken, dial
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

CALLERS = 8
BALANCE = 100.0
LARGE = 1_000_000_000


@define(eq=False)
class Load:
    """Clients that ask one call after the other, and note what was answered in full."""

    answered: set[str] = field(init=False, factory=set)
    cut: set[str] = field(init=False, factory=set)
    _names: Iterator[str] = field(init=False, factory=lambda: (f"call-{n}" for n in itertools.count()))

    async def caller(self, port: int, *, streamed: bool) -> None:
        """Ask until the gateway is gone."""
        client = Client(await dial("127.0.0.1", port, None))
        try:
            while True:
                await self._ask(client, next(self._names), streamed=streamed)
        except (OSError, WireBroken, Cut):
            return
        finally:
            client.close()

    async def _ask(self, client: Client, name: str, *, streamed: bool) -> None:
        headers = [*bearer(), ("x-request-id", name)]
        self.cut.add(name)
        if streamed:
            stream = await client.stream(CHAT, {**PROMPT, "stream": True}, headers)
            await stream.rest()
            whole = stream.complete is True and b"[DONE]" in stream.raw
        else:
            reply = await client.post(CHAT, PROMPT, headers)
            whole = reply.complete and reply.status == 200
        if not whole:
            raise WireBroken
        self.answered.add(name)
        self.cut.discard(name)


def written(folder: Path, upstream: FakeUpstream, books: Books) -> Path:
    file = folder / "gateway.toml"
    file.write_text(
        f"""
[listen]
data = "127.0.0.1:0"
[log]
format = "json"
{books.toml}
[[channels]]
name = "a"
base_url = "{upstream.base_url}"
auth = "none"
price = {{ input = 1.0, output = 4.0 }}
limits = {{ requests_per_day = {LARGE} }}
[[models]]
name = "m"
channels = [ {{ channel = "a", model = "m" }} ]
[[tenants]]
name = "acme"
balance = {BALANCE}
limits = {{ concurrency = 1000, tokens_per_day = {LARGE}, requests_per_day = {LARGE} }}
budget = {{ day = {BALANCE} }}
{key(rest='tenant = "acme"')}
"""
    )
    return file


@pytest.mark.parametrize("kind, kills", [(sqlite, 5), (postgres, 3)], ids=["sqlite", "postgres"])
async def test_what_was_answered_is_in_the_ledger_once_and_balances_add_up(
    kind: Callable[[Path], AbstractContextManager[Books]], kills: int, tmp_path: Path
) -> None:
    load = Load()
    upstream = FakeUpstream("a").script(either)
    with kind(tmp_path) as books:
        async with on_loopback(upstream):
            file = written(tmp_path, upstream, books)
            for round_ in range(kills):
                await killed(file, load, after=0.2 + 0.07 * round_)
        config = load_config(file)
        async with open_gateway(config, credentials=books.credentials) as gateway:
            used = {
                (gauge.scope.rank, gauge.dimension): gauge.limit - gauge.remaining
                for gauge in gateway.limits()
                if gauge.remaining < gauge.limit
            }
        rows = books.rows("SELECT request_id, reason, cost FROM calls")
        ((count, tokens),) = books.rows("SELECT count(*), sum(input + cached + output) FROM calls WHERE channel <> ''")
        ((tried,),) = books.rows("SELECT count(*) FROM attempts")
        begun = books.rows("SELECT count(*) FROM begun")
    times = collections.Counter(name for name, *_ in rows)
    assert len(load.answered) > 20 * kills
    assert load.answered <= times.keys()
    assert set(times.values()) == {1}
    assert times.keys() <= load.answered | load.cut
    assert {reason for _, reason, _ in rows} <= {"answered", "interrupted", "client_left"}
    assert begun == [(0,)]
    spent = sum(cost for *_, cost in rows)
    interrupted = sum(reason == "interrupted" for _, reason, _ in rows)
    assert used == {
        (Rank.TENANT, Dimension.BALANCE): spent,
        (Rank.TENANT, Dimension.MICRO_USD_PER_DAY): spent,
        (Rank.TENANT, Dimension.TOKENS_PER_DAY): tokens,
        (Rank.TENANT, Dimension.REQUESTS_PER_DAY): count,
        (Rank.CHANNEL, Dimension.REQUESTS_PER_DAY): tried + interrupted,
    }


async def either(x: Exchange) -> None:
    """Words that come one by one, or an answer at once."""
    streamed = x.request.json.get("stream")
    await (steps.chat_stream(["a", "b", "c", "d"], every=0.002) if streamed else steps.chat_answer("abcd"))(x)


async def killed(file: Path, load: Load, *, after: float) -> None:
    """Serve, be asked by many at once, and be killed."""
    async with serving(file) as served:
        with trio.fail_after(SOON):
            port = await served.port()
        async with trio.open_nursery() as nursery:
            for number in range(CALLERS):
                nursery.start_soon(lambda streamed: load.caller(port, streamed=streamed), number % 2 == 0)
            await trio.sleep(after)  # of real time: there is a real process to be killed
            served.process.kill()


async def test_two_processes_do_not_share_a_state(tmp_path: Path) -> None:
    upstream = FakeUpstream("a").script(steps.chat("hello"))
    with sqlite(tmp_path) as books:
        file = written(tmp_path, upstream, books)
        async with serving(file) as first:
            await first.port()
            async with serving(file) as second:
                with trio.fail_after(SOON):
                    assert await second.process.wait() == 1
                assert second.process.stderr is not None
                said = (await second.process.stderr.receive_some()).decode()
    assert f"(pid {first.process.pid})" in said
    assert "state.path" in said
    assert len(said.strip().splitlines()) == 1
