"""A fault of our own ends one exchange and is told: never the process, never another connection, nothing stays held."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import define
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.client import Client
from tests.scene import CHAT, PROMPT, Scene, scene
from trioproxy.http.message import Limits, ResponseReader

STREAM = {**PROMPT, "stream": True}
BUG = "a phase has a bug"
both = pytest.mark.parametrize("body", [PROMPT, STREAM], ids=["unary", "streamed"])


class Broken:
    """Has every method, and each raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(BUG)


@define
class Failing:
    """A reader that breaks behind so many pieces."""

    within: ResponseReader
    pieces: int

    def feed(self, data: bytes) -> None:
        self.pieces -= 1
        if self.pieces < 0:
            raise RuntimeError(BUG)
        self.within.feed(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.within, name)


@asynccontextmanager
async def buggy(s: Scene) -> AsyncGenerator[Client]:
    """Beside the bug another stream runs, and it must not notice; afterwards nothing is held."""
    s.b.script(steps.chat_stream(["one", " two", " three"], every=1))
    other = await s.open_stream(model="other")
    client = await s.client()
    yield client
    await other.rest()
    assert (other.text(), other.complete) == ("one two three", True)
    await s.rest()
    assert s.held() == {}
    assert s.a.open == 0
    assert len(s.bugs) == 1
    assert BUG in "".join(map(str, leaves(s.bugs[0])))
    s.bugs.clear()
    assert sorted(ended.reason.value for ended in s.ended) == ["answered", "bug"]
    assert (s.failures(), s.breaker()) == (0, "closed")  # our own bug is no evidence


def leaves(exc: BaseException) -> list[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        return [leaf for part in exc.exceptions for leaf in leaves(part)]
    return [exc]


OTHER = '[[models]]\nname = "other"\nchannels = [ { channel = "b", model = "b-model" } ]'


async def told(client: Client, body: object) -> None:
    reply = await client.post(CHAT, body)
    assert reply.status == 500
    assert reply.json["error"]["code"] == "internal_error"
    assert BUG not in reply.body.decode()  # what went wrong inside is not the client's to know
    assert reply.headers["connection"] == "close"
    assert await client.ended()


@both
async def test_a_bug_before_any_attempt(body: object, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=OTHER) as s, buggy(s) as client:
        s.gateway.line.router = Broken()  # type: ignore[assignment]
        await told(client, body)
        assert s.hits() == "a=0 b=1"


@both
async def test_a_bug_inside_an_attempt(body: object, autojump_clock: MockClock) -> None:
    """The slot, the permit and the task of the attempt are there by then."""

    async def dial(*_: object) -> Any:
        raise RuntimeError(BUG)

    async with scene("a", "b", toml=OTHER) as s, buggy(s) as client:
        s.gateway.supervisor.channels.state["a"].upstream.dial = dial
        await told(client, body)


@both
async def test_a_bug_while_an_upstream_is_being_read(body: object, autojump_clock: MockClock) -> None:
    def reader(limits: Limits) -> Any:
        return Failing(ResponseReader(limits), 0)

    async with scene("a", "b", toml=OTHER) as s, buggy(s) as client:
        s.a.script(steps.chat("never seen"))
        s.gateway.supervisor.channels.state["a"].upstream.reader = reader
        await told(client, body)


async def test_a_bug_after_commit_ends_the_answer_without_a_clean_end(autojump_clock: MockClock) -> None:
    def reader(limits: Limits) -> Any:
        return Failing(ResponseReader(limits), 3)

    async with scene("a", "b", toml=OTHER) as s, buggy(s) as client:
        s.a.script(steps.chat_stream(["one", " two", " three", " four"], every=0.5))
        s.gateway.supervisor.channels.state["a"].upstream.reader = reader
        stream = await client.stream(CHAT, STREAM)
        await stream.rest()
        assert stream.status == 200
        assert stream.complete is False
        assert steps.DONE not in stream.frames
        assert b"internal" not in stream.raw  # no second answer inside the first
