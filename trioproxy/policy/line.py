"""The line of one traffic class: who waits for how long, who is asked next, and how fast it drains."""

import math
from collections.abc import Iterator, Mapping

from attrs import define, field, frozen

from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.fairshare import FairShare
from trioproxy.policy.lending import Pool
from trioproxy.policy.round import Round
from trioproxy.policy.tenant import Lane, Tenant, TenantShare
from trioproxy.policy.tickets import Capacity, Objection, Refused, State, Ticket, Why

# Half of the weight of the measured drain is from the last 20 s under load: some dozens of calls, and soon over an incident.
DRAIN_MEMORY = 30.0


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

    def through(self, ticket: Ticket, capacity: Capacity, now: float) -> bool:
        """Nobody waits in any class: grant the ticket, its state and number given, where it fits now."""
        if self.paused or self.share.pool_wait(ticket, now) or capacity(ticket, now) is not None:
            return False
        ticket.state = State.GRANTED
        ticket.arrived = ticket.granted_at = now
        self.share.board(ticket, now)
        return True

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
        walk.enter(self.share)
        for tenant, assured in self.share.turns():
            if walk.over:
                return
            ticket = self._turn(tenant, walk, assured=assured)
            if ticket:
                walk.stale = tenant in walk.holders
                yield ticket

    def estimate(self, ticket: Ticket) -> float | None:
        """Seconds until a waiting ticket is served at the measured drain; None before anything was measured."""
        rate = self.drain.rate
        return self.share.ahead(ticket) / rate if rate else None

    def statistics(self, now: float) -> LineStatistics:
        share = self.share
        return LineStatistics(share.waiting, share.queued, self.paused, self.drain.rate, tuple(share.statistics(now)))

    def _turn(self, tenant: Tenant, walk: Round, *, assured: bool) -> Ticket | None:
        for lane in tenant.in_order():
            ticket = self._try(lane, walk, assured=assured)
            if ticket:
                return ticket
            if walk.over:
                break
        if walk.own and not assured and tenant.waiting:
            walk.rests(self.share, tenant)
        return None

    def _try(self, lane: Lane, walk: Round, *, assured: bool) -> Ticket | None:
        """Grant the head of a lane, after refusing those whose capacity comes after their time; or let it wait."""
        while lane and walk.blocked.keys().isdisjoint((ticket := next(iter(lane))).scopes):
            if assured and (soon := self.share.covered_in(ticket, walk.now)):
                walk.retry(soon)
                return None
            objection = self._objection(ticket, walk)
            if objection is None:
                self._grant(ticket, walk.now)
                return ticket
            if objection.wait is None or walk.now + objection.wait < ticket.expires:
                walk.block(self.share, ticket, objection)
                walk.over |= objection.at is self
                return None
            self.leave(ticket, walk.now)
            never = objection.wait == math.inf
            why, wait = (Why.NEVER, None) if never else (Why.TOO_LONG, objection.wait)
            walk.refused.append(Refused(ticket, why, wait))
        return None

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


def line_of(name: str, policy: QueuePolicy, guaranteed: Mapping[str, float]) -> Line:
    """One class's line. `guaranteed` maps tenants to tokens a second; ValueError where the pool cannot keep that."""
    if policy.tokens_per_minute:
        rate = policy.tokens_per_minute / 60.0
        return Line(name, policy, FairShare(Pool(rate, policy.burst, guaranteed, policy.reclaim)))
    if guaranteed:
        raise ValueError(f"class {name!r} guarantees tokens to {sorted(guaranteed)} but has no pool: give it a rate")
    return Line(name, policy, FairShare())
