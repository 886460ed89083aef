"""Whose turn it is among those who wait: tenants by counter, between equals by who began to wait first.

A tenant all of whose lanes wait for something of its own rests: nobody else is concerned by that, so it is not asked again
until it is roused, by something of its own that comes back or changes, or until its time comes. So a walk past
thousands of blocked tenants costs nothing. Invariant: everybody who waits is in one of the two lists, in order.
"""

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterator

from attrs import define, field

from trioproxy.policy.tenant import Tenant

# Of a moment that buckets have named: what fits then by their own tolerance must not be missed for the clock's last digits.
EARLY = 1e-6

Entry = tuple[float, int, Tenant]


@define(eq=False)
class Order:
    """A tenant's counter and turn must not change while it is in it."""

    awake: list[Entry] = field(init=False, factory=list)
    _resting: list[Entry] = field(init=False, factory=list)
    naps: list[Entry] = field(init=False, factory=list)  # by the moment at which they end

    def __len__(self) -> int:
        return len(self.awake) + len(self._resting)

    def __iter__(self) -> Iterator[Entry]:
        return heapq.merge(self.awake, self._resting) if self._resting else iter(self.awake)

    def first(self) -> Tenant | None:
        return min(self.awake[:1] + self._resting[:1])[2] if self else None

    def add(self, tenant: Tenant) -> None:
        insort(self.awake, (tenant.counter, tenant.turn, tenant))

    def remove(self, tenant: Tenant) -> None:
        if tenant.rests is not None:
            self.rouse(tenant)
        _drop(self.awake, tenant)

    def rest(self, tenant: Tenant, until: float) -> None:
        """Ask it no more before `until`; it is in the order and does not rest."""
        insort(self._resting, _drop(self.awake, tenant))
        tenant.rests = until
        if until < math.inf:
            heapq.heappush(self.naps, (until, tenant.turn, tenant))
        if len(self.naps) > 64 + 2 * len(self._resting):  # most are of tenants that were roused before
            self.naps = [nap for nap in self.naps if nap[2].rests == nap[0]]
            heapq.heapify(self.naps)

    def rouse(self, tenant: Tenant) -> None:
        """It may be asked again. No-op where it does not rest."""
        if tenant.rests is not None:
            tenant.rests = None
            insort(self.awake, _drop(self._resting, tenant))

    def next_end(self) -> float:
        """When the next one's rest is over by time; `math.inf` where none is."""
        naps = self.naps
        while naps and naps[0][2].rests != naps[0][0]:
            heapq.heappop(naps)
        return naps[0][0] if naps else math.inf

    def rouse_due(self, now: float) -> None:
        while self.naps and self.next_end() <= now + EARLY:
            self.rouse(self.naps[0][2])


def _drop(entries: list[Entry], tenant: Tenant) -> Entry:
    return entries.pop(bisect_left(entries, (tenant.counter, tenant.turn)))
