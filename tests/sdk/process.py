"""`trioproxy` as a process of its own on loopback, for clients that know nothing of this project."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from attrs import define

BOUND = 15  # seconds for a start, and for an end


@define(eq=False)
class Running:
    """A gateway that serves at `address`; `shown` is what it printed until then, `upstreams` the demo's by their ports."""

    process: "subprocess.Popen[str]"
    address: str
    shown: str
    upstreams: dict[str, int]

    @property
    def base_url(self) -> str:
        return f"http://{self.address}/v1"

    def break_down(self, mode: str, *names: str) -> None:
        """Order these upstreams, or all, into a mode; "ok" mends."""
        for name in names or self.upstreams:
            assert _ask("POST", self.upstreams[name], f"/break?mode={mode}")["mode"] == mode

    def calls(self) -> dict[str, int]:
        """Chat calls that each upstream has had."""
        return {name: _ask("GET", port, "/")["calls"] for name, port in self.upstreams.items()}

    def end(self) -> list[dict[str, Any]]:
        """Drain it, and give the exchanges of its log."""
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=BOUND)
        assert self.process.returncode == 0, out
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == "exchange"]


@contextmanager
def running(*arguments: str, until: str = r"Ctrl-C") -> Generator[Running]:
    """Run `trioproxy ARGUMENTS` until the block ends. It serves once a line matches `until`."""
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "trioproxy", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    guard = threading.Timer(BOUND, process.kill)
    guard.start()
    try:
        assert process.stdout is not None
        shown = ""
        while not re.search(until, shown):
            line = process.stdout.readline()
            assert line, f"it ended before {until!r}: {shown}"
            shown += line
        guard.cancel()
        first = re.search(r"127\.0\.0\.1:\d+", re.sub(r"(?m)^.* {2}127\.0\.0\.1:\d+ *$", "", shown))
        assert first, shown
        upstreams = {name: int(port) for name, port in re.findall(r"(?m)^ *(\w+) .* 127\.0\.0\.1:(\d+) *$", shown)}
        yield Running(process, first[0], shown, upstreams)
    finally:
        guard.cancel()
        process.kill()
        process.communicate(timeout=BOUND)


def demo() -> AbstractContextManager[Running]:
    """`trioproxy demo` on free ports."""
    return running("demo", "--port", "0", "--log", "json")


def _ask(method: str, port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND)
    try:
        connection.request(method, path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()
