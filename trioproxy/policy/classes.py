"""The five traffic classes and how each waits, as frozen data; a class of an operator's own waits as the fields say.

Classes are served by `priority`, the smallest first; `share` is the part of what passes that a class gets even then, so
that none starves. What a class waits for is capacity; the queue is bounded in places and in time, and refuses at once
what it cannot serve in time.
"""

from typing import Literal

from attrs import field, frozen, validators


@frozen
class QueuePolicy:
    """How one class waits. Durations are seconds, rates tokens per minute, costs estimated tokens.

    `otherwise` is what becomes of a call that was not served in time: another model answers where the compatibility
    policy allows it, the caller is refused, or the call is put off. `tokens_per_minute` is the class's own pool, None for
    none; `burst` is how many seconds of it may pass at once: small smooths. `reclaim` bounds how long a tenant that returns
    to its guaranteed part of the pool waits for what was lent meanwhile. `output_headroom` multiplies the estimated output.
    """

    priority: int = 1
    bound: int = field(default=256, validator=validators.ge(0))
    max_wait: float = field(default=10.0, validator=validators.ge(0.0))
    share: float = field(default=0.0, validator=[validators.ge(0.0), validators.lt(1.0)])
    otherwise: Literal["fallback", "refuse", "defer"] = "refuse"
    tokens_per_minute: int | None = field(default=None, validator=validators.optional(validators.gt(0)))
    burst: float = field(default=60.0, validator=validators.gt(0.0))
    reclaim: float = field(default=5.0, validator=validators.gt(0.0))
    output_headroom: float = field(default=1.0, validator=validators.ge(1.0))
    pause_in_incident: bool = False

    @property
    def pooled(self) -> bool:
        return self.tokens_per_minute is not None

    def __attrs_post_init__(self) -> None:
        if self.reclaim > self.burst:
            raise ValueError(f"reclaim of {self.reclaim} s is more than the pool holds: burst is {self.burst} s")


# Calls of a class without a queue cannot wait, but they do not go past those who wait for the same either: they have their
# place in the order of classes, that of a queue of which nothing is said.
NO_QUEUE = QueuePolicy(bound=0, max_wait=0.0)

# The waits of 300 ms and 20 min and the manners are what the classes mean. Bounds: a place costs about 1 KB, so they are set by what may
# be served in time. 5 % for each of those that nobody looks at; agentic loops hold a person up, hence more.
# The pools of eval and background are small enough for the smallest provider tier and are meant to be configured.
CLASSES = {
    "interactive": QueuePolicy(0, bound=64, max_wait=0.3, otherwise="fallback"),
    "agentic": QueuePolicy(1, bound=256, max_wait=10.0, share=0.20, output_headroom=1.5),
    "batch": QueuePolicy(2, bound=10_000, max_wait=1_200.0, share=0.05, burst=10.0),
    "eval": QueuePolicy(3, bound=1_000, max_wait=300.0, share=0.05, tokens_per_minute=60_000, pause_in_incident=True),
    "background": QueuePolicy(
        4, bound=1_000, max_wait=600.0, share=0.05, otherwise="defer", tokens_per_minute=30_000, burst=10.0
    ),
}
