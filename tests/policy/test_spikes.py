"""What is abnormal about many exchanges, at the edges of every threshold."""

import pytest

from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.journal import AlertCause, AttemptRecord, EndReason, ExchangeEnded, Usage
from trioproxy.policy.spikes import MOST, SLICES, WARM, Spikes, Thresholds

NONE = Usage()
LIMITED = AlertCause.RATE_LIMITED
THROTTLED = Fault(FaultKind.RATE_LIMITED, Blame.RATE, "slow down", 429)
BROKEN = Fault(FaultKind.SERVER_ERROR, Blame.PROVIDER, "oops", 500)


def ended(
    reason: EndReason = EndReason.ANSWERED, fault: Fault | None = None, usage: Usage = NONE, **fields: object
) -> ExchangeEnded:
    attempts = (AttemptRecord("a", "m", 0.0, 0.1, fault),)
    given = {"model": "m", "tenant": "t", "traffic_class": "batch", "attempts": attempts, "usage": usage}
    given |= {"status": 200, **fields}
    return ExchangeEnded("r", reason, endpoint="/", **given)  # type: ignore[arg-type]


def begun(spikes: Spikes, now: float, waiting: dict[str, int] | None = None) -> list[tuple[str, str]]:
    """The next judgement after `now`, as (cause, subject)."""
    spikes.judge(now, {})
    found, _ = spikes.judge(now + spikes.thresholds.window / SLICES, waiting or {})
    return sorted((cause.value, subject) for cause, subject in found)


@pytest.mark.parametrize(
    ("throttled", "well", "abnormal"),
    [(1, 19, False), (2, 18, True), (2, 17, False), (5, 95, False), (6, 94, True), (0, 100, False), (20, 0, True)],
)
def test_throttling_must_pass_its_share_over_enough_attempts(throttled: int, well: int, abnormal: bool) -> None:
    spikes = Spikes(Thresholds(rate_limited=0.05, least=20))
    for fault, count in ((THROTTLED, throttled), (None, well)):
        for _ in range(count):
            spikes.count(ended(fault=fault))
    assert begun(spikes, 0.0) == ([("rate_limited", "a")] if abnormal else [])


def test_what_is_no_throttling_is_none() -> None:
    spikes = Spikes()
    for _ in range(100):
        spikes.count(ended(EndReason.CHAIN_EXHAUSTED, BROKEN))
    assert begun(spikes, 0.0) == []


@pytest.mark.parametrize(("refused", "abnormal"), [(4, False), (5, True)])
def test_refusals_must_pass_their_share_of_a_class(refused: int, abnormal: bool) -> None:
    spikes = Spikes(Thresholds(refused=0.2, least=20))
    for number in range(20):
        reason = EndReason.REFUSED_QUOTA if number < refused else EndReason.ANSWERED
        spikes.count(ended(reason, attempts=()))
        spikes.count(ended(traffic_class="interactive"))
    assert begun(spikes, 0.0) == ([("class_refused", "batch")] if abnormal else [])


def test_a_429_is_a_refusal_whoever_is_behind_it() -> None:
    spikes = Spikes(Thresholds(rate_limited=0))
    for _ in range(20):
        spikes.count(ended(EndReason.CHAIN_EXHAUSTED, THROTTLED, status=429))
    assert begun(spikes, 0.0) == [("class_refused", "batch")]


@pytest.mark.parametrize(("seconds", "abnormal"), [(60.0, False), (60.5, True)])
def test_a_queue_is_as_deep_as_its_waits_add_up_to(seconds: float, abnormal: bool) -> None:
    """100 calls that waited for the whole window are 100 that wait at any moment of it."""
    spikes = Spikes(Thresholds(queued=100, window=60))
    for _ in range(100):
        spikes.count(ended(queued=seconds))
    assert begun(spikes, 0.0) == ([("queue_growth", "batch")] if abnormal else [])


@pytest.mark.parametrize(("depth", "abnormal"), [(100, False), (101, True)])
def test_a_queue_that_is_read_tells_before_anybody_has_left_it(depth: int, abnormal: bool) -> None:
    assert begun(Spikes(Thresholds(queued=100)), 0.0, {"batch": depth}) == (
        [("queue_growth", "batch")] if abnormal else []
    )


@pytest.mark.parametrize(
    ("estimated", "abnormal"), [(150, False), (151, True), (67, False), (66, True), (100, False), (0, False)]
)
def test_estimates_may_be_off_by_so_much(estimated: int, abnormal: bool) -> None:
    spikes = Spikes(Thresholds(drift=1.5, least=20))
    for _ in range(20):
        spikes.count(ended(usage=Usage(60, 40, 1000), estimated_input=estimated))
    assert begun(spikes, 0.0) == ([("estimate_drift", "m")] if abnormal else [])


def test_estimates_are_not_measured_by_our_own_guess_of_the_usage() -> None:
    spikes = Spikes()
    for _ in range(100):
        spikes.count(ended(usage=Usage(10, 0, 0, estimated=True), estimated_input=100))
    assert begun(spikes, 0.0) == []


def test_a_threshold_of_nothing_asks_nothing() -> None:
    spikes = Spikes(Thresholds(rate_limited=0, refused=0, queued=0, drift=0, pressure=0))
    for number in range(20 * SLICES):
        for _ in range(50):
            spikes.count(ended(EndReason.REFUSED_QUOTA, THROTTLED, Usage(10**6), estimated_input=1, queued=1e6))
        assert spikes.judge(number * 5.0, {"batch": 10**6})[0] == {}


def test_it_is_said_when_it_begins_and_when_it_is_over_and_not_in_between() -> None:
    spikes = Spikes(Thresholds(window=60))
    story = []
    for second in range(200):
        for _ in range(10):
            spikes.count(ended(fault=THROTTLED if 50 <= second < 60 else None))
        found, over = spikes.judge(float(second), {})
        story += [(second, "begins", *subject) for subject in found]
        story += [(second, "is over", *subject) for subject in over]
    assert story == [(55, "begins", LIMITED, "a"), (120, "is over", LIMITED, "a")]


def test_silence_ends_it_too() -> None:
    spikes = Spikes()
    for _ in range(100):
        spikes.count(ended(fault=THROTTLED))
    judged = [(now, *spikes.judge(float(now), {})) for now in range(0, 200, 5)]
    assert [(now, set(found)) for now, found, _ in judged if found] == [(5, {(LIMITED, "a")})]
    assert [(now, over) for now, _, over in judged if over] == [(65, {(LIMITED, "a")})]


def test_the_figures_are_told() -> None:
    spikes = Spikes()
    for _ in range(20):
        spikes.count(ended(fault=THROTTLED))
    spikes.judge(0.0, {})
    found, _ = spikes.judge(5.0, {})
    assert list(found.values()) == ["the provider of channel a throttled 20 of 20 attempts, more than 5%"]


def minutes(spikes: Spikes, *tokens: int) -> list[int]:
    """Which of these minutes of one tenant are abnormal."""
    spikes.judge(0.0, {})
    told = []
    for number, used in enumerate(tokens):
        spikes.count(ended(usage=Usage(used)))
        for slice_ in range(1, SLICES + 1):
            found, _ = spikes.judge(number * 60.0 + slice_ * 5.0, {})
            told += [number for cause, _ in found if cause is AlertCause.TOKEN_PRESSURE]
    return told


@pytest.mark.parametrize(("used", "abnormal"), [(5000, False), (5001, True)])
def test_a_tenant_is_measured_by_its_own_mean(used: int, abnormal: bool) -> None:
    spikes = Spikes(Thresholds(pressure=5, pressure_floor=0))
    assert minutes(spikes, *[1000] * 10, used) == ([10] if abnormal else [])


@pytest.mark.parametrize(("used", "abnormal"), [(100_000, False), (100_001, True)])
def test_below_the_floor_nothing_is_abnormal(used: int, abnormal: bool) -> None:
    assert minutes(Spikes(), *[1000] * 10, used) == ([10] if abnormal else [])


def test_a_tenant_without_a_past_is_left_alone() -> None:
    assert minutes(Spikes(), *[10] * (WARM - 1), 10**9) == []
    assert minutes(Spikes(), *[10] * WARM, 10**9) == [WARM]


def test_pressure_that_stays_becomes_the_mean() -> None:
    spikes = Spikes(Thresholds(pressure=5, pressure_floor=0))
    assert minutes(spikes, *[1000] * 10, *[10_000] * 20, 1000, 10_000) == [10]


def test_a_tenant_that_is_gone_is_forgotten() -> None:
    spikes = Spikes()
    minutes(spikes, 1000, *[0] * 200)
    assert spikes._means == {}


def test_names_without_end_take_bounded_room() -> None:
    spikes = Spikes()
    for number in range(MOST + 100):
        spikes.count(ended(tenant=f"t{number}", model=f"m{number}", usage=Usage(1), estimated_input=1))
    assert len(spikes._tokens) == len(spikes._slice.models) == MOST
