"""`trioproxy serve` in its own process: what signals do, and what is said when it cannot start."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import define, field

from tests.fakes import steps
from tests.fakes.client import Client, Stream
from tests.fakes.upstream import Exchange, FakeUpstream, on_loopback
from tests.scene import CHAT, PROMPT
from trioproxy.http.wire import dial

STREAM = {**PROMPT, "stream": True}
SOON = 10.0  # seconds of real time, far under the drain's thirty


@define(eq=False)
class Served:
    """The process and the JSON lines of its log so far."""

    process: trio.Process
    lines: list[dict[str, object]] = field(init=False, factory=list)
    _text: bytes = field(init=False, default=b"")

    async def line(self, event: str) -> dict[str, object]:
        """The next log line about this."""
        assert self.process.stdout is not None
        while True:
            for line in self.lines:
                if line["event"] == event:
                    return line
            data = await self.process.stdout.receive_some()
            assert data, f"ended before {event!r}: {self.lines}"
            *whole, self._text = (self._text + data).split(b"\n")
            self.lines += [json.loads(line) for line in whole]

    async def port(self) -> int:
        addresses = (await self.line("listening"))["addresses"]
        assert isinstance(addresses, list)
        return int(addresses[0].rpartition(":")[2])


@asynccontextmanager
async def serving(file: Path) -> AsyncGenerator[Served]:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "trioproxy", "serve", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield Served(process)
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            await process.wait()
            assert process.stdout is not None
            assert process.stderr is not None
            await process.stdout.aclose()
            await process.stderr.aclose()


def written(folder: Path, upstream: FakeUpstream, listen: str = "127.0.0.1:0") -> Path:
    file = folder / "gateway.toml"
    file.write_text(f"""
[listen]
data = "{listen}"
[log]
format = "json"
[[channels]]
name = "a"
base_url = "{upstream.base_url}"
auth = "none"
[[models]]
name = "m"
channels = [ {{ channel = "a", model = "m" }} ]
""")
    return file


@asynccontextmanager
async def begun(port: int) -> AsyncGenerator[Stream]:
    """A stream of which the first frame is there."""
    client = Client(await dial("127.0.0.1", port, None))
    try:
        stream = await client.stream(CHAT, STREAM)
        await stream.frame()
        yield stream
    finally:
        client.close()


async def closed(port: int) -> None:
    """Wait until nobody listens there any more: the listener closes with the log line, or a moment after it."""
    with contextlib.suppress(OSError), trio.fail_after(SOON):
        while True:
            (await dial("127.0.0.1", port, None)).close()


async def error_text(process: trio.Process) -> str:
    assert process.stderr is not None
    text = b""
    while data := await process.stderr.receive_some():
        text += data
    return text.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_lets_open_answers_end_and_takes_no_more(number: signal.Signals, tmp_path: Path) -> None:
    go_on = trio.Event()

    async def step(x: Exchange) -> None:
        await x.start()
        await x.write(steps.delta("before"))
        await go_on.wait()
        for frame in (steps.delta(" and after"), steps.delta(finish="stop"), steps.DONE):
            await x.write(frame)
        await x.end()

    upstream = FakeUpstream("a").script(step)
    async with on_loopback(upstream), serving(written(tmp_path, upstream)) as served:
        port = await served.port()
        async with begun(port) as stream:
            served.process.send_signal(number)
            assert (await served.line("draining"))["signal"] == number.name
            await closed(port)
            go_on.set()
            await stream.rest()
        assert (stream.text(), stream.complete) == ("before and after", True)
        with trio.fail_after(SOON):
            assert await served.process.wait() == 0
        assert (await served.line("exchange"))["reason"] == "answered"
        assert "Traceback" not in await error_text(served.process)


async def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    upstream = FakeUpstream("a").script(steps.chat_stream(["for ever"], end="hang"))
    async with on_loopback(upstream), serving(written(tmp_path, upstream)) as served:
        async with begun(await served.port()) as stream:
            with trio.fail_after(SOON):
                served.process.send_signal(signal.SIGINT)
                await served.line("draining")
                served.process.send_signal(signal.SIGINT)
                assert await served.process.wait() == 0
            assert (await served.line("exchange"))["reason"] == "drained"
            await stream.rest()
        assert stream.complete is False
        assert "Traceback" not in await error_text(served.process)


async def test_a_port_in_use_is_said_in_one_sentence(tmp_path: Path) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        async with serving(written(tmp_path, FakeUpstream("a"), address)) as served:
            said = await error_text(served.process)
            assert await served.process.wait() == 1
        assert address in said
        assert "in use" in said
        assert len(said.strip().splitlines()) == 1
