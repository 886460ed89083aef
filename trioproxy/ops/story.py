"""An exchange as people read it: who was asked, what came of it, what it took.

    answered 200 fast-chat: cheap ✗ overloaded → steady 260 ms | 9 → 15 tokens, $0.000025 | 262 ms

A processor of the log's pipeline; machines get the fields instead.
"""

from collections.abc import MutableMapping
from typing import Any


def told(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The same line with an exchange's fields told in one sentence; other lines as they are."""
    if line["event"] != "exchange":
        return line
    what = line["model"] or line["endpoint"]
    parts = [f"{line['reason']} {line['status']} {what}" + _asked(line), *_took(line), f"{line['ms']:.0f} ms"]
    story = {"event": " | ".join(parts), "level": line["level"], "timestamp": line["timestamp"]}
    kept = (
        "limiter",
        "scope",
        "wait",
        "queued_ms",
        "fallback",
        "skipped",
        "note",
        "arm",
        "tenant",
        "key",
        "class",
        "request_id",
    )
    plain = ("", "anonymous", "default", None)
    return story | {name: line[name] for name in kept if name in line and line[name] not in plain}


def _asked(line: MutableMapping[str, Any]) -> str:
    return ": " + " → ".join(map(_attempt, line["attempts"])) if line["attempts"] else ""


def _attempt(attempt: dict[str, Any]) -> str:
    if "fault" in attempt:
        status = f" {attempt['upstream_status']}" if attempt["upstream_status"] else ""
        return f"{attempt['channel']} ✗ {attempt['fault']}{status}"
    return f"{attempt['channel']} {attempt['ms']:.0f} ms"


def _took(line: MutableMapping[str, Any]) -> list[str]:
    """Tokens and money, where any were spent."""
    if not (line["input"] or line["cached"] or line["output"]):
        return []
    cached = f" ({line['cached']} cached)" if line["cached"] else ""
    about = "about " if line.get("estimated") else ""
    cost = "price unknown" if line["usd"] is None else f"${line['usd']:.6f}"
    return [f"{about}{line['input'] + line['cached']}{cached} → {line['output']} tokens, {cost}"]
