"""One gateway's life: traffic by chance, upstreams by chance, a drain and perhaps a second life with the same state.

What was seen is kept for the laws to judge: every caller's answer, every event, every line of the log, what the receiver of
alerts was posted.
"""

import io
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from tests.chaos.grammar import WORD, Ask, Setup
from tests.fakes import steps
from tests.fakes.cancel import Scalpel
from tests.fakes.client import Client, Reply
from tests.fakes.http1 import Cut
from tests.fakes.upstream import Exchange, FakeUpstream, Step
from tests.scene import CHAT, NOVEMBER, PROMPT, Scene, scene
from trioproxy.call import Request
from trioproxy.config.model import Logging
from trioproxy.http.wire import WireBroken
from trioproxy.ops.log import Log
from trioproxy.policy.limits import Dimension
from trioproxy.policy.rollout import NoSuchMove, Verb

SECRET = "whsec_YSBrZXkgb2YgdGhlIHJlY2VpdmVyJ3M="
MEND = 700.0  # seconds after which every rest, park of a model and breaker of the grammar is over


@define(eq=False)
class Told:
    """What one caller saw. `over` None: it left before it was told; `whole` False: it was cut."""

    id: str
    ask: Ask
    at: float
    status: int = 0
    whole: bool | None = None
    left: bool = False
    body: bytes = b""
    headers: dict[str, str] = field(factory=dict)


@define(eq=False)
class Life:
    """One scene and what happened in it."""

    s: Scene
    setup: Setup
    number: int
    told: list[Told] = field(factory=list)
    drained: float | None = None
    log: io.BytesIO = field(factory=io.BytesIO)
    hook: FakeUpstream = field(factory=lambda: FakeUpstream("hook"))
    faults: list[Exception] = field(factory=list)
    mended: list[Told] = field(factory=list)
    began: float = 0.0
    ended: float = 0.0
    busy: dict[str, list[tuple[float, float]]] = field(factory=dict)  # by upstream: when it was at work on a call
    bounds: dict[str, int] = field(factory=dict)  # by channel: calls at once
    laid: dict[str, Any] = field(factory=dict)  # readings at rest

    @property
    def answers(self) -> list[Told]:
        return self.told + self.mended

    async def ask(self, ask: Ask, number: int, into: list[Told]) -> None:
        await trio.sleep_until(self.began + ask.at)
        told = Told(f"req-{self.number}-{number}", ask, trio.current_time())
        into.append(told)
        if ask.cut is not None:
            await self._inside(told, ask.cut)
            return
        with trio.move_on_after(ask.leaves if ask.leaves is not None else 10_000) as scope:
            try:
                client = await self.s.client()
            except ConnectionRefusedError:
                return
            try:
                await self._converse(client, told)
            except (Cut, WireBroken):
                told.whole = False
            finally:
                told.left = told.whole is None
                client.close()
        if scope.cancelled_caught:
            told.left = True

    async def _inside(self, told: Told, at: int) -> None:
        """As somebody who embeds the gateway asks, and gives up at any step."""
        ask = told.ask
        headers = {**dict(ask.headers), "x-request-id": told.id}
        request = Request.post(CHAT, _body(ask), headers)
        with trio.CancelScope() as scope:
            scalpel = Scalpel(trio.lowlevel.current_task(), scope, at)
            trio.lowlevel.add_instrument(scalpel)
            try:
                async with self.s.gateway.dispatch(request) as answer:
                    while data := await answer.receive():
                        told.body += data
                        if ask.slow:
                            await trio.sleep(ask.slow)
                    told.status, told.headers, told.whole = answer.status, dict(answer.headers), True
            finally:
                trio.lowlevel.remove_instrument(scalpel)
        told.left = scope.cancelled_caught

    async def _converse(self, client: Client, told: Told) -> None:
        ask = told.ask
        body = _body(ask)
        headers = [*ask.headers, ("x-request-id", told.id)]
        if not ask.streamed:
            reply: Reply = await client.post(CHAT, body, headers)
            told.status, told.body, told.headers = reply.status, reply.body, reply.headers
            told.whole = reply.complete
            return
        stream = await client.stream(CHAT, body, headers)
        told.status, told.headers = stream.status, stream.headers
        while await stream.frame() is not None:
            told.body = stream.raw
            if ask.slow:
                await trio.sleep(ask.slow)
        told.body, told.whole = stream.raw, stream.complete

    async def play(self, path: Path | None) -> None:
        """All of it: the traffic, what happens to the upstreams, the drain."""
        self.began = trio.current_time()
        self.hook.script(steps.error(500), _taken, _taken, _taken, steps.error(503), _taken).listen(self.s.network)
        async with trio.open_nursery() as nursery:
            for name, phases in self.setup.scripts.items():
                nursery.start_soon(self._manners, self.s.upstreams[name], phases)
            for at, name, count in self.setup.refusing:
                nursery.start_soon(self._refuse, at, self.s.upstreams[name], count)
            for at, verb in self.setup.orders if self.s.gateway.rollouts() else ():
                nursery.start_soon(self._order, at, verb)
            if self.setup.drain is not None and path is not None:
                await nursery.start(self._door, nursery)
            for number, ask in enumerate(self.setup.asks):
                nursery.start_soon(self.ask, ask, number, self.told)
        await self.s.rest(25)  # of callers that left, whose answers are drained

    async def mend(self, asks: Sequence[Ask]) -> None:
        """Everybody is well again, for long."""
        for upstream in self.s.upstreams.values():
            upstream.script(steps.chat("well again"))
            self.s.network.refuse(upstream.host, upstream.port, 0)
        await trio.sleep(MEND)
        for number, ask in enumerate(asks):
            await self.ask(ask, 10_000 + number, self.mended)
        await self.s.rest(5)

    async def _manners(self, upstream: FakeUpstream, phases: list[tuple[float, list[Step]]]) -> None:
        for at, script in phases:
            await trio.sleep_until(self.began + at)
            upstream.script(*(self._timed(upstream.name, step) for step in script))

    def _timed(self, name: str, step: Step) -> Step:
        async def timed(x: Exchange) -> None:
            began = trio.current_time()
            try:
                await step(x)
            finally:
                if b'"content":"hi"' not in x.request.body:
                    self.busy.setdefault(name, []).append((began, trio.current_time()))

        return timed

    async def _refuse(self, at: float, upstream: FakeUpstream, count: int) -> None:
        await trio.sleep_until(self.began + at)
        self.s.network.refuse(upstream.host, upstream.port, count)

    async def _door(
        self, nursery: trio.Nursery, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await nursery.start(self.s.door.run)
        task_status.started()
        assert self.setup.drain is not None
        await trio.sleep_until(self.began + self.setup.drain)
        self.drained = trio.current_time()
        self.s.door.drain()
        if self.setup.stop is not None:
            await trio.sleep(self.setup.stop)
            self.s.door.stop()

    async def _order(self, at: float, verb: str) -> None:
        await trio.sleep_until(self.began + at)
        with suppress(NoSuchMove):
            await self.s.gateway.order_rollout("m", Verb(verb))


@define(eq=False)
class Lives:
    """All that one seed leads to."""

    setup: Setup
    folder: Path
    lives: list[Life] = field(factory=list)

    async def run(self) -> None:
        wall = NOVEMBER
        for number in range(2 if self.setup.stored else 1):
            life = await self._live(number, wall)
            wall += life.ended - life.began + random.choice((0.0, 3.0, 600.0))

    async def _live(self, number: int, wall: float) -> Life:
        setup = self.setup
        toml = setup.toml
        if setup.stored:
            toml += f'\n[state]\npath = "{self.folder / "ledger.db"}"\n'
        door = setup.drain is not None and number == 0
        if door:
            toml += f'\n[listen]\ndata = "unix:{self.folder / "door"}"\ndrain_timeout = 8\n'
        keys = {name: f"sk-secret-{name}" for name in setup.names} | {"alerts.sinks[0]": SECRET}
        made = scene(*setup.names, toml=toml, channel=setup.channels, model=setup.model, credentials=keys, wall=wall)
        async with AsyncExitStack() as stack:
            s = await stack.enter_async_context(made)
            life = Life(s, setup, number)
            self.lives.append(life)
            for name, state in s.gateway.supervisor.channels.state.items():
                step = None if s.gateway.line.admitter is None else s.gateway.line.admitter.providers[name].step
                rules = [] if step is None else [each for each in step.limits.rules if not each.observe]
                own = [each.limit for each in rules if each.dimension is Dimension.CONCURRENCY]
                life.bounds[name] = min([state.slots.limit, *own])
            log = Log.to(life.log, Logging(format="json", level="debug"), s.gateway.line.wall)
            s.gateway.journal.subscribe(log)
            s.gateway.journal.on_bug = life.faults.append
            if number == 0:
                await life.play(self.folder if door else None)
            held = s.held()
            for _ in range(4):  # a health check may be out, for 3 s
                await s.rest(3.5 if held else 0.0)
                held = {what: each for what, each in s.held().items() if what in held}
            life.laid = {"held": held}
            await life.mend(list(setup.asks[:3]) if life.drained is None else [])
            life.laid["mended"] = s.held()
            life.laid["open"] = {
                name: up.open - s.gateway.statistics()[name].idle_connections for name, up in s.upstreams.items()
            }
            life.laid["limits"] = s.gateway.limits()
            log.writer.flush()
            life.ended = trio.current_time()
        return life


def _body(ask: Ask) -> dict[str, Any]:
    said = [{"role": "user", "content": WORD}]
    return {**PROMPT, "model": ask.model, **ask.fields, "messages": said} | ({"stream": True} if ask.streamed else {})


async def _taken(x: Exchange) -> None:
    await x.reply(204)
