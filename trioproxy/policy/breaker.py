"""The breaker: decides before anything is sent whether a channel may be asked.

Closed = traffic flows, open = skipped at zero cost, half-open = a few leased probes. One class serves every preset; a
`BreakerPolicy` says which of its rules are in force:

    state      try_enter(now)              success             failure
    closed     permit                      forget the streak   count; at `failures` → open
    open       None until `opened+open_for`, then as half-open (or as closed where `probes` is 0)
    half-open  a permit while leases last  at `successes` → closed   → open again

A permit carries the epoch it was leased in: a result from an earlier epoch is a straggler and changes nothing, so that a
late success cannot close an open breaker. `abandon` returns a lease and is no evidence: the caller left, or we refused.
"""

import enum
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

from attrs import define, field, frozen, validators


class State(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@frozen
class BreakerPolicy:
    """When a breaker opens, for how long, and what closes it. Durations are seconds.

    `window` set: `failures` within that many seconds open it, and old ones still count after the cooldown. `window`
    0: `failures` in a row open it. `probes` 0: traffic simply flows again after `open_for`; otherwise that many calls at
    once are let through half-open, and `successes` of them close it. `failed_probe` says what a failed probe does to the
    count of failures: "keep" leaves it alone and only renews the cooldown (a probe is no traffic), "count" adds to it.
    """

    failures: int = field(default=3, validator=[validators.instance_of(int), validators.ge(1)])
    window: float = field(default=300.0, validator=validators.ge(0.0))
    open_for: float = field(default=60.0, validator=validators.gt(0.0))
    probes: int = field(default=0, validator=validators.ge(0))
    successes: int = field(default=1, validator=validators.ge(1))
    failed_probe: Literal["keep", "count"] = "keep"


# Three gateways that were written about in public. `four-layer`: 3 failures within 300 s, 60 s open, then traffic flows and
# old failures still count. `consecutive`: 5 in a row, 60 s, exactly one probe. `half-open`: 5 in a row, 30 s, 3 probes,
# 3 successes.
PRESETS = {
    "four-layer": BreakerPolicy(),
    "consecutive": BreakerPolicy(failures=5, window=0.0, open_for=60.0, probes=1),
    "half-open": BreakerPolicy(failures=5, window=0.0, open_for=30.0, probes=3, successes=3),
}


@define(eq=False)
class Permit:
    """Leave to make one attempt. Hand it back exactly once, with a result or with `abandon`."""

    epoch: int
    probe: bool
    spent: bool = False


@define(eq=False)
class Breaker:
    """One channel's breaker. Every method takes `now`, seconds on a monotonic clock, and never blocks."""

    policy: BreakerPolicy
    state: State = field(init=False, default=State.CLOSED)
    until: float = field(init=False, default=0.0)
    _failures: deque[float] = field(init=False, factory=deque)
    _epoch: int = field(init=False, default=0)
    _leases: int = field(init=False, default=0)
    _successes: int = field(init=False, default=0)

    def admits(self, now: float) -> bool:
        """Whether `try_enter` would give a permit now. Changes nothing."""
        if self.state is State.CLOSED:
            return True
        if self.state is State.OPEN:
            return now >= self.until
        return self._leases < self.policy.probes

    def try_enter(self, now: float) -> Permit | None:
        """A permit for one attempt, or None while the channel is to be left alone."""
        if self.state is State.OPEN and now >= self.until:
            self._move(State.HALF_OPEN if self.policy.probes else State.CLOSED)
        if self.state is State.CLOSED:
            return Permit(self._epoch, probe=False)
        if self.state is State.OPEN or self._leases >= self.policy.probes:
            return None
        self._leases += 1
        return Permit(self._epoch, probe=True)

    def success(self, permit: Permit, now: float) -> None:
        """The channel answered. A stream that is cut afterwards is a `strike`."""
        if not self._take_back(permit):
            return
        if self.state is State.HALF_OPEN:
            self._successes += 1
            if self._successes >= self.policy.successes:
                self._failures.clear()
                self._move(State.CLOSED)
                permit.epoch = self._epoch  # what becomes of its stream concerns the state that it has made
        elif not self.policy.window:
            self._failures.clear()

    def failure(self, permit: Permit, now: float) -> None:
        """The channel failed in a way that counts against it."""
        if not self._take_back(permit):
            return
        self._strike(now)

    def strike(self, permit: Permit, now: float) -> None:
        """The stream of a probe that had already succeeded was cut."""
        assert permit.spent, "a strike comes after a success"
        if permit.epoch == self._epoch:
            self._strike(now)

    def _strike(self, now: float) -> None:
        if self.state is State.HALF_OPEN:
            if self.policy.failed_probe == "count":
                self._failures.append(now)
            self._open(now)
            return
        self._failures.append(now)
        self._forget(now)
        if len(self._failures) >= self.policy.failures:
            self._open(now)

    def abandon(self, permit: Permit, now: float) -> None:
        """The attempt ended without evidence; a probe's lease is free again."""
        self._take_back(permit)

    def count(self, now: float) -> int:
        """Failures that count at the moment."""
        self._forget(now)
        return len(self._failures)

    @property
    def leases(self) -> int:
        """Probes that are out."""
        return self._leases

    def _take_back(self, permit: Permit) -> bool:
        """Whether the permit's result still concerns this epoch."""
        assert not permit.spent, "a permit is handed back exactly once"
        permit.spent = True
        if permit.epoch != self._epoch:
            return False
        if permit.probe:
            self._leases -= 1
        return True

    def _forget(self, now: float) -> None:
        if self.policy.window:
            while self._failures and self._failures[0] <= now - self.policy.window:
                self._failures.popleft()

    def _open(self, now: float) -> None:
        self.until = now + self.policy.open_for
        self._move(State.OPEN)

    def _move(self, state: State) -> None:
        self.state = state
        self._epoch += 1
        self._leases = self._successes = 0

    def snapshot(self, now: float) -> dict[str, Any]:
        """Plain values, for a store: ages and remaining seconds, since another clock will read them."""
        return {
            "state": self.state.value,
            "remaining": self.until - now,
            "ages": [now - failure for failure in self._failures],
        }

    def restore(self, kept: Mapping[str, Any], now: float, age: float) -> None:
        """Take up what `snapshot` gave `age` seconds ago. Probes that were out then are not: nobody will answer for them.

        Raises `KeyError`, `TypeError` or `ValueError` for what no snapshot is; then nothing has changed.
        """
        state = State(kept["state"])
        until = now - age + float(kept["remaining"])
        self._failures = deque(now - age - float(since) for since in kept["ages"])
        self.until = until if state is not State.CLOSED else 0.0
        self._move(State.CLOSED if state is State.HALF_OPEN and not self.policy.probes else state)
