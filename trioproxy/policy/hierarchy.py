"""The quota of one process: reserve before sending, settle after, on every scope of a call at once.

All or nothing: every limiter of the path is asked before any is charged, and there is no await in between. Invariant, at
each limiter and at every moment: what is free, held by open reservations and spent adds up to what it started with and
regained. A limiter that observes and objects is not charged, as if it had refused: what it reports stays true.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from attrs import define, field, frozen

from trioproxy.policy.account import Account, Accounts, told_of
from trioproxy.policy.gauge import Gauge, Least, gauge, gauges, least
from trioproxy.policy.limits import NOTHING, Dimension, Limiter, Need
from trioproxy.policy.reservation import Denial, Hold, Objection, Path, Rank, Reservation, Step


@frozen
class QuotaStatistics:
    """`held` sums the callers' parts of open reservations, by unit. `denials` counts what refused, `observed` what would have."""

    accounts: int
    limiters: int
    open: int
    held: Need
    denials: dict[tuple[Rank, Dimension], int]
    observed: dict[tuple[Rank, Dimension], int]


@define(eq=False)
class Quota:
    """Every method takes `now`, monotonic seconds, and most `wall`, seconds since 1970. None blocks."""

    accounts: Accounts = field(init=False, factory=Accounts)
    _open: set[Reservation] = field(init=False, factory=set)
    _denials: Counter[tuple[Rank, Dimension]] = field(init=False, factory=Counter)
    _observed: Counter[tuple[Rank, Dimension]] = field(init=False, factory=Counter)

    def reserve(
        self, path: Path, need: Need, now: float, wall: float, *, at_channel: Need | None = None
    ) -> Reservation | Denial:
        """Hold `need` at every caller's scope and `at_channel` (by default the same) at the channel, or nothing at all."""
        outcome = self.ask(path, need, now, wall, at_channel=at_channel)
        if isinstance(outcome, Denial):
            self.deny(outcome)
        elif outcome.observed:
            self.admit(outcome)
        return outcome

    def ask(
        self, path: Path, need: Need, now: float, wall: float, *, at_channel: Need | None = None
    ) -> Reservation | Denial:
        """As `reserve`, for one who may ask again: what comes of it counts where it is the last word, by `deny` or `admit`."""
        objections: list[Objection] = []
        callers = self._ask(path.callers, need, now, wall, objections=objections)
        channel = None
        if path.channel is not None:
            channel = self._ask((path.channel,), at_channel or need, now, wall, objections=objections)
        if objections:
            denial = self._judge(objections)
            if denial is not None:
                return denial
        callers.take()
        if channel is not None:
            channel.take()
        reservation = Reservation(callers, channel, objections)
        self._open.add(reservation)
        return reservation

    def deny(self, denial: Denial) -> None:
        """Count a denial, and what only observed it."""
        self._observed.update(objection.limiter for objection in denial.observed)
        self._denials[denial.binding.limiter] += 1

    def admit(self, reservation: Reservation) -> None:
        """Count what would have refused the call, had it been in force. What was counted before is not counted again."""
        fresh = reservation.observed[reservation.counted :]
        if fresh:
            self._observed.update(objection.limiter for objection in fresh)
            reservation.counted += len(fresh)

    def move(self, reservation: Reservation, channel: Step, need: Need, *, now: float, wall: float) -> Denial | None:
        """Failover: the channel's part goes to another channel, the callers' parts stay as they are.

        Refused, nothing changes and nothing is counted. What the failed attempt used at the old channel is told by `leave`
        beforehand; without that it is given back whole.
        """
        assert not reservation.settled, "a settled reservation holds nothing that could move"
        objections: list[Objection] = []
        hold = self._ask((channel,), need, now, wall, objections=objections)
        if objections:
            denial = self._judge(objections)
            if denial is not None:
                return denial
            reservation.observed.extend(objections)
        self.leave(reservation, NOTHING, now)
        hold.take()
        reservation.channel = hold
        if reservation.observed:
            self.admit(reservation)
        return None

    def leave(self, reservation: Reservation, spent: Need, now: float) -> None:
        """Settle the channel's part alone at what an attempt used there; no-op where no channel's part is held."""
        hold, reservation.channel = reservation.channel, None
        if hold is not None:
            hold.settle(spent, now)

    def settle(self, reservation: Reservation, actual: Need, now: float, at_channel: Need | None = None) -> None:
        """Replace the reservation by what was used; `NOTHING` gives it back whole. Exactly once.

        It is settled where it was reserved: in the windows of that moment, at limiters that may be out of the
        configuration by now.
        """
        assert not reservation.settled, "a reservation is settled exactly once"
        reservation.settled = True
        self._open.remove(reservation)
        reservation.callers.settle(actual, now)
        if reservation.channel is not None:
            reservation.channel.settle(at_channel or actual, now)

    def charge(self, path: Path, used: Need, now: float, wall: float) -> None:
        """Debit what nobody reserved: what the ledger says was spent before a restart, or a bill that came late."""
        for account in self.accounts.of(path.steps, now, wall):
            for limiter in account.limiters:
                limiter.settle(0, used[limiter.rule.unit], now, wall)

    def snapshot(self, now: float, wall: float, some: Iterable[Account] | None = None) -> list[list[Any]]:
        """What was used at every limiter, or those of some accounts, as plain values; about 6 µs an account.

        What open calls hold is left out: they settle by themselves.
        """
        accounts = list(self.accounts if some is None else some)
        held: dict[int, list[tuple[float, int]]] = {
            id(limiter): [] for account in accounts if account.calls for limiter in account.limiters
        }
        parts = ((each.callers, each.channel) for each in (self._open if held else ()))
        for hold in (hold for both in parts for hold in both if hold is not None):
            for limiter in hold.limiters:
                if (known := held.get(id(limiter))) is not None:
                    known.append((hold.at, hold.need[limiter.rule.unit]))
        return told_of(accounts, now, wall, held)

    def sweep(self, now: float, wall: float, count: int = 1_000) -> None:
        """Drop idle limiters among the next `count` scopes; to be called every second or so."""
        self.accounts.sweep(now, wall, count)

    def gauges(self, path: Path, now: float, wall: float) -> list[Gauge]:
        """Every limiter of a path, outermost first."""
        return gauges(self.accounts.of(path.steps, now, wall), now, wall)

    def tightest(self, path: Path, now: float, wall: float) -> list[Gauge]:
        """Of each dimension the limiter of a path that has least left; those that only observe are passed over."""
        return [gauge(account, limiter, now, wall) for _, account, limiter in self.least(path.steps, now, wall)]

    def least(self, steps: tuple[Step, ...], now: float, wall: float) -> list[Least]:
        """The same as the limiters themselves, with what is left of each."""
        return least(self.accounts.of(steps, now, wall), now, wall)

    def readings(self, now: float, wall: float) -> list[Gauge]:
        """Every limiter that is not at rest, or that a call has met since it was last."""
        return gauges(self.accounts, now, wall)

    def statistics(self) -> QuotaStatistics:
        needs = [reservation.callers.need for reservation in self._open]
        return QuotaStatistics(
            accounts=len(self.accounts),
            limiters=sum(len(account.limiters) for account in self.accounts),
            open=len(needs),
            held=Need(*map(sum, zip(NOTHING, *needs, strict=True))),
            denials=dict(self._denials),
            observed=dict(self._observed),
        )

    def _ask(
        self, steps: tuple[Step, ...], need: Need, now: float, wall: float, *, objections: list[Objection]
    ) -> Hold:
        """What would be held at these steps, at every limiter that has no objection. Nothing is charged yet."""
        accounts = self.accounts.of(steps, now, wall)
        limiters: list[Limiter] = []
        for account in accounts:
            for limiter in account.limiters:
                rule = limiter.rule
                wait = limiter.objection(now, wall, need[rule.unit])
                if wait is None:
                    limiters.append(limiter)
                    continue
                left = limiter.remaining(now, wall)
                objections.append(Objection(account.scope, rule, left, need[rule.unit], wait))
        return Hold(accounts, limiters, need, wall)

    def _judge(self, objections: list[Objection]) -> Denial | None:
        """None where all that objected only observe."""
        observed = [objection for objection in objections if objection.rule.observe]
        if len(observed) == len(objections):
            return None
        binding = max((each for each in objections if not each.rule.observe), key=lambda each: each.wait)
        return Denial(binding, tuple(observed))
