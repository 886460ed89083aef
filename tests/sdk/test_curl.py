"""curl, with the very commands that `trioproxy demo` prints. Where there is no curl there is nothing to test with it."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.sdk.process import Running, demo

CURL = shutil.which("curl")


@pytest.fixture(scope="module")
def gateway() -> Generator[Running]:
    with demo() as running_demo:
        yield running_demo


def run(command: str) -> str:
    arguments = shlex.split(command)
    assert arguments.pop(0) == "curl"
    assert CURL is not None
    done = subprocess.run(  # noqa: S603 - what we print ourselves
        [CURL, "--silent", "--show-error", "--max-time", "15", "--fail-with-body", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=18,
    )
    assert done.returncode == 0, done
    return done.stdout


def asked(shown: str) -> list[str]:
    """The commands under "Ask", up to the first about breaking."""
    return re.findall(r"(?m)^ +(curl (?!-X).*?) *$", shown)


if CURL is not None:

    def test_the_printed_commands_work_when_pasted(gateway: Running) -> None:
        whole, streamed, models, health = map(run, asked(gateway.shown))
        assert "You said: Hello" in json.loads(whole)["choices"][0]["message"]["content"]
        frames = [line.removeprefix("data: ") for line in streamed.split("\n") if line]
        assert frames.pop() == "[DONE]"
        text = "".join(json.loads(frame)["choices"][0]["delta"].get("content") or "" for frame in frames)
        assert "You said: Hello" in text
        assert json.loads(models)["data"][0]["id"] == "demo-model"
        assert json.loads(health) == {"status": "alive"}

    def test_a_stream_comes_in_pieces_and_ends_cleanly(gateway: Running, tmp_path: Path) -> None:
        """`--fail-with-body` and the exit code say that the chunked body was whole."""
        heads = tmp_path / "heads"
        body = '{"model":"demo-model","messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":4}'
        url = f"http://{gateway.address}/v1/chat/completions"
        shown = run(f"curl -N -D {heads} {url} -H 'content-type: application/json' -d '{body}'")
        assert shown.count("data: ") > 4
        lines = heads.read_text().lower()
        assert lines.startswith("http/1.1 200")
        assert "content-type: text/event-stream" in lines
        assert "x-trioproxy-channel: " in lines
