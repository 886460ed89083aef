"""Where calls wait for their class's turn: each on an event of its own, woken by whoever gives capacity back.

What is decided is `policy.queueing`'s; here are the events, one alarm for what only time changes, and what is counted. Every
method but `Waiter.wait` and `WaitingRoom.due` is synchronous and belongs into a decision of the quota's family.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping

import trio
from attrs import define, field, frozen

from trioproxy.policy.classes import NO_QUEUE, QueuePolicy
from trioproxy.policy.queueing import Queues
from trioproxy.policy.tenant import TenantShare
from trioproxy.policy.tickets import Moves, Objection, Refused, State, Ticket, Why

# Holds what a call needs, all or nothing, or objects; asked whenever that may have changed.
Take = Callable[[float], Objection | None]

RECENT = 512  # waits by which percentiles are told: enough for a p95, 4 KB a class


@define(eq=False)
class Waiter:
    """One call in the room. `refused` is set where it is turned away."""

    ticket: Ticket
    refused: Refused | None = field(init=False, default=None)
    decided: trio.Event = field(init=False, factory=trio.Event)

    async def wait(self) -> None:
        """Until it is granted or refused. Cancelled, it is still in the room: `WaitingRoom.leave` must follow."""
        if self.ticket.state is State.WAITING:
            await self.decided.wait()


@define(eq=False)
class Tally:
    """What became of one class's calls so far; `waits` are the seconds of those that were granted lately."""

    granted: int = 0
    left: int = 0
    refused: Counter[Why] = field(factory=Counter)
    waits: deque[float] = field(factory=lambda: deque(maxlen=RECENT))

    def grant(self, waited: float) -> None:
        self.granted += 1
        self.waits.append(waited)


@frozen
class ClassStatistics:
    """One class's queue: `waiting` now, `granted`, `refused` (by reason) and `left` (the caller went) since the start.

    `drain` is tokens a second while there is a line, None before anything was measured. Waits are seconds, of the last few hundred
    that were granted. `tenants` tells what each of them has and what is lent.
    """

    waiting: int
    granted: int
    left: int
    refused: Mapping[str, int]
    wait_p50: float
    wait_p95: float
    wait_max: float
    drain: float | None
    tenants: tuple[TenantShare, ...]


@define(eq=False)
class WaitingRoom:
    """The queues of all classes of one process. Invariant: who is in the room waits; who is granted or refused has left it."""

    queues: Queues = field(init=False)
    _policies: Mapping[str, QueuePolicy]
    _baselines: Mapping[str, Mapping[str, float]] = field(factory=dict)
    _others: Collection[str] = ()  # the classes without a queue
    # Who has left it is not known here any more: what takes for a call is the call's own, and would make a cycle.
    _inside: dict[Ticket, tuple[Waiter, Take]] = field(init=False, factory=dict)
    _tallies: dict[str, Tally] = field(init=False)
    _wake_at: float = field(init=False, default=math.inf)
    _alarm: trio.CancelScope = field(init=False, factory=trio.CancelScope)

    def __attrs_post_init__(self) -> None:
        policies = {**self._policies, **dict.fromkeys(self._others, NO_QUEUE)}
        self.queues = Queues.from_policies(self._ask, policies, self._baselines)
        self._tallies = {name: Tally() for name in policies}

    def quiet(self, name: str) -> bool:
        """Whether a call of this class need only ask for what it needs: nobody waits, and its class has no pool."""
        return not self._inside and self.queues.lines[name].share.pool is None

    def passed(self, name: str, tenant: str, cost: int, *, weight: float, now: float) -> None:
        """A call of this class found the room quiet and went through."""
        self._tallies[name].grant(0.0)
        self.queues.lines[name].share.passed(tenant, cost, weight, now)

    def enter(self, waiter: Waiter, take: Take, now: float) -> None:
        """Grant it now, let it wait, or refuse it. Once granted, `settle` or `leave` must follow; while it waits, `leave`."""
        self._inside[waiter.ticket] = waiter, take
        self._carry(self.queues.offer(waiter.ticket, now))

    def leave(self, waiter: Waiter, now: float) -> None:
        """It is gone, in whatever state, and has used nothing; what it held was given back before."""
        if self._inside.pop(waiter.ticket, None) is not None:
            self._tallies[waiter.ticket.traffic_class].left += 1
        self._carry(self.queues.withdraw(waiter.ticket, now))

    def settle(self, waiter: Waiter, tokens: int, now: float) -> None:
        """A granted one is gone and has used so much; what it held was given back before."""
        self._carry(self.queues.settle(waiter.ticket, tokens, now))

    def pump(self, now: float, tenant: str | None = None) -> None:
        """Something was given back, of a `tenant`'s own where it is named, or a channel's state has changed."""
        if self._inside:
            self._carry(self.queues.pump(now, tenant))

    async def due(self) -> None:
        """Until time alone may have changed something, so that `pump` is to be called. For one task."""
        with trio.CancelScope(deadline=self._wake_at) as self._alarm:
            await trio.sleep_forever()
        self._wake_at = math.inf

    def depths(self) -> dict[str, int]:
        """How many wait in each class, where anybody does."""
        return {name: count for name, line in self.queues.lines.items() if (count := line.share.waiting)}

    def statistics(self, now: float) -> dict[str, ClassStatistics]:
        told = {}
        for name, line in self.queues.statistics(now).items():
            if name in self._others:
                continue
            tally = self._tallies[name]
            waits = sorted(tally.waits) or [0.0]
            told[name] = ClassStatistics(
                waiting=line.waiting,
                granted=tally.granted,
                left=tally.left,
                refused={why.value: count for why, count in tally.refused.items()},
                wait_p50=waits[len(waits) // 2],
                wait_p95=waits[len(waits) * 95 // 100],
                wait_max=waits[-1],
                drain=line.drain,
                tenants=line.tenants,
            )
        return told

    def _ask(self, ticket: Ticket, now: float) -> Objection | None:
        return self._inside[ticket][1](now)

    def _carry(self, moves: Moves) -> None:
        for ticket in moves.granted:
            self._tallies[ticket.traffic_class].grant(ticket.waited)
            self._inside.pop(ticket)[0].decided.set()
        for refused in moves.refused:
            self._tallies[refused.ticket.traffic_class].refused[refused.why] += 1
            waiter = self._inside.pop(refused.ticket)[0]
            waiter.refused = refused
            waiter.decided.set()
        if moves.wake_at != self._wake_at:
            self._wake_at = self._alarm.deadline = moves.wake_at
