"""Classes with queues, calls that wait in them, and what became of each: the vocabulary of the queue's cases."""

from typing import Any

import trio
from attrs import define, field

from tests.fakes.client import Reply
from tests.fakes.upstream import Headers
from tests.scene import Scene
from trioproxy.waiting_room import ClassStatistics

ONE = "[organization]\nlimits = { concurrency = 1 }\n"


def of_class(name: str, *more: tuple[str, str]) -> Headers:
    return [("x-trioproxy-class", name), *more]


def queue_ms(reply: Reply) -> float:
    return float(reply.headers["x-trioproxy-queue-ms"])


def line(s: Scene, name: str) -> ClassStatistics:
    return s.gateway.queues()[name]


@define(eq=False)
class Crowd:
    """Calls at once. `replies` has each one's answer by its name, `when` the moment it came, `order` the names as they came."""

    s: Scene
    nursery: trio.Nursery
    replies: dict[str, Reply] = field(factory=dict)
    when: dict[str, float] = field(factory=dict)
    order: list[str] = field(factory=list)
    origin: float = field(factory=trio.current_time)

    def send(self, name: str, headers: Headers = (), **fields: Any) -> None:
        self.nursery.start_soon(self._send, name, headers, fields)

    async def _send(self, name: str, headers: Headers, fields: dict[str, Any]) -> None:
        self.replies[name] = await self.s.post(headers=headers, **fields)
        self.when[name] = trio.current_time() - self.origin
        self.order.append(name)

    def statuses(self) -> dict[str, int]:
        return {name: reply.status for name, reply in self.replies.items()}
