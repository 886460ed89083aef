"""When an alert is told: once per cause and period, again while it lasts, and once more when it is over.

A matter is one cause with one subject, such as the open breaker of one channel. It begins, it lasts, it ends; what ends and begins
again within `calm` seconds is the same matter, so a flapping one is told once. Invariants: two alerts of a matter are at
least `every` seconds apart, every recovery follows an alert, and at most one follows each.

`now` is monotonic seconds. Nothing is told before `tick`, which is to be called about once a second.
"""

import math

from attrs import define, field, frozen, validators

from trioproxy.journal import AlertCause, AlertTold

MOST = 256  # matters at once; what is beyond is one more, so that a flood of names neither fills memory nor a pager
BEYOND = "(others)"
LONGEST = 200  # characters of a subject

SEVERITIES = ("info", "warning", "critical")
# Critical: calls fail now, records are at risk, or nothing gets well before a person acts.
SEVERITY = dict.fromkeys(AlertCause, "warning") | {
    AlertCause.CHANNEL_PARKED: "critical",
    AlertCause.CHAIN_EXHAUSTED: "critical",
    AlertCause.STORE_TROUBLE: "critical",
    AlertCause.TOKEN_PRESSURE: "info",
    AlertCause.ESTIMATE_DRIFT: "info",
    AlertCause.GROWTH_PAUSED: "info",
    AlertCause.TEST: "info",
}


@frozen
class Rhythm:
    """How often one matter is told. Seconds."""

    every: float = field(default=900.0, validator=validators.gt(0.0))  # a person looks after what was told in between
    # while it lasts, told again so often; 4 hours is Alertmanager's own
    remind: float = field(default=14_400.0, validator=validators.gt(0.0))
    # over is what did not come back for so long: a breaker without probes closes untried and opens with the next failure
    calm: float = field(default=60.0, validator=validators.ge(0.0))


@define(eq=False)
class Matter:
    """One cause with one subject. `over_at` is None while it lasts."""

    message: str
    since: float
    over_at: float | None
    lasting: bool
    told_at: float = -math.inf
    owed: bool = False  # its end is to be told, since its beginning was
    fresh: bool = False  # it happened since the last tick
    count: int = 0  # how often it happened since it was told


@define(eq=False)
class Matters:
    """All that there is to tell, bounded."""

    rhythm: Rhythm = field(factory=Rhythm)
    _open: dict[tuple[AlertCause, str], Matter] = field(init=False, factory=dict)

    @property
    def idle(self) -> bool:
        """Whether nothing is to be told or forgotten soon: what there is lasts, and was told."""
        return all(matter.over_at is None and matter.owed and not matter.fresh for matter in self._open.values())

    def begin(self, cause: AlertCause, subject: str, message: str, now: float, *, lasting: bool = True) -> None:
        """It happens, or happens again. What is not `lasting` is over by itself, and its end is not told."""
        key = cause, subject[:LONGEST]
        if key not in self._open and len(self._open) >= MOST:
            key, lasting = (cause, BEYOND), False
        over_at = None if lasting else now
        matter = self._open.get(key)
        if matter is None:
            matter = self._open[key] = Matter(message, now, over_at, lasting)
        elif matter.over_at is not None and not matter.owed:
            matter.since = now
        matter.message, matter.over_at, matter.lasting = message, over_at, lasting
        matter.fresh = True
        matter.count += 1

    def end(self, cause: AlertCause, subject: str, now: float, *, quietly: bool = False) -> None:
        """It is over, if it was there at all; `quietly`: and something else tells so."""
        matter = self._open.get((cause, subject[:LONGEST]))
        if matter is not None and matter.over_at is None:
            matter.over_at = now
            matter.owed = matter.owed and not quietly
            matter.fresh = matter.fresh and not quietly

    def tick(self, now: float) -> list[AlertTold]:
        """What is to be told now."""
        told = []
        for key, matter in list(self._open.items()):
            state = self._turn(matter, now)
            if state is not None:
                count, matter.count = matter.count, 0
                severity = SEVERITY[key[0]]
                told.append(AlertTold(*key, severity, state, matter.message, count, matter.since, now))
            elif self._forgotten(matter, now):
                del self._open[key]
        return told

    def _turn(self, matter: Matter, now: float) -> str | None:
        """Take the matter to `now`: the state that it is told in, None where it is not."""
        happens = matter.over_at is None or (matter.fresh and not matter.owed)
        matter.fresh = False
        # One that was told and has not recovered is reminded of, at its own pace.
        wait = max(self.rhythm.every, self.rhythm.remind) if matter.owed else self.rhythm.every
        if happens and now - matter.told_at >= wait:
            matter.told_at, matter.owed = now, matter.lasting
            return "raised"
        if matter.owed and matter.over_at is not None and now - matter.over_at >= self.rhythm.calm:
            matter.owed = False
            return "recovered"
        return None

    def _forgotten(self, matter: Matter, now: float) -> bool:
        """What was counted without being told waits for the next alert, but not for ever."""
        if matter.over_at is None or matter.owed or now - matter.told_at < self.rhythm.every:
            return False
        return not matter.count or now - matter.over_at >= self.rhythm.remind
