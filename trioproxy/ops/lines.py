"""What an event says in the log: how loud, under which name, with which fields.

Machines read these fields, so they are a contract: what does not apply is left out. No prompt text and no secret is in any
event, so none can get here.
"""

from collections.abc import Mapping
from typing import Any, get_args

from trioproxy.errors import Fault
from trioproxy.journal import (
    AlertCause,
    AlertLost,
    AlertTold,
    AnswerBegan,
    AttemptRecord,
    BreakerMoved,
    BudgetNearing,
    ChannelCooled,
    ChannelParked,
    EndReason,
    Event,
    ExchangeEnded,
    GrowthPaused,
    LimitLearned,
    ProbeRan,
    Reading,
    RolloutMoved,
    StoreTroubled,
    Switched,
    SwitchWeighed,
)

# How loud an end is. A caller's own mistake is no news to the operator.
_LOUD = {
    EndReason.CHAIN_EXHAUSTED: "error",
    EndReason.BUG: "error",
    EndReason.CUT_AFTER_COMMIT: "warning",
    EndReason.DEADLINE: "warning",
    EndReason.DEGRADED: "warning",
    EndReason.DEFERRED: "warning",
}
_ALARMING = {"critical": "error", "warning": "warning", "info": "info"}
# What has a line of its own where it happens is no news here.
_TOLD_ALREADY = frozenset(
    {
        AlertCause.BREAKER_OPEN,
        AlertCause.CHANNEL_PARKED,
        AlertCause.PROBE_FAILING,
        AlertCause.BUDGET_NEARING,
        AlertCause.STORE_TROUBLE,
        AlertCause.ROLLOUT_PAUSED,
        AlertCause.ROLLED_BACK,
        AlertCause.GROWTH_PAUSED,
    }
)
_SELDOM = ("session", "arm", "refused", "fallback")
TOLD = tuple(kind for kind in get_args(Event) if kind is not AnswerBegan)  # an answer that begins is told of at its end
Line = tuple[str, str, dict[str, Any]]  # level, name, fields


def line_of(event: Event) -> Line | None:  # noqa: C901, PLR0912 - one arm per event
    """The line of an event; None where it is told with another one."""
    match event:
        case ExchangeEnded():
            return _LOUD.get(event.reason, "info"), "exchange", _exchange(event)
        case BreakerMoved():
            fields: dict[str, Any] = {"channel": event.channel, "was": event.was, "state": event.state}
            return "warning" if event.state == "open" else "info", "breaker", fields
        case ChannelParked():
            fields = {"channel": event.channel, "kind": event.kind, "message": event.message}
            return "error", "parked", fields | {"seconds": round(event.seconds, 3)}
        case ChannelCooled():
            fields = {"channel": event.channel, "kind": event.kind, "seconds": round(event.seconds, 3)}
            return "info", "cooling", fields
        case ProbeRan():
            return "info" if event.ok else "warning", "probe", _probe(event)
        case Switched():
            fields = {"model": event.model, "was": event.was, "channel": event.channel, "cause": event.cause}
            return "info" if event.channel else "error", "switch", fields
        case SwitchWeighed():
            fields = {"model": event.model, "was": event.was, "channel": event.channel}
            return "info", "switch_weighed", fields | _reading("before", event.before) | _reading("after", event.after)
        case LimitLearned():
            fields = {"channel": event.channel, "unit": event.unit, "was": event.was, "limit": event.limit}
            return "info", "learned", fields | {"why": event.why}
        case GrowthPaused():
            return "warning" if event.why else "info", "growth", {"subject": event.subject, "paused": event.why}
        case BudgetNearing():
            fields = {"limiter": event.limiter, "scope": event.scope, "share": round(event.share, 3)}
            return "warning", "budget", fields
        case RolloutMoved():
            fields = {"model": event.model, "percent": event.percent, "state": event.state, "why": event.why}
            return "info" if event.state in {"running", "done"} else "warning", "rollout", fields
        case StoreTroubled():
            return "error" if event.why else "info", "store", {"trouble": event.why, "waiting": event.waiting}
        case AlertTold():
            return _loudness(event), "alert", _alert(event)
        case AlertLost():
            fields = {"sink": event.sink, "cause": event.cause.value, "why": event.why}
            return "warning", "alert_lost", fields | {"lost": event.lost}
        case AnswerBegan():
            return None


def _loudness(event: AlertTold) -> str:
    if event.cause in _TOLD_ALREADY:
        return "debug"
    return _ALARMING[event.severity] if event.state == "raised" else "info"


def _alert(event: AlertTold) -> dict[str, Any]:
    fields: dict[str, Any] = {"cause": event.cause.value, "subject": event.subject, "severity": event.severity}
    fields |= {"state": event.state, "message": event.message, "count": event.count}
    return fields | {"since_s": round(event.now - event.since, 3)}


def _probe(event: ProbeRan) -> dict[str, Any]:
    fields: dict[str, Any] = {"channel": event.channel, "model": event.model, "ok": event.ok}
    fields |= {"ms": round(event.seconds * 1000, 2), "usd": None if event.cost is None else event.cost / 1e6}
    return fields if event.ok else fields | {"why": event.why}


def _reading(when: str, reading: Reading) -> dict[str, Any]:
    first, shares = reading.first_content, (reading.cached_share, reading.unit_cost)
    cached, unit = (None if value is None else round(value, 3) for value in shares)
    fields = {"calls": reading.calls, "cached_share": cached, "micro_usd_per_1k": unit}
    fields["first_ms"] = None if first is None else round(first * 1000, 2)
    return {f"{when}_{name}": value for name, value in fields.items()}


def _exchange(event: ExchangeEnded) -> dict[str, object]:
    usage = event.usage
    line: dict[str, object] = {
        "request_id": event.request_id,
        "reason": event.reason.value,
        "status": event.status,
        "endpoint": event.endpoint,
        "model": event.model,
        "stream": event.stream,
        "key": event.key_id,
        "tenant": event.tenant,
        "class": event.traffic_class,
        "ms": round(event.duration * 1000, 2),
        "overhead_ms": round(event.overhead * 1000, 2),
        "input": usage.input,
        "cached": usage.cached,
        "output": usage.output,
        "usd": None if event.cost is None else event.cost / 1e6,
        "bytes_out": event.bytes_out,
        "attempts": [_attempt(record) for record in event.attempts],
    }
    if usage.estimated:
        line["estimated"] = True
    if event.skipped:
        line["skipped"] = dict(event.skipped)
    if event.estimated_input:
        line["estimated_input"], line["estimated_output"] = event.estimated_input, event.estimated_output
    if event.limiter:
        line["limiter"], line["scope"], line["wait"] = event.limiter, event.scope, event.wait
    if event.queued:
        line["queued_ms"] = round(event.queued * 1000, 2)
    line |= {name: value for name in _SELDOM if (value := getattr(event, name))}
    if event.preferred_cost is not None:
        line["preferred_usd"] = event.preferred_cost / 1e6
    if event.note:
        line["note"] = event.note
    if event.traceparent:
        line["traceparent"] = event.traceparent
    return line


def _attempt(record: AttemptRecord) -> dict[str, object]:
    line: dict[str, object] = {"channel": record.channel, "model": record.model, "ms": round(record.duration * 1000, 2)}
    if record.first_content is not None:
        line["first_ms"] = round(record.first_content * 1000, 2)
    if record.fault is not None:
        line.update(_fault(record.fault))
    return line


def _fault(fault: Fault) -> Mapping[str, object]:
    return {
        "fault": fault.kind.value,
        "blame": fault.blame.value,
        "upstream_status": fault.status,
        "why": fault.message,
    }
