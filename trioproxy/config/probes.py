"""Health checks as an operator configures them: how often, and what their results may do.

They are off until the file has a `[probes]` section: each is a real completion that somebody pays for, and at one a minute
it would use up by itself what a free account may ask in a day. With the section they run once a minute.
"""

from typing import Literal

from attrs import field, frozen, validators

from trioproxy.config import rules


@frozen
class Probe:
    """How one channel is checked."""

    enabled: bool = True
    # the provider's name; None: that of the first link to the channel
    model: str | None = field(default=None, validator=validators.optional(rules.model_name))
    # before `params.rename`
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    tokens: int = field(default=1, validator=rules.at_least(1))


@frozen
class Probes:
    """When the channels are checked, and what follows."""

    every: float = field(default=60.0, validator=rules.positive)
    # while the breaker is not closed; never later than half of its `open_for`, so that no call has to find out
    every_open: float = field(default=10.0, validator=rules.positive)
    # a share either way, so that gateways that began together do not ask together
    jitter: float = field(default=0.1, validator=rules.share)
    timeout: float = field(default=3.0, validator=rules.positive)
    closes: bool = True
    # so many in a row open the breaker, if no call was answered between; 0: they never do
    failures: int = field(default=3, validator=rules.at_least(0))
