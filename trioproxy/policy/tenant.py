"""One tenant's part in one class: its lanes of waiting tickets, its counter, and what it was given.

Tickets that draw from the same scopes wait in one lane, in order of arrival; lanes do not hold each other up, unless what
the one waits for is shared. Adding, removing and looking at the head take constant time.
"""

from collections import OrderedDict
from collections.abc import Hashable

from attrs import define, field, frozen

from trioproxy.policy.lending import Pool
from trioproxy.policy.tickets import Ticket

Lane = OrderedDict[Ticket, None]  # a set in order of arrival


@frozen
class TenantShare:
    """What one tenant has of its class: `guaranteed` tokens a second, of which `unspent` tokens are saved up.

    `assured` and `borrowed` are what it was given so far, `reclaimed` the tokens that it waits for because they are lent.
    """

    tenant: str
    weight: float
    guaranteed: float
    unspent: float
    assured: int
    borrowed: int
    reclaimed: float
    waiting: int
    flying: int


@define(eq=False)
class Tenant:
    """`assured` and `borrowed` are tokens given so far, at their actual use once settled; `queued` tokens that wait."""

    name: str
    weight: float = 1.0
    counter: float = 0.0
    turn: int = 0  # decides between equal counters: who began to wait first
    seen: float = 0.0
    waiting: int = 0
    queued: int = 0
    flying: int = 0
    assured: int = 0
    borrowed: int = 0
    rests: float | None = None  # until then nobody needs to ask for it
    lanes: dict[tuple[Hashable, ...], Lane] = field(factory=dict)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.flying)

    def put(self, ticket: Ticket) -> bool:
        """The ticket waits, last in its lane. Whether it is at the head, its lane being new."""
        lane = self.lanes.setdefault(ticket.scopes, OrderedDict())
        lane[ticket] = None
        self.waiting += 1
        self.queued += ticket.cost
        return len(lane) == 1

    def drop(self, ticket: Ticket) -> bool:
        """The ticket waits no longer. Whether its lane is gone with it."""
        lane = self.lanes[ticket.scopes]
        del lane[ticket]
        self.waiting -= 1
        self.queued -= ticket.cost
        if not lane:
            del self.lanes[ticket.scopes]
        return not lane

    def in_order(self) -> list[Lane]:
        """The lanes, the one whose head came first before the others."""
        lanes = list(self.lanes.values())
        return sorted(lanes, key=lambda lane: next(iter(lane)).sequence) if len(lanes) > 1 else lanes

    def newest(self) -> Ticket:
        return max((next(reversed(lane)) for lane in self.lanes.values()), key=lambda ticket: ticket.sequence)

    def share(self, pool: Pool | None, now: float) -> TenantShare:
        return TenantShare(
            tenant=self.name,
            weight=self.weight,
            guaranteed=pool.guaranteed.get(self.name, 0.0) if pool else 0.0,
            unspent=pool.unspent(self.name, now) if pool else 0.0,
            assured=self.assured,
            borrowed=self.borrowed,
            reclaimed=pool.reclaimed(self.name, now) if pool and self.waiting else 0.0,
            waiting=self.waiting,
            flying=self.flying,
        )
