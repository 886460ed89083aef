"""Every state of every preset, and every input to it: what comes of it, in one table."""

import pytest
from attrs import evolve

from trioproxy.policy.breaker import PRESETS, Breaker, BreakerPolicy, Permit, State

CLOSED, OPEN, HALF_OPEN = State.CLOSED, State.OPEN, State.HALF_OPEN
NOW = 1000.0
FOUR, CONSECUTIVE, HALF = PRESETS.values()

# preset, from where, what happens → where it is then, how many failures count
TABLE = [
    ("four-layer", "closed", "success", CLOSED, 2),
    ("four-layer", "closed", "slow", CLOSED, 2),
    ("four-layer", "closed", "failure", OPEN, 3),
    ("four-layer", "closed", "abandon", CLOSED, 2),
    ("four-layer", "closed", "trip", OPEN, 2),
    ("four-layer", "open", "enter", OPEN, 3),
    ("four-layer", "open", "late success", OPEN, 3),
    ("four-layer", "open", "late failure", OPEN, 3),
    ("four-layer", "open", "late abandon", OPEN, 3),
    ("four-layer", "open", "trip", OPEN, 3),
    ("four-layer", "open", "resort succeeds", CLOSED, 0),
    ("four-layer", "open", "resort fails", OPEN, 3),
    ("four-layer", "open", "resort abandoned", OPEN, 3),
    ("four-layer", "cooled", "enter", CLOSED, 3),
    ("four-layer", "cooled", "success", CLOSED, 3),
    ("four-layer", "cooled", "failure", OPEN, 4),
    ("four-layer", "cooled", "abandon", CLOSED, 3),
    ("consecutive", "closed", "success", CLOSED, 0),
    ("consecutive", "closed", "slow", CLOSED, 4),
    ("consecutive", "closed", "failure", OPEN, 5),
    ("consecutive", "closed", "abandon", CLOSED, 4),
    ("consecutive", "closed", "trip", OPEN, 4),
    ("consecutive", "open", "enter", OPEN, 5),
    ("consecutive", "open", "late success", OPEN, 5),
    ("consecutive", "open", "late failure", OPEN, 5),
    ("consecutive", "open", "late abandon", OPEN, 5),
    ("consecutive", "open", "trip", OPEN, 5),
    ("consecutive", "open", "resort succeeds", CLOSED, 0),
    ("consecutive", "open", "resort fails", OPEN, 5),
    ("consecutive", "open", "resort abandoned", OPEN, 5),
    ("consecutive", "cooled", "enter", HALF_OPEN, 5),
    ("consecutive", "cooled", "success", CLOSED, 0),
    ("consecutive", "cooled", "slow", CLOSED, 0),
    ("consecutive", "cooled", "failure", OPEN, 5),
    ("consecutive", "cooled", "abandon", HALF_OPEN, 5),
    ("consecutive", "cooled", "late success", HALF_OPEN, 5),
    ("half-open", "closed", "success", CLOSED, 0),
    ("half-open", "closed", "slow", CLOSED, 4),
    ("half-open", "closed", "failure", OPEN, 5),
    ("half-open", "closed", "abandon", CLOSED, 4),
    ("half-open", "closed", "trip", OPEN, 4),
    ("half-open", "open", "enter", OPEN, 5),
    ("half-open", "open", "late success", OPEN, 5),
    ("half-open", "open", "late failure", OPEN, 5),
    ("half-open", "open", "late abandon", OPEN, 5),
    ("half-open", "open", "trip", OPEN, 5),
    ("half-open", "open", "resort succeeds", OPEN, 5),
    ("half-open", "open", "resort fails", OPEN, 5),
    ("half-open", "open", "resort abandoned", OPEN, 5),
    ("half-open", "cooled", "enter", HALF_OPEN, 5),
    ("half-open", "cooled", "success", HALF_OPEN, 5),
    ("half-open", "cooled", "slow", OPEN, 5),
    ("half-open", "cooled", "failure", OPEN, 5),
    ("half-open", "cooled", "abandon", HALF_OPEN, 5),
    ("half-open", "cooled", "late success", HALF_OPEN, 5),
]


def given(preset: str, start: str) -> tuple[Breaker, Permit]:
    """One failure from opening, open for a second, or past its wait; and a permit from before."""
    subject = Breaker(PRESETS[preset])
    opened = NOW if start == "closed" else NOW - 1.0
    if start == "cooled":
        opened = NOW - subject.policy.open_for
    permits = [subject.try_enter(opened) for _ in range(subject.policy.failures)]
    late = subject.try_enter(opened)
    for permit in permits if start != "closed" else permits[:-1]:
        assert permit is not None
        subject.failure(permit, opened)
    assert late is not None
    return subject, late


def happen(subject: Breaker, late: Permit, what: str) -> None:
    verb = what.rsplit(maxsplit=1)[-1]
    if what.startswith("late"):
        subject.try_enter(NOW)
        getattr(subject, verb)(late, NOW)
    elif what.startswith("resort"):
        permit = subject.resort(NOW)
        assert permit is not None
        assert subject.resort(NOW) is None  # one at a time
        {"succeeds": subject.success, "fails": subject.failure, "abandoned": subject.abandon}[verb](permit, NOW)
    elif what == "trip":
        subject.trip(NOW)
    else:
        permit = subject.try_enter(NOW)
        if what == "slow":
            assert permit is not None
            subject.began(permit, 60.0, NOW)
        elif what != "enter":
            assert permit is not None
            getattr(subject, what)(permit, NOW)


@pytest.mark.parametrize(("preset", "start", "what", "state", "count"), TABLE, ids=str)
def test_every_state_and_input_of_every_preset(preset: str, start: str, what: str, state: State, count: int) -> None:
    subject, late = given(preset, start)
    happen(subject, late, what)
    assert (subject.state, subject.count(NOW)) == (state, count)
    if state is OPEN:
        reopened = what in {"failure", "slow", "trip", "resort fails"} and not (start == "open" and what == "trip")
        assert subject.until == (NOW if reopened else NOW - 1.0) + subject.policy.open_for
    out = state is HALF_OPEN and what in {"enter", "late success"}
    assert subject.leases == (1 if out else 0)


def test_the_table_names_every_preset_state_and_verb() -> None:
    seen = {(preset, start) for preset, start, *_ in TABLE}
    assert seen == {(preset, start) for preset in PRESETS for start in ("closed", "open", "cooled")}


def test_half_open_closes_by_three_last_resorts_one_after_the_other() -> None:
    subject, _ = given("half-open", "open")
    for wanted in (OPEN, OPEN, CLOSED):
        permit = subject.resort(NOW)
        assert permit is not None
        subject.success(permit, NOW)
        assert subject.state is wanted


def test_a_last_resort_that_is_out_when_the_wait_ends_changes_nothing_any_more() -> None:
    subject, _ = given("consecutive", "open")
    early = subject.resort(NOW)
    assert early is not None
    probe = subject.try_enter(NOW + 60.0)
    assert probe is not None
    subject.failure(early, NOW + 61.0)
    assert (subject.state, subject.leases) == (HALF_OPEN, 1)
    subject.success(probe, NOW + 62.0)
    assert subject.state is CLOSED


def openings(policy: BreakerPolicy, count: int, luck: float = 0.5) -> list[float]:
    """How long each of so many openings in a row lasts."""
    subject, now = Breaker(policy), 0.0
    lasted: list[float] = []
    while len(lasted) < count:
        permit = subject.try_enter(now)
        assert permit is not None
        subject.failure(permit, now, luck)
        if subject.state is OPEN:
            lasted.append(subject.until - now)
            now = subject.until
    return lasted


def test_without_growth_every_wait_is_the_same() -> None:
    for policy in PRESETS.values():
        assert openings(policy, 4) == [policy.open_for] * 4


def test_growth_multiplies_the_wait_up_to_its_end() -> None:
    policy = evolve(CONSECUTIVE, growth=2.0, open_for=5.0, open_max=30.0)
    assert openings(policy, 5) == [5.0, 10.0, 20.0, 30.0, 30.0]
    assert openings(evolve(policy, probes=0, failures=1), 5) == [5.0, 10.0, 20.0, 30.0, 30.0]
    assert openings(evolve(policy, open_max=1.0), 3) == [5.0] * 3  # never less than open_for
    assert openings(evolve(policy, growth=10.0, open_max=1e9), 400)[-1] == 1e9


def test_a_success_ends_the_growth() -> None:
    subject = Breaker(evolve(CONSECUTIVE, failures=1, growth=2.0, open_for=5.0))
    for now in (0.0, 5.0):
        permit = subject.try_enter(now)
        assert permit is not None
        subject.failure(permit, now)
    assert subject.until == 15.0
    permit = subject.try_enter(15.0)
    assert permit is not None
    subject.success(permit, 15.0)
    permit = subject.try_enter(16.0)
    assert permit is not None
    subject.failure(permit, 16.0)
    assert subject.until == 21.0


@pytest.mark.parametrize(("luck", "seconds"), [(0.0, 48.0), (0.25, 54.0), (0.5, 60.0), (1.0, 72.0)])
def test_jitter_spreads_the_wait_by_its_share_either_way(luck: float, seconds: float) -> None:
    assert openings(evolve(FOUR, jitter=0.2), 1, luck) == [pytest.approx(seconds)]


# Slow calls


def stream(subject: Breaker, first: float, now: float = 0.0) -> State:
    permit = subject.try_enter(now)
    assert permit is not None
    subject.began(permit, first, now)
    if not permit.spent:
        subject.success(permit, now)
    return subject.state


def test_slow_streams_at_p95_open_it() -> None:
    """Of 20 one is forgiven and one is the 5 %; the third is too many."""
    subject = Breaker(HALF)
    assert [stream(subject, 5.0) for _ in range(17)] == [CLOSED] * 17  # 5 s is not slower than 5 s
    assert [stream(subject, 5.1) for _ in range(3)] == [CLOSED, CLOSED, OPEN]
    assert subject.count(0.0) == 0


def test_fewer_than_the_minimum_are_no_quantile() -> None:
    subject = Breaker(HALF)
    assert [stream(subject, 60.0) for _ in range(20)] == [CLOSED] * 19 + [OPEN]


def test_five_in_a_hundred_may_be_slow() -> None:
    subject = Breaker(HALF)
    assert {stream(subject, 60.0 if call % 20 == 0 else 1.0) for call in range(1000)} == {CLOSED}


def test_slow_ones_fade() -> None:
    """Two in every hundred seconds, half an hour long, among a call a second."""
    subject = Breaker(HALF)
    assert {stream(subject, 60.0 if now % 100 < 2 else 1.0, float(now)) for now in range(1800)} == {CLOSED}
    assert subject.slowness.seen == pytest.approx(300.5, abs=1.0)


def test_what_opened_it_is_forgotten() -> None:
    subject = Breaker(evolve(HALF, probes=0))
    assert [stream(subject, 60.0) for _ in range(20)][-1] is OPEN
    assert [stream(subject, 1.0, 30.0) for _ in range(50)] == [CLOSED] * 50


def test_a_slow_probe_is_a_failed_one() -> None:
    subject, _ = given("half-open", "cooled")
    assert stream(subject, 4.9, NOW) is HALF_OPEN
    assert stream(subject, 5.1, NOW) is OPEN
    assert subject.until == NOW + 30.0


def test_a_straggler_is_not_slow() -> None:
    subject, late = given("half-open", "open")
    before = subject.slowness.seen
    assert subject.began(late, 60.0, NOW)
    assert subject.slowness.seen == before


def test_where_slow_is_off_nothing_is_counted() -> None:
    subject = Breaker(FOUR)
    assert {stream(subject, 1e6) for _ in range(1000)} == {CLOSED}
    assert subject.slowness.seen == 0
