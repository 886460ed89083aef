"""`trioproxy rollout` and `chain --live` against a real process, over its control socket."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from tests.cli.test_serve import Served, serving
from tests.fakes import steps
from tests.fakes.client import Client
from tests.fakes.upstream import FakeUpstream, on_loopback
from tests.scene import CHAT, PROMPT
from trioproxy.cli import main
from trioproxy.cli.regress_run import provider_models
from trioproxy.config.load import parse_config
from trioproxy.http.wire import dial

CONFIG = """
[listen]
data = "127.0.0.1:0"
[log]
format = "json"
[control]
socket = "{socket}"
[[channels]]
name = "old"
base_url = "{url}"
auth = "none"
[[channels]]
name = "new"
base_url = "{url}"
auth = "none"
[[models]]
name = "m"
channels = [{{ channel = "old", model = "old-model" }}]
[[rollouts]]
model = "m"
candidate = [{{ channel = "new", model = "new-model" }}]
"""


def written(folder: Path, upstream: FakeUpstream | None = None) -> Path:
    file = folder / "gateway.toml"
    url = "http://127.0.0.1:9/v1" if upstream is None else upstream.base_url
    file.write_text(CONFIG.format(socket=folder / "c.sock", url=url))
    return file


async def trioproxy(*args: object) -> tuple[int, str, str]:
    done = await trio.run_process(
        [sys.executable, "-m", "trioproxy", *map(str, args)],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert isinstance(done, subprocess.CompletedProcess)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def arm(served: Served) -> str | None:
    client = Client(await dial("127.0.0.1", await served.port(), None))
    reply = await client.post(CHAT, PROMPT)
    client.close()
    assert reply.status == 200
    return reply.headers.get("x-trioproxy-arm")


async def test_a_rollout_from_start_to_rollback_on_a_running_process(tmp_path: Path) -> None:
    upstream = FakeUpstream("u").script(steps.chat("well"))
    async with on_loopback(upstream):
        file = written(tmp_path, upstream)
        async with serving(file) as served:
            assert await arm(served) is None
            assert await trioproxy("rollout", "status", file) == (
                0,
                "m: idle, 0 % of the callers (steps 10, 50, 100)\n",
                "",
            )
            code, out, _ = await trioproxy("rollout", "start", file, "m")
            assert code == 0
            assert out.splitlines()[0] == "m: running (by hand), 10 % of the callers (steps 10, 50, 100)"
            assert "not enough data: 0 calls of the candidate and 0 of the baseline, of 100 each" in out
            await trioproxy("rollout", "step", file, "m")
            await trioproxy("rollout", "step", file, "m")
            assert await arm(served) == "candidate"
            assert upstream.requests[-1].json["model"] == "new-model"
            moved = await served.line("rollout")
            assert (moved["percent"], moved["state"], moved["why"]) == (10, "running", "by hand")
            code, out, _ = await trioproxy("chain", file, "m", "--live", "--session", "s", "--json")
            assert [step["channel"] for step in json.loads(out)["candidate"]["steps"]] == ["new", "old"]
            code, out, _ = await trioproxy("chain", file, "m", "--live")
            assert [line.split() for line in out.splitlines()] == [
                ["m,", "baseline:"],
                ["#", "channel", "provider's", "model", "why", "here"],
                ["1", "old", "old-model", "price", "unknown:", "last"],
                ["m,", "candidate:"],
                ["#", "channel", "provider's", "model", "why", "here"],
                ["1", "new", "new-model", "listed", "first"],
                ["2", "old", "old-model", "baseline,", "price", "unknown:", "last"],
            ]
            code, out, err = await trioproxy("rollout", "pause", file, "m")
            assert (code, out.split(",")[0]) == (0, "m: paused (by hand)")
            code, out, err = await trioproxy("rollout", "pause", file, "m")
            assert (code, out) == (1, "")
            assert err == f"{file}: a rollout that is paused takes no pause; it takes start, step, rollback\n"
            await trioproxy("rollout", "rollback", file, "m")
            assert await arm(served) is None
            (status,) = json.loads((await trioproxy("rollout", "status", file, "m", "--json"))[1])
            assert (status["state"], status["percent"], status["candidate"]["calls"]) == ("rolled_back", 0, 1)
            served.process.terminate()
            assert await served.process.wait() == 0
        assert not (tmp_path / "c.sock").exists()


async def test_a_socket_that_is_taken_is_said_by_name(tmp_path: Path) -> None:
    file = written(tmp_path)
    (tmp_path / "c.sock").write_text("a file of somebody's")
    code, _, err = await trioproxy("serve", file)
    assert (code, err) == (
        1,
        f"cannot listen on '{tmp_path / 'c.sock'}': Address already in use; choose another [control] socket\n",
    )
    assert (tmp_path / "c.sock").read_text() == "a file of somebody's"


@pytest.mark.parametrize("args", [("rollout", "status"), ("rollout", "start"), ("chain", "--live")])
def test_nobody_at_home_is_one_sentence(args: tuple[str, ...], tmp_path: Path) -> None:
    file = written(tmp_path)
    result = CliRunner().invoke(
        main, [*args[:2], str(file), "m"] if args[0] == "rollout" else ["chain", str(file), "m", "--live"]
    )
    assert result.exit_code == 1
    socket = tmp_path / "c.sock"
    assert result.stderr == (
        f"nobody answers at {socket} (No such file or directory): is `trioproxy serve {file}` running?\n"
    )


def test_without_a_socket_the_file_is_what_is_missing(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_text(file.read_text().replace("socket =", "# socket ="))
    result = CliRunner().invoke(main, ["rollout", "status", str(file)])
    assert (result.exit_code, result.stderr.startswith(f"{file}: there is no [control] socket: give one")) == (1, True)


def test_the_file_s_chain_shows_the_candidate_s(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["chain", str(written(tmp_path)), "m"])
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["m:", "cheapest", "first,", "at", "most", "3", "attempts"],
        ["#", "channel", "provider's", "model", "why", "here"],
        ["1", "old", "old-model", "price", "unknown:", "last"],
        ["candidate,", "for", "10,", "50,", "100", "%", "of", "the", "callers", "step", "by", "step:"],
        ["#", "channel", "provider's", "model", "why", "here"],
        ["1", "new", "new-model", "listed", "first"],
        ["2", "old", "old-model", "baseline,", "price", "unknown:", "last"],
    ]
    told = json.loads(CliRunner().invoke(main, ["chain", str(written(tmp_path)), "m", "--json"]).stdout)
    assert [step["channel"] for step in told["candidate"]["chain"]] == ["new", "old"]


SET = """
name = "greetings"
model = "m"
[[prompts]]
name = "hello"
prompt = "Say hello."
expect = { contains = ["hello"] }
"""


async def test_a_step_waits_for_the_report_of_a_regression_run(tmp_path: Path) -> None:
    """From the refusal over the run that shows the candidate to be well to the step, as an operator would do it."""
    upstream = FakeUpstream("u").script(steps.chat("no"), steps.chat("hello"))
    async with on_loopback(upstream):
        file, prompts, report = written(tmp_path, upstream), tmp_path / "set.toml", tmp_path / "report.json"
        file.write_text(f'{file.read_text()}require = {{ file = "{report}", set = "{prompts}" }}\n')
        prompts.write_text(SET)
        asked = ("regress", prompts, "--config", file, "--channel", "new", "--yes", "--json", report)
        async with serving(file) as served:
            await served.port()
            code, _, err = await trioproxy("rollout", "start", file, "m")
            assert (code, err) == (
                1,
                f"{file}: the next step waits: {report} cannot be read: No such file or directory\n",
            )
            assert (await trioproxy(*asked))[0] == 1
            code, _, err = await trioproxy("rollout", "start", file, "m")
            assert (code, "0.0% passed, 100.0% are required" in err) == (1, True)
            assert (await trioproxy(*asked))[0] == 0
            assert upstream.requests[-1].json["model"] == "new-model"
            code, out, _ = await trioproxy("rollout", "start", file, "m")
            assert (code, out.splitlines()[0][:20]) == (0, "m: running (by hand)")
            report.unlink()
            assert (await trioproxy("rollout", "step", file, "m"))[0] == 1
            code, out, _ = await trioproxy("rollout", "step", file, "m", "--force")
            assert (code, "by hand, by force), 50 %" in out) == (0, True)


def test_a_channel_of_both_chains_is_asked_as_the_one_that_is_meant(tmp_path: Path) -> None:
    file = written(tmp_path)
    config = parse_config(file.read_text().replace('channel = "new", model', 'channel = "old", model'), "gateway.toml")
    assert provider_models(config, "m", ("old",)) == {"old": "old-model"}
    assert provider_models(config, "m", ("old",), candidate=True) == {"old": "new-model"}
    assert "does not serve" in provider_models(config, "m", ("new",))
