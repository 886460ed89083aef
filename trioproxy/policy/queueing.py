"""The queues of all traffic classes: who runs, who waits, who is refused, decided without waiting.

Order: the class whose guaranteed share is due, then classes by priority; inside a class what guarantees cover, then the
tenant with the smallest counter; inside a tenant by arrival. Invariant, after every call: nobody waits whose need fits,
unless one before it in that order waits for a scope that both draw from.

The shell offers, waits to be woken, and calls `settle` or `withdraw` exactly once at the end, after giving the capacity back.
All of them return `Moves`, and nothing has to be polled: `pump` is called at `wake_at`, and when capacity has grown otherwise.
Tenants that wait for something of their own alone are not even asked before it may have come back: see `order`.
One who holds a due class's or a big call's turn holds its scope until the need fits: at most cost / rate of that scope.
"""

import heapq
import math
from collections.abc import Mapping

from attrs import define, field

from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.line import Line, LineStatistics, line_of
from trioproxy.policy.round import Round
from trioproxy.policy.tickets import Capacity, Moves, Refused, State, Ticket, Why


@define(eq=False)
class Queues:
    """Every method takes `now`, seconds on a monotonic clock, and never blocks."""

    capacity: Capacity
    lines: dict[str, Line]
    _expiries: list[tuple[float, int, Ticket]] = field(init=False, factory=list)
    _retry_at: float = field(init=False, default=math.inf)
    _sequence: int = field(init=False, default=0)

    @classmethod
    def from_policies(
        cls,
        capacity: Capacity,
        policies: Mapping[str, QueuePolicy],
        guaranteed: Mapping[str, Mapping[str, float]] | None = None,
    ) -> "Queues":
        """`guaranteed` maps classes to what their tenants are guaranteed, in tokens a second."""
        assured = guaranteed or {}
        ordered = sorted(policies.items(), key=lambda item: item[1].priority)
        return cls(capacity, {name: line_of(name, policy, assured.get(name, {})) for name, policy in ordered})

    @property
    def waiting(self) -> int:
        return sum([line.share.waiting for line in self.lines.values()])

    def offer(self, ticket: Ticket, now: float) -> Moves:
        """Grant the ticket now, let it wait, or refuse it: where its wait cannot fit its time, or its class is full.

        Where the class is full the one to go may be another, that of a tenant with more than its part of the places.
        """
        assert ticket.state is State.GONE, "a ticket is offered once"
        assert not ticket.sequence, "a ticket is offered once"
        if ticket.deadline <= now:
            return Moves((), (Refused(ticket, Why.DEADLINE, None),), self._wake_at())
        self._sequence += 1
        ticket.sequence = self._sequence
        ticket.state = State.WAITING
        line = self.lines[ticket.traffic_class]
        if not self.waiting and line.through(ticket, self.capacity, now):
            return Moves((ticket,), (), math.inf)
        walk = Round(now, self.capacity)
        heads = line.join(ticket, now)
        if heads:
            self._rouse(ticket.tenant)
        self._advance(walk, serve=heads)
        if ticket.state is State.WAITING:
            self._trim(line, ticket, walk)
        if ticket.state is State.WAITING:
            heapq.heappush(self._expiries, (ticket.expires, ticket.sequence, ticket))
        return self._moves(walk)

    def withdraw(self, ticket: Ticket, now: float) -> Moves:
        """The ticket is gone and has used nothing. Serves tickets in every state, so a race with the grant is no special case."""
        walk = Round(now, self.capacity)
        line = self.lines[ticket.traffic_class]
        if ticket.state is State.GRANTED:
            return self.settle(ticket, 0, now)
        if ticket.state is State.WAITING:
            self._advance(walk, serve=self._remove(line, ticket, now))
        return self._moves(walk)

    def settle(self, ticket: Ticket, actual_cost: int, now: float) -> Moves:
        """A granted ticket is gone and has used so much."""
        assert ticket.state is State.GRANTED, f"a {ticket.state.value} ticket has nothing to settle"
        ticket.state = State.GONE
        self.lines[ticket.traffic_class].share.land(ticket, actual_cost, now)
        return self.pump(now, ticket.tenant)

    def pump(self, now: float, tenant: str | None = None) -> Moves:
        """Time has come, or capacity has grown: drop whose time has passed, and grant what fits.

        What has grown is shared by all, or is a `tenant`'s own as well.
        """
        if not self.waiting:
            return Moves((), (), math.inf)
        if tenant is not None:
            self._rouse(tenant)
        walk = Round(now, self.capacity)
        self._advance(walk, serve=True)
        return self._moves(walk)

    def pause(self, name: str, now: float) -> Moves:
        """Grant nothing in this class. Its tickets wait on, for their time."""
        self.lines[name].paused = True
        return self.pump(now)

    def resume(self, name: str, now: float) -> Moves:
        self.lines[name].paused = False
        return self.pump(now)

    def statistics(self, now: float) -> dict[str, LineStatistics]:
        return {name: line.statistics(now) for name, line in self.lines.items()}

    def _advance(self, walk: Round, *, serve: bool) -> None:
        while self._expiries and self._expiries[0][0] <= walk.now:
            ticket = heapq.heappop(self._expiries)[2]
            if ticket.state is State.WAITING:
                line = self.lines[ticket.traffic_class]
                why = Why.DEADLINE if ticket.deadline <= walk.now else Why.MAX_WAIT
                self._refuse(line, ticket, Why.PAUSED if line.paused else why, walk)
                serve = True
        if serve:
            self._serve(walk)

    def _serve(self, walk: Round) -> None:
        for line in self.lines.values():
            if line.share.order.naps:
                line.share.order.rouse_due(walk.now)
        while self._changed(walk):
            pass
        for tenant, (share, until) in walk.idle.items():
            if not any(line.share is not share and line.share.waits(tenant.name) for line in self.lines.values()):
                share.order.rest(tenant, until)
        self._retry_at = walk.retry_at
        for line in self.lines.values():
            if line.share.order.naps:
                self._retry_at = min(self._retry_at, line.share.order.next_end())

    def _rouse(self, tenant: str) -> None:
        for line in self.lines.values():
            line.share.rouse(tenant)

    def _changed(self, walk: Round) -> bool:
        """Grant what fits, until all are through or a grant has changed the order of what waits."""
        walk.begin()
        lines = [line for line in self.lines.values() if line.share.waiting and not line.paused]
        due = [line.due for line in lines]
        for line in sorted(lines, key=lambda line: not line.due):
            for ticket in line.grants(walk):
                walk.granted.append(ticket)
                for other in self.lines.values():
                    other.missed(ticket)
                if walk.stale or due != [line.due for line in lines]:
                    return True
        return False

    def _trim(self, line: Line, ticket: Ticket, walk: Round) -> None:
        """A newcomer has to wait: see that it can in time, and that there is a place for it."""
        wait = None if line.paused else line.estimate(ticket)
        if wait is not None and walk.now + wait >= ticket.expires:
            freed = self._refuse(line, ticket, Why.TOO_LONG, walk)
        elif line.share.waiting > line.policy.bound:
            freed = self._refuse(line, line.share.surplus(ticket, line.policy.bound), Why.FULL, walk)
        else:
            return
        if freed:
            self._serve(walk)

    def _refuse(self, line: Line, ticket: Ticket, why: Why, walk: Round) -> bool:
        wait = line.estimate(ticket)
        if wait is None and walk.now < self._retry_at < math.inf:
            wait = self._retry_at - walk.now
        walk.refused.append(Refused(ticket, why, None if line.paused else wait))
        return self._remove(line, ticket, walk.now)

    def _remove(self, line: Line, ticket: Ticket, now: float) -> bool:
        """Whether it was at the head of its lane, so that others may have waited for it."""
        heads = line.share.is_head(ticket)
        if heads:
            self._rouse(ticket.tenant)
        line.leave(ticket, now)
        return heads

    def _moves(self, walk: Round) -> Moves:
        entries = self._expiries
        if len(entries) > 64 and len(entries) > 64 + 2 * self.waiting:  # most are of tickets that are gone
            entries[:] = [entry for entry in entries if entry[2].state is State.WAITING]
            heapq.heapify(entries)
        return Moves(tuple(walk.granted), tuple(walk.refused), self._wake_at())

    def _wake_at(self) -> float:
        entries = self._expiries
        while entries and entries[0][2].state is not State.WAITING:
            heapq.heappop(entries)
        return min(self._retry_at, entries[0][0]) if entries else math.inf
