"""Which event raises an alert, which one ends it, and what it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.journal import (
    AlertCause,
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
    RolloutMoved,
    StoreTroubled,
    Switched,
    Usage,
)
from trioproxy.policy.alerting import Rhythm
from trioproxy.policy.watching import ALL, MOST, Watch

SECRET = "what the prompt said"
THROTTLED = Fault(FaultKind.RATE_LIMITED, Blame.RATE, SECRET, 429)


def exchange(reason: EndReason = EndReason.ANSWERED, *attempts: tuple[str, Fault | None], now: float = 0) -> Event:
    records = tuple(AttemptRecord(channel, "m", 0, 0, fault) for channel, fault in attempts)
    return ExchangeEnded("r", reason, 200, "/", model="m", attempts=records, started=now, note=SECRET)


def probe(*, ok: bool) -> Event:
    return ProbeRan("a", "m", ok, "" if ok else SECRET, 1.0, Usage(), 0, 0.0)


def rollout(state: str) -> Event:
    return RolloutMoved("m", 50, state, "p95 is higher", 0.0)


ANSWER = exchange(EndReason.ANSWERED, ("a", None))
EXHAUSTED = exchange(EndReason.CHAIN_EXHAUSTED)
PARKED = ChannelParked("a", "auth", SECRET, 300.0, 0.0)
CASES: list[tuple[list[Event], str, Event | None]] = [
    (
        [BreakerMoved("a", "closed", "open", 0.0)],
        "the breaker of channel a is open",
        BreakerMoved("a", "", "closed", 1),
    ),
    ([PARKED], "channel a is parked for 300 s: auth", ANSWER),
    ([PARKED], "channel a is parked for 300 s: auth", probe(ok=True)),
    (
        [ChannelParked("a", "model_not_found", SECRET, 600.0, 0.0)],
        "channel a does not know a model that is configured for it",
        None,
    ),
    ([probe(ok=False), probe(ok=False)], "health checks of channel a fail, 2 in a row", probe(ok=True)),
    ([EXHAUSTED], "no channel of model m may be asked", ANSWER),
    ([Switched("m", "a", "", "all out", 0.0)], "no channel of model m may be asked", Switched("m", "", "b", "", 1.0)),
    ([BudgetNearing("key.usd_per_day", "k", 0.8, 0.0)], "80% of key.usd_per_day of k is used", None),
    (
        [StoreTroubled("disk full", 7, 0.0)],
        "the ledger cannot be written, 7 records wait: disk full",
        StoreTroubled("", 0, 1.0),
    ),
    ([rollout("paused")], "the rollout of model m is paused at 50 %: p95 is higher", rollout("running")),
    ([rollout("rolled_back")], "the rollout of model m was rolled back: p95 is higher", None),
    ([GrowthPaused("a", "too many 429", 0.0)], "growth of a is paused: too many 429", GrowthPaused("a", "", 1.0)),
    ([exchange(EndReason.ANSWERED, ("a", THROTTLED), ("b", None))] * 20, "throttled 20 of 20 attempts", None),
]


def hours(watch: Watch, since: int = 0) -> list[AlertTold]:
    """What is told in the next two of them, without reminders."""
    return [alert for now in range(since, since + 7200) for alert in watch.tick(float(now))]


@pytest.mark.parametrize(("events", "message", "end"), CASES)
def test_a_cause_is_told_once_and_its_end_once(events: list[Event], message: str, end: Event | None) -> None:
    watch = Watch(Rhythm(remind=1e6))
    for event in events:
        watch.hear(event)
    told = [alert for now in range(10) for alert in watch.tick(float(now))]
    assert [(alert.state, message in alert.message) for alert in told] == [("raised", True)]
    if end is not None:
        watch.hear(end)
        (over,) = hours(watch, 10)
        assert (over.state, over.subject, over.cause) == ("recovered", told[0].subject, told[0].cause)
    assert SECRET not in repr(told), "a provider's own words stay in the log"


@pytest.mark.parametrize(
    "event",
    [
        BreakerMoved("a", "open", "half_open", 0.0),
        BreakerMoved("a", "half_open", "closed", 0.0),
        ChannelCooled("a", "rate_limited", 1.0, 0.0),
        LimitLearned("a", "tokens", 1, 2, "", 0.0),
        AnswerBegan("r", "a", "m", "k", "t", 0, 0),
        Switched("m", "", "a", "start", 0.0),
        Switched("m", "", "", "start", 0.0),
        rollout("running"),
        rollout("done"),
        probe(ok=False),
        GrowthPaused("a", "", 0.0),
        StoreTroubled("", 0, 0.0),
        ANSWER,
        exchange(EndReason.CHAIN_EXHAUSTED, ("a", THROTTLED)),
        exchange(EndReason.CLIENT_LEFT),
    ],
)
def test_what_is_no_news_raises_nothing(event: Event) -> None:
    watch = Watch()
    watch.hear(event)
    assert hours(watch) == []


def test_a_probe_that_fails_now_and_then_is_no_news() -> None:
    watch = Watch()
    for _ in range(20):
        watch.hear(probe(ok=False))
        watch.hear(probe(ok=True))
    assert hours(watch) == []


def test_another_channel_s_answer_is_no_recovery() -> None:
    watch = Watch(Rhythm(remind=1e6))
    watch.hear(PARKED)
    watch.hear(exchange(EndReason.ANSWERED, ("a", THROTTLED), ("b", None)))
    assert [alert.state for alert in hours(watch)] == ["raised"]


def test_a_rollout_that_is_paused_and_rolled_back_is_told_twice_and_never_as_well_again() -> None:
    watch = Watch(Rhythm(remind=1e6))
    watch.hear(rollout("paused"))
    first = watch.tick(0.0)
    watch.hear(rollout("rolled_back"))
    told = [*first, *hours(watch, 1)]
    assert [(alert.cause.value, alert.state) for alert in told] == [
        ("rollout_paused", "raised"),
        ("rolled_back", "raised"),
    ]


def test_only_the_causes_that_are_asked_for_raise_anything() -> None:
    watch = Watch(causes=frozenset({AlertCause.STORE_TROUBLE}))
    for events, _, _ in CASES:
        for event in events:
            watch.hear(event)
    assert {alert.cause for alert in hours(watch)} == {AlertCause.STORE_TROUBLE}


def test_every_cause_can_be_raised() -> None:
    """Those of `policy.spikes` have their own tests."""
    raised = {AlertCause(cause) for cause in ("class_refused", "queue_growth", "token_pressure", "estimate_drift")}
    for events, _, _ in CASES:
        watch = Watch()
        for event in events:
            watch.hear(event)
        raised |= {alert.cause for now in range(10) for alert in watch.tick(float(now))}
    assert raised == ALL


def test_models_without_end_take_bounded_room() -> None:
    watch = Watch()
    for number in range(MOST + 100):
        watch.hear(Switched(f"m{number}", "a", "", "", 0.0))
    assert len(watch._dark) == MOST


EVENTS = [event for events, _, end in CASES for event in (*events[:1], *([end] if end else []))]


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 400)), max_size=40))
def test_whatever_happens_one_alert_a_cause_and_period_and_ends_after_beginnings(
    story: list[tuple[Event, int]],
) -> None:
    watch = Watch(Rhythm(every=300.0, remind=600.0, calm=30.0))
    last: dict[tuple[AlertCause, str], float] = {}
    owing: set[tuple[AlertCause, str]] = set()
    now = 0.0
    for event, seconds in story:
        watch.hear(event)
        for _ in range(0, seconds + 1, 10):
            for alert in watch.tick(now):
                key = alert.cause, alert.subject
                if alert.state == "raised":
                    assert now - last.get(key, -1e9) >= 300.0
                    last[key] = now
                    owing.add(key)
                else:
                    assert key in owing
                    owing.remove(key)
            now += 10.0
