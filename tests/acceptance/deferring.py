"""Calls that are put off: the vocabulary of their cases."""

from collections.abc import Callable
from pathlib import Path

import trio

from tests.fakes import steps
from tests.fakes.client import Reply
from tests.fakes.upstream import Headers
from tests.scene import Scene

DEFER = 'on_exhausted = "defer"\n'
QUICK = "[defaults]\nbreaker = { failures = 1, window = 0.0, open_for = 0.2, probes = 1 }\n"
DOWN = steps.error(503)


def state(folder: Path) -> str:
    return f'[state]\npath = "{folder / "ledger.db"}"\nsnapshot_every = 0.1\n'


async def done(s: Scene, url: str, headers: Headers = ()) -> Reply:
    """Its end."""
    return await polled(s, url, headers, lambda reply: reply.status != 202)


async def polled(s: Scene, url: str, headers: Headers, enough: Callable[[Reply], bool]) -> Reply:
    """What the desk says, once it is that; asked again and again, as callers do."""
    with trio.fail_after(10):
        while not enough(  # noqa: ASYNC110 - the store's thread works in real time
            reply := await s.get(url, headers)
        ):
            await trio.sleep(0.02)
    return reply


async def removed(s: Scene, url: str, headers: Headers = ()) -> Reply:
    client = await s.client()
    await client.wire.send(client.request("DELETE", url, None, headers))
    reply = await client.reply()
    client.close()
    return reply


def said(reply: Reply) -> str:
    """What the model said in a result."""
    text = reply.json["result"]["body"]["choices"][0]["message"]["content"]
    assert isinstance(text, str)
    return text
