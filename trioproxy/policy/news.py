"""What is worth telling of a lane: an allowance that was announced, fell, rose by much, or is whole again."""

from attrs import frozen

from trioproxy.policy.lane import Lane
from trioproxy.policy.meter import MINUTE

UP, DOWN = 1.25, 0.95  # what is told of an allowance that moves in small steps


@frozen
class Change:
    """An allowance that moved by enough to tell. `was` is 0 where nothing had been known."""

    name: str
    was: float
    limit: float
    why: str


def news(lane: Lane, why: str) -> list[Change]:
    """The change since the lane was told of, where there is one; from here on it has been told."""
    is_now, told = lane.allowance, lane.configured if lane.told is None else lane.told
    if is_now is None or lane.window != MINUTE or is_now == told:
        return []
    if told is not None and is_now != lane.ceiling and told * DOWN <= is_now < told * UP:
        return []
    lane.told = is_now
    return [Change(lane.name, told or 0.0, is_now, why)]
