"""`trioproxy demo`: what it prints works when pasted, a broken upstream is failed over, Ctrl-C ends it."""

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from click.testing import CliRunner

from tests.fakes.client import Client, Reply
from trioproxy.cli.demo import CAST, MODEL, command, commands, configuration, introduce
from trioproxy.config.lint import warnings
from trioproxy.http.wire import dial

PORTS = {"thrifty": 1001, "steady": 1002, "premium": 1003}


def test_its_configuration_is_one_that_nothing_can_be_said_against() -> None:
    config = configuration(8787, "json", PORTS)
    assert warnings(config) == []
    assert config.log.format == "json"
    assert [channel.base_url for channel in config.channels] == [
        f"http://127.0.0.1:{port}/v1" for port in PORTS.values()
    ]


def test_the_cheapest_comes_first_and_prices_differ() -> None:
    prices = [member.input + member.output for member in CAST]
    assert prices == sorted(set(prices))


def test_the_printed_commands_are_whole_lines_with_valid_json(capsys: pytest.CaptureFixture[str]) -> None:
    introduce("127.0.0.1:8787", PORTS)
    printed = capsys.readouterr().out
    for line in (line for lines in commands("127.0.0.1:8787", PORTS).values() for line in lines):
        assert f"  {line}\n" in printed
    bodies = [json.loads(shlex.split(line)[-1]) for line in printed.splitlines() if " -d " in line]
    assert [body.get("stream") for body in bodies] == [None, True]
    assert {body["model"] for body in bodies} == {MODEL}


def test_an_impossible_port_is_refused() -> None:
    result = CliRunner().invoke(command, ["--port", "99999"])
    assert result.exit_code == 2
    assert "99999" in result.output


@asynccontextmanager
async def demo(port: int = 0) -> AsyncGenerator[trio.Process]:
    """The real thing in its own process."""
    arguments = [sys.executable, "-m", "trioproxy", "demo", "--port", str(port), "--log", "json"]
    process = await trio.lowlevel.open_process(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            await process.wait()
            assert process.stdout is not None
            await process.stdout.aclose()


async def read_until(process: trio.Process, words: bytes) -> str:
    assert process.stdout is not None
    text = b""
    while words not in text:
        data = await process.stdout.receive_some()
        assert data, f"ended before {words!r}: {text!r}"
        text += data
    return text.decode()


async def send(port: int, path: str, body: object) -> Reply:
    wire = await dial("127.0.0.1", port, None)
    try:
        return await Client(wire, host=f"127.0.0.1:{port}").post(path, body)
    finally:
        wire.close()


async def test_a_broken_upstream_is_failed_over_and_ctrl_c_ends_it_cleanly() -> None:
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    async with demo() as process:
        shown = await read_until(process, b"Ctrl-C")
        found = re.search(r"http://127\.0\.0\.1:(\d+)", shown)
        broken = re.search(r"thrifty.*127\.0\.0\.1:(\d+)", shown)
        assert found
        assert broken
        port = int(found[1])
        healthy = await send(port, "/v1/chat/completions", chat)
        assert "thrifty" in healthy.json["choices"][0]["message"]["content"]
        await send(int(broken[1]), "/break?mode=503&for=30", b"")
        saved = await send(port, "/v1/chat/completions", chat)
        assert saved.status == 200
        assert "steady" in saved.json["choices"][0]["message"]["content"]
        process.send_signal(signal.SIGINT)
        await read_until(process, b"steady")
        assert await process.wait() == 0


async def test_a_port_in_use_is_said_in_one_sentence() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        port = listener.socket.getsockname()[1]
        async with demo(port) as process:
            shown = await read_until(process, b"--port 0")
            assert f"127.0.0.1:{port}" in shown
            assert "Traceback" not in shown
            assert await process.wait() == 1
