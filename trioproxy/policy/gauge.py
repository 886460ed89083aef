"""What limiters tell of themselves: how much is left, and when all of it is free. Reading changes nothing."""

from collections.abc import Iterable

from attrs import frozen

from trioproxy.policy.account import Account
from trioproxy.policy.limits import Dimension, Limiter
from trioproxy.policy.reservation import Scope

Least = tuple[int, Account, Limiter]  # what is left, of which limiter of whom


@frozen
class Gauge:
    """One limiter, for headers, budget alerts and the dashboard. `reset_after` is seconds until it is all free."""

    scope: Scope
    dimension: Dimension
    limit: int
    remaining: int
    reset_after: float
    observe: bool


def gauge(account: Account, limiter: Limiter, now: float, wall: float) -> Gauge:
    rule = limiter.rule
    left, reset = limiter.remaining(now, wall), limiter.reset_after(now, wall)
    return Gauge(account.scope, rule.dimension, rule.limit, left, reset, rule.observe)


def gauges(accounts: Iterable[Account], now: float, wall: float) -> list[Gauge]:
    """Every limiter of these accounts."""
    return [gauge(account, limiter, now, wall) for account in accounts for limiter in account.limiters]


def least(accounts: Iterable[Account], now: float, wall: float) -> list[Least]:
    """Of each dimension the limiter that has least left; those that only observe are passed over."""
    found: dict[int, Least] = {}
    for account in accounts:
        for limiter in account.limiters:
            rule = limiter.rule
            if rule.observe:
                continue
            left = limiter.remaining(now, wall)
            known = found.get(rule.place)
            if known is None or left < known[0]:
                found[rule.place] = left, account, limiter
    return list(found.values())
