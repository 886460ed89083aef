"""What one channel may be sent for one model, as its provider lets on: a lane for each limit that is configured or was told.

Every answer's headers correct the lanes they speak of; a 429 or 529 lowers the one that was nearest its end, because a refusal
without a word about which limit it was must not cost all of them. Our own configured limits stand beside this and stay
enforced: a throttle only ever takes away from them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field, frozen

from trioproxy.codec.ratelimits import INPUT, OUTPUT, REQUESTS, REQUESTS_DAY, TOKENS, Observation
from trioproxy.policy.lane import Lane
from trioproxy.policy.limits import Need
from trioproxy.policy.meter import MINUTE
from trioproxy.policy.news import Change, news

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
Marks = tuple[int, ...]  # what every lane had been sent when a call was; lanes are only ever added at the end


@frozen
class Short:
    """Why a call is not sent: who says so, about what, and the seconds to wait. `rule` is "provider", "learned", "ramp" or "warmup"."""

    rule: str
    name: str
    wait: float
    why: str


@frozen
class Reading:
    """One lane. Amounts are in the dimension's unit per window, None where nobody has said; `age` is seconds."""

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
    """The lanes of one model at one channel. `configured` is by dimension, per minute."""

    model: str
    configured: Mapping[str, float]
    # Until then no word is needed: the last one said that there is plenty, and what was sent since is counted.
    calm_until: float = field(init=False, default=0.0)
    _lanes: list[tuple[int, Lane]] = field(init=False, factory=list)  # with the place in a `Need`
    _places: dict[tuple[str, str], int] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        for name in self.configured:
            self._place(name, "")

    def objection(self, need: Need, now: float) -> Short | None:
        """The lane that `need` would have to wait for longest; None where it fits."""
        worst, amount, longest = None, 0, 0.0
        for unit, lane in self._lanes:
            wait = lane.wait(now, need[unit])
            if wait > longest:
                worst, amount, longest = lane, need[unit], wait
        return None if worst is None else _short(worst, amount, longest, now)

    def take(self, need: Need, now: float) -> Marks:
        """`need` is sent. What is returned goes with the answer to `observe`."""
        for unit, lane in self._lanes:
            lane.take(now, need[unit])
        return tuple([lane.taken for _, lane in self._lanes])

    def give_back(self, need: Need, now: float) -> None:
        """It never went out."""
        for unit, lane in self._lanes:
            lane.give_back(now, need[unit])

    def observe(self, seen: Iterable[Observation], marks: Marks, now: float) -> list[Change]:
        """Take up what an answer's headers tell. A lane that came after the call had been sent knows of nothing before."""
        changes: list[Change] = []
        for each in seen:
            name, limit, remaining, reset, scope = each
            place = self._places.get((name, scope))
            if place is None:
                if name not in UNITS or scope not in OURS:
                    continue
                place = self._place(name, scope)
            lane = self._lanes[place][1]
            known = lane.announced
            lane.observe(now, marks[place] if place < len(marks) else 0, (limit, remaining, reset))
            if lane.announced != known:
                changes += news(lane, "its provider announced it")
        plenty = all(lane.plenty for _, lane in self._lanes)
        self.calm_until = now + CALM if plenty else now
        return changes

    def refused(self, need: Need, now: float, quiet: float) -> list[Change]:
        """A 429 or 529. `quiet` is the larger of round trip and Retry-After: what comes meanwhile is the same news."""
        known = [(unit, lane) for unit, lane in self._lanes if lane.ceiling is not None and lane.window == MINUTE]
        nearest = max(known, key=lambda each: _strain(each[1], need[each[0]], now), default=None)
        lowered = nearest is not None and nearest[1].refused(now, need[nearest[0]], quiet)
        for unit, lane in self._lanes:  # it was not used
            lane.meter.add(now, -need[unit])
        return news(nearest[1], "its provider refused a call") if lowered and nearest else []

    def answered(self, now: float) -> list[Change]:
        """A success."""
        changes: list[Change] = []
        for _, lane in self._lanes:
            if lane.aimd is not None:
                lane.answered(now)
                changes += news(lane, "its provider takes more again")
        return changes

    def readings(self, now: float) -> list[Reading]:
        return [_reading(self.model, lane, now) for _, lane in self._lanes]

    def snapshot(self, now: float) -> list[list[Any]]:
        """What was learned: name, scope and the lane's own words of each that knows something."""
        told = ((name, scope, self._lanes[place][1].snapshot(now)) for (name, scope), place in self._places.items())
        return [[name, scope, lane] for name, scope, lane in told if lane is not None]

    def restore(self, kept: Iterable[list[Any]], now: float, age: float) -> None:
        """Take up what `snapshot` gave `age` seconds ago. Raises `KeyError`, `TypeError` or `ValueError` for what is none."""
        for name, scope, told in kept:
            place = self._places.get((name, scope))
            self._lanes[self._place(name, scope) if place is None else place][1].restore(told, now, age)

    def _place(self, name: str, scope: str) -> int:
        window = DAY if name == REQUESTS_DAY else MINUTE
        self._lanes.append((UNITS[name], Lane(name, self.configured.get(name), window)))
        self._places[name, scope] = len(self._lanes) - 1
        return len(self._lanes) - 1


def _strain(lane: Lane, amount: int, now: float) -> tuple[bool, float]:
    """How near its end a lane is: whether its provider says that this did not fit, and how much of it is used."""
    left = lane.left(now)
    return left is not None and left < amount, lane.meter.reading(now) / (lane.allowance or 1.0)


def _short(lane: Lane, amount: int, wait: float, now: float) -> Short:
    left = lane.left(now)
    if left is not None and left < amount:
        whole = "" if lane.announced is None else f" = {lane.announced:.0f}"
        said = f"its provider has {left:.0f} left of {lane.name}{whole} and this call needs {amount}"
        return Short("provider", lane.name, wait, f"{said}; wait {wait:.1f} s")
    allowed = 0.0 if lane.allowance is None else lane.allowance
    used = lane.meter.reading(now)
    said = f"its provider refused more than {allowed:.0f} {lane.name}, {used:.0f} of which are used; this call needs {amount}"
    return Short("learned", lane.name, wait, f"{said}; wait {wait:.1f} s")


def _reading(model: str, lane: Lane, now: float) -> Reading:
    left = lane.left(now)
    return Reading(
        model,
        lane.name,
        lane.configured,
        lane.announced,
        lane.allowance,
        None if lane.aimd is None else lane.aimd.limit,
        left,
        None if left is None else now - lane.seen,
        lane.meter.reading(now),
    )
