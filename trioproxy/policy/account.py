"""The live limiters of every scope, made when first needed and dropped when idle.

An idle limiter is one that a new one could replace, so that dropping it changes nothing: a tenant at rest costs what it
used today and no more. An account with calls under way keeps all of its limiters.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from attrs import define, field

from trioproxy.policy.bucket import Bucket
from trioproxy.policy.level import Level
from trioproxy.policy.limits import Dimension, Limits, Rule
from trioproxy.policy.reservation import Scope, Step
from trioproxy.policy.window import PERIODS, Calendar, Period, Span, Window

Kept = Bucket | Window | Level


@define(eq=False, weakref_slot=False)  # there is one for every tenant: eight bytes less
class Account:
    """One scope's limiters. `limits` is None once some were dropped; `calls` are under way."""

    scope: Scope
    limits: Limits | None = None
    limiters: tuple[Kept, ...] = ()
    calls: int = 0


@define(eq=False)
class Accounts:
    """All accounts of a process."""

    _accounts: dict[Scope, Account] = field(init=False, factory=dict)
    _calendars: dict[tuple[str, Period], Calendar] = field(init=False, factory=dict)
    _round: deque[Account] = field(init=False, factory=deque)  # the one that was looked at longest ago first
    _made: deque[Account] = field(init=False, factory=deque)  # made since the last sweep

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def of(self, steps: tuple[Step, ...], now: float, wall: float) -> list[Account]:
        """The accounts of these steps, each with a limiter for every rule of its limits."""
        known = self._accounts
        found = []
        for step in steps:
            account = known.get(step.scope)
            if account is None or account.limits is not step.limits:
                account = self._outfit(step, now, wall)
            found.append(account)
        return found

    def sweep(self, now: float, wall: float, count: int) -> None:
        """Look at the next `count` accounts and drop what is idle. Under 1 µs each, so a round is done in slices."""
        for _ in range(min(count, len(self._round))):
            account = self._round.popleft()
            if account.calls:
                self._round.append(account)
                continue
            limiters = tuple(limiter for limiter in account.limiters if not limiter.idle(now, wall))
            if not limiters:
                del self._accounts[account.scope]
            else:
                self._round.append(account)
            if len(limiters) < len(account.limiters):
                account.limiters, account.limits = limiters, None
        for _ in range(min(count, len(self._made))):
            self._round.append(self._made.popleft())

    def restore(
        self, kept: Iterable[list[Any]], steps: Mapping[tuple[str, str], Step], now: float, *, wall: float, age: float
    ) -> None:
        """Take up what `told_of` gave `age` seconds ago, where there still is such a scope and limit.

        Raises `KeyError`, `TypeError` or `ValueError` for what no snapshot is.
        """
        for rank, name, dimension, state in kept:
            step = steps.get((rank, name))
            if step is None:
                continue
            (account,) = self.of((step,), now, wall)
            for limiter in account.limiters:
                if limiter.rule.dimension.value == dimension and not isinstance(limiter, Level):
                    limiter.restore(state, now, wall, age)

    def _outfit(self, step: Step, now: float, wall: float) -> Account:
        account = self._accounts.get(step.scope)
        if account is None:
            account = self._accounts[step.scope] = Account(step.scope)
            self._made.append(account)
        kept = {limiter.rule.dimension: limiter for limiter in account.limiters}
        account.limiters = tuple(self._limiter(rule, kept.get(rule.dimension), now, wall) for rule in step.limits.rules)
        account.limits = step.limits
        return account

    def _limiter(self, rule: Rule, kept: Kept | None, now: float, wall: float) -> Kept:
        """The limiter of this rule. One that is there is reshaped in place: reservations that are out refer to it."""
        match kept:
            case None:
                return self._fresh(rule, wall)
            case Bucket():
                kept.reshape(rule, now)
            case Window():
                kept.reshape(rule, self._span(rule, wall))
            case _:
                kept.reshape(rule)
        return kept

    def _fresh(self, rule: Rule, wall: float) -> Kept:
        if rule.dimension is Dimension.CONCURRENCY:
            return Level(rule)
        if rule.dimension in PERIODS:
            return Window(rule, self._span(rule, wall))
        return Bucket(rule)

    def _span(self, rule: Rule, wall: float) -> Span:
        key = rule.zone, PERIODS[rule.dimension]
        calendar = self._calendars.get(key)
        if calendar is None:
            calendar = self._calendars[key] = Calendar(ZoneInfo(rule.zone), key[1])
        return calendar.at(wall)


Held = Mapping[
    int, list[tuple[float, int]]
]  # what open calls hold at a limiter, by its `id`: since when (wall), and how much


def told_of(accounts: Iterable[Account], now: float, wall: float, held: Held) -> list[list[Any]]:
    """What was used at every limiter that is not as new: rank, name, dimension, and its own words."""
    kept: list[list[Any]] = []
    for account in accounts:
        for limiter in account.limiters:
            state = None if isinstance(limiter, Level) else limiter.snapshot(now, wall, held.get(id(limiter), ()))
            if state is not None:
                kept.append([account.scope.rank.value, account.scope.name, limiter.rule.dimension.value, state])
    return kept
