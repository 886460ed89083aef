"""Each feature at work leaves no cycle behind: what a call held is freed as the call ends, whatever was configured."""

from collections.abc import Awaitable, Callable

import pytest
from attrs import frozen
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, tenant
from tests.acceptance.queued import of_class
from tests.fakes import steps
from tests.fakes.upstream import Headers
from tests.scene import CHAT, PROMPT, Scene, scene
from tests.test_cycles import collector, crowded, garbage

__all__ = ["collector"]  # a fixture

OTHER = '[[models]]\nname = "n"\nchannels = [{ channel = "b", model = "n" }]\n'
FALLBACK = 'fallback = [{ model = "n" }]\n'
NOTHING = [
    ("x-ratelimit-limit-requests", "10"),
    ("x-ratelimit-remaining-requests", "0"),
    ("x-ratelimit-reset-requests", "30s"),
]


@frozen
class Case:
    """A configuration, and a call that leads through its feature."""

    call: Callable[[Scene], Awaitable[None]]
    toml: str = ""
    channel: str = ""
    model: str = ""


async def kept(s: Scene) -> None:
    s.a.script(steps.chat_stream(["x"], delay=3))
    assert (await s.stream(headers=of_class("kept"))).text() == "x"


async def kept_and_failed(s: Scene) -> None:
    s.a.script(steps.after(3, steps.error(400)))
    assert (await s.stream(headers=of_class("kept"))).status == 200


async def kept_and_left(s: Scene) -> None:
    s.a.script(steps.chat_stream(["x"] * 9, delay=3, every=1))
    await left(s, of_class("kept"))


async def assured(s: Scene) -> None:
    s.a.script(steps.chat_stream(["x"] * 3, end="reset"))
    s.b.script(steps.chat_stream(["whole"]))
    assert (await s.stream(headers=of_class("assured"))).text() == "whole"


async def drained(s: Scene) -> None:
    s.a.script(steps.chat_stream(["x"] * 9, every=0.1))
    await left(s, of_class("drained"))


async def left(s: Scene, headers: Headers) -> None:
    client = await s.client()
    stream = await client.stream(CHAT, {**PROMPT, "stream": True}, headers)
    await stream.frame()
    client.close()
    await s.rest(5)


async def replaced(s: Scene) -> None:
    s.a.script(steps.error(503))
    s.b.script(steps.chat("from n"))
    assert (await s.post()).status == 200


async def replaced_in_vain(s: Scene) -> None:
    s.a.script(steps.error(503))
    s.b.script(steps.error(503))
    assert (await s.post()).status == 503


async def held_back(s: Scene) -> None:
    s.a.script(steps.chat_answer("x", headers=NOTHING))
    s.b.script(steps.chat("from b"))
    assert (await s.post()).status == 200


async def over_budget(s: Scene) -> None:
    assert (await s.post(headers=bearer())).status == 402


async def last_resort(s: Scene) -> None:
    s.a.script(steps.error(500))
    s.b.script(steps.error(500))
    await s.post()


async def timed_out(s: Scene) -> None:
    s.a.script(steps.silence())
    assert (await s.post(headers=[("x-request-timeout", "0.5")])).status == 504


async def without_a_slot(s: Scene) -> None:
    s.a.script(steps.chat_answer("x", delay=3))
    s.b.script(steps.chat_answer("y", delay=3))
    await crowded(s, "default")


async def recorded(s: Scene) -> None:
    s.a.script(steps.chat("x"))
    s.b.script(steps.chat("x"))
    assert (await s.post()).status == 200
    assert (await s.stream()).status == 200


CASES = {
    "kept": Case(kept, "[classes.kept]\nkeepalive_after = 1\n"),
    "kept and failed": Case(kept_and_failed, "[classes.kept]\nkeepalive_after = 1\n"),
    "kept and left": Case(kept_and_left, "[classes.kept]\nkeepalive_after = 1\n"),
    "assured": Case(assured, '[classes.assured]\nmode = "assured"\n'),
    "drained": Case(drained, '[classes.drained]\non_disconnect = "drain"\n'),
    "replaced": Case(replaced, OTHER, model=FALLBACK),
    "replaced in vain": Case(replaced_in_vain, OTHER, model=FALLBACK),
    "held back": Case(held_back, channel='provider = "openai"\nramp = { requests_per_minute = 1000, warmup = 30 }\n'),
    "over its balance": Case(over_budget, tenant("balance = 0.000001") + key(rest='tenant = "acme"')),
    "last resort": Case(
        last_resort, channel='breaker = { preset = "consecutive", failures = 1 }', model='when_out = "last-resort"'
    ),
    "timed out": Case(timed_out),
    "without a slot": Case(without_a_slot, channel="max_concurrency = 1\nslot_timeout = 0.5"),
    "a rollout": Case(
        recorded,
        '[[rollouts]]\nmodel = "m"\ncandidate = [{ channel = "b", model = "new" }]\nsteps = [100]\nstarted = true\n',
    ),
    "a ledger": Case(recorded, '[state]\npath = ":memory:"\nspool = "{folder}/spool"\n'),
    "probes and alerts": Case(recorded, "[probes]\nevery = 1\n[alerts]\n[alerts.thresholds]\nleast = 1\n"),
}


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("name", CASES)
async def test_a_feature_leaves_no_cycle(name: str, tmp_path: object, autojump_clock: MockClock) -> None:
    case = CASES[name]
    toml = case.toml.replace("{folder}", str(tmp_path))
    async with scene("a", "b", toml=toml, channel=case.channel, model=case.model) as s:
        assert await garbage(s, case.call) == {}
