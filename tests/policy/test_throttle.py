"""A channel's lanes together: which one a refusal is of, whose headers count, and what was sent before they were known."""

import pytest

from trioproxy.codec.ratelimits import INPUT, OUTPUT, REQUESTS, REQUESTS_DAY, TOKENS, Observation
from trioproxy.policy.limits import Need
from trioproxy.policy.pace import MOST, Pace, Sent
from trioproxy.policy.throttle import Reading, Short, Throttle

CALL = Need(1, 600, 400, 1000)


def by_name(throttle: Throttle, now: float = 0.0) -> dict[str, Reading]:
    return {reading.name: reading for reading in throttle.readings(now)}


def test_a_refusal_lowers_the_lane_that_was_nearest_its_end_and_no_other() -> None:
    throttle = Throttle("m", {REQUESTS: 1000.0, TOKENS: 10_000.0})
    for _ in range(8):
        throttle.take(CALL, 0.0)
    (change,) = throttle.refused(CALL, 0.0, 1.0)
    assert (change.name, change.was, round(change.limit)) == (TOKENS, 10_000, 4900)  # 0.7 of the 7000 it took
    assert by_name(throttle)[REQUESTS].tried is None
    assert by_name(throttle)[REQUESTS].used == 7


def test_where_headers_say_which_limit_it_was_they_are_believed() -> None:
    throttle = Throttle("m", {REQUESTS: 1000.0, TOKENS: 10_000.0})
    for _ in range(8):
        marks = throttle.take(CALL, 0.0)
    throttle.observe([Observation(REQUESTS, 1000, 0, 60.0), Observation(TOKENS, 10_000, 5000, 30.0)], marks, 0.0)
    (change,) = throttle.refused(CALL, 0.0, 1.0)
    assert (change.name, change.limit) == (REQUESTS, 100)  # a tenth is the least


def test_input_and_output_are_limits_of_their_own() -> None:
    throttle = Throttle("m", {})
    throttle.observe([Observation(INPUT, 60_000, 700, 59.3), Observation(OUTPUT, 6000, 100, 59.0)], (), 0.0)
    short = throttle.objection(CALL, 0.0)
    assert short is not None
    assert (short.rule, short.name, short.wait) == ("provider", OUTPUT, 3.0)
    assert throttle.objection(Need(1, 600, 0, 600), 0.0) is None


def test_a_days_requests_are_no_minutes() -> None:
    throttle = Throttle("m", {REQUESTS: 60.0})
    throttle.observe([Observation(REQUESTS_DAY, 14_400, 0, 6.0)], (), 0.0)
    short = throttle.objection(CALL, 0.0)
    assert short is not None
    assert (short.name, short.wait) == (REQUESTS_DAY, 6.0)
    assert throttle.refused(CALL, 0.0, 1.0)[0].name == REQUESTS  # a day's limit is not found by trying


@pytest.mark.parametrize("scope, counts", [("", True), ("project", True), ("priority", False), ("fast", False)])
def test_limits_of_a_tier_that_nobody_asked_for_do_not_count(scope: str, counts: bool) -> None:
    throttle = Throttle("m", {})
    throttle.observe([Observation(TOKENS, 60_000, 0, 60.0, scope), Observation("capacity_percent", 100, 0)], (), 0.0)
    assert (throttle.objection(CALL, 0.0) is not None) is counts


def test_a_model_knows_nothing_of_another_and_the_oldest_is_forgotten() -> None:
    pace = Pace("openai")
    spent = [(b"x-ratelimit-limit-requests", b"60"), (b"x-ratelimit-remaining-requests", b"0")]
    pace.heard("m", None, spent, now=0.0, wall=0.0)
    assert isinstance(pace.enter("m", CALL, 0.0, alone=True), Short)
    assert isinstance(pace.enter("other", CALL, 0.0, alone=True), Sent)
    for number in range(MOST):
        pace.heard(str(number), None, spent, now=0.0, wall=0.0)
    assert isinstance(pace.enter("m", CALL, 0.0, alone=True), Sent)
    assert len(pace.statistics(0.0).lanes) == MOST


def test_a_channel_of_which_nothing_is_known_is_free() -> None:
    pace = Pace()
    assert pace.free
    pace.refused("m", None, 0.0, None)  # without a limit to climb to, a refusal is only counted
    assert (pace.free, pace.rejected) == (True, 1)


def test_where_there_is_plenty_the_next_word_is_not_needed_at_once() -> None:
    pace = Pace("openai")

    def hear(remaining: bytes, now: float) -> None:
        told = [(b"x-ratelimit-limit-requests", b"60"), (b"x-ratelimit-remaining-requests", remaining)]
        pace.heard("m", None, told, now=now, wall=0.0)

    assert not pace.calm("m", 0.0)
    hear(b"30", 0.0)
    assert (pace.calm("m", 0.09), pace.calm("m", 0.1), pace.calm("other", 0.0)) == (True, False, False)
    hear(b"29", 0.1)
    assert not pace.calm("m", 0.1)
