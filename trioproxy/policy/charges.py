"""What a provider counts against its limits when a call begins: the reservation on a channel's own buckets.

Each provider has its own arithmetic, and the wrong one either strands quota or earns a 429. The caller's own limits are not
concerned: they reserve the estimate as it is (`Estimate.need`).
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from attrs import frozen

from trioproxy.codec.frame import Facts
from trioproxy.codec.jsonsplice import Span
from trioproxy.journal import Usage
from trioproxy.policy.learned import Learned
from trioproxy.policy.limits import Need


@frozen
class Estimate:
    """What one call is expected to use, in tokens. `input` includes `cached`, the part that a cache will likely serve.

    `output` is the likely length, never above `cap`, the request's own bound on all its answers together (None without).
    """

    input: int
    output: int
    cached: int = 0
    cap: int | None = None

    @property
    def need(self) -> Need:
        """What the caller's own limits reserve."""
        return Need(1, self.input, self.output, self.input + self.output)


class Route(NamedTuple):
    """Where to look up what was learned. `name` is what decides how long answers are, `effort` how much is reasoned."""

    name: str
    channel: str = ""
    effort: str | None = None


def expected(tokens: int, facts: Facts, route: Route, learned: Learned) -> Estimate:
    """The estimate of a call whose input measures `tokens`, with the margins that experience asks for."""
    inward = math.ceil(tokens * learned.factor(route.channel))
    likely, cap = learned.output(route.name, route.effort), facts.output_cap
    outward = likely if cap is None else min(cap, likely)
    bound = None if cap is None else cap * facts.choices
    return Estimate(inward, outward * facts.choices, int(inward * learned.cached(route.name)), bound)


def effort_of(body: bytes, members: Mapping[str, Span]) -> str | None:
    """The reasoning effort that a request asks for; None where it asks for none in a way we know."""
    span = members.get("reasoning_effort")
    value = b"" if span is None else body[span[0] : span[1]]
    return value.strip(b'"').decode("ascii", "ignore") if value.startswith(b'"') else None


@frozen
class Charge:
    """How one provider family counts. Each field is one question that they answer differently.

    `output` says what stands for the answer before it exists: the request's cap where there is one, the likely length, or
    nothing, where tokens are counted as they are produced. `total` says how the two make one figure. `burndown` is what one
    token of output costs (Bedrock has models where it is more than one).
    """

    output: Literal["cap", "likely", "nothing"] = "cap"
    total: Literal["sum", "larger", "input", "nothing"] = "sum"
    cached_counts: bool = True
    burndown: float = 1.0

    def need(self, estimate: Estimate) -> Need:
        """What to reserve on a channel of this family."""
        inward = estimate.input if self.cached_counts else max(0, estimate.input - estimate.cached)
        outward = math.ceil(self._output(estimate) * self.burndown)
        return Need(1, inward, outward, self._total(inward, outward))

    def used(self, usage: Usage) -> Need:
        """What an answered call counts at the provider. What was not reserved is counted now, as it was produced."""
        inward = usage.input + (usage.cached if self.cached_counts else 0)
        outward = math.ceil(usage.output * self.burndown)
        return Need(1, inward, outward, self._total(inward, outward))

    def _total(self, inward: int, outward: int) -> int:
        if self.total == "sum":
            return inward + outward
        if self.total == "larger":
            return max(inward, outward)
        return inward if self.total == "input" else 0

    def _output(self, estimate: Estimate) -> int:
        if self.output == "nothing":
            return 0
        return estimate.cap if self.output == "cap" and estimate.cap is not None else estimate.output


CHARGES = {
    # "max(max_tokens, tokens estimated from the character count)": documented as a maximum, not a sum.
    "openai": Charge(total="larger"),
    # Prompt and max_tokens, added to a counter that begins anew each minute.
    "azure": Charge(),
    # Input and output are separate buckets; cache reads are free, output counts as it is produced.
    "anthropic": Charge(output="nothing", total="input", cached_counts=False),
    # Tokens per minute are input tokens only.
    "gemini": Charge(output="nothing", total="input"),
    # Cached tokens do not count.
    "groq": Charge(cached_counts=False),
    # max_tokens is taken off at the start.
    "bedrock": Charge(),
    # No token limit, only what it can bear at the moment.
    "deepseek": Charge(output="nothing", total="nothing"),
}
# Anybody else counts what is used; reserving a large cap in full would strand most of the quota.
OTHER = Charge(output="likely")


def charge_of(provider: str) -> Charge:
    """The arithmetic of a provider family; that of an unknown one is the sum of what is likely."""
    return CHARGES.get(provider, OTHER)
