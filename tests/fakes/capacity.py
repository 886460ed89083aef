"""A capacity of buckets and slots, and a clockwork that runs a line of tickets against it in virtual time."""

import heapq
import math
from collections.abc import Callable, Container, Hashable, Iterable

from attrs import define, field

from trioproxy.policy.queueing import Queues
from trioproxy.policy.tickets import Moves, Objection, Refused, State, Ticket


@define
class Tank:
    """Whole tokens that come in at `rate` a second, up to `burst`."""

    rate: float
    burst: float
    level: float
    at: float = 0.0

    def refill(self, now: float) -> None:
        self.level = min(self.burst, self.level + self.rate * (now - self.at))
        self.at = now


@define(eq=False)
class FakeCapacity:
    """Scopes named in `own` are of one tenant alone. Scopes named in `tanks` ask for the ticket's cost, scopes named in `slots` for one place. Others are free."""

    tanks: dict[Hashable, Tank] = field(factory=dict)
    slots: dict[Hashable, int] = field(factory=dict)
    held: dict[Hashable, int] = field(factory=dict)
    own: Container[Hashable] = ()
    asked: int = 0

    def peek(self, ticket: Ticket, now: float) -> Objection | None:
        for scope in ticket.scopes:
            if scope in self.slots and self.held.get(scope, 0) >= self.slots[scope]:
                return Objection(scope, None, own=scope in self.own)
            if tank := self.tanks.get(scope):
                tank.refill(now)
                if tank.level + 1e-6 < min(ticket.cost, tank.burst):
                    wait = (min(ticket.cost, tank.burst) - tank.level) / tank.rate if tank.rate else math.inf
                    return Objection(scope, wait, own=scope in self.own)
        return None

    def lacking(self, ticket: Ticket, now: float) -> set[Hashable]:
        """Every scope that would object, not only the first."""
        alone = {scope: Ticket(ticket.traffic_class, ticket.tenant, ticket.cost, (scope,)) for scope in ticket.scopes}
        return {scope for scope, each in alone.items() if self.peek(each, now) is not None}

    def fits_in(self, ticket: Ticket, now: float) -> float | None:
        """Seconds until all its buckets have enough; None while a slot is wanted, whose time nobody knows."""
        if any(scope in self.slots and self.held.get(scope, 0) >= self.slots[scope] for scope in ticket.scopes):
            return None
        waits = [0.0]
        for tank in filter(None, map(self.tanks.get, ticket.scopes)):
            tank.refill(now)
            lacking = min(ticket.cost, tank.burst) - tank.level
            waits.append(lacking / tank.rate if tank.rate else math.inf if lacking > 0 else 0.0)
        return max(waits)

    def __call__(self, ticket: Ticket, now: float) -> Objection | None:
        self.asked += 1
        objection = self.peek(ticket, now)
        if objection is None:
            self._move(ticket, ticket.cost, 1)
        return objection

    def give_back(self, ticket: Ticket, tokens: int) -> None:
        """What a granted ticket held and did not use; its slots in any case."""
        self._move(ticket, -tokens, -1)

    def _move(self, ticket: Ticket, tokens: int, places: int) -> None:
        for scope in ticket.scopes:
            if scope in self.slots:
                self.held[scope] = self.held.get(scope, 0) + places
            if tank := self.tanks.get(scope):
                tank.level = min(tank.burst, tank.level - tokens)


@define(eq=False)
class Clockwork:
    """Runs arrivals against `queues`, wakes them when they ask for it, and ends each call `seconds(ticket)` after its grant."""

    queues: Queues
    capacity: FakeCapacity
    seconds: Callable[[Ticket], float] = lambda _: 0.0
    now: float = 0.0
    granted: list[Ticket] = field(factory=list)
    refused: list[tuple[float, Refused]] = field(factory=list)
    wakes: int = 0
    peak: int = 0
    _events: list[tuple[float, int, Callable[[float], Moves]]] = field(factory=list)
    _count: int = 0

    def at(self, when: float, action: Callable[[float], Moves]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, action))

    def arrive(self, when: float, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            self.at(when, lambda now, ticket=ticket: self.queues.offer(ticket, now))  # type: ignore[misc]

    def run(self, until: float = math.inf) -> None:
        """Everything up to `until`, or until nothing is left that could happen."""
        wake_at = self._take(self.queues.pump(self.now))
        while True:
            upcoming = self._events[0][0] if self._events else math.inf
            when = min(upcoming, wake_at)
            if when > until or when == math.inf:
                self.now = self.now if until == math.inf else until
                return
            self.now = when
            if wake_at < upcoming:
                self.wakes += 1
                wake_at = self._take(self.queues.pump(when))
            else:
                wake_at = self._take(heapq.heappop(self._events)[2](when))
            self.peak = max(self.peak, self.queues.waiting)

    def _take(self, moves: Moves) -> float:
        for ticket in moves.granted:
            assert ticket.state is State.GRANTED
            self.granted.append(ticket)
            self.at(self.now + self.seconds(ticket), lambda now, ticket=ticket: self._end(ticket, now))  # type: ignore[misc]
        self.refused += [(self.now, refused) for refused in moves.refused]
        return moves.wake_at

    def _end(self, ticket: Ticket, now: float) -> Moves:
        self.capacity.give_back(ticket, 0)
        return self.queues.settle(ticket, ticket.cost, now)
