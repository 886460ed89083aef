"""The deadlines of one call, as points in time.

`total` bounds the whole exchange: the class's own bound or the caller's tighter one. `start` bounds the wait for the first
byte (SDKs state such a timeout of their own accord). A caller's deadline is never evidence against a channel.
"""

from msgspec import Struct


class Deadlines(Struct, frozen=True):
    """Seconds on Trio's clock."""

    start: float
    total: float

    @classmethod
    def of(cls, now: float, *, total: float, wanted: float | None, first_byte: float | None) -> "Deadlines":
        """`total` is the class's bound, `wanted` the caller's, `first_byte` its bound for the start; seconds from now."""
        end = now + (total if wanted is None else min(total, wanted))
        return cls(end if first_byte is None else min(end, now + first_byte), end)
