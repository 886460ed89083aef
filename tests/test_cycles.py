"""What a call leaves behind is freed as it ends: no cycle keeps a request's body until the collector comes by."""

import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import pytest
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import CHAT, PROMPT, Scene, scene

CALLS = 5


async def answered(s: Scene) -> None:
    s.a.script(steps.chat("hello"))
    assert (await s.post()).status == 200


async def streamed(s: Scene) -> None:
    s.a.script(steps.chat_stream(["one ", "two"]))
    assert (await s.stream()).text() == "one two"


async def failed_over(s: Scene) -> None:
    s.a.script(steps.error(503))
    s.b.script(steps.chat("hello"))
    assert (await s.post()).status == 200


async def refused(s: Scene) -> None:
    assert (await s.post(model="unknown")).status == 404


async def rejected(s: Scene) -> None:
    s.a.script(steps.error(400))
    assert (await s.post()).status == 400


async def left(s: Scene) -> None:
    s.a.script(steps.chat_stream(["one "] * 9, every=1))
    client = await s.client()
    stream = await client.stream(CHAT, {**PROMPT, "stream": True})
    await stream.frame()
    client.close()
    await s.rest()


@pytest.fixture
def collector() -> Iterator[None]:
    """The collector keeps what it finds, and comes when it is called only."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("call", [answered, streamed, failed_over, refused, rejected, left])
async def test_a_call_leaves_no_cycle(call: Callable[[Scene], Awaitable[None]], autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        await call(s)
        s.events.clear()
        gc.collect()
        gc.garbage.clear()
        for _ in range(CALLS):
            await call(s)
            await s.rest()
        s.events.clear()
        gc.collect()
        ours = Counter(type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("trioproxy"))
        assert {name: count for name, count in ours.items() if count >= CALLS} == {}
