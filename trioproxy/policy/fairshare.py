"""Fair share between the tenants of one class: a virtual token counter with lift.

A tenant's counter is the tokens it was given beyond its guarantee, over its weight. The smallest is served first, so what
the guarantees leave is shared by weight; what a guarantee covers goes before that and is not counted. Who begins to wait is
lifted to the counter last served: idleness earns nothing. Invariant: the work given to two tenants, each over its
weight, differs by at most 2 · max(tokens charged and not yet settled / weight) while both wait for the same.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterator

from attrs import define, field

from trioproxy.policy.lending import Pool
from trioproxy.policy.order import Order
from trioproxy.policy.tenant import Tenant, TenantShare
from trioproxy.policy.tickets import Ticket

# A counter is forgotten so many seconds after the tenant's last call, debts too.
MEMORY = 60.0


@define(eq=False)
class FairShare:
    """Whose turn it is among the tenants of one class. Without a pool there is no guarantee and nothing is lent."""

    pool: Pool | None = None
    tenants: dict[str, Tenant] = field(init=False, factory=dict)
    waiting: int = field(init=False, default=0)
    queued: int = field(init=False, default=0)
    lanes: int = field(init=False, default=0)
    through: Counter[tuple[int, Hashable]] = field(init=False, factory=Counter)  # lanes by (place in `scopes`, scope)
    weights: float = field(init=False, default=0.0)  # of those who wait
    # Doubles hold whole tokens exactly up to 9e15, which is 28 years at ten million a second: no rebasing.
    _served: float = field(init=False, default=0.0)
    order: Order = field(init=False, factory=Order)
    _sweep_at: int = field(init=False, default=64)

    def join(self, ticket: Ticket, now: float) -> bool:
        """The ticket waits. Whether it is at the head of its lane."""
        tenant = self.tenants.get(ticket.tenant) or self._newcomer(ticket.tenant, now)
        tenant.seen = now
        if not tenant.waiting:
            tenant.weight, tenant.turn = ticket.weight, ticket.sequence
            tenant.counter = max(tenant.counter, self._served)
            self.weights += tenant.weight
            self.order.add(tenant)
        self.waiting += 1
        self.queued += ticket.cost
        if self.pool:
            self.pool.enter(tenant.name)
        heads = tenant.put(ticket)
        if heads:
            self.lanes += 1
            self.through.update(enumerate(ticket.scopes))
        return heads

    def leave(self, ticket: Ticket, now: float) -> None:
        """The ticket waits no longer and was given nothing."""
        self._unqueue(ticket)
        if self.pool:
            self.pool.exit(ticket.tenant, now)

    def fly(self, ticket: Ticket, now: float) -> None:
        """The ticket is granted: it waits no longer, and its cost is charged."""
        tenant = self.tenants[ticket.tenant]
        ticket.borrowed = self.covered_in(ticket, now) > 0.0
        if ticket.borrowed:
            self._served = max(self._served, tenant.counter)
        self._unqueue(ticket)
        tenant.flying += 1
        self._charge(ticket, ticket.cost, now)

    def land(self, ticket: Ticket, actual: int, now: float) -> None:
        """The granted ticket is gone, having used `actual` tokens."""
        tenant = self.tenants[ticket.tenant]
        tenant.flying -= 1
        tenant.seen = now
        self._charge(ticket, actual - ticket.cost, now)
        if self.pool:
            self.pool.exit(ticket.tenant, now)

    def passed(self, name: str, cost: int, weight: float, now: float) -> None:
        """A call that found nobody waiting was given so much, so its tenant goes behind those that were given less."""
        assert not self.waiting, "where somebody waits, calls stand in line"
        tenant = self.tenants.get(name) or self._newcomer(name, now)
        tenant.seen = now
        self._served = tenant.counter = max(tenant.counter, self._served)
        tenant.counter += cost / weight

    def board(self, ticket: Ticket, now: float) -> None:
        """What `join` and `fly` come to where nobody waits."""
        tenant = self.tenants.get(ticket.tenant) or self._newcomer(ticket.tenant, now)
        tenant.seen, tenant.weight = now, ticket.weight
        tenant.counter = max(tenant.counter, self._served)
        tenant.flying += 1
        ticket.borrowed = self.covered_in(ticket, now) > 0.0
        self._served = tenant.counter if ticket.borrowed else self._served
        if self.pool:
            self.pool.enter(tenant.name)
        self._charge(ticket, ticket.cost, now)

    def covered_in(self, ticket: Ticket, now: float) -> float:
        """Seconds until the tenant's guarantee pays for the ticket: 0.0 now, `math.inf` never."""
        return self.pool.covered_in(ticket.tenant, ticket.cost, now) if self.pool else math.inf

    def pool_wait(self, ticket: Ticket, now: float) -> float:
        """Seconds until the class's pool has room for the ticket, 0.0 now."""
        return self.pool.wait(ticket.tenant, ticket.cost, now) if self.pool else 0.0

    def turns(self) -> Iterator[tuple[Tenant, bool]]:
        """The tenants that wait, in order; one that was served comes again. The flag: for what its guarantee covers only."""
        for name in self.pool.guarantees if self.pool else ():
            tenant = self.tenants.get(name)
            before = 0
            while tenant and tenant.rests is None and tenant.waiting not in {0, before}:
                before = tenant.waiting
                yield tenant, True
        place, awake = 0, self.order.awake
        while place < len(awake):
            tenant = awake[place][2]
            before = tenant.waiting
            yield tenant, False
            place += tenant.waiting == before  # a served one has moved back, and another stands in its place

    def first(self) -> Ticket | None:
        """The head of the first tenant by counter."""
        tenant = self.order.first()
        return next(iter(tenant.in_order()[0])) if tenant else None

    def rouse(self, name: str) -> None:
        """Something of the tenant's own has come back or changed."""
        tenant = self.tenants.get(name)
        if tenant is not None and tenant.rests is not None:
            self.order.rouse(tenant)

    def waits(self, name: str) -> bool:
        tenant = self.tenants.get(name)
        return tenant is not None and tenant.waiting > 0

    def is_head(self, ticket: Ticket) -> bool:
        return next(iter(self.tenants[ticket.tenant].lanes[ticket.scopes])) is ticket

    def ahead(self, ticket: Ticket) -> float:
        """Tokens that pass before a waiting ticket is served, itself included, where everyone has its share."""
        tenant = self.tenants[ticket.tenant]
        return min(float(self.queued), tenant.queued * self.weights / tenant.weight)

    def surplus(self, ticket: Ticket, bound: int) -> Ticket:
        """Whom to push out of a queue over its bound: the newest of the tenant with the most places for its weight."""
        tenant = self.tenants[ticket.tenant]
        if tenant.waiting * self.weights > bound * tenant.weight:
            return ticket
        longest = max((entry[2] for entry in self.order), key=lambda other: other.waiting / other.weight)
        return longest.newest()

    def statistics(self, now: float) -> list[TenantShare]:
        return [tenant.share(self.pool, now) for tenant in self.tenants.values()]

    def _charge(self, ticket: Ticket, tokens: int, now: float) -> None:
        tenant = self.tenants[ticket.tenant]
        if self.pool:
            self.pool.take(tenant.name, tokens, now, borrowed=ticket.borrowed)
        if not ticket.borrowed:
            tenant.assured += tokens
            return
        tenant.borrowed += tokens
        if tenant.waiting:
            self.order.remove(tenant)
        tenant.counter += tokens / ticket.weight
        if tenant.waiting:
            self.order.add(tenant)

    def _unqueue(self, ticket: Ticket) -> None:
        tenant = self.tenants[ticket.tenant]
        self.waiting -= 1
        self.queued -= ticket.cost
        if tenant.drop(ticket):
            self.lanes -= 1
            for scope in enumerate(ticket.scopes):
                self.through[scope] -= 1
                if not self.through[scope]:
                    del self.through[scope]
        if not tenant.waiting:
            self.order.remove(tenant)
            self.weights = self.weights - tenant.weight if self.order else 0.0

    def _newcomer(self, name: str, now: float) -> Tenant:
        if len(self.tenants) >= self._sweep_at:
            kept = {key: each for key, each in self.tenants.items() if each.busy or now < each.seen + MEMORY}
            self.tenants = kept
            self._sweep_at = max(64, 2 * len(kept))
        return self.tenants.setdefault(name, Tenant(name))
