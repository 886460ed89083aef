"""Passing a channel over before its provider refuses: what a call needs there, and what its caller is told.

A call that could be sent nowhere is refused by us, with the wait after which its provider would take it. That is said in the
schema of every 429, as "rejected_before_dispatch".
"""

from collections.abc import Mapping

from attrs import evolve

from trioproxy.call import Call
from trioproxy.channel import ChannelState
from trioproxy.errors import Blame, ChainExhausted, Fault, FaultKind, Limited
from trioproxy.phases.admit import Admission
from trioproxy.phases.allowance import held_back, throttled
from trioproxy.phases.turn import rough
from trioproxy.policy.chain import Candidate
from trioproxy.policy.limits import Need
from trioproxy.policy.throttle import Short

Held = tuple[Candidate, Short]
WARMUP = "warmup"
SPENT = Fault(FaultKind.RATE_LIMITED, Blame.RATE, "every channel of this model is at its provider's limit", 429)


def need_of(call: Call, channel: ChannelState, step: Candidate, admission: Admission | None) -> Need:
    """What a call takes of what this channel may be sent: as it was measured, or roughly."""
    measured = None if admission is None else admission.need(step)
    return rough(call, channel) if measured is None else measured


def judged(error: ChainExhausted, held: list[Held]) -> ChainExhausted:
    """The end of a chain some of whose channels were passed over."""
    if not held:
        return error
    waits = [short.wait for _, short in held] + ([] if error.retry_after is None else [error.retry_after])
    return ChainExhausted(error.faults or (SPENT,), retry_after=min(waits), deadline=error.deadline)


def stopped(call: Call, channels: Mapping[str, ChannelState], held: list[Held], admission: Admission | None) -> Limited:
    """What is told where nobody was asked: the limit that has room first."""
    if admission is not None and admission.refused:
        ours = admission.stopped()
        waits = [short.wait * 1000 for _, short in held]
        if not held or (ours.retry_after_ms is not None and ours.retry_after_ms <= min(waits)):
            return ours
    step, short = min(held, key=lambda each: each[1].wait)
    provider = channels[step.channel].provider or step.channel
    told = held_back(throttled(call, provider, step.model, short.wait), f"{short.rule}.{short.name}", step.channel)
    if admission is None:
        return told
    estimate = admission.estimate
    return evolve(told, estimated_input_tokens=estimate.input, estimated_output_tokens=estimate.output)
