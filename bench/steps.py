"""How often Trio runs a task for one call: steps, checkpoints and tasks, counted by an instrument and not by the clock.

A step is one run of a task from where it was woken to where it yields or ends; a checkpoint is a yield, so a task that ends has one
step more than checkpoints. The figures do not depend on how fast the machine is: where one grows, somebody added a wait.
Provider and client run in the same loop and are counted apart; what is left is the gateway.
"""

import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from time import time

import trio
from attrs import define, field, frozen
from trio.lowlevel import Task
from trio.testing import wait_all_tasks_blocked

from trioproxy import Request, open_gateway, parse_config
from trioproxy.doors.data import DataDoor
from trioproxy.gateway import Gateway
from trioproxy.sim.upstream import Manner, ScriptedUpstream

WARM = 5  # calls before counting: connections are there, caches are filled
PATH = "/v1/chat/completions"
REST = "gateway"  # the group of every task that belongs to no other
CONFIG = """
[listen]
data = "127.0.0.1:0"
[[channels]]
name = "provider"
base_url = "http://127.0.0.1:{port}/v1"
auth = "none"
[[models]]
name = "m"
channels = [{{ channel = "provider", model = "m" }}]
"""
Ask = Callable[[], Awaitable[None]]


@define
class Count:
    """What one group of tasks did."""

    steps: int = 0
    spawned: int = 0
    ended: int = 0

    @property
    def checkpoints(self) -> int:
        return self.steps - self.ended


@define(eq=False)
class StepCounter(trio.abc.Instrument):
    """Counts by group. A task is of the group that `roots` has for its name, else of its parent's."""

    roots: dict[str, str] = field(factory=dict)
    counts: dict[str, Count] = field(init=False, factory=dict)
    polls: int = field(init=False, default=0)  # rounds of the loop: each asks the kernel once
    _groups: dict[Task, str] = field(init=False, factory=dict)

    def of(self, group: str) -> Count:
        return self.counts.setdefault(group, Count())

    def reset(self) -> None:
        """Count anew; which task is of which group stays known."""
        self.counts.clear()
        self.polls = 0

    def task_spawned(self, task: Task) -> None:
        parent = None if task.parent_nursery is None else task.parent_nursery.parent_task
        inherited = REST if parent is None else self._groups.get(parent, REST)
        group = self._groups[task] = self.roots.get(task.name, inherited)
        self.of(group).spawned += 1

    def before_task_step(self, task: Task) -> None:
        self.of(self._groups.get(task, REST)).steps += 1

    def task_exited(self, task: Task) -> None:
        self.of(self._groups.pop(task, REST)).ended += 1

    def before_io_wait(self, timeout: float) -> None:
        self.polls += 1


@frozen
class Row:
    """One way to call, per call: of the gateway alone, but for `polls`, which all share."""

    name: str
    steps: float
    checkpoints: float
    spawned: float
    polls: float


def table(rows: list[Row]) -> str:
    """The rows as lines of text."""
    heads = f"{'per call':<18}{'steps':>8}{'checkpoints':>13}{'tasks':>8}{'polls':>8}"
    lines = (f"{r.name:<18}{r.steps:>8.1f}{r.checkpoints:>13.1f}{r.spawned:>8.1f}{r.polls:>8.1f}" for r in rows)
    return "\n".join((heads, *lines))


async def measure(calls: int) -> list[Row]:
    """Each way to call, `calls` times one after the other."""
    counter = StepCounter(
        {f"{__name__}.{task.__name__}": group for task, group in ((provide, "provider"), (call, "client"))}
    )
    counting = Counting(counter, calls)
    async with trio.open_nursery() as nursery:
        trio.lowlevel.add_instrument(counter)
        config = parse_config(CONFIG.format(port=await nursery.start(provide)), "steps")
        async with open_gateway(config) as gateway:
            for stream in (False, True):
                name = "stream" if stream else "unary"
                await counting.run(f"{name}, embedded", partial(embedded, gateway, stream=stream))
                async with trio.open_nursery() as doors:
                    (address, *_) = await doors.start(DataDoor(gateway, config.listen, time, raised).run)
                    async with trio.open_nursery() as clients:
                        clients.start_soon(
                            call, counting, f"{name}, by the door", int(address.rpartition(":")[2]), stream
                        )
                    doors.cancel_scope.cancel("counted")
        trio.lowlevel.remove_instrument(counter)
        nursery.cancel_scope.cancel("measured")
    return counting.rows


@define(eq=False)
class Counting:
    """Asks often enough to warm up, and then so often that one is worth counting."""

    counter: StepCounter
    calls: int
    rows: list[Row] = field(init=False, factory=list)

    async def run(self, name: str, ask: Ask) -> None:
        """Add the row called `name`. It is taken before anything is put away, which is no part of a call."""
        for _ in range(WARM):
            await ask()
        await wait_all_tasks_blocked()
        self.counter.reset()
        for _ in range(self.calls):
            await ask()
        count = self.counter.of(REST)
        figures = (count.steps, count.checkpoints, count.spawned, self.counter.polls)
        self.rows.append(Row(name, *(figure / self.calls for figure in figures)))


async def provide(*, task_status: trio.TaskStatus[int]) -> None:
    """The provider's tasks."""
    await ScriptedUpstream("provider", ("m",), Manner(first=0, every=0)).run(task_status=task_status)


async def embedded(gateway: Gateway, *, stream: bool) -> None:
    """One call without a socket in between; the caller's own steps are the gateway's, whose line runs in them."""
    async with gateway.dispatch(Request.post(PATH, question(stream=stream))) as answer:
        assert answer.status == 200
        await answer.read()


async def call(counting: Counting, name: str, port: int, stream: bool) -> None:
    """The client's task: every call on one connection."""
    body = json.dumps(question(stream=stream)).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    async with await trio.open_tcp_stream("127.0.0.1", port) as connection:
        await counting.run(name, partial(ask_by, connection, head.encode() + body))


async def ask_by(connection: trio.SocketStream, request: bytes) -> None:
    """One request and its whole reply."""
    await connection.send_all(request)
    reply = b""
    while not whole(reply):
        data = await connection.receive_some()
        assert data, reply
        reply += data
    assert reply.startswith(b"HTTP/1.1 200 "), reply


def whole(reply: bytes) -> bool:
    """Whether a reply of a known length, or a chunked one, has come to its end."""
    head, found, body = reply.partition(b"\r\n\r\n")
    if not found:
        return False
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")


def question(*, stream: bool) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": stream}


def raised(bug: Exception) -> None:
    """A door's bugs are this command's."""
    raise bug
