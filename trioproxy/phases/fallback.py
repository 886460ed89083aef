"""Who else may answer: the models that a policy names for one call, each tried once, in order.

Another model may be worse, dearer or elsewhere, so none is ever asked that the operator did not name for this model and this
class, or that the caller's own key may not ask for. Stand-ins of a stand-in are not looked at: it cannot go round.
"""

from functools import partial

import trio
from attrs import define, frozen

from trioproxy.call import Call
from trioproxy.config.model import Fallback, Model
from trioproxy.errors import ChainExhausted, Refusal, RefusalKind
from trioproxy.phases.admit import Admission, Admitter
from trioproxy.phases.route import Router
from trioproxy.policy.access import allows
from trioproxy.policy.chain import Chain

# What another model may mend. A budget or a balance is the caller's own, whoever answers.
MENDED = frozenset(
    {RefusalKind.RATE_LIMITED, RefusalKind.QUEUE_FULL, RefusalKind.QUEUE_TIMEOUT, RefusalKind.CLASS_PAUSED}
)


@frozen
class StandIn:
    """Another model, admitted: its public name, its chain, and what is held for the call there."""

    model: str
    chain: Chain
    admission: Admission | None


@define(eq=False)
class StandIns:
    """The models that may still be tried for one call. `user` is the caller's word for its end user."""

    call: Call
    router: Router
    admitter: Admitter | None
    user: bytes
    left: list[Fallback]

    @classmethod
    def of(
        cls, call: Call, model: Model, router: Router, admitter: Admitter | None, *, user: bytes
    ) -> "StandIns | None":
        """None where nobody may."""
        allowed = [
            fallback
            for fallback in model.fallback
            if allows(fallback.classes, call.traffic_class) and allows(call.caller.models, fallback.model)
        ]
        return cls(call, router, admitter, user, allowed) if allowed else None

    async def after_refusal(self, refusal: Refusal) -> StandIn | None:
        """Where the line of the call's class turned it away, and the class would rather have another model than that."""
        queue = self.call.policy.queue
        if queue is None or queue.otherwise != "fallback" or refusal.kind not in MENDED:
            return None
        return await self._next("queue")

    async def after_exhaustion(self, error: ChainExhausted) -> StandIn | None:
        """Where no channel answered, for no fault and no deadline of the caller's."""
        return None if error.deadline else await self._next("exhausted")

    async def _next(self, on: str) -> StandIn | None:
        """The first that has a channel and room. Cancelled, nothing is held."""
        for fallback in [each for each in self.left if on in each.on]:
            self.left.remove(fallback)
            route, chain = await self.router.chain(self.call, trio.current_time(), fallback.model)
            if not chain.steps:
                continue
            if self.admitter is None:
                return StandIn(fallback.model, chain, None)
            live = partial(self.router.now, fallback.model, self.call)
            try:
                admission = await self.admitter.admit(self.call, route.model, chain, self.user, live=live)
            except Refusal:
                continue
            return StandIn(fallback.model, chain, admission)
        return None
