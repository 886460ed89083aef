"""What a call cost, in whole micro-USD.

Prices are USD per million tokens, which is micro-USD per token: no division, and one rounding per call, half up.
"""

from attrs import frozen

from trioproxy.journal import Usage


@frozen
class Tariff:
    """One channel's prices, micro-USD per token."""

    input: float
    cached: float
    output: float

    def cost(self, usage: Usage) -> int:
        """Micro-USD, rounded half up; the same for the same usage whether it was streamed or not."""
        return int(usage.input * self.input + usage.cached * self.cached + usage.output * self.output + 0.5)
