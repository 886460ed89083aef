"""The breaker: decides before anything is sent whether a channel may be asked.

Closed = traffic flows, open = skipped at zero cost, half-open = a few leased probes. One class serves every preset; a
`BreakerPolicy` says which of its rules are in force:

    state      try_enter(now)              success             failure
    closed     permit                      forget the streak   count; at `failures` → open
    open       None until `opened+open_for`, then as half-open (or as closed where `probes` is 0)
    half-open  a permit while leases last  at `successes` → closed   → open again

A permit carries the epoch it was leased in: a result from an earlier epoch is a straggler and changes nothing, so that a
late success cannot close an open breaker. `abandon` returns a lease and is no evidence: the caller left, or we refused.

`resort` gives one permit at a time although it is open, to a caller that has nowhere else to go; it is a probe before its time.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from trioproxy.policy.permit import Permit, State
from trioproxy.policy.presets import PRESETS, BreakerPolicy
from trioproxy.policy.promptness import Slowness

__all__ = ["PRESETS", "Breaker", "BreakerPolicy", "Permit", "State"]  # who names a breaker names its rules


@define(eq=False)
class Breaker:
    """One channel's breaker. Every method takes `now`, seconds on a monotonic clock, and never blocks.

    What may open it takes `luck` too, a random number from 0 to 1 for the jitter.
    """

    policy: BreakerPolicy
    state: State = field(init=False, default=State.CLOSED)
    until: float = field(init=False, default=0.0)
    _failures: deque[float] = field(init=False, factory=deque)
    _epoch: int = field(init=False, default=0)
    _leases: int = field(init=False, default=0)
    _successes: int = field(init=False, default=0)
    _openings: int = field(init=False, default=0)  # since it last worked
    slowness: Slowness = field(init=False, factory=Slowness)

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

    def resort(self, now: float) -> Permit | None:
        """A permit also while it is open, if nobody has one: for a call that would otherwise be refused."""
        if self.state is not State.OPEN or now >= self.until:
            return self.try_enter(now)
        if self._leases:
            return None
        self._leases = 1
        return Permit(self._epoch, probe=True)

    def success(self, permit: Permit, now: float) -> None:
        """The channel answered. A stream that is cut afterwards is a `strike`."""
        if not self._take_back(permit):
            return
        if self.state is not State.CLOSED:
            self._successes += 1
            if self._successes < self.policy.successes:
                return
            self._move(State.CLOSED)
            permit.epoch = self._epoch  # what becomes of its stream concerns the state that it has made
            self._failures.clear()
        elif not self.policy.window:
            self._failures.clear()
        self._openings = 0

    def began(self, permit: Permit, first: float, now: float, luck: float = 0.5) -> bool:
        """A stream has its first content, so many seconds after it was asked for.

        That is all that a probe has to prove. Returns False for one that is slow, which is a failed one.
        """
        slow = self.policy.slow
        if permit.probe:
            if slow and first > slow:
                self.failure(permit, now, luck)
                return False
            self.success(permit, now)
        elif slow and permit.epoch == self._epoch:
            self.slowness.observe(late=first > slow, now=now)
            if self.slowness.beyond(self.policy.slow_quantile, self.policy.slow_minimum):
                self._open(now, luck)
        return True

    def failure(self, permit: Permit, now: float, luck: float = 0.5) -> None:
        """The channel failed in a way that counts against it."""
        if self._take_back(permit):
            self._strike(now, luck)

    def strike(self, permit: Permit, now: float, luck: float = 0.5) -> None:
        """The stream of a probe that had already succeeded was cut."""
        assert permit.spent, "a strike comes after a success"
        if permit.epoch == self._epoch:
            self._strike(now, luck)

    def trip(self, now: float, luck: float = 0.5) -> None:
        """Open it for a reason that is nobody's call: health checks that fail."""
        if self.state is State.CLOSED:
            self._open(now, luck)

    def _strike(self, now: float, luck: float) -> None:
        if self.state is not State.CLOSED:
            if self.policy.failed_probe == "count":
                self._failures.append(now)
            self._open(now, luck)
            return
        self._failures.append(now)
        self._forget(now)
        if len(self._failures) >= self.policy.failures:
            self._open(now, luck)

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

    def _open(self, now: float, luck: float) -> None:
        self.until = now + self.policy.rest(self._openings, luck)
        self._openings += 1
        self.slowness.forget()
        self._move(State.OPEN)

    def _move(self, state: State) -> None:
        self.state = state
        self._epoch += 1
        self._leases = 0
        if state is not State.HALF_OPEN:  # where a last resort has succeeded, that counts there too
            self._successes = 0

    def snapshot(self, now: float) -> dict[str, Any]:
        """Plain values, for a store: ages and remaining seconds, since another clock will read them."""
        ages = [now - failure for failure in self._failures]
        return {"state": self.state.value, "remaining": self.until - now, "ages": ages, "openings": self._openings}

    def restore(self, kept: Mapping[str, Any], now: float, age: float) -> None:
        """Take up what `snapshot` gave `age` seconds ago. Probes that were out then are not: nobody will answer for them.

        Raises `KeyError`, `TypeError` or `ValueError` for what no snapshot is; then nothing has changed.
        """
        state, openings = State(kept["state"]), int(kept["openings"])
        until = now - age + float(kept["remaining"])
        self._failures = deque(now - age - float(since) for since in kept["ages"])
        self.until = until if state is not State.CLOSED else 0.0
        self._openings = openings
        self._move(State.CLOSED if state is State.HALF_OPEN and not self.policy.probes else state)
