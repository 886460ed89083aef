"""Random durations and sizes, written as text: `constant:0.05`, `uniform:0.01,0.03`, `lognormal:0.2,0.5`, `exponential:0.1`.

A bare number is a constant. The lognormal is given by its median and its sigma. Every draw is at least 0.
"""

import random
from collections.abc import Callable

Draw = Callable[[random.Random], float]


def parse(text: str) -> Draw:
    """The distribution that `text` names. Raises `ValueError` for another name or a wrong number of parameters."""
    name, _, rest = text.rpartition(":")
    values = [float(part) for part in rest.split(",")]
    match name, values:
        case (("" | "constant"), [value]):
            return lambda _: value
        case "uniform", [low, high]:
            return lambda rng: rng.uniform(low, high)
        case "lognormal", [median, sigma] if median > 0:
            return lambda rng: median * rng.lognormvariate(0.0, sigma)
        case "exponential", [mean] if mean > 0:
            return lambda rng: rng.expovariate(1.0 / mean)
    raise ValueError(
        f"{text!r} is no distribution: constant:V uniform:LOW,HIGH lognormal:MEDIAN,SIGMA exponential:MEAN"
    )
