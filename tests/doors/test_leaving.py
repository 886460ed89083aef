"""A client that leaves: the upstream is told at once, or read to its end where the class wants its account."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.client import Client
from tests.scene import CHAT, PROMPT, Scene, scene

STREAM = {**PROMPT, "stream": True}
DRAIN = '[defaults]\non_disconnect = "drain"\ndrain_timeout = 5.0'
LONG = "x" * 400_000
ways = pytest.mark.parametrize("leave", [Client.close, Client.reset], ids=["fin", "reset"])


async def one_frame(s: Scene) -> Client:
    client = await s.client()
    stream = await client.stream(CHAT, STREAM)
    await stream.frame()
    return client


@ways
async def test_the_upstream_is_closed_in_the_moment_in_which_the_client_leaves(
    leave: Callable[[Client], None], autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_stream(["one", " two", " three"], every=1))
        client = await one_frame(s)
        await trio.sleep(0.5)
        left = trio.current_time()
        leave(client)
        await s.rest()
        assert s.a.closed_at == [left]
        (ended,) = s.ended
        assert (ended.reason.value, ended.usage.estimated, ended.duration) == ("client_left", True, left)
        assert (s.held(), s.failures()) == ({}, 0)


@ways
@pytest.mark.parametrize("toml", ["", DRAIN], ids=["cancel", "drain"])
@pytest.mark.parametrize("body", [PROMPT, STREAM], ids=["unary", "streamed"])
async def test_before_commit_a_client_that_leaves_takes_its_attempt_along(
    body: object, toml: str, leave: Callable[[Client], None], autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=toml) as s:
        s.a.script(steps.silence())
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, body))
        await trio.sleep(2)
        leave(client)
        await s.rest()
        assert s.a.closed_at == [2]
        assert s.hits() == "a=1 b=0"
        (ended,) = s.ended
        assert (ended.reason.value, ended.duration, ended.cost) == ("client_left", 2, 0)
        assert (s.held(), s.failures(), s.breaker()) == ({}, 0, "closed")


@ways
async def test_a_draining_class_reads_the_answer_to_its_end_for_the_account(
    leave: Callable[[Client], None], autojump_clock: MockClock
) -> None:
    async with scene("a", toml=DRAIN) as s:
        s.a.script(steps.chat_stream(["one", " two", " three"], every=1))
        client = await one_frame(s)
        await trio.sleep(0.5)
        leave(client)
        await s.rest(10)
        assert s.a.closed_at == []
        (ended,) = s.ended
        assert ended.reason.value == "client_left"
        assert (ended.usage.input, ended.usage.output, ended.usage.estimated) == (9, 3, False)
        assert ended.duration == 6  # seven frames with the usage and the end, a second apart
        assert (s.held(), s.failures()) == ({}, 0)


@ways
async def test_a_drained_answer_is_read_no_longer_than_its_bound(
    leave: Callable[[Client], None], autojump_clock: MockClock
) -> None:
    async with scene("a", toml=DRAIN) as s:
        s.a.script(steps.chat_stream(["word"] * 100, every=1))
        client = await one_frame(s)
        await trio.sleep(0.5)
        left = trio.current_time()
        leave(client)
        await s.rest(20)
        assert s.a.closed_at == [left + 5]
        (ended,) = s.ended
        assert (ended.reason.value, ended.usage.estimated) == ("client_left", True)
        assert (s.held(), s.failures()) == ({}, 0)


async def test_a_client_that_stops_reading_is_drained_as_one_that_left(autojump_clock: MockClock) -> None:
    async with scene("a", toml=DRAIN) as s:
        s.a.script(steps.chat_stream([LONG, LONG]))
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, STREAM))
        await s.rest(60)
        (ended,) = s.ended
        assert (ended.reason.value, ended.duration) == ("client_left", 30)
        assert (ended.usage.output, ended.usage.estimated) == (3, False)
        assert s.held() == {}


async def test_an_answer_that_is_out_is_answered_even_if_its_client_leaves_behind_the_last_byte(
    autojump_clock: MockClock,
) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("all of it"))
        for body in (PROMPT, STREAM):
            client = await s.client()
            await client.wire.send(client.request("POST", CHAT, body))
            await (await client.streamed()).rest()
            client.close()
        await s.rest()
        assert [ended.reason.value for ended in s.ended] == ["answered", "answered"]
