"""The throttle: what one channel may be sent for one model, an allotment for each limit that is configured or was told.

Every answer's headers correct the allotments they speak of; a 429 or 529 lowers the one that was nearest its end, because a
refusal without a word about which limit it was must not cost all of them. Our own configured limits stand beside this and stay
enforced: a throttle only ever takes away from them.
"""

from collections.abc import Iterable, Mapping

from attrs import define, field, frozen

from trioproxy.codec.ratelimits import INPUT, OUTPUT, REQUESTS, REQUESTS_DAY, TOKENS, Observation
from trioproxy.policy.allotment import Allotment
from trioproxy.policy.limits import Need
from trioproxy.policy.meter import MINUTE

DAY = 86_400.0
CALM = 0.1  # seconds: too little for half of a minute's limit, and at a thousand calls a second all but ten are spared the reading
# Which part of a `Need` a dimension is. Capacity in per cent is none: what a call takes of it nobody knows beforehand.
UNITS = {
    REQUESTS: Need._fields.index("requests"),
    REQUESTS_DAY: Need._fields.index("requests"),
    TOKENS: Need._fields.index("total_tokens"),
    INPUT: Need._fields.index("input_tokens"),
    OUTPUT: Need._fields.index("output_tokens"),
}
OURS = frozenset({"", "project"})  # the other scopes are of tiers that a call must ask for
Marks = tuple[int, ...]  # what every allotment had been sent when a call was; allotments are only ever added at the end


@frozen
class Short:
    """Why a call is not sent: who says so, about what, and the seconds to wait. `rule` is "provider", "learned", "ramp" or "warmup"."""

    rule: str
    name: str
    wait: float
    why: str


@frozen
class Change:
    """An allowance that moved by enough to tell. `was` is 0 where nothing had been known."""

    name: str
    was: float
    limit: float
    why: str


@frozen
class AllotmentStatistics:
    """One allotment. Amounts are in the dimension's unit per window, None where nobody has said; `age` is seconds."""

    model: str
    name: str
    configured: float | None
    announced: float | None
    allowance: float | None
    tried: float | None  # what refusals have left of it, while they are remembered
    remaining: float | None
    age: float | None
    used: float  # in the last minute


@define(eq=False)
class Throttle:
    """The allotments of one model at one channel. `configured` is by dimension, per minute."""

    model: str
    configured: Mapping[str, float]
    # Until then no word is needed: the last one said that there is plenty, and what was sent since is counted.
    calm_until: float = field(init=False, default=0.0)
    _allotments: list[tuple[int, Allotment]] = field(init=False, factory=list)  # with the place in a `Need`
    _places: dict[tuple[str, str], int] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        for name in self.configured:
            self._place(name, "")

    def objection(self, need: Need, now: float) -> Short | None:
        """The allotment that `need` would have to wait for longest; None where it fits."""
        worst, amount, longest = None, 0, 0.0
        for unit, allotment in self._allotments:
            wait = allotment.wait(now, need[unit])
            if wait > longest:
                worst, amount, longest = allotment, need[unit], wait
        return None if worst is None else _short(worst, amount, longest, now)

    def take(self, need: Need, now: float) -> Marks:
        """`need` is sent. What is returned goes with the answer to `observe`."""
        for unit, allotment in self._allotments:
            allotment.take(now, need[unit])
        return tuple([allotment.taken for _, allotment in self._allotments])

    def give_back(self, need: Need, now: float) -> None:
        """It never went out."""
        for unit, allotment in self._allotments:
            allotment.give_back(now, need[unit])

    def observe(self, seen: Iterable[Observation], marks: Marks, now: float) -> list[Change]:
        """Take up what an answer's headers tell. An allotment that came after the call had been sent knows of nothing before."""
        changes: list[Change] = []
        for each in seen:
            name, limit, remaining, reset, scope = each
            place = self._places.get((name, scope))
            if place is None:
                if name not in UNITS or scope not in OURS:
                    continue
                place = self._place(name, scope)
            allotment = self._allotments[place][1]
            known = allotment.announced
            allotment.observe(now, marks[place] if place < len(marks) else 0, (limit, remaining, reset))
            if allotment.announced != known:
                changes += _news(allotment, "its provider announced it")
        plenty = all(allotment.plenty for _, allotment in self._allotments)
        self.calm_until = now + CALM if plenty else now
        return changes

    def refused(self, need: Need, now: float, quiet: float) -> list[Change]:
        """A 429 or 529. `quiet` is the larger of round trip and Retry-After: what comes meanwhile is the same news."""
        known = [
            (unit, allotment)
            for unit, allotment in self._allotments
            if allotment.ceiling is not None and allotment.window == MINUTE
        ]
        nearest = max(known, key=lambda each: _strain(each[1], need[each[0]], now), default=None)
        lowered = nearest is not None and nearest[1].refused(now, need[nearest[0]], quiet)
        for unit, allotment in self._allotments:  # it was not used
            allotment.meter.add(now, -need[unit])
        return _news(nearest[1], "its provider refused a call") if lowered and nearest else []

    def answered(self, now: float) -> list[Change]:
        """A success."""
        changes: list[Change] = []
        for _, allotment in self._allotments:
            if allotment.aimd is not None:
                allotment.answered(now)
                changes += _news(allotment, "its provider takes more again")
        return changes

    def readings(self, now: float) -> list[AllotmentStatistics]:
        return [_reading(self.model, allotment, now) for _, allotment in self._allotments]

    def _place(self, name: str, scope: str) -> int:
        window = DAY if name == REQUESTS_DAY else MINUTE
        self._allotments.append((UNITS[name], Allotment(name, self.configured.get(name), window)))
        self._places[name, scope] = len(self._allotments) - 1
        return len(self._allotments) - 1


def _news(allotment: Allotment, why: str) -> list[Change]:
    moved = allotment.news()
    return [] if moved is None else [Change(allotment.name, *moved, why)]


def _strain(allotment: Allotment, amount: int, now: float) -> tuple[bool, float]:
    """How near its end an allotment is: whether its provider says that this did not fit, and how much of it is used."""
    left = allotment.left(now)
    return left is not None and left < amount, allotment.meter.reading(now) / (allotment.allowance or 1.0)


def _short(allotment: Allotment, amount: int, wait: float, now: float) -> Short:
    left = allotment.left(now)
    if left is not None and left < amount:
        whole = "" if allotment.announced is None else f" = {allotment.announced:.0f}"
        said = f"its provider has {left:.0f} left of {allotment.name}{whole} and this call needs {amount}"
        return Short("provider", allotment.name, wait, f"{said}; wait {wait:.1f} s")
    allowed = 0.0 if allotment.allowance is None else allotment.allowance
    used = allotment.meter.reading(now)
    said = f"its provider refused more than {allowed:.0f} {allotment.name}, {used:.0f} of which are used; this call needs {amount}"
    return Short("learned", allotment.name, wait, f"{said}; wait {wait:.1f} s")


def _reading(model: str, allotment: Allotment, now: float) -> AllotmentStatistics:
    left = allotment.left(now)
    return AllotmentStatistics(
        model,
        allotment.name,
        allotment.configured,
        allotment.announced,
        allotment.allowance,
        None if allotment.aimd is None else allotment.aimd.limit,
        left,
        None if left is None else now - allotment.seen,
        allotment.meter.reading(now),
    )
