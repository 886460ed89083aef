"""One walk over all lines at one moment.

Capacity only shrinks during it, so what has objected once objects until it ends: a scope that someone waits for is blocked for
everybody behind, and each lane is asked at most once more than it is granted. A round is stale, and begins anew, when a grant
has changed whose turn it is for something that blocks.
"""

import math
from collections import Counter
from collections.abc import Hashable

from attrs import define, field

from trioproxy.policy.fairshare import FairShare
from trioproxy.policy.tenant import Tenant
from trioproxy.policy.tickets import Capacity, Objection, Refused, Ticket

# What a bucket has promised is asked for again no sooner than this (seconds): rounding must not make a busy loop of a wake-up.
SOONEST = 0.001


@define(eq=False)
class Round:
    """`retry_at` is when the first of those that objected would fit.

    `own` has those of the blocked scopes that are one tenant's own, with the moment at which each is worth asking again; `idle` the
    tenants all of whose lanes wait for such a scope, and the first of these moments.

    `blocked` maps the scopes that someone waits for to their place in `scopes`. Lanes behind scopes of one place are disjoint,
    so `behind` counts, by place, how many lanes of the line at hand are blocked: when it is all of them the line is `over`.
    """

    now: float
    capacity: Capacity
    granted: list[Ticket] = field(factory=list)
    refused: list[Refused] = field(factory=list)
    blocked: dict[Hashable, int] = field(factory=dict)
    behind: Counter[int] = field(factory=Counter)
    holders: set[Tenant] = field(factory=set)
    own: dict[Hashable, float] = field(factory=dict)
    idle: dict[Tenant, tuple[FairShare, float]] = field(factory=dict)
    retry_at: float = math.inf
    stale: bool = False
    over: bool = False

    def begin(self) -> None:
        self.blocked.clear()
        if self.own:
            self.own.clear()
            self.idle.clear()
        self.retry_at = math.inf
        self.stale = False

    def enter(self, share: FairShare) -> None:
        """The next line's turn."""
        self.over = False
        self.holders.clear()
        self.behind.clear()
        for scope in self.blocked:
            self._count(share, scope)

    def block(self, share: FairShare, ticket: Ticket, objection: Objection) -> None:
        self.holders.add(share.tenants[ticket.tenant])
        if objection.at in ticket.scopes:
            self.blocked[objection.at] = ticket.scopes.index(objection.at)
            self._count(share, objection.at)
        soon = objection.soon
        if objection.own:
            self.own[objection.at] = math.inf if soon is None else self.now + max(soon, SOONEST)
        if soon is not None:
            self.retry(soon)

    def rests(self, share: FairShare, tenant: Tenant) -> None:
        """Nothing of the tenant was granted: whether all of it waits for something of its own."""
        until = math.inf
        for lane in tenant.lanes:
            ends = [self.own[scope] for scope in lane if scope in self.own]
            if not ends:
                return
            until = min(until, *ends)
        self.idle[tenant] = share, until

    def retry(self, seconds: float) -> None:
        self.retry_at = min(self.retry_at, self.now + max(seconds, SOONEST))

    def _count(self, share: FairShare, scope: Hashable) -> None:
        place = self.blocked[scope]
        self.behind[place] += share.through[place, scope]
        self.over |= self.behind[place] >= share.lanes
