"""The line of one traffic class: who waits for how long, who is asked next, and how fast it drains (SPEC 3.6, 5.10).

A `Round` is one walk over all lines at one moment. Capacity only shrinks during it, so what has objected once objects until
it ends: a scope that someone waits for is `blocked` for everybody behind, and each lane is asked at most once more than
it is granted. It is `stale`, and begins anew, when a grant has changed whose turn it is for something that blocks.
"""

import math
from collections.abc import Hashable, Iterator

from attrs import define, field, frozen

from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.fairshare import FairShare
from trioproxy.policy.tenant import Lane, TenantShare
from trioproxy.policy.tickets import Capacity, Objection, Refused, State, Ticket, Why

# Half of the weight of the measured drain is from the last 20 s under load: some dozens of calls, and soon over an incident.
DRAIN_MEMORY = 30.0
# What a bucket has promised is asked for again no sooner than this: rounding must not make a busy loop of a wake-up.
SOONEST = 0.001


@define(eq=False)
class Drain:
    """Tokens a second that leave the line while it is backlogged; a decayed mean."""

    since: float = 0.0
    _tokens: float = field(init=False, default=0.0)
    _seconds: float = field(init=False, default=0.0)

    @property
    def rate(self) -> float | None:
        return self._tokens / self._seconds if self._seconds else None

    def passed(self, tokens: int, now: float) -> None:
        kept = math.exp((self.since - now) / DRAIN_MEMORY)
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + now - self.since
        self.since = now


@define(eq=False)
class Round:
    """One walk over the lines. `retry_at` is when the first of those that objected would fit."""

    now: float
    capacity: Capacity
    granted: list[Ticket] = field(factory=list)
    refused: list[Refused] = field(factory=list)
    blocked: set[Hashable] = field(factory=set)
    retry_at: float = math.inf
    stale: bool = False

    def begin(self) -> None:
        self.blocked.clear()
        self.retry_at = math.inf
        self.stale = False

    def block(self, objection: Objection) -> None:
        self.blocked.add(objection.at)
        if objection.wait is not None:
            self.retry_at = min(self.retry_at, self.now + max(objection.wait, SOONEST))


@frozen
class LineStatistics:
    """`drain` is tokens a second while backlogged, None before anything was measured."""

    waiting: int
    queued: int
    paused: bool
    drain: float | None
    tenants: tuple[TenantShare, ...]


@define(eq=False)
class Line:
    """One class's queue. `passed` is the tokens that other classes were given while it waited."""

    name: str
    policy: QueuePolicy
    share: FairShare
    paused: bool = False
    passed: float = field(init=False, default=0.0)
    drain: Drain = field(init=False, factory=Drain)

    @property
    def due(self) -> bool:
        """Whether its guaranteed share has come to the cost of its next ticket, so that it goes before the others."""
        first = self.share.first() if self.passed else None
        return first is not None and self.passed * self.policy.share >= first.cost

    def join(self, ticket: Ticket, now: float) -> bool:
        """The ticket waits. Whether it is worth asking for it: it is at the head of its lane."""
        if not self.share.waiting:
            self.drain.since = now
        ticket.arrived = now
        ticket.expires = min(ticket.deadline, now + self.policy.max_wait)
        return self.share.join(ticket, now)

    def missed(self, ticket: Ticket) -> None:
        """Another class was given a ticket. What this one has coming never exceeds what its next ticket costs."""
        first = self.share.first() if self.policy.share and not self.paused else None
        if first and ticket.traffic_class != self.name:
            self.passed = min(self.passed, first.cost / self.policy.share) + ticket.cost

    def leave(self, ticket: Ticket, now: float) -> None:
        """The waiting ticket is gone, and its place is free."""
        ticket.state = State.GONE
        self.share.leave(ticket, now)
        self._emptied()

    def grants(self, walk: Round) -> Iterator[Ticket]:
        """Grant one ticket after the other until nobody else fits.

        Who is granted moves back in order, and what it waits for in another lane is no longer its turn: the round is stale.
        """
        if any(self._all_behind(scope) for scope in walk.blocked):
            return
        holders = set()
        for tenant, assured in self.share.turns():
            for lane in tenant.in_order():
                ticket, objection = self._try(lane, walk, assured=assured)
                if ticket:
                    walk.stale = tenant.name in holders
                    yield ticket
                    break
                if objection:
                    holders.add(tenant.name)
                    if self._all_behind(objection.at):
                        return

    def estimate(self, ticket: Ticket) -> float | None:
        """Seconds until a waiting ticket is served at the measured drain; None before anything was measured."""
        rate = self.drain.rate
        return self.share.ahead(ticket) / rate if rate else None

    def statistics(self, now: float) -> LineStatistics:
        share = self.share
        return LineStatistics(share.waiting, share.queued, self.paused, self.drain.rate, tuple(share.statistics(now)))

    def _try(self, lane: Lane, walk: Round, *, assured: bool) -> tuple[Ticket | None, Objection | None]:
        """Grant the head of a lane, after refusing those whose capacity comes after their time; or say what objects."""
        while lane and walk.blocked.isdisjoint((ticket := next(iter(lane))).scopes):
            if assured and (soon := self.share.covered_in(ticket, walk.now)):
                walk.retry_at = min(walk.retry_at, walk.now + max(soon, SOONEST))
                break
            objection = self._objection(ticket, walk)
            if objection is None:
                self._grant(ticket, walk.now)
                return ticket, None
            if objection.wait is None or walk.now + objection.wait < ticket.expires:
                walk.block(objection)
                return None, objection
            self.leave(ticket, walk.now)
            never = objection.wait == math.inf
            why, wait = (Why.NEVER, None) if never else (Why.TOO_LONG, objection.wait)
            walk.refused.append(Refused(ticket, why, wait))
        return None, None

    def _objection(self, ticket: Ticket, walk: Round) -> Objection | None:
        wait = self.share.pool_wait(ticket, walk.now)
        return Objection(self, wait) if wait else walk.capacity(ticket, walk.now)

    def _grant(self, ticket: Ticket, now: float) -> None:
        ticket.state = State.GRANTED
        ticket.granted_at = now
        self.share.fly(ticket, now)
        if ticket.arrived < now or self.share.waiting:  # else it met no queue, and says nothing about the drain
            self.drain.passed(ticket.cost, now)
        self.passed = max(0.0, self.passed - ticket.cost / self.policy.share) if self.policy.share else 0.0
        self._emptied()

    def _emptied(self) -> None:
        if not self.share.waiting:
            self.passed = 0.0

    def _all_behind(self, scope: Hashable) -> bool:
        """Whether everybody here waits behind the one who waits for this scope; the line itself stands for its pool."""
        return scope is self or self.share.through[scope] == self.share.lanes
