"""The ways out: a webhook, posted and signed, and a command that reads standard input.

Neither shows what must not be shown: a webhook is called by its host alone, since services put their credential into the path,
and a command sees none of our environment but the few variables that programs need to run at all.
"""

import contextlib
import os
import signal
import ssl
import subprocess
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import trio
from attrs import define, field

from trioproxy.codec.signature import signature, signing_key
from trioproxy.config.model import Alerts, Sink
from trioproxy.config.secrets import sink_name
from trioproxy.errors import AttemptError, FaultKind
from trioproxy.http.client import Exchange, Origin, Upstream
from trioproxy.http.pool import Pool
from trioproxy.http.wire import Dial
from trioproxy.ops.couriers import Carrier, Miss, Parcel

# What a program needs to find others, its files and its language. Providers' keys are in the rest of it.
PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR")
GONE = 410  # the receiver wants no more (Standard Webhooks)
_WORDS = {
    FaultKind.CONNECT: "it cannot be connected to",
    FaultKind.CUT: "it closed the connection without an answer",
}


def carriers(
    alerts: Alerts, secrets: Mapping[str, str], dial: Dial, wall: Callable[[], float]
) -> list[tuple[Sink, Carrier]]:
    """Every sink's way out. `secrets` are by `sink_name`; a sink that lacks its own is `Unsigned`. Opens nothing."""
    made: list[tuple[Sink, Carrier]] = []
    for index, sink in enumerate(alerts.sinks):
        name = sink_name(index)
        if sink.url is None:
            made.append((sink, Command(f"{name} ({os.path.basename(sink.command[0])})", sink.command)))  # noqa: PTH119
            continue
        called = f"{name} ({urlsplit(sink.url).hostname})"
        secret = secrets.get(name)
        if sink.secret is not None and secret is None:
            made.append((sink, Unsigned(called)))
        else:
            key = None if secret is None else signing_key(secret)
            made.append((sink, Webhook(called, target(sink.url), _upstream(sink, sink.url, dial), wall, key)))
    return made


def target(url: str) -> str:
    """Path and query as they stand: a slash at the end is the receiver's business."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _upstream(sink: Sink, url: str, dial: Dial) -> Upstream:
    origin = Origin.from_url(url)
    tls = ssl.create_default_context(cafile=sink.ca_file) if origin.tls else None
    return Upstream(origin, dial, Pool(0.0), tls, sink.timeout)


@define(eq=False)
class Webhook:
    """Posts to one address. Any 2xx has it delivered; a redirect is not followed, so that nobody else is told."""

    name: str
    target: str = field(repr=False)
    upstream: Upstream = field(repr=False)
    wall: Callable[[], float] = field(repr=False)
    key: bytes | None = field(default=None, repr=False)

    async def deliver(self, parcel: Parcel) -> Miss | None:
        exchange = Exchange(self.upstream)
        try:
            head = await exchange.open(self._request(parcel))
        except AttemptError as exc:
            return Miss(_WORDS.get(exc.fault.kind, "its answer cannot be read"))
        finally:
            exchange.close(trio.current_time())
        if 200 <= head.status < 300:
            return None
        return Miss(f"it answered {head.status}", final=head.status == GONE)

    def _request(self, parcel: Parcel) -> bytes:
        # The time of the try, in the world's: a receiver refuses what is minutes old, and knows repetitions by the id.
        timestamp = int(self.wall())
        lines = {
            "host": self.upstream.origin.authority,
            "content-type": "application/json",
            "content-length": str(len(parcel.body)),
            "accept-encoding": "identity",
            "connection": "close",
            "user-agent": "trioproxy",
            "webhook-id": parcel.id,
            "webhook-timestamp": str(timestamp),
        }
        if self.key is not None:
            lines["webhook-signature"] = signature(self.key, parcel.id, timestamp, parcel.body)
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {self.target} HTTP/1.1\r\n{head}\r\n".encode("ascii") + parcel.body


@define(eq=False)
class Unsigned:
    """A webhook whose secret was not given: to post without a signature would teach its receiver to take that."""

    name: str

    async def deliver(self, parcel: Parcel) -> Miss | None:
        await trio.lowlevel.checkpoint()
        return Miss("its secret was not given", final=True)


@define(eq=False)
class Command:
    """Runs a program, without a shell, in a session of its own; cancelling kills it and what it has started."""

    name: str
    argv: tuple[str, ...] = field(repr=False)

    async def deliver(self, parcel: Parcel) -> Miss | None:
        try:
            done = await trio.run_process(
                list(self.argv),
                stdin=parcel.body,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                deliver_cancel=_kill,
                start_new_session=True,
                env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
            )
        except OSError as exc:
            return Miss(f"it cannot be run: {exc.strerror}")
        code = done.returncode
        return None if code == 0 else Miss(f"it ended by signal {-code}" if code < 0 else f"it ended with {code}")


async def _kill(process: trio.Process) -> None:  # noqa: ASYNC124 - Trio awaits it
    """The whole session, at once: a program that hangs does not hear a request. One that ends just now is no error."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
