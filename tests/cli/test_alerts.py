"""`trioproxy alerts test`: every sink is told, and what came of it is said."""

import sys
from pathlib import Path
from subprocess import CompletedProcess, list2cmdline

import trio

from tests.fakes import steps
from tests.fakes.upstream import Exchange, FakeUpstream, on_loopback

GATEWAY = """
[[channels]]
name = "a"
base_url = "https://a.example/v1"
api_key = { env = "NO_SUCH_VARIABLE" }
[[models]]
name = "m"
channels = [{ channel = "a", model = "m" }]
"""


async def taken(x: Exchange) -> None:
    await x.reply(200, {"ok": True})


async def run(tmp_path: Path, sinks: str) -> "CompletedProcess[bytes]":
    file = trio.Path(tmp_path / "gateway.toml")
    await file.write_text(GATEWAY + sinks)
    command = [sys.executable, "-m", "trioproxy", "alerts", "test", str(file)]
    return await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)


def said(done: "CompletedProcess[bytes]") -> list[str]:
    """Each line without its time."""
    return [line.rpartition(", ")[0] for line in done.stdout.decode().splitlines()]


async def test_every_sink_is_told_and_one_that_fails_makes_it_fail(tmp_path: Path) -> None:
    well, ill = FakeUpstream("well").script(taken), FakeUpstream("ill").script(steps.error(500))
    async with on_loopback(well, ill):
        hooks = "".join(
            f'[[alerts.sinks]]\nurl = "http://127.0.0.1:{each.port}/T0KEN"\ncauses = ["store_trouble"]\n'
            for each in (well, ill)
        )
        copy = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
        argv = ", ".join(f"'''{word}'''" for word in (sys.executable, "-c", copy, tmp_path / "out"))
        done = await run(tmp_path, f"{hooks}[[alerts.sinks]]\ncommand = [{argv}]\nleast = 'critical'")
    python = Path(sys.executable).name
    assert said(done) == [
        "alerts.sinks[0] (127.0.0.1): took it",
        "alerts.sinks[1] (127.0.0.1): did not: it answered 500",
        f"alerts.sinks[2] ({python}): took it",
    ], list2cmdline(done.args)
    assert done.returncode == 1
    assert (well.hits, ill.hits) == (1, 1), "each is tried once"
    assert well.requests[0].json["data"]["cause"] == "test"
    assert "this is a test" in await trio.Path(tmp_path / "out").read_text()
    assert b"T0KEN" not in done.stdout + done.stderr


async def test_it_succeeds_where_all_take_it(tmp_path: Path) -> None:
    well = FakeUpstream("well").script(taken)
    async with on_loopback(well):
        done = await run(tmp_path, f'[[alerts.sinks]]\nurl = "http://127.0.0.1:{well.port}/"')
    assert (done.returncode, done.stderr) == (0, b"")


async def test_without_sinks_nothing_is_proved(tmp_path: Path) -> None:
    done = await run(tmp_path, "")
    assert done.returncode == 1
    assert b"there are no [[alerts.sinks]]" in done.stderr


async def test_a_secret_that_is_missing_is_a_fault(tmp_path: Path) -> None:
    done = await run(tmp_path, '[[alerts.sinks]]\nurl = "http://127.0.0.1:9/"\nsecret = { env = "NO_SUCH_SECRET" }')
    assert done.returncode == 1
    assert b"alerts.sinks[0].secret: env NO_SUCH_SECRET is not set or empty" in done.stderr
    assert b"Traceback" not in done.stderr
