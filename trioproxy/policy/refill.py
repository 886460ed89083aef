"""How a provider's limit refills, read from what its headers say of it.

Two ways hide behind the same headers. Where the time to the reset is what the limit's rate would take to fill, it is a bucket, and a
part of it is back long before the reset. Where it is shorter, it is a window, which gives nothing until it ends. Where it is
longer, the limit is one of a longer time than its name says, and refills as slowly as that.
"""

import math

GAP = 0.1  # by so much of itself, and a second, does a time to reset differ from another one


def refill(announced: float | None, left: float, reset: float | None, window: float) -> tuple[float, float]:
    """Units per second from now on, and after how many seconds all of it is back at once."""
    rate = 0.0 if announced is None else announced / window
    if reset is None:
        return rate, math.inf
    missing = 0.0 if announced is None else announced - left
    likely = missing / rate if rate else math.inf
    if reset < likely * (1 - GAP) - 1:
        return 0.0, reset
    if reset > likely * (1 + GAP) + 1:
        return missing / reset, reset
    return rate, math.inf
