"""A whole gateway on a network in memory: scripted upstreams behind it, raw clients before it, one clock over all.

    async with scene("a", "b") as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat("hello"))
        reply = await s.post()

The configuration goes the user's way, through TOML. Channels are named as their upstreams and listed in order of cost;
the model is `m`. `ended` has every exchange's record, `held()` tells what is not at rest.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define, field

from tests.fakes.client import Client, Reply, Stream
from tests.fakes.network import MemoryWire, Network, open_network
from tests.fakes.upstream import FakeUpstream, Headers
from trioproxy.app import open_gateway
from trioproxy.config.load import parse_config
from trioproxy.doors.data import DataDoor
from trioproxy.gateway import Gateway
from trioproxy.journal import Event, ExchangeEnded, Journal

CHAT = "/v1/chat/completions"
PROMPT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
DOOR = ("gateway.test", 8787)
NOVEMBER = 1_764_000_000.0


@define(eq=False)
class Scene:
    """What a test plays with."""

    network: Network
    upstreams: dict[str, FakeUpstream]
    gateway: Gateway
    door: DataDoor
    events: list[Event] = field(factory=list)
    bugs: list[Exception] = field(factory=list)
    wall: float = NOVEMBER  # Unix seconds when the scene's clock stands at its start

    def __getattr__(self, name: str) -> FakeUpstream:
        try:
            return self.upstreams[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def ended(self) -> list[ExchangeEnded]:
        return [event for event in self.events if isinstance(event, ExchangeEnded)]

    async def wire(self) -> MemoryWire:
        return await self.network.connect(*DOOR)

    async def client(self) -> Client:
        return Client(await self.wire())

    async def post(self, body: object = None, headers: Headers = (), **fields: object) -> Reply:
        """One unary call on a connection of its own; `fields` go into the prompt."""
        client = await self.client()
        reply = await client.post(CHAT, {**PROMPT, **fields} if body is None else body, headers)
        client.close()
        return reply

    async def get(self, path: str, headers: Headers = ()) -> Reply:
        client = await self.client()
        reply = await client.get(path, headers)
        client.close()
        return reply

    async def stream(self, body: object = None, headers: Headers = (), **fields: object) -> Stream:
        """One streamed call, read to its end."""
        stream = await self.open_stream(body, headers, **fields)
        await stream.rest()
        return stream

    async def open_stream(self, body: object = None, headers: Headers = (), **fields: object) -> Stream:
        client = await self.client()
        return await client.stream(CHAT, {**PROMPT, "stream": True, **fields} if body is None else body, headers)

    async def ask(self, *, streamed: bool, headers: Headers = (), **fields: object) -> tuple[int, str, dict[str, str]]:
        """One call in either form: status, the text that was said, the headers."""
        if streamed:
            stream = await self.stream(headers=headers, **fields)
            return stream.status, stream.text(), stream.headers
        reply = await self.post(headers=headers, **fields)
        said = reply.json["choices"][0]["message"]["content"] if reply.status == 200 else ""
        return reply.status, said, reply.headers

    def hits(self) -> str:
        """Requests per upstream, as "a=1 b=0"."""
        return " ".join(f"{name}={upstream.hits}" for name, upstream in self.upstreams.items())

    def failures(self, channel: str = "a") -> int:
        return self.gateway.statistics()[channel].failures

    def breaker(self, channel: str = "a") -> str:
        return self.gateway.statistics()[channel].breaker

    async def rest(self, seconds: float = 1.0) -> None:
        """Let everything settle: the cases' "at rest" is a second after the last client has gone."""
        await trio.sleep(seconds)

    def held(self) -> dict[str, object]:
        """What is not at rest, by name; empty when everything has been given back."""
        held: dict[str, object] = {}
        for name, state in self.gateway.supervisor.channels.state.items():
            figures = {"in flight": state.slots.held, "waiting": state.slots.waiting, "probes": state.breaker.leases}
            held |= {f"{name}: {what}": count for what, count in figures.items() if count}
        held |= {f"{name}: queued": line.waiting for name, line in self.gateway.queues().items() if line.waiting}
        held |= {
            f"{name}: {share.tenant}": share
            for name, line in self.gateway.queues().items()
            for share in line.tenants
            if share.waiting or share.flying
        }
        quota = self.gateway.quota()
        if quota.open or any(quota.held):
            held["reserved"] = quota
        return held


@asynccontextmanager
async def scene(
    *names: str,
    toml: str = "",
    channel: str | dict[str, str] = "",
    model: str = "",
    credentials: dict[str, str] | None = None,
    links: tuple[str, ...] | None = None,
    wall: float = NOVEMBER,
) -> AsyncGenerator[Scene]:
    """Open a scene. `toml` is appended to the file, `channel` to every channel (or by name), `model` to the model.

    `links` are the upstreams in the model's chain, where not all are.
    """
    upstreams = {name: FakeUpstream(name) for name in names or ("a", "b")}
    config = parse_config(_file(upstreams, toml, channel, model, links or tuple(upstreams)), "scene.toml")
    journal = Journal()
    events: list[Event] = []
    bugs: list[Exception] = []
    journal.subscribe(events.append)
    async with open_network() as network:
        for upstream in upstreams.values():
            upstream.listen(network)
        keys = {name: f"sk-secret-{name}" for name in upstreams} if credentials is None else credentials
        origin = trio.current_time()
        made: list[Scene] = []

        def world() -> float:
            return (made[0].wall if made else wall) + trio.current_time() - origin

        async with open_gateway(config, credentials=keys, dial=network.dial, journal=journal, wall=world) as gateway:
            door = DataDoor(gateway, config.listen, world, bugs.append)
            network.listen(*DOOR, door.serve)
            made.append(Scene(network, upstreams, gateway, door, events, bugs, wall))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(door.patience.run)
                yield made[0]
                nursery.cancel_scope.cancel("the scene has ended")
            assert not bugs, bugs
            assert journal.broken == 0


def _file(
    upstreams: dict[str, FakeUpstream],
    toml: str,
    channel: str | dict[str, str],
    model: str,
    linked: tuple[str, ...],
) -> str:
    each = channel if isinstance(channel, dict) else dict.fromkeys(upstreams, channel)
    channels = "".join(
        f'[[channels]]\nname = "{name}"\nbase_url = "{upstream.base_url}"\napi_key = {{ env = "KEY_{name.upper()}" }}\n'
        f"price = {{ input = {cost}.0, cached_input = {cost * 0.1}, output = {cost * 4}.0 }}\n{each.get(name, '')}\n"
        for cost, (name, upstream) in enumerate(upstreams.items(), 1)
    )
    links = ", ".join(f'{{ channel = "{name}", model = "{name}-model" }}' for name in linked)
    return f'{channels}[[models]]\nname = "m"\nchannels = [ {links} ]\n{model}\n{toml}\n'


def chunk_payload(frame: bytes) -> Any:
    """The JSON of one data frame."""
    return json.loads(frame.removeprefix(b"data:").strip())
