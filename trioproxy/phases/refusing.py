"""What a caller is told that may not be sent: whose limit it was, what it waited for, and when to come again."""

import math
from collections.abc import Mapping

from attrs import evolve, frozen

from trioproxy.call import Call
from trioproxy.errors import Limited, Refusal, RefusalKind
from trioproxy.phases.allowance import QUEUE, crowded, held_back, stopped, throttled, why
from trioproxy.phases.expectation import SPENDING, Provider
from trioproxy.phases.turn import Turn
from trioproxy.policy import tickets
from trioproxy.policy.chain import Candidate
from trioproxy.policy.charges import Estimate
from trioproxy.policy.classes import NO_QUEUE
from trioproxy.policy.reservation import Denial, Objection
from trioproxy.policy.throttle import Short


@frozen
class Telling:
    """Of one call. `lines` are header lines about what its caller has left."""

    call: Call
    providers: Mapping[str, Provider]
    first: Candidate
    estimate: Estimate
    lines: bytes

    def turned_away(self, turn: Turn, refused: tickets.Refused) -> Refusal:
        """The line's no: that of the limit that the call would have to outwait, else the queue's own."""
        wait = refused.retry_after
        if turn.denial is not None and (turn.told or turn.policy is NO_QUEUE):
            refusal = self.refusal(turn.denial)
        else:
            kind, message = crowded(self.call.traffic_class, refused.why, turn.policy, turn.queued)
            incident = turn.objection is not None and turn.objection.at == ("incident", turn.chains.name)
            kind = RefusalKind.CLASS_PAUSED if incident else kind
            refusal = Refusal(kind, message, limited=self._crowd(turn))
            refusal.lines = self.lines
            if wait is None and refusal.limited is not None and refusal.limited.retry_after_ms is not None:
                wait = refusal.limited.retry_after_ms / 1000  # what the body says, the header says
        if wait is not None and wait < math.inf:
            refusal.retry_after = wait
            assert refusal.limited is not None
            refusal.limited = evolve(refusal.limited, retry_after_ms=math.ceil(wait * 1000))
        if turn.policy is not NO_QUEUE:
            refusal.queued = turn.queued
            refusal.lines += QUEUE % (turn.queued * 1000)
        return refusal

    def _crowd(self, turn: Turn) -> Limited:
        """Which limit those in the line wait for."""
        if turn.denial is not None:
            return self.told(self.first, turn.denial.binding)
        if turn.place.objections:
            return self.told(*min(turn.place.objections, key=lambda each: each[1].wait))
        if turn.place.paced:
            return self._held_back(*min(turn.place.paced, key=lambda each: each[1].wait))
        provider = self.providers[self.first.channel].name
        told = throttled(self.call, provider, self.first.model, None)
        pooled = turn.policy.pooled and turn.objection is None
        return evolve(
            told,
            limiter="class.tokens_per_minute" if pooled else "class.queue",
            scope=self.call.traffic_class,
            gateway_decision="rejected_before_dispatch",
            estimated_input_tokens=self.estimate.input,
            estimated_output_tokens=self.estimate.output,
        )

    def _held_back(self, step: Candidate, short: Short) -> Limited:
        provider = self.providers[step.channel].name
        told = throttled(self.call, provider, step.model, short.wait)
        told = held_back(told, f"{short.rule}.{short.name}", step.channel)
        return evolve(told, estimated_input_tokens=self.estimate.input, estimated_output_tokens=self.estimate.output)

    def refusal(self, denial: Denial) -> Refusal:
        binding = denial.binding
        kind = RefusalKind.RATE_LIMITED
        if denial.out_of_balance:
            kind = RefusalKind.OUT_OF_BALANCE
        elif binding.rule.unit == SPENDING:
            kind = RefusalKind.OVER_BUDGET
        wait = None if binding.wait == math.inf else binding.wait
        refusal = Refusal(kind, why(binding), retry_after=wait, limited=self.told(self.first, binding))
        refusal.lines = self.lines
        return refusal

    def told(self, step: Candidate, objection: Objection) -> Limited:
        provider = self.providers[step.channel].name
        told = stopped(throttled(self.call, provider, step.model, None), objection)
        return evolve(told, estimated_input_tokens=self.estimate.input, estimated_output_tokens=self.estimate.output)
