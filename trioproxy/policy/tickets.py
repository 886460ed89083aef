"""A call's ticket for a place in the line, and what the line says about it.

    waiting ──granted──▶ granted ──settled or withdrawn──▶ gone
       └──refused, withdrawn──────────────────────────────▶ gone

The line never looks into buckets: it asks a `Capacity`, given by the shell, which takes what the ticket needs or objects.
"""

import enum
import math
from collections.abc import Callable, Hashable

from attrs import define, field, frozen


class State(enum.Enum):
    WAITING = "waiting"
    GRANTED = "granted"
    GONE = "gone"


class Why(enum.Enum):
    """Why a ticket was refused; the closed set."""

    FULL = "queue_full"
    TOO_LONG = "wait_too_long"  # what it waits for comes after its time
    NEVER = "never_fits"
    MAX_WAIT = "max_wait_passed"
    DEADLINE = "deadline_passed"
    PAUSED = "class_paused"


@define(eq=False)
class Ticket:
    """One call's place. `cost` is estimated tokens; `deadline` and `arrived` are seconds on the caller's monotonic clock.

    `scopes` names everything that the call draws from. Calls of a tenant with equal scopes wait in one lane, in order; where
    one waits for a scope, those behind it wait for that scope as well, so that small calls never starve a big one. Until it
    is offered, a ticket holds no place and is gone.
    """

    traffic_class: str
    tenant: str
    cost: int
    scopes: tuple[Hashable, ...] = ()
    weight: float = field(default=1.0, kw_only=True)
    deadline: float = field(default=math.inf, kw_only=True)
    arrived: float = field(init=False, default=0.0)
    expires: float = field(init=False, default=math.inf)
    granted_at: float | None = field(init=False, default=None)
    borrowed: bool = field(init=False, default=False)
    state: State = field(init=False, default=State.GONE)
    sequence: int = field(init=False, default=0)

    @property
    def waited(self) -> float:
        """Seconds in the queue, once granted."""
        return 0.0 if self.granted_at is None else self.granted_at - self.arrived


@frozen
class Objection:
    """Why a need does not fit now: the binding scope, and the seconds until it would by refill alone.

    `math.inf` is never. None is unknown: it depends on a call that has to give something back; `again` is then after how many
    seconds it is worth asking without that. `own`: only calls of the ticket's tenant draw from the scope, and it lets the
    ticket through no sooner than a call of that tenant gives something back, or that time has come.
    """

    at: Hashable
    wait: float | None
    again: float | None = None
    own: bool = False

    @property
    def soon(self) -> float | None:
        """Seconds after which to ask again; None where nobody can say."""
        return self.again if self.wait is None else self.wait


# None: it fitted, and has been taken.
Capacity = Callable[[Ticket, float], Objection | None]


@frozen
class Refused:
    """`retry_after` is seconds, from the measured drain of the line or from the bucket; None where nobody can say."""

    ticket: Ticket
    why: Why
    retry_after: float | None


@frozen
class Moves:
    """What a call on the line has moved: whom to wake, whom to turn away, and when to ask again (`math.inf`: no need)."""

    granted: tuple[Ticket, ...]
    refused: tuple[Refused, ...]
    wake_at: float
