"""One call in either form, with all that its client was told and when."""

import json
from typing import Any

import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from tests.fakes.upstream import Headers
from tests.scene import Scene


@frozen
class Said:
    """An answer as its client has it. `took` is virtual seconds from the request to the last byte, to the microsecond."""

    status: int
    text: str
    headers: dict[str, str]
    body: bytes
    took: float
    complete: bool

    @property
    def error(self) -> Any:
        """The dialect's error object; the answer must be JSON and nothing else."""
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)["error"]


async def ask(s: Scene, *, streamed: bool, headers: Headers = (), **fields: object) -> Said:
    """Ask, read to the end, and let the gateway make its account of it; that takes no virtual time."""
    said = await _ask(s, streamed=streamed, headers=headers, **fields)
    await wait_all_tasks_blocked()
    return said


async def _ask(s: Scene, *, streamed: bool, headers: Headers, **fields: object) -> Said:
    began = trio.current_time()
    if streamed:
        stream = await s.stream(headers=headers, **fields)
        text, head, body, whole = stream.text(), stream.headers, stream.raw, stream.complete is True
        return Said(stream.status, text, head, body, _since(began), whole)
    reply = await s.post(headers=headers, **fields)
    said = reply.json["choices"][0]["message"]["content"] if reply.status == 200 else ""
    return Said(reply.status, said, reply.headers, reply.body, _since(began), reply.complete)


def _since(began: float) -> float:
    return round(trio.current_time() - began, 6)
