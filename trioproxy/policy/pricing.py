"""What a call cost, in whole micro-USD.

Prices are USD per million tokens, which is micro-USD per token. They are kept as whole millionths of that, as price lists
write them: 1.005 has no float, and a hundred tokens of it are 101 and not 100. One rounding per call, half up.
"""

from attrs import field, frozen

from trioproxy.journal import Usage

_PARTS = 1_000_000


def _parts(price: float) -> int:
    return round(price * _PARTS)


@frozen
class Tariff:
    """One channel's prices: made from micro-USD per token, held in millionths of that."""

    input: int = field(converter=_parts)
    cached: int = field(converter=_parts)
    output: int = field(converter=_parts)

    def cost(self, usage: Usage) -> int:
        """Micro-USD, rounded half up; the same for the same usage whether it was streamed or not."""
        parts = usage.input * self.input + usage.cached * self.cached + usage.output * self.output
        return (parts + _PARTS // 2) // _PARTS
