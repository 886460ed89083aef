"""Nobody's body: a caller without a good key is told so before its request is taken in."""

import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import CHAT, PROMPT, scene
from trioproxy.policy.access import key_hash

KEYS = f'[[keys]]\nid = "one"\nhash = "{key_hash("tp-good")}"'
GOOD = [("authorization", "Bearer tp-good")]


async def test_a_long_body_of_a_stranger_is_refused_unread(autojump_clock: MockClock) -> None:
    async with scene("a", toml=KEYS) as s:
        client = await s.client()
        await client.wire.send(client.request("POST", CHAT, None, [("content-length", "30000000")]) + b"{")
        reply = await client.reply()
        assert (reply.status, reply.headers["connection"]) == (401, "close")
        assert reply.json["error"]["code"] == "invalid_api_key"
        assert trio.current_time() == 0
        await s.rest()
        assert [event.reason.value for event in s.ended] == ["refused_auth"]
        assert s.hits() == "a=0"


async def test_a_stranger_is_not_told_to_continue(autojump_clock: MockClock) -> None:
    async with scene("a", toml=KEYS) as s:
        client = await s.client()
        head = client.request("POST", CHAT, None, [("content-length", "10"), ("expect", "100-continue")])
        await client.wire.send(head)
        assert (await client.wire.receive()).startswith(b"HTTP/1.1 401 ")


async def test_a_caller_with_a_key_sends_what_it_likes(autojump_clock: MockClock) -> None:
    async with scene("a", toml=KEYS) as s:
        s.a.script(steps.chat("hello"))
        reply = await s.post({**PROMPT, "user": "x" * 200_000}, GOOD)
        assert reply.status == 200
