"""A step that requires a regression set: refused with the reason until a fresh enough reading of every candidate meets it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import NOVEMBER, Scene, scene
from trioproxy.config.promptset import parse_set
from trioproxy.journal import Event, RolloutMoved
from trioproxy.policy.rollout import NoSuchMove, Verb


@pytest.fixture(autouse=True)
def _no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread takes real time, in which the virtual clock would run on for hours."""

    async def at_once(judge: Callable[..., str], *args: Any, abandon_on_cancel: bool) -> str:
        await trio.lowlevel.checkpoint()
        return judge(*args)

    monkeypatch.setattr("trioproxy.ops.evidence.trio.to_thread.run_sync", at_once)


SET = """
name = "greetings"
[[prompts]]
name = "hello"
prompt = "Say hello."
expect = { contains = ["hello"] }
"""


def toml(folder: Path, rest: str = "") -> str:
    (folder / "set.toml").write_text(SET)
    return f"""
[[rollouts]]
model = "m"
candidate = [{{ channel = "b", model = "newer" }}]
hold = 600
tolerance = {{ sample = 1 }}
require = {{ file = "{folder / "report.json"}", set = "{folder / "set.toml"}", pass_rate = 0.9, max_age = 3600 }}
{rest}
"""


def report(folder: Path, **changed: object) -> None:
    """As `trioproxy regress --json` writes it, of NOVEMBER."""
    reading = {
        "set_hash": parse_set(SET, "set.toml").hash,
        "channel": "b",
        "model": "m",
        "provider_model": "newer",
        "passed": 9,
        "runs": 10,
        "pass_rate": 0.9,
        "complete": True,
        "at": NOVEMBER,
    }
    (folder / "report.json").write_text(json.dumps({"readings": [{**reading, **changed}]}))


async def refused(s: Scene, verb: Verb = Verb.START) -> str:
    try:
        await s.gateway.order_rollout("m", verb)
    except NoSuchMove as exc:
        return str(exc)
    return ""


async def moved(s: Scene) -> None:
    """Until a rollout is somewhere else."""
    seen = trio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, RolloutMoved):
            seen.set()

    s.gateway.journal.subscribe(hear)
    await seen.wait()
    s.gateway.journal.unsubscribe(hear)


def moves(s: Scene) -> list[tuple[int, str]]:
    return [(each.percent, each.why.partition(":")[0]) for each in s.events if isinstance(each, RolloutMoved)]


async def test_what_an_operator_orders_waits_for_evidence_but_by_force(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=toml(tmp_path), links=("a",)) as s:
        assert (await refused(s)).endswith("report.json cannot be read: No such file or directory")
        report(tmp_path, channel="a")
        assert (await refused(s)).endswith("report.json: there is no reading of channel b")
        report(tmp_path, provider_model="older")
        assert (await refused(s)).endswith("it is of older there, not newer")
        report(tmp_path, pass_rate=0.8, passed=8)
        assert (await refused(s)).endswith("80.0% passed, 90.0% are required")
        report(tmp_path)
        (tmp_path / "set.toml").write_text(SET.replace("Say hello.", "Say hello twice."))
        assert "it is of another set" in await refused(s)
        (tmp_path / "set.toml").write_text("name = 3")
        assert "is no set" in await refused(s)
        (tmp_path / "report.json").write_text("{")
        (tmp_path / "set.toml").write_text(SET)
        assert "has no readings" in await refused(s)
        assert s.gateway.rollouts()["m"].state == "idle"
        report(tmp_path)
        assert await refused(s) == ""
        report(tmp_path, at=NOVEMBER - 4000)
        assert "at most 3600 are allowed" in await refused(s, Verb.STEP)
        assert s.gateway.rollouts()["m"].percent == 10
        told = await s.gateway.order_rollout("m", Verb.STEP, force=True)
        assert (told.percent, told.why) == (50, "by hand, by force")
        assert await refused(s, Verb.PAUSE) == ""
        assert await refused(s, Verb.ROLLBACK) == ""


async def test_a_step_that_is_due_is_made_when_the_report_is_there(tmp_path: Path, autojump_clock: MockClock) -> None:
    report(tmp_path)
    async with scene("a", "b", toml=toml(tmp_path, "started = true"), links=("a",)) as s:
        s.a.script(steps.chat("from a"))
        s.b.script(steps.chat("from b"))
        assert moves(s) == [(10, "with the process")]
        report(tmp_path, at=NOVEMBER - 3500)
        for number in range(40):
            await s.post(headers=[("x-trioproxy-session", f"s{number}")])
        await moved(s)
        assert moves(s)[1:] == [(10, "the next step waits")]
        assert s.gateway.rollouts()["m"].why.startswith(
            f"the next step waits: {tmp_path / 'report.json'}: the reading of"
        )
        await trio.sleep(600)
        assert len(moves(s)) == 2
        report(tmp_path, at=s.gateway.line.wall())
        await moved(s)
        assert moves(s)[2:] == [(50, "held and well")]


async def test_one_that_begins_with_the_process_begins_when_it_may(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=toml(tmp_path, "started = true"), links=("a",)) as s:
        assert moves(s) == [(0, "the next step waits")]
        assert s.gateway.rollouts()["m"].state == "idle"
        report(tmp_path)
        await moved(s)
        assert moves(s)[1:] == [(10, "with the process")]
