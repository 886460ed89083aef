"""`trioproxy deferred`: what is stored is told beside a gateway that runs, and one that waits is taken back."""

import json
from datetime import UTC, datetime
from pathlib import Path

import trio
from click.testing import CliRunner, Result

from tests.acceptance.deferring import DEFER, DOWN, QUICK, done, state
from tests.fakes import steps
from tests.scene import scene
from trioproxy.cli import main

SLOW = QUICK.replace("open_for = 0.2", "open_for = 2.0")
FILE = """
[[channels]]
name = "c"
base_url = "http://localhost/v1"
[[models]]
name = "m"
channels = [{{ channel = "c", model = "m" }}]
{state}
"""


def written(folder: Path) -> str:
    file = folder / "gateway.toml"
    file.write_text(FILE.format(state=state(folder)))
    return str(file)


async def asked(*arguments: str) -> Result:
    return await trio.to_thread.run_sync(lambda: CliRunner().invoke(main, ["deferred", *arguments]))


async def test_calls_are_listed_shown_and_taken_back_beside_the_gateway(tmp_path: Path) -> None:
    file, now = written(tmp_path), datetime.now(UTC).timestamp()  # the command has the world's clock
    async with scene("a", toml=SLOW + state(tmp_path), model=DEFER, wall=now) as s:
        assert (await asked("list", file)).output == "no deferred calls\n"
        s.a.script(DOWN)
        first, second = [(await s.post()).json for _ in range(2)]
        taken = await asked("cancel", file, second["id"])
        assert (taken.exit_code, json.loads(taken.output)["status"]) == (0, "cancelled")
        assert (await s.get(second["poll_url"])).status == 410
        s.a.script(steps.chat("hello"))
        end = await done(s, first["poll_url"])
        shown = json.loads((await asked("show", file, first["id"])).output)
        assert shown == {**end.json, "tenant": "default", "key": "anonymous"}
        late = await asked("cancel", file, first["id"])
        assert (late.exit_code, "it is done" in late.output) == (1, True)
        lines = (await asked("list", file)).output.splitlines()
        assert [line.split()[:2] for line in lines] == [[first["id"], "done"], [second["id"], "cancelled"]]
        listed = json.loads((await asked("list", file, "--format", "json")).output)
        assert [each["status"] for each in listed] == ["done", "cancelled"]
        assert "hello" not in str(listed)


async def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    file = written(tmp_path)
    none = await asked("list", file)
    assert (none.exit_code, "cannot be read" in none.output) == (1, True)
    refused = await asked("cancel", file, "dfr_1")
    assert refused.exit_code == 1
    assert not (tmp_path / "ledger.db").exists()
    async with scene("a", toml=state(tmp_path), model=DEFER):
        unknown = await asked("show", file, "dfr_1")
        assert (unknown.exit_code, "there is no deferred call" in unknown.output) == (1, True)
