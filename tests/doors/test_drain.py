"""Leaving with dignity: idle connections go at once, open answers may end, and the deadline cuts what is left."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import define, field
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.client import Client, Stream
from tests.scene import CHAT, PROMPT, Scene, scene

STREAM = {**PROMPT, "stream": True}


@define(eq=False)
class Run:
    """A scene whose door runs, its own socket included; `over` is when the door had ended."""

    scene: Scene
    path: Path
    ended: trio.Event = field(init=False, factory=trio.Event)
    over: float = field(init=False, default=-1.0)

    async def run(self, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED) -> None:
        await self.scene.door.run(task_status=task_status)
        self.over = trio.current_time()
        self.ended.set()


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncGenerator[Run]:
    path = tmp_path / "door"
    async with scene("a", toml=f'[listen]\ndata = "unix:{path}"') as s, trio.open_nursery() as nursery:
        run = Run(s, path)
        assert await nursery.start(run.run) == [f"unix:{path}"]
        yield run
        s.door.stop()


async def begun(s: Scene, seconds: int) -> tuple[Client, Stream]:
    """A stream that will take so many seconds, its first frame read."""
    s.a.script(steps.chat_stream([str(number) for number in range(seconds)], every=1))
    client = await s.client()
    stream = await client.stream(CHAT, STREAM)
    await stream.frame()
    return client, stream


async def test_idle_connections_go_at_once_and_the_door_with_them(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as run:
        client = await run.scene.client()
        assert (await client.get("/healthz")).status == 200
        fresh = await run.scene.client()
        await run.scene.rest()
        began = trio.current_time()
        run.scene.door.drain()
        assert await client.ended()
        assert await fresh.ended()
        await run.ended.wait()
        assert run.over == began
        assert not run.path.exists()


async def test_an_answer_that_has_not_begun_says_that_its_connection_ends(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path) as run:
        s = run.scene
        s.a.script(steps.after(5, steps.chat("in time")))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, PROMPT))
        await s.a.wait_hits(1)
        s.door.drain()
        reply = await client.reply()
        assert (reply.status, reply.headers["connection"], reply.complete) == (200, "close", True)
        assert await client.ended()
        await run.ended.wait()
        assert run.over == 5
        assert [ended.reason.value for ended in s.ended] == ["answered"]


async def test_a_stream_that_has_begun_goes_on_to_its_end(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as run:
        client, stream = await begun(run.scene, 5)
        run.scene.door.drain()
        await stream.rest()
        assert (stream.text(), stream.complete) == ("01234", True)
        assert await client.ended()
        await run.ended.wait()
        assert [ended.reason.value for ended in run.scene.ended] == ["answered"]


async def test_a_request_whose_body_is_coming_in_is_still_answered(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as run:
        s = run.scene
        s.a.script(steps.chat("in time"))
        client = await s.client()
        whole = client.request("POST", CHAT, PROMPT)
        await client.wire.send(whole[:-5])
        await s.rest(2)
        s.door.drain()
        await s.rest(2)
        await client.wire.send(whole[-5:])
        assert (await client.reply()).headers["connection"] == "close"
        await run.ended.wait()


async def test_a_pipelined_request_is_not_begun_any_more(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as run:
        s = run.scene
        s.a.script(steps.after(5, steps.chat("in time")))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, PROMPT) * 2)
        await s.a.wait_hits(1)
        s.door.drain()
        assert (await client.reply()).headers["connection"] == "close"
        assert await client.ended()
        assert s.hits() == "a=1"


async def test_the_deadline_cuts_what_is_left(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as run:
        _, stream = await begun(run.scene, 100)
        await run.scene.rest(0.5)
        began = trio.current_time()
        run.scene.door.drain()
        await stream.rest()
        assert '"code":"shutting_down"' in stream.frames[-1].decode(), "half an answer says that it is none"
        assert (stream.complete, stream.text()) == (True, "".join(map(str, range(31))))
        await run.ended.wait()
        assert run.over == began + 30
        (ended,) = run.scene.ended
        assert ended.reason.value == "drained"
        assert ended.usage.estimated
        await run.scene.rest()
        assert run.scene.a.open == 0
        assert (run.scene.held(), run.scene.failures()) == ({}, 0)


async def test_at_the_deadline_what_has_not_begun_is_told_to_ask_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path) as run:
        s = run.scene
        s.a.script(steps.after(100, steps.chat("too late")))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, PROMPT))
        await s.a.wait_hits(1)
        s.door.drain()
        reply = await client.reply()
        assert (reply.status, reply.json["error"]["code"]) == (503, "shutting_down")
        assert (reply.headers["x-should-retry"], reply.headers["retry-after"]) == ("true", "1")
        await run.ended.wait()
        (ended,) = s.ended
        assert (ended.reason.value, ended.status) == ("drained", 503)
        assert s.held() == {}


async def test_a_reader_that_takes_nothing_holds_a_drain_up_a_second_at_most(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path) as run:
        s = run.scene
        s.a.script(steps.chat_stream(["x" * 60_000] * 200, every=0.5))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, STREAM))
        await s.a.wait_hits(1)
        began = trio.current_time()
        s.door.drain()
        await run.ended.wait()
        assert began + 30 <= run.over <= began + 31
        assert s.held() == {}


async def test_stop_ends_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as run:
        _, stream = await begun(run.scene, 100)
        began = trio.current_time()
        run.scene.door.stop()
        await run.ended.wait()
        assert run.over == began
        await stream.rest()
        assert stream.complete is False
        assert [ended.reason.value for ended in run.scene.ended] == ["drained"]
        assert run.scene.held() == {}


async def test_stop_ends_a_drain_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as run:
        await begun(run.scene, 100)
        run.scene.door.drain()
        await run.scene.rest(7)
        began = trio.current_time()
        run.scene.door.stop()
        await run.ended.wait()
        assert run.over == began
        assert [ended.reason.value for ended in run.scene.ended] == ["drained"]
