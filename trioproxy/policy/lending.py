"""A class's pool of tokens: what is guaranteed to tenants, and what may be lent meanwhile.

A guarantee is a part of the pool's rate, saved up for `reclaim` seconds at most. What it covers is assured. Anything else is
borrowed, and must leave in the pool what the active tenants have not spent of their guarantees. So an active tenant finds
its guarantee there, and one that returns waits for the refill of what was lent: `reclaim` seconds at most, less in
proportion to its part of the pool.
"""

import math
from collections.abc import Mapping

from attrs import define, field

# Room is kept for a tenant with calls waiting or under way, and for so many seconds after its last one.
LINGER = 60.0
EPSILON = 1e-6  # tokens; a refill that was waited for exactly must be found there despite rounding


@define(eq=False)
class Supply:
    """Tokens that come in at `rate` a second, up to `burst`. What is larger than the burst passes when full, as a debt."""

    rate: float
    burst: float
    level: float = field(init=False)
    at: float = field(init=False, default=0.0)

    def __attrs_post_init__(self) -> None:
        self.level = self.burst

    def refill(self, now: float) -> None:
        self.level = min(self.burst, self.level + self.rate * (now - self.at))
        self.at = now

    def short(self, now: float, n: float) -> float:
        """Tokens that are missing for `n`; 0.0 where it fits."""
        self.refill(now)
        missing = min(n, self.burst) - self.level
        return missing if missing > EPSILON else 0.0

    def add(self, now: float, n: float) -> None:
        """Give back, or take where negative. A debt is at most two bursts, so one overrun locks nobody out for long."""
        self.refill(now)
        self.level = max(-2.0 * self.burst, min(self.burst, self.level + n))


@define(eq=False)
class Guarantee:
    """One tenant's. `calls` are those that wait or are under way."""

    supply: Supply
    calls: int = 0
    seen: float = -math.inf

    def active(self, now: float) -> bool:
        return self.calls > 0 or now < self.seen + LINGER


@define(eq=False)
class Pool:
    """`rate` and the values of `guaranteed` are tokens a second, `burst` and `reclaim` seconds of them."""

    rate: float
    burst: float = 60.0
    guaranteed: Mapping[str, float] = field(factory=dict)
    reclaim: float = 5.0
    supply: Supply = field(init=False)
    guarantees: dict[str, Guarantee] = field(init=False)

    def __attrs_post_init__(self) -> None:
        total = sum(self.guaranteed.values())
        if total > self.rate + EPSILON:
            raise ValueError(
                f"guarantees of {total:g} tokens/s exceed the pool's {self.rate:g}: lower them or raise it"
            )
        self.supply = Supply(self.rate, self.rate * self.burst)
        self.guarantees = {name: Guarantee(Supply(rate, rate * self.reclaim)) for name, rate in self.guaranteed.items()}

    def covered_in(self, tenant: str, cost: int, now: float) -> float:
        """Seconds until the tenant's guarantee pays for so much: 0.0 now, `math.inf` never."""
        guarantee = self.guarantees.get(tenant)
        return guarantee.supply.short(now, cost) / guarantee.supply.rate if guarantee else math.inf

    def wait(self, tenant: str, cost: int, now: float) -> float:
        """Seconds until so much may be taken, assured or borrowed; 0.0 where now."""
        covered_in = self.covered_in(tenant, cost, now)
        assured = self.supply.short(now, cost) / self.rate
        if not covered_in:
            return assured
        return min(max(assured, covered_in), self._borrowed(tenant, cost, now))

    def _borrowed(self, tenant: str, cost: int, now: float) -> float:
        """As `wait`, for a borrower.

        The smaller of two upper bounds, exact with one guarantee to leave: either the guarantees that are not full go on
        filling meanwhile, or they are full already.
        """
        kept = filling = missing = 0.0
        for name, guarantee in self.guarantees.items():
            if name != tenant and guarantee.active(now):
                supply = guarantee.supply
                supply.refill(now)
                kept += max(0.0, supply.level)
                missing += supply.burst - max(0.0, supply.level)
                filling += supply.rate if supply.level < supply.burst else 0.0
        short = self.supply.short(now, cost + kept)
        if not short:
            return 0.0
        slowly = short / (self.rate - filling) if self.rate > filling else math.inf
        return min(slowly, self.supply.short(now, cost + kept + missing) / self.rate)

    def take(self, tenant: str, tokens: int, now: float, *, borrowed: bool) -> None:
        """Charge so much; negative gives back."""
        self.supply.add(now, -tokens)
        if not borrowed:
            self.guarantees[tenant].supply.add(now, -tokens)

    def enter(self, tenant: str) -> None:
        """One more call of the tenant waits or is under way."""
        if guarantee := self.guarantees.get(tenant):
            guarantee.calls += 1

    def exit(self, tenant: str, now: float) -> None:
        if guarantee := self.guarantees.get(tenant):
            guarantee.calls -= 1
            guarantee.seen = now

    def unspent(self, tenant: str, now: float) -> float:
        """Tokens of the tenant's guarantee that are saved up."""
        guarantee = self.guarantees.get(tenant)
        if guarantee is None:
            return 0.0
        guarantee.supply.refill(now)
        return guarantee.supply.level

    def reclaimed(self, tenant: str, now: float) -> float:
        """Tokens of the tenant's guarantee that the pool does not have, being lent: what comes in goes to it first."""
        unspent = max(0.0, self.unspent(tenant, now))
        self.supply.refill(now)
        return max(0.0, unspent - max(0.0, self.supply.level))
