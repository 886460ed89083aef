"""A call's turn in the line of its class, and the place at a channel that it finds then: a slot, and room in its limits.

A call that waits in its class's queue waits for its channels as well, so that no one is granted only to wait once more, in
order of arrival, at a channel. The place is held from the grant on; the walk goes straight to it.
"""

import math
from collections.abc import Callable, Hashable, Mapping

from attrs import define, field, frozen

from trioproxy.channel import ChannelState
from trioproxy.phases.allowance import why
from trioproxy.policy import tickets
from trioproxy.policy.chain import Candidate, Chain
from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Denial, Objection, Rank, Scope
from trioproxy.policy.slots import Ticket
from trioproxy.waiting_room import Waiter, WaitingRoom

Move = Callable[
    [Candidate], Denial | None
]  # take what the channel's limits ask for; None where it has none, or it fitted

NO_SLOT = "all of its places were taken"


def seconds(objection: Objection) -> float | None:
    """The wait as the queue wants it: None where it is for another call's end."""
    if objection.rule.dimension is Dimension.CONCURRENCY and objection.wait < math.inf:
        return None
    return objection.wait


@frozen
class Chains:
    """What the queue asks about a call's channels. `name` is the model's."""

    name: str
    channels: Mapping[str, ChannelState]

    def scope(self, chain: Chain) -> Hashable:
        """What calls for the same channels wait for together."""
        every = {step.channel for step in (*chain.steps, *chain.beyond, *chain.left_out)}
        return Scope(Rank.CHANNEL, every.pop()) if len(every) == 1 else ("chain", self.name)

    def incident(self, chain: Chain, now: float) -> tickets.Objection | None:
        """Whether a breaker of the chain keeps calls out."""
        breakers = [self.channels[step.channel].breaker for step in (*chain.steps, *chain.beyond, *chain.left_out)]
        out = [breaker.until - now for breaker in breakers if not breaker.admits(now)]
        if not out:
            return None
        wait = max(out)
        until = wait if wait > 0.0 else None  # None: until its probes are back
        return tickets.Objection(("incident", self.name), until)


@define(eq=False)
class Place:
    """The search for a place, and what was found: `step` with its `slot`. `objections` are of channels' own limits."""

    step: Candidate | None = field(init=False, default=None)
    slot: Ticket | None = field(init=False, default=None)
    objections: list[tuple[Candidate, Objection]] = field(init=False, factory=list)
    _channel: ChannelState | None = field(init=False, default=None)

    def find(self, chains: Chains, chain: Chain, move: Move) -> tickets.Objection | None:
        """Take the first place there is. A chain all of whose channels are out objects to nothing: the walk tells why."""
        self.objections.clear()
        unknown, soonest = False, math.inf
        for step in chain.steps + chain.beyond:
            channel = chains.channels[step.channel]
            slot = Ticket()
            if not channel.slots.take(slot):
                unknown = True
                continue
            denial = move(step)
            if denial is None:
                self.step, self.slot, self._channel = step, slot, channel
                return None
            channel.leave(slot)
            self.objections.append((step, denial.binding))
            wait = seconds(denial.binding)
            unknown |= wait is None
            soonest = soonest if wait is None else min(soonest, wait)
        if not chain.steps:
            return None
        scope = chains.scope(chain)
        return tickets.Objection(scope, None, soonest) if unknown else tickets.Objection(scope, soonest)

    def passed_over(self, step: Candidate) -> str:
        """Why a channel before the place was not asked."""
        return next((why(objection) for each, objection in self.objections if each is step), NO_SLOT)

    def hand_over(self) -> Ticket | None:
        """The slot, once: whoever takes it gives it back."""
        slot, self.slot = self.slot, None
        return slot

    def free(self) -> None:
        """Give back a slot that nobody took over."""
        slot = self.hand_over()
        if slot is not None and self._channel is not None:
            self._channel.leave(slot)


@define(eq=False)
class Turn:
    """One call before its class's queue: the chain as it is at each asking, and the place that it finds there.

    `waiter` is there once it had to stand in line, `queued` tells for how many seconds. `denial` is the callers' last one.
    """

    room: WaitingRoom
    policy: QueuePolicy
    chains: Chains
    chain: Chain
    live: Callable[[float], Chain]
    place: Place = field(init=False, factory=Place)
    waiter: Waiter | None = field(init=False, default=None)
    since: float = field(init=False, default=0.0)
    queued: float = field(init=False, default=0.0)
    denial: Denial | None = field(init=False, default=None)
    objection: tickets.Objection | None = field(init=False, default=None)

    @property
    def told(self) -> bool:
        """Whether its end is what a limit said, known wait included, rather than the queue."""
        refused = self.waiter.refused if self.waiter is not None else None
        return (
            refused is not None
            and refused.why in {tickets.Why.NEVER, tickets.Why.TOO_LONG}
            and self.denial is not None
            and self.objection is not None
            and self.objection.wait is not None
        )
