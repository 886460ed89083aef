"""An outage in virtual time: traffic, a provider that dies and comes back, and what was seen minute by minute.

Parts that can be put together: `traffic` runs beside whatever happens to the provider, `strike` and `heal` happen to it, and a
`Log` tells afterwards who answered whom and how long that took.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import cycle

import trio
from attrs import define, field, frozen

from tests.acceptance.asking import ask
from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step
from tests.scene import Scene
from trioproxy.journal import BreakerMoved, ExchangeEnded, ProbeRan

MINUTE = 60.0
WAIT = 8.0  # seconds that a call waits for headers


@frozen
class Told:
    """One call: when it began, who answered, how long its caller waited."""

    at: float
    status: int
    channel: str
    took: float


@define(eq=False)
class Log:
    """Everything that happened, to be read afterwards. Times are seconds since the scene began."""

    s: Scene
    calls: list[Told] = field(init=False, factory=list)

    def minutes(self, channel: str) -> list[int]:
        """Answers of one channel by the minute in which they were asked for."""
        counted = Counter(int(call.at // MINUTE) for call in self.calls if call.channel == channel)
        return [counted[minute] for minute in range(1 + max(int(call.at // MINUTE) for call in self.calls))]

    def moves(self, channel: str = "a") -> list[tuple[str, float]]:
        moved = (event for event in self.s.events if isinstance(event, BreakerMoved))
        return [(event.state, event.now) for event in moved if event.channel == channel]

    def probes(self, channel: str = "a") -> list[ProbeRan]:
        return [event for event in self.s.events if isinstance(event, ProbeRan) and event.channel == channel]

    def first_failure(self, channel: str = "a") -> float:
        """When the first attempt at a channel had failed."""
        ended = (event for event in self.s.events if isinstance(event, ExchangeEnded))
        attempts = (attempt for event in ended for attempt in event.attempts)
        return min(each.started + each.duration for each in attempts if each.channel == channel and each.fault)

    def asked(self, channel: str = "a") -> list[float]:
        """When calls reached a channel, health checks apart."""
        requests = self.s.upstreams[channel].requests
        return [request.arrived for request in requests if "max_tokens" not in request.json]

    def cost(self, channel: str) -> int:
        """Micro-USD of calls that a channel answered."""
        ended = (event for event in self.s.events if isinstance(event, ExchangeEnded) and not event.attempts[-1].fault)
        return sum(event.cost or 0 for event in ended if event.attempts[-1].channel == channel)


async def traffic(log: Log, until: float, every: float, sessions: Sequence[str] = ()) -> None:
    """A call every so often, whatever becomes of those before; returns when the last one is answered. `sessions` take turns."""
    turns = cycle([[("x-trioproxy-session", session)] for session in sessions] or [[]])

    async def one(headers: Sequence[tuple[str, str]]) -> None:
        at = trio.current_time()
        said = await ask(log.s, streamed=False, headers=headers)
        log.calls.append(Told(at, said.status, said.headers.get("x-trioproxy-channel", ""), said.took))

    async with trio.open_nursery() as nursery:
        while trio.current_time() < until:
            nursery.start_soon(one, next(turns))
            await trio.sleep(every)


async def strike(s: Scene, at: float) -> None:
    """From then on A takes every request and says nothing."""
    await trio.sleep(at - trio.current_time())
    s.a.script(steps.silence())


async def heal(s: Scene, at: float, step: Step | None = None) -> None:
    """From then on A answers."""
    await trio.sleep(at - trio.current_time())
    s.a.script(step or steps.chat("from a"))


def answer(text: str, *, cached: int, seconds: float) -> Step:
    """20 tokens of prompt, of which some were cached, and 3 of answer, after some time."""

    async def step(x: Exchange) -> None:
        await trio.sleep(seconds)
        usage = {**steps.usage_json((20, 3)), "prompt_tokens_details": {"cached_tokens": cached}}
        await x.reply(200, {**steps.completion(text), "usage": usage})

    return step
