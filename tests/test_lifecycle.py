"""Cut at every checkpoint: wherever a caller may leave, nothing stays held, one record is made, and no channel is blamed.

Two ways to leave: an embedder's scope is cancelled, or a client closes its connection to the door. Either happens at the first
step of ours, then at the second, and so on, until a run ends uncut.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import trio
from attrs import define
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.cancel import Scalpel
from tests.fakes.client import Client
from tests.fakes.http1 import Cut
from tests.fakes.network import MemoryWire, wire_pair
from tests.fakes.upstream import Exchange, Step
from tests.scene import CHAT, PROMPT, Scene, scene
from trioproxy.call import Request
from trioproxy.http.wire import WireBroken
from trioproxy.journal import EndReason

MOST = 500
# A fault that sends the call on and says nothing about the channel's health, so that every run meets the same breakers.
REFUSED = steps.error(
    400, {"error": {"message": "no", "type": "invalid_request_error", "code": "unsupported_parameter"}}
)
ASSURED = '[defaults]\nmode = "assured"'
WARM = "[defaults]\nkeepalive_after = 0.75"
PROBES = "[defaults]\nbreaker = { failures = 1, window = 0.0, open_for = 1.0, probes = 1 }"

Visit = Callable[[Scene, bool, int], Awaitable[bool]]


@define
class Leaving:
    """What a scalpel cuts with at the door: the client's end of the wire."""

    wire: MemoryWire

    def cancel(self, reason: str) -> None:
        self.wire.close()


async def embedded(s: Scene, streamed: bool, at: int) -> bool:
    """One call of an embedder, cancelled at its `at`-th step; whether it came to that."""
    with trio.CancelScope() as scope:
        scalpel = Scalpel(trio.lowlevel.current_task(), scope, at)
        trio.lowlevel.add_instrument(scalpel)
        try:
            async with s.gateway.dispatch(Request.post(CHAT, {**PROMPT, "stream": streamed})) as answer:
                await answer.read()
                assert answer.status == 200
        finally:
            trio.lowlevel.remove_instrument(scalpel)
    assert s.held() == {}  # in the same breath: nothing was left to a later step
    return scalpel.steps >= at


async def through_the_door(s: Scene, streamed: bool, at: int) -> bool:
    """One call through the door, whose client closes at the door's `at`-th step; whether it came to that."""
    near, far = wire_pair()
    made: list[Scalpel] = []

    async def serve() -> None:
        made.append(Scalpel(trio.lowlevel.current_task(), cast("trio.CancelScope", Leaving(near)), at))
        trio.lowlevel.add_instrument(made[0])
        try:
            await s.door.serve(far)
        finally:
            trio.lowlevel.remove_instrument(made[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        client = Client(near)
        with contextlib.suppress(Cut, WireBroken, trio.ClosedResourceError):
            await (await client.stream(CHAT, {**PROMPT, "stream": streamed})).rest()
        client.close()
    return made[0].steps >= at


async def cut_everywhere(s: Scene, visit: Visit, *, streamed: bool, script: Callable[[Scene], None]) -> list[EndReason]:
    """Visit after visit, each cut one step later, until one is uncut; what came of each."""
    reasons: list[EndReason] = []
    for at in range(1, MOST):
        s.events.clear()
        script(s)
        try:
            cut = await visit(s, streamed, at)
            await trio.testing.wait_all_tasks_blocked()
            reasons += at_rest(s)
        except Exception as exc:
            exc.add_note(f"cut at step {at}")
            raise
        if not cut:
            return reasons
    raise AssertionError(f"still steps after {MOST}")


def at_rest(s: Scene) -> list[EndReason]:
    """Nothing held, no connection but those that lie idle in their pools, one record at most."""
    assert s.held() == {}
    for name, upstream in s.upstreams.items():
        assert upstream.open == s.gateway.statistics()[name].idle_connections, name
    reasons = [ended.reason for ended in s.ended]
    assert len(reasons) <= 1
    return reasons


def scripted(*scripts: Step) -> Callable[[Scene], None]:
    """The first step for the first channel, and so on."""

    def script(s: Scene) -> None:
        for upstream, step in zip(s.upstreams.values(), scripts, strict=True):
            upstream.script(step)

    return script


def slowly(words: list[str]) -> Step:
    """An answer that comes in pieces, a second apart, in either form."""

    async def step(x: Exchange) -> None:
        if x.request.json.get("stream"):
            await steps.chat_stream(words, delay=1, every=1)(x)
        else:
            await steps.chat_answer("".join(words), delay=1)(x)

    return step


ANSWER = slowly(["one", " two"])
LINES = {
    "one attempt": ("", [ANSWER]),
    "two attempts": ("", [REFUSED, ANSWER]),
    "assured": (ASSURED, [ANSWER]),
    "keepalive": (WARM, [ANSWER]),
    "keepalive, two attempts": (WARM, [steps.after(1, REFUSED), ANSWER]),
}
visits = pytest.mark.parametrize("visit", [embedded, through_the_door])
both = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])


@visits
@both
@pytest.mark.parametrize("line", LINES)
async def test_wherever_a_caller_leaves_nothing_is_held_and_nobody_is_blamed(
    visit: Visit, streamed: bool, line: str, autojump_clock: MockClock
) -> None:
    toml, script = LINES[line]
    async with scene(*("a", "b")[: len(script)], toml=toml) as s:
        reasons = await cut_everywhere(s, visit, streamed=streamed, script=scripted(*script))
        assert reasons[-1] is EndReason.ANSWERED
        assert set(reasons) == {EndReason.ANSWERED, EndReason.CLIENT_LEFT}
        assert len(reasons) > 3
        for name in s.upstreams:
            assert (s.failures(name), s.breaker(name)) == (0, "closed")
        assert s.bugs == []


@both
async def test_an_embedders_call_always_ends_in_one_record(streamed: bool, autojump_clock: MockClock) -> None:
    """The door may be cut before there is a call; here every run is one."""
    async with scene("a") as s:
        counted: list[int] = []

        async def visit(s: Scene, streamed: bool, at: int) -> bool:
            cut = await embedded(s, streamed, at)
            counted.append(len(s.ended))
            return cut

        await cut_everywhere(s, visit, streamed=streamed, script=scripted(ANSWER))
        assert counted == [1] * len(counted)


@visits
@both
async def test_a_probe_that_is_cut_gives_its_leave_back(
    visit: Visit, streamed: bool, autojump_clock: MockClock
) -> None:
    """An abandoned probe is no evidence: the breaker stays half-open, and the next call is the next probe."""
    async with scene("a", toml=PROBES) as s:
        seen = set()

        async def probe(s: Scene, streamed: bool, at: int) -> bool:
            s.a.script(steps.error(500), ANSWER)
            assert (await s.post()).status == 500
            assert s.breaker() == "open"
            await trio.sleep(1)
            s.events.clear()
            cut = await visit(s, streamed, at)
            seen.add(s.breaker())
            assert (await s.post()).status == 200
            s.events.clear()
            return cut

        await cut_everywhere(s, probe, streamed=streamed, script=lambda _: None)
        assert seen <= {"open", "half_open", "closed"}  # open: cut before the channel was asked for leave
        assert {"half_open", "closed"} <= seen


@visits
@both
async def test_a_caller_that_leaves_the_queue_for_a_slot_leaves_no_place_in_it(
    visit: Visit, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", channel="max_concurrency = 1\nslot_timeout = 10.0") as s:

        async def queued(s: Scene, streamed: bool, at: int) -> bool:
            s.a.script(ANSWER)
            other = await s.open_stream()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other.rest)
                cut = await door_or_not(s, streamed, at)
            assert other.text() == "one two"  # whoever held the slot noticed nothing
            await s.rest(0)
            assert len(s.ended) <= 2
            s.events.clear()
            return cut

        async def door_or_not(s: Scene, streamed: bool, at: int) -> bool:
            if visit is through_the_door:
                return await visit(s, streamed, at)
            with trio.CancelScope() as scope:
                scalpel = Scalpel(trio.lowlevel.current_task(), scope, at)
                trio.lowlevel.add_instrument(scalpel)
                try:
                    async with s.gateway.dispatch(Request.post(CHAT, {**PROMPT, "stream": streamed})) as answer:
                        await answer.read()
                finally:
                    trio.lowlevel.remove_instrument(scalpel)
            return scalpel.steps >= at

        await cut_everywhere(s, queued, streamed=streamed, script=lambda _: None)
        assert (s.failures(), s.breaker()) == (0, "closed")
