"""The states of a breaker, and what it gives out: leave for one attempt, good in the state it was given in."""

import enum

from attrs import define


class State(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@define(eq=False)
class Permit:
    """Leave to make one attempt. Hand it back exactly once, with a result or with `abandon`."""

    epoch: int
    probe: bool
    spent: bool = False
