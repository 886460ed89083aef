"""The exam's client: asks once over a fresh connection and keeps all that it was told, whole or not."""

import functools
import json
from collections.abc import Callable
from typing import Any

import h11
import trio
from attrs import define, field, frozen

from bench.exam.speech import DONE, Json
from bench.workload import Endpoint

READ_SIZE = 65_536
ASKED = "Count to sixty, please."


@frozen
class Outcome:
    """One answer as its client has it. `status` None: not even a head came; `trouble` says how it ended when it ended badly."""

    status: int | None
    headers: dict[str, str] = field(factory=dict)
    raw: bytes = b""
    trouble: str = ""
    began: float = 0.0
    took: float = 0.0

    @property
    def streamed(self) -> bool:
        """Whether the answer calls itself an event stream."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @functools.cached_property
    def payloads(self) -> list[Json]:
        """Every JSON object in it; what is no JSON is left out."""
        lines = [line[5:] for line in self.raw.splitlines() if line.startswith(b"data:")]
        return [found for found in map(read, lines if self.streamed else [self.raw]) if isinstance(found, dict)]

    @property
    def choices(self) -> list[Json]:
        """Every choice of every payload."""
        return [choice for payload in self.payloads for choice in payload.get("choices") or []]

    @property
    def text(self) -> str:
        """All the content."""
        parts = [choice.get("delta") or choice.get("message") or {} for choice in self.choices]
        return "".join(part.get("content") or "" for part in parts)

    @property
    def finishes(self) -> list[str]:
        """The finish reasons."""
        return [choice["finish_reason"] for choice in self.choices if choice.get("finish_reason")]

    @property
    def dones(self) -> int:
        """How many ends of stream."""
        return self.raw.count(DONE.strip())

    @property
    def error(self) -> str | None:
        """What an error in it says, as far as it says anything."""
        found = [payload["error"] for payload in self.payloads if payload.get("error")]
        if not found:
            return None
        return str(found[0].get("message") or found[0]) if isinstance(found[0], dict) else str(found[0])

    @property
    def usage(self) -> Json | None:
        """The usage that it reports, the last if there are several."""
        found: list[Json] = [payload["usage"] for payload in self.payloads if payload.get("usage")]
        return found[-1] if found else None

    @property
    def models(self) -> set[str]:
        """The models that it says have answered."""
        return {str(payload["model"]) for payload in self.payloads if payload.get("model")}


def read(data: bytes) -> Any:
    """The JSON, or None where it is none."""
    try:
        return json.loads(data)
    except ValueError:
        return None


@define(eq=False)
class Caller:
    """Asks one endpoint in one form. `patience`: seconds until a call is given up."""

    endpoint: Endpoint
    streamed: bool
    patience: float
    headers: dict[str, str] = field(factory=dict)

    async def ask(self) -> Outcome:
        """One call, read to its end or to the end of patience. Never raises for what the target does."""
        heard = Hearing()
        began, trouble = trio.current_time(), ""
        with trio.move_on_after(self.patience) as scope:
            try:
                await self.converse(heard)
            except (trio.BrokenResourceError, OSError):
                trouble = "connection reset"
            except h11.RemoteProtocolError:
                trouble = "connection cut"
        if scope.cancelled_caught:
            trouble = f"nothing more in {self.patience:.1f} s"
        took = trio.current_time() - began
        return Outcome(heard.status, heard.headers, bytes(heard.raw), trouble, began, took)

    async def converse(self, heard: "Hearing") -> None:
        """Send the request and hear the answer out."""
        connection = h11.Connection(h11.CLIENT)
        async with await trio.open_tcp_stream(self.endpoint.host, self.endpoint.port) as stream:
            await stream.send_all(self.request(connection.send))
            while not heard.whole:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some(READ_SIZE))
                else:
                    heard.note(event)

    def request(self, send: Callable[[h11.Event], bytes | None]) -> bytes:
        """The request's bytes."""
        said: Json = {"model": self.endpoint.model or "m", "messages": [{"role": "user", "content": ASKED}]}
        if self.streamed:
            said |= {"stream": True, "stream_options": {"include_usage": True}}
        body = json.dumps(said).encode()
        headers = {
            "host": f"{self.endpoint.host}:{self.endpoint.port}",
            "content-type": "application/json",
            "content-length": str(len(body)),
            "authorization": f"Bearer {self.endpoint.key}",
            "connection": "close",
        }
        head = h11.Request(
            method="POST",
            target=self.endpoint.path,
            headers=list((headers | dict(self.endpoint.headers) | self.headers).items()),
        )
        return b"".join(send(event) or b"" for event in (head, h11.Data(data=body), h11.EndOfMessage()))


@define(eq=False)
class Hearing:
    """What has been heard so far."""

    status: int | None = None
    headers: dict[str, str] = field(factory=dict)
    raw: bytearray = field(factory=bytearray)
    whole: bool = False

    def note(self, event: object) -> None:
        """Take one more event of the answer."""
        if isinstance(event, h11.Response):
            self.status = event.status_code
            self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            self.raw += event.data
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            self.whole = True
