"""What each event but an exchange says in the log."""

from typing import Any

import pytest

from trioproxy.journal import (
    AnswerBegan,
    BreakerMoved,
    BudgetNearing,
    ChannelCooled,
    ChannelParked,
    Event,
    GrowthPaused,
    LimitLearned,
    ProbeRan,
    Reading,
    RolloutMoved,
    StoreTroubled,
    Switched,
    SwitchWeighed,
    Usage,
)
from trioproxy.ops.lines import line_of


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            BreakerMoved("a", "closed", "open", 5.0, 65.0),
            {"event": "breaker", "level": "warning", "channel": "a", "was": "closed", "state": "open"},
        ),
        (
            BreakerMoved("a", "open", "half_open", 65.0),
            {"event": "breaker", "level": "info", "channel": "a", "was": "open", "state": "half_open"},
        ),
        (
            ChannelParked("a", "auth", "the key was refused", 300.0, 5.0),
            {
                "event": "parked",
                "level": "error",
                "channel": "a",
                "kind": "auth",
                "message": "the key was refused",
                "seconds": 300.0,
            },
        ),
        (
            ChannelCooled("a", "rate_limited", 1.0 / 3, 5.0),
            {"event": "cooling", "level": "info", "channel": "a", "kind": "rate_limited", "seconds": 0.333},
        ),
        (
            ProbeRan("a", "m-a", ok=False, why="no content", seconds=0.5, usage=Usage(9, 0, 1), cost=None, now=5.0),
            {
                "event": "probe",
                "level": "warning",
                "channel": "a",
                "model": "m-a",
                "ok": False,
                "ms": 500.0,
                "usd": None,
                "why": "no content",
            },
        ),
        (
            Switched("m", "a", "b", "breaker open", 5.0),
            {"event": "switch", "level": "info", "model": "m", "was": "a", "channel": "b", "cause": "breaker open"},
        ),
        (
            SwitchWeighed("m", "a", "b", Reading(50, 0.8, 0.5, 400.0), Reading(200, 0.0, 2.0 / 3, None), 5.0),
            {
                "event": "switch_weighed",
                "level": "info",
                "model": "m",
                "was": "a",
                "channel": "b",
                "before_calls": 50,
                "before_cached_share": 0.8,
                "before_micro_usd_per_1k": 400.0,
                "before_first_ms": 500.0,
                "after_calls": 200,
                "after_cached_share": 0.0,
                "after_micro_usd_per_1k": None,
                "after_first_ms": 666.67,
            },
        ),
        (
            LimitLearned("a", "tokens", 1000.0, 700.0, "429", 5.0),
            {
                "event": "learned",
                "level": "info",
                "channel": "a",
                "unit": "tokens",
                "was": 1000.0,
                "limit": 700.0,
                "why": "429",
            },
        ),
        (
            GrowthPaused("a", "too many 429", 5.0),
            {"event": "growth", "level": "warning", "subject": "a", "paused": "too many 429"},
        ),
        (
            BudgetNearing("tenant.usd_per_day", "acme", 0.8, 5.0),
            {"event": "budget", "level": "warning", "limiter": "tenant.usd_per_day", "scope": "acme", "share": 0.8},
        ),
        (
            RolloutMoved("m", 10, "paused", "refusals", 5.0),
            {
                "event": "rollout",
                "level": "warning",
                "model": "m",
                "percent": 10,
                "state": "paused",
                "why": "refusals",
            },
        ),
        (
            StoreTroubled("disk full", 12, 5.0),
            {"event": "store", "level": "error", "trouble": "disk full", "waiting": 12},
        ),
        (StoreTroubled("", 0, 5.0), {"event": "store", "level": "info", "trouble": "", "waiting": 0}),
    ],
)
def test_the_line_of_a_channel_that_changed_has_every_field(event: Event, said: dict[str, Any]) -> None:
    line = line_of(event)
    assert line is not None
    level, name, fields = line
    assert {"event": name, "level": level, **fields} == said


def test_an_answer_that_begins_is_told_of_at_its_end() -> None:
    assert line_of(AnswerBegan("req_1", "a", "m", "k", "t", 0, 0)) is None
