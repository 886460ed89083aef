"""What the caller of a walk without an answer is told; a 429 says the same whoever refused."""

import math

from attrs import evolve

from trioproxy.call import Call
from trioproxy.codec.problem import Problem, problem_of
from trioproxy.errors import ChainExhausted
from trioproxy.phases.allowance import throttled
from trioproxy.phases.walk import Walk


def problem(call: Call, walk: Walk, error: ChainExhausted) -> Problem:
    """The end of a chain in the words of the caller."""
    told = problem_of(error)
    if told.status != 429:
        return told
    allowed = walk.stand_ins is not None
    if walk.limited:
        # The wait is until anybody may be asked, as in the header: that may be who rests, before the limit has room.
        wait = None if error.retry_after is None else math.ceil(error.retry_after * 1000)
        return evolve(told, limited=evolve(walk.stopped(), fallback_allowed=allowed, retry_after_ms=wait))
    channel, model = (walk.records[-1].channel, walk.records[-1].model) if walk.records else _first(walk)
    limited = throttled(call, walk.channels.state[channel].provider or channel, model, told.retry_after)
    if not walk.records:
        limited = evolve(limited, gateway_decision="rejected_before_dispatch")
    estimate = walk.admission.estimate if walk.admission is not None else None
    if estimate is not None:
        limited = evolve(limited, estimated_input_tokens=estimate.input, estimated_output_tokens=estimate.output)
    return evolve(told, limited=evolve(limited, fallback_allowed=allowed))


def mended(problem: Problem, error: ChainExhausted) -> bool:
    """Whether something may be delivered in place of this error: it is for no fault and no deadline of the caller's."""
    return not error.deadline and (problem.status == 429 or problem.status >= 500)


def degraded(call: Call, walk: Walk, told: Problem, error: ChainExhausted) -> bytes | None:
    """What the model's policy has said in place of the error, in the form that was asked for; None where that is nothing."""
    policy = walk.policy
    if policy is None or policy.on_exhausted != "answer" or policy.degraded is None or not mended(told, error):
        return None
    walk.instead, walk.why = "answer", told.code or ""
    words = policy.degraded
    return call.endpoint.dialect.spoken(
        words.text, words.model, call.facts, request_id=call.request_id, created=int(walk.wall())
    )


def _first(walk: Walk) -> tuple[str, str]:
    """Whom the call would have gone to: all of its channels are resting after a throttle."""
    candidate = (walk.chain.left_out + walk.chain.steps)[0]
    return candidate.channel, candidate.model
