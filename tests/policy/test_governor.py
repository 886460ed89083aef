"""Growth of one channel: its ceiling, its slow start, its brake."""

import itertools

import pytest

from trioproxy.policy.governor import Ceiling, Governor, Turns
from trioproxy.policy.limits import Need
from trioproxy.policy.ramp import Ramp, RampPolicy, Thresholds, Warmup

ONE = Need(1)


def governor(floor: float = 60.0, warmup: Warmup | None = None) -> Governor:
    ramp = Ramp(RampPolicy(floor, growth=1.5, period=900.0))
    return Governor((Ceiling("requests_per_minute", 0, ramp),), warmup, Thresholds())


@pytest.mark.parametrize("share, gone", [(0.3, 31), (0.1, 11), (1.0, 100), (0.5, 51)])
def test_a_share_of_calls_goes_evenly_and_the_first_one_does(share: float, gone: int) -> None:
    turns = Turns()
    went = [turns.mine(share) for _ in range(100)]
    assert went[0]
    assert sum(went) == pytest.approx(gone, abs=1)
    gaps = [i for i, one in enumerate(went) if one]
    assert max(b - a for a, b in itertools.pairwise(gaps)) <= round(1 / share) + 1


def test_a_rate_grows_by_no_more_than_its_ramp() -> None:
    """Everything that is offered beyond is held back; the ceiling is half as high again after 15 minutes at most."""
    made = governor()
    sent = [0] * 31
    for tick in range(30 * 60 * 4):  # four a second are offered, for half an hour
        now = tick / 4
        made.look(now, 0)
        if made.wait(ONE, now)[0] == 0:
            made.took(ONE, now)
            sent[int(now // 60)] += 1
    assert sent[1] <= 62
    assert sent[15] == pytest.approx(90, abs=3)
    assert sent[29] <= 60 * 1.5**2
    assert sent[29] == pytest.approx(60 * 1.5 ** (29.5 / 15), abs=4)


def test_the_wait_is_until_there_is_room() -> None:
    made = governor(floor=10)
    for _ in range(10):
        assert made.wait(ONE, 0.0)[0] == 0
        made.took(ONE, 0.0)
    wait, ceiling = made.wait(ONE, 0.0)
    assert ceiling is not None
    assert (ceiling.name, round(wait, 2)) == ("requests_per_minute", 6.32)
    assert made.wait(ONE, wait)[0] == 0


def test_growth_pauses_past_a_threshold_and_goes_on_when_it_has_been_well() -> None:
    made = governor()
    for second in range(100):
        made.ended(float(second), limited=second >= 90, failed=False)
    why = "9 of 49 calls were refused by the provider, more than 5%"
    assert made.look(99.0, 0) == why
    assert (made.look(99.5, 0), made.look(101.0, 0), made.paused) == (
        None,
        None,
        "9 of 47 calls were refused by the provider, more than 5%",
    )
    held = made.ceilings[0].limit
    said = []
    for second in range(102, 400):
        made.ended(float(second), limited=False, failed=False)
        said.append((second, made.look(float(second), 0)))
    ((resumed, word),) = [each for each in said if each[1] is not None]
    assert (word, made.paused) == ("", "")
    assert 150 < resumed < 250
    assert made.ceilings[0].limit >= held


@pytest.mark.parametrize(
    "thresholds, waiting, seconds, why",
    [
        (Thresholds(queued=3), 4, 0.1, "4 calls are waiting, more than 3"),
        (Thresholds(p95=2.0), 0, 3.0, "p95 latency is 3.00 s, more than 2.00 s"),
    ],
)
def test_calls_that_wait_and_slow_answers_pause_it_too(
    thresholds: Thresholds, waiting: int, seconds: float, why: str
) -> None:
    made = Governor((), None, thresholds)
    for second in range(40):
        made.answered(float(second), seconds)
        made.ended(float(second), limited=False, failed=False)
    assert made.look(40.0, waiting) == why
    assert made.look(200.0, 0) == ""


def test_a_new_or_recovered_channel_begins_slowly() -> None:
    made = governor(warmup=Warmup(window=60.0, least=0.1))
    assert [made.passes_over(0.0) for _ in range(10)] == [False] + [True] * 9
    assert made.share(30.0) == 0.5
    assert made.share(60.0) == 1.0
    assert not any(made.passes_over(61.0) for _ in range(10))
    made.recovered(100.0)
    assert sum(not made.passes_over(100.0) for _ in range(100)) == 10
