"""What a caller is told of limits: header lines on every answer, and the one schema of a 429.

Headers tell about the caller's own scopes only; what the organization, a model or a channel has left is the sum of what
others did.
"""

import math
from collections.abc import Iterable
from functools import cache

from attrs import evolve

from trioproxy.call import Call
from trioproxy.codec.ratelimits import Allowance, ietf_headers, openai_headers
from trioproxy.errors import Limited, RefusalKind
from trioproxy.policy.account import Account
from trioproxy.policy.classes import NO_QUEUE, QueuePolicy
from trioproxy.policy.limits import Dimension, Limiter
from trioproxy.policy.reservation import Objection, Rank
from trioproxy.policy.tickets import Why

OWN = frozenset({Rank.TENANT, Rank.TEAM, Rank.KEY, Rank.END_USER})

_MINUTE, _DAY = 60, 86_400
# Window in seconds and unit of what is told; concurrency and money have no words in either family of headers.
_WORDS = {
    Dimension.REQUESTS_PER_MINUTE: (_MINUTE, "requests"),
    Dimension.INPUT_TOKENS_PER_MINUTE: (_MINUTE, "tokens"),
    Dimension.OUTPUT_TOKENS_PER_MINUTE: (_MINUTE, "tokens"),
    Dimension.TOKENS_PER_MINUTE: (_MINUTE, "tokens"),
    Dimension.REQUESTS_PER_DAY: (_DAY, "requests"),
    Dimension.TOKENS_PER_DAY: (_DAY, "tokens"),
}
_TOLD = {place: _WORDS[dimension] for place, dimension in enumerate(Dimension) if dimension in _WORDS}
_MONEY = frozenset(
    {Dimension.MICRO_USD_PER_DAY, Dimension.MICRO_USD_PER_WEEK, Dimension.MICRO_USD_PER_MONTH, Dimension.BALANCE}
)


Least = tuple[int, Account, Limiter]  # what is left of it first, as `Quota.least` gives it


def lines(least: Iterable[Least], now: float, wall: float) -> bytes:
    """Header lines about these limiters, one of each dimension; OpenAI's names tell the tightest of each unit."""
    told = [_allowance(each, now, wall) for each in least if each[2].rule.place in _TOLD]
    if not told:
        return b""
    pairs = openai_headers(_tightest(told, "requests"), _tightest(told, "tokens")) + ietf_headers(told)
    return b"".join([b"%b: %b\r\n" % pair for pair in pairs])


def _allowance(least: Least, now: float, wall: float) -> Allowance:
    left, account, limiter = least
    rule = limiter.rule
    window, unit = _TOLD[rule.place]
    more = reset = limiter.reset_after(now, wall)
    if window == _MINUTE:  # it comes back one by one
        more = min(more, _MINUTE / rule.limit)
    return Allowance(_name(account.scope.rank.name, rule.dimension.name), rule.limit, left, reset, more, window, unit)


@cache  # as many as there are ranks and dimensions
def _name(rank: str, dimension: str) -> str:
    return f"{Rank[rank].value}.{Dimension[dimension].value}"


def _tightest(told: Iterable[Allowance], unit: str) -> Allowance | None:
    return min((each for each in told if each.unit == unit), key=lambda each: each.remaining, default=None)


def throttled(call: Call, provider: str, model: str, wait: float | None) -> Limited:
    """A provider refused what our limits had let pass."""
    return Limited(
        limiter="provider",
        scope=provider,
        provider=provider,
        model=call.facts.model,
        provider_model=model,
        retry_after_ms=None if wait is None or wait == math.inf else math.ceil(wait * 1000),
        tenant_id=call.caller.tenant,
        api_key_id=call.caller.key_id,
        request_class=call.traffic_class,
        estimated_input_tokens=0,
        estimated_output_tokens=0,
        gateway_decision="admitted_then_provider_rejected",
        fallback_allowed=False,  # the walk knows better where a policy allows one
        trace_id=call.traceparent.split("-")[1] if call.traceparent else call.request_id,
    )


def stopped(told: Limited, objection: Objection) -> Limited:
    """The same where a limit of ours refused and nothing was sent."""
    rank, dimension = objection.limiter
    wait = objection.wait
    return evolve(
        told,
        limiter=f"{rank.value}.{dimension.value}",
        scope=objection.scope.name,
        retry_after_ms=None if wait == math.inf else math.ceil(wait * 1000),
        gateway_decision="rejected_before_dispatch",
    )


def held_back(told: Limited, limiter: str, channel: str) -> Limited:
    """The same where it is the provider's limit, or the channel's growth, that we would have run into."""
    return evolve(told, limiter=limiter, scope=channel, gateway_decision="rejected_before_dispatch")


QUEUE = b"x-trioproxy-queue-ms: %.2f\r\n"


def crowded(name: str, reason: Why, policy: QueuePolicy, queued: float) -> tuple[RefusalKind, str]:
    """The line's no in words."""
    if policy is NO_QUEUE:
        return RefusalKind.QUEUE_FULL, f"others wait for what it needs, and class {name!r} has no queue to stand in"
    if reason is Why.FULL:
        told = f"{policy.bound} calls wait in class {name!r} already, which is as many as may"
        return RefusalKind.QUEUE_FULL, told
    if reason is Why.PAUSED:
        return RefusalKind.CLASS_PAUSED, f"class {name!r} is paused"
    if reason in {Why.TOO_LONG, Why.NEVER}:
        told = f"the wait in class {name!r} would be longer than the call's time, or the {policy.max_wait:g} s that it may wait"
        return RefusalKind.QUEUE_TIMEOUT, told
    whose = (
        "its own deadline allows" if reason is Why.DEADLINE else f"the {policy.max_wait:g} s that its class may wait"
    )
    return RefusalKind.QUEUE_TIMEOUT, f"it was not its turn in class {name!r} within {whose}; it waited {queued:.1f} s"


def why(objection: Objection) -> str:
    """A limiter's no in words: whose limit, how much of it is left, what to do."""
    rank, dimension = objection.limiter
    whose = rank.value.replace("_", " ") + (f" {objection.scope.name!r}" if objection.scope.name else "")
    left, needed, limit = (_amount(dimension, n) for n in (objection.remaining, objection.needed, objection.rule.limit))
    said = f"the {whose} has {left} left of {dimension.value} = {limit} and this call needs {needed}"
    if objection.wait < math.inf:
        return f"{said}; wait {objection.wait:.1f} s"
    return f"{said}; pay in first" if dimension is Dimension.BALANCE else f"{said}; it never fits"


def _amount(dimension: Dimension, amount: int) -> str:
    return f"{amount / 1e6:.6f} USD" if dimension in _MONEY else str(amount)
