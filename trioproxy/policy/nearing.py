"""Budgets that are nearly used up: told once per period, when what is spent and held passes the share that was asked for.

A budget that only observes is told of like any other, for telling is all that it does.
"""

import math
from collections.abc import Iterable
from typing import Any

from attrs import define, field, frozen

from trioproxy.policy.account import Account
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank, Scope
from trioproxy.policy.window import Window

MOST = 4096  # budgets that are remembered to have been told of; the one told longest ago goes first, and is told again


@frozen
class Near:
    """`share` is of 1, and may be above where a call used more than it had reserved."""

    scope: Scope
    dimension: Dimension
    share: float


@define(eq=False)
class Nearing:
    """What was told, by budget and the end of its period, Unix seconds."""

    _told: dict[tuple[Scope, Dimension], float] = field(init=False, factory=dict)

    def look(self, accounts: Iterable[Account]) -> list[Near]:
        """What is to be told of these accounts' budgets, right after something was taken from them."""
        return [
            Near(account.scope, limiter.rule.dimension, limiter.used / limiter.rule.limit)
            for account in accounts
            for limiter in account.limiters
            if limiter.rule.alert and isinstance(limiter, Window) and self._is_news(account.scope, limiter)
        ]

    def _is_news(self, scope: Scope, window: Window) -> bool:
        if window.used < window.rule.alert:
            return False
        key = scope, window.rule.dimension
        end = window.span.end
        if self._told.pop(key, None) == end:
            self._told[key] = end
            return False
        if len(self._told) >= MOST:
            del self._told[next(iter(self._told))]
        self._told[key] = end
        return True

    def snapshot(self) -> list[list[Any]]:
        """Plain values: rank, name, dimension and end of each (None: it has none)."""
        return [
            [scope.rank.value, scope.name, dimension.value, end if end < math.inf else None]
            for (scope, dimension), end in self._told.items()
        ]

    def restore(self, told: Iterable[list[Any]]) -> None:
        """Take up what `snapshot` gave. Raises `TypeError` or `ValueError` for anything else, and is then as it was."""
        self._told = {
            (Scope(Rank(rank), str(name)), Dimension(dimension)): math.inf if end is None else float(end)
            for rank, name, dimension, end in told
        }
