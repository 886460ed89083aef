"""The pacer of one channel: keeps its pace (`policy.pace`), teaches it what attempts and headers tell, and tells the journal.

What an attempt takes of the pace it holds as `Sent`, and it is given back where nothing went to the provider.
"""

from collections.abc import Iterable

from attrs import define

from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.journal import GrowthPaused, Journal, LimitLearned
from trioproxy.policy.limits import Need
from trioproxy.policy.pace import Pace, Sent
from trioproxy.policy.slots import Slots
from trioproxy.policy.throttle import Change, Short

REFUSALS = frozenset({FaultKind.RATE_LIMITED, FaultKind.RAMP})  # and whatever came as a 529
OVERLOADED = 529


@define(eq=False)
class Pacer:
    """The pace of the channel called `name`. Methods take `now`, seconds on Trio's clock, and never block."""

    name: str
    pace: Pace
    slots: Slots
    journal: Journal

    def may_send(self, model: str, need: Need, now: float, *, alone: bool) -> Short | Sent:
        """Why a call that needs so much is passed over, or what it takes of what the channel may be sent: see `Pace.enter`."""
        self._look(now)
        return self.pace.enter(model, need, now, alone=alone)

    def heard(self, model: str, sent: Sent | None, told: list[tuple[bytes, bytes]], *, now: float, wall: float) -> None:
        """An answer's headers tell of the provider's limits. `wall` is Unix seconds."""
        self._learned(self.pace.heard(model, sent, told, now=now, wall=wall), now)

    def settle(self, model: str, sent: Sent | None, fault: Fault | None, now: float) -> None:
        """What the end of an attempt tells of how much the channel bears."""
        if fault is not None and (fault.kind in REFUSALS or fault.status == OVERLOADED):
            changes = self.pace.refused(model, sent, now, fault.cooldown)
        elif sent is None:
            return
        else:
            changes = self.pace.ended(model, now, failed=fault is not None and fault.blame is not Blame.CLIENT)
        self._learned(changes, now)
        self._look(now)

    def answered(self, seconds: float, now: float) -> None:
        """The first byte of a stream was here after so many seconds, or a whole answer."""
        if self.pace.governor is not None:
            self.pace.governor.answered(now, seconds)

    def recovered(self, now: float) -> None:
        """The channel is back after it was out: it is warmed up."""
        if self.pace.governor is not None:
            self.pace.governor.recovered(now)

    def _look(self, now: float) -> None:
        """Whether growth pauses, or goes on."""
        governor = self.pace.governor
        why = None if governor is None else governor.look(now, self.slots.waiting)
        if why is not None:
            self.journal.emit(GrowthPaused(self.name, why, now))

    def _learned(self, changes: Iterable[Change], now: float) -> None:
        for change in changes:
            unit = "requests" if change.name.startswith("requests") else "tokens"
            why = f"{change.name}: {change.why}"
            told = LimitLearned(self.name, unit, round(change.was, 1), round(change.limit, 1), why, now)
            self.journal.emit(told)
