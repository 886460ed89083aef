"""`kill -9` on a real gateway that puts calls off: whatever was answered 202 is there, and each has one result, told unchanged."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from tests.cli.test_serve import SOON, Served, serving
from tests.fakes import steps
from tests.fakes.client import Client
from tests.fakes.http1 import Cut
from tests.fakes.upstream import Exchange, FakeUpstream, on_loopback
from tests.scene import CHAT, PROMPT
from tests.store.ledgers import Books, sqlite
from trioproxy.http.wire import WireBroken, dial

CALLERS = 4
KILLS = 5


@define(eq=False)
class Provider:
    """Fails in turns, and never says the same thing twice."""

    down: bool = True
    _numbers: "itertools.count[int]" = field(init=False, factory=itertools.count)

    async def __call__(self, x: Exchange) -> None:
        number = next(self._numbers)
        if self.down or number % 7 == 0:
            await steps.error(503)(x)
        else:
            await steps.chat_answer(f"answer {number}", delay=0.01)(x)


@define(eq=False)
class Receiver:
    """What a webhook was told, by the message's id."""

    told: dict[str, set[bytes]] = field(init=False, factory=dict)

    async def __call__(self, x: Exchange) -> None:
        self.told.setdefault(x.request.headers["webhook-id"], set()).add(x.request.body)
        await x.reply(204)


@define(eq=False)
class Callers:
    """Who was told 202, and what became of it as far as they have seen."""

    accepted: set[str] = field(init=False, factory=set)
    results: dict[str, Any] = field(init=False, factory=dict)

    async def ask(self, port: int) -> None:
        """Call after call until the gateway is gone."""
        client = Client(await dial("127.0.0.1", port, None))
        try:
            while True:
                reply = await client.post(CHAT, PROMPT)
                if not reply.complete:
                    return
                if reply.status == 202:
                    self.accepted.add(reply.json["id"])
                waiting, known = sorted(self.accepted - self.results.keys()), list(self.results)
                await self.look(client, [*waiting[:2], *known[:2]])
                await trio.sleep(0.1)  # of real time, so that the last life has no thousands to do
        except (OSError, WireBroken, Cut):
            return
        finally:
            client.close()

    async def look(self, client: Client, ids: Iterable[str]) -> None:
        """What has become of these; of those that were seen done, the same."""
        for id_ in ids:
            reply = await client.get(f"/v1/deferred/{id_}")
            if reply.complete and reply.status == 200:
                assert self.results.setdefault(id_, reply.json["result"]) == reply.json["result"]
            elif reply.complete:
                assert (reply.status, id_ in self.results) == (202, False)


def written(folder: Path, upstream: FakeUpstream, hook: FakeUpstream, books: Books) -> Path:
    file = folder / "gateway.toml"
    file.write_text(
        f"""
[listen]
data = "127.0.0.1:0"
[log]
format = "json"
{books.toml}
[defaults]
breaker = {{ failures = 1, window = 0.0, open_for = 0.05, probes = 1 }}
[deferred]
longest_wait = 0.2
[[deferred.webhooks]]
name = "hook"
url = "{hook.base_url}"
[[channels]]
name = "a"
base_url = "{upstream.base_url}"
auth = "none"
[[models]]
name = "m"
channels = [ {{ channel = "a", model = "m" }} ]
on_exhausted = "defer"
webhook = "hook"
"""
    )
    return file


async def test_whatever_was_accepted_has_one_result_however_often_the_gateway_is_killed(tmp_path: Path) -> None:
    provider, receiver, callers = Provider(), Receiver(), Callers()
    upstream, hook = FakeUpstream("a").script(provider), FakeUpstream("hook").script(receiver)
    with sqlite(tmp_path) as books:
        async with on_loopback(upstream), on_loopback(hook):
            file = written(tmp_path, upstream, hook, books)
            for round_ in range(KILLS):
                provider.down = round_ == 0
                async with serving(file) as served:
                    port = await port_of(served)
                    async with trio.open_nursery() as nursery:
                        for _ in range(CALLERS):
                            nursery.start_soon(callers.ask, port)
                        await trio.sleep(0.25 + 0.11 * round_)  # of real time: there is a real process to be killed
                        served.process.kill()
            async with serving(file) as served:
                await fetched(await port_of(served), callers, receiver)
        rows = books.rows("SELECT id, status, runs, owed FROM deferred")
    assert len(callers.accepted) > 10
    assert callers.accepted == callers.results.keys()
    assert callers.accepted <= {id_ for id_, *_ in rows}
    assert len({result["body"]["choices"][0]["message"]["content"] for result in callers.results.values()}) == len(
        callers.results
    )
    assert {(status, owed) for id_, status, _, owed in rows if id_ in callers.accepted} == {("done", 0)}
    assert max(runs for _, _, runs, _ in rows) > 1
    assert callers.accepted <= receiver.told.keys()
    assert {len(bodies) for bodies in receiver.told.values()} == {1}


async def port_of(served: Served) -> int:
    with trio.fail_after(SOON):
        return await served.port()


async def fetched(port: int, callers: Callers, receiver: Receiver) -> None:
    """Look until all are done and told."""
    client = Client(await dial("127.0.0.1", port, None))
    with trio.fail_after(SOON):
        while callers.accepted - callers.results.keys() or callers.accepted - receiver.told.keys():
            await callers.look(client, callers.accepted)
    await trio.sleep(0.5)  # of real time: what was taken is noted
    client.close()
