"""The breaker: every transition of every preset with the exact numbers, stragglers, leases, and a model to compare with."""

import pytest
from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trioproxy.policy.breaker import PRESETS, Breaker, BreakerPolicy, Permit, State


def breaker(preset: str) -> Breaker:
    return Breaker(PRESETS[preset])


def state(subject: Breaker) -> State:
    """A call, so that a type checker does not take the last assertion's word for the next."""
    return subject.state


def enter(subject: Breaker, now: float) -> Permit:
    permit = subject.try_enter(now)
    assert permit is not None
    return permit


def fail(subject: Breaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        subject.failure(enter(subject, now), now)


def succeed(subject: Breaker, now: float) -> None:
    subject.success(enter(subject, now), now)


def opened(preset: str, now: float = 0.0) -> Breaker:
    subject = breaker(preset)
    fail(subject, now, PRESETS[preset].failures)
    assert state(subject) is State.OPEN
    return subject


def test_the_presets_have_the_numbers_of_their_systems() -> None:
    four, consecutive, half = (PRESETS[name] for name in ("four-layer", "consecutive", "half-open"))
    assert (four.failures, four.window, four.open_for, four.probes) == (3, 300.0, 60.0, 0)
    assert (consecutive.failures, consecutive.window, consecutive.open_for) == (5, 0.0, 60.0)
    assert (consecutive.probes, consecutive.successes, consecutive.failed_probe) == (1, 1, "keep")
    assert (half.failures, half.window, half.open_for, half.probes, half.successes) == (5, 0.0, 30.0, 3, 3)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_new_breaker_is_closed_and_lets_any_number_through(preset: str) -> None:
    subject = breaker(preset)
    assert state(subject) is State.CLOSED
    assert all(subject.admits(0.0) and subject.try_enter(0.0) for _ in range(100))


@pytest.mark.parametrize("preset", PRESETS)
def test_it_opens_at_its_number_of_failures_and_not_one_before(preset: str) -> None:
    subject = breaker(preset)
    fail(subject, 0.0, PRESETS[preset].failures - 1)
    assert state(subject) is State.CLOSED
    fail(subject, 0.0)
    assert state(subject) is State.OPEN
    assert subject.until == PRESETS[preset].open_for


@pytest.mark.parametrize("preset", PRESETS)
def test_open_refuses_to_the_end_of_its_time_and_looking_changes_nothing(preset: str) -> None:
    subject, until = opened(preset), PRESETS[preset].open_for
    assert not subject.admits(until - 0.001)
    assert subject.try_enter(until - 0.001) is None
    assert subject.admits(until)
    assert state(subject) is State.OPEN
    assert subject.try_enter(until) is not None
    assert state(subject) is (State.HALF_OPEN if PRESETS[preset].probes else State.CLOSED)


# four-layer


def test_four_layer_counts_failures_of_the_last_300_seconds_alone() -> None:
    subject = breaker("four-layer")
    for now in (0.0, 150.0, 300.0):
        fail(subject, now)
    assert state(subject) is State.CLOSED  # the first is 300 s old and counts no more
    assert subject.count(300.0) == 2
    fail(subject, 449.9)
    assert state(subject) is State.OPEN


def test_four_layer_successes_forgive_nothing() -> None:
    subject = breaker("four-layer")
    fail(subject, 0.0, 2)
    for _ in range(50):
        succeed(subject, 1.0)
    fail(subject, 2.0)
    assert state(subject) is State.OPEN


def test_four_layer_flows_again_after_60_seconds_and_one_more_failure_reopens_it() -> None:
    subject = opened("four-layer")
    assert all(subject.try_enter(60.0) for _ in range(20))
    assert state(subject) is State.CLOSED
    assert subject.count(60.0) == 3
    fail(subject, 61.0)
    assert state(subject) is State.OPEN
    assert subject.until == 121.0


def test_four_layer_needs_three_failures_again_once_the_old_ones_left_the_window() -> None:
    subject = opened("four-layer")
    fail_at = 300.0
    enter(subject, fail_at)
    fail(subject, fail_at, 2)
    assert state(subject) is State.CLOSED
    fail(subject, fail_at)
    assert state(subject) is State.OPEN


# consecutive


@pytest.mark.parametrize("preset", ["consecutive", "half-open"])
def test_a_success_ends_the_streak(preset: str) -> None:
    subject = breaker(preset)
    for _ in range(10):
        fail(subject, 0.0, 4)
        succeed(subject, 0.0)
    assert state(subject) is State.CLOSED
    assert subject.count(0.0) == 0


@pytest.mark.parametrize("preset", ["consecutive", "half-open"])
def test_a_streak_has_no_age(preset: str) -> None:
    subject = breaker(preset)
    for day in range(5):
        fail(subject, day * 86_400.0)
    assert state(subject) is State.OPEN


def test_consecutive_sends_exactly_one_probe_and_its_success_closes_and_zeroes() -> None:
    subject = opened("consecutive")
    probe = enter(subject, 60.0)
    assert probe.probe
    assert not subject.admits(60.0)
    assert [subject.try_enter(60.0 + n) for n in range(50)] == [None] * 50
    subject.success(probe, 61.0)
    assert state(subject) is State.CLOSED
    assert subject.count(61.0) == 0
    assert not enter(subject, 61.0).probe


def test_consecutive_failed_probes_leave_the_count_alone_and_only_renew_the_cooldown() -> None:
    subject = opened("consecutive")
    for start in (60.0, 121.0, 182.0):
        subject.failure(enter(subject, start), start + 1)
        assert state(subject) is State.OPEN
        assert subject.until == start + 61
        assert subject.count(start + 1) == 5


def test_a_failed_probe_counts_where_the_policy_says_so() -> None:
    subject = Breaker(BreakerPolicy(failures=2, window=0.0, probes=1, failed_probe="count"))
    fail(subject, 0.0, 2)
    fail(subject, 60.0)
    assert subject.count(60.0) == 3


# half-open


def test_half_open_leases_three_probes_at_once() -> None:
    subject = opened("half-open")
    assert [enter(subject, 30.0).probe for _ in range(3)] == [True] * 3
    assert [subject.try_enter(30.0) for _ in range(47)] == [None] * 47


def test_half_open_closes_at_the_third_success() -> None:
    subject = opened("half-open")
    probes = [enter(subject, 30.0) for _ in range(3)]
    for probe in probes[:2]:
        subject.success(probe, 31.0)
        assert state(subject) is State.HALF_OPEN
    subject.success(probes[2], 32.0)
    assert state(subject) is State.CLOSED
    assert subject.count(32.0) == 0


def test_half_open_any_failure_reopens_and_successes_start_from_nothing() -> None:
    subject = opened("half-open")
    probes = [enter(subject, 30.0) for _ in range(3)]
    subject.success(probes[0], 31.0)
    subject.success(probes[1], 31.0)
    subject.failure(probes[2], 32.0)
    assert state(subject) is State.OPEN
    assert subject.until == 62.0
    succeed(subject, 62.0)
    succeed(subject, 62.0)
    assert state(subject) is State.HALF_OPEN
    succeed(subject, 62.0)
    assert state(subject) is State.CLOSED


# leases, stragglers, illegal input


@pytest.mark.parametrize("preset", ["consecutive", "half-open"])
def test_an_abandoned_probe_frees_its_lease_and_is_no_evidence(preset: str) -> None:
    subject = opened(preset)
    for _ in range(20):
        probes = [enter(subject, 60.0) for _ in range(PRESETS[preset].probes)]
        assert subject.try_enter(60.0) is None
        for probe in probes:
            subject.abandon(probe, 60.0)
    assert state(subject) is State.HALF_OPEN
    assert subject.admits(60.0)
    assert subject.count(60.0) == PRESETS[preset].failures


@pytest.mark.parametrize("preset", PRESETS)
def test_an_abandoned_attempt_neither_counts_nor_ends_a_streak(preset: str) -> None:
    subject = breaker(preset)
    fail(subject, 0.0, PRESETS[preset].failures - 1)
    for _ in range(50):
        subject.abandon(enter(subject, 0.0), 0.0)
    assert subject.count(0.0) == PRESETS[preset].failures - 1
    fail(subject, 0.0)
    assert state(subject) is State.OPEN


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("verb", ["success", "failure", "abandon"])
def test_a_straggler_changes_nothing_in_any_later_state(preset: str, verb: str) -> None:
    policy = PRESETS[preset]
    for later in (State.OPEN, State.HALF_OPEN, State.CLOSED) if policy.probes else (State.OPEN, State.CLOSED):
        subject = breaker(preset)
        straggler = enter(subject, 0.0)
        fail(subject, 0.0, policy.failures)
        probe = None
        if later is not State.OPEN:
            probe = enter(subject, policy.open_for)
        if later is State.CLOSED and policy.probes:
            subject.success(enter_all(subject, probe), policy.open_for)
        assert state(subject) is later
        before = (subject.state, subject.until, subject.count(policy.open_for), subject.admits(policy.open_for))
        getattr(subject, verb)(straggler, policy.open_for)
        assert (subject.state, subject.until, subject.count(policy.open_for), subject.admits(policy.open_for)) == before


def enter_all(subject: Breaker, probe: Permit | None) -> Permit:
    """Spend all but the last success that closing needs; the last permit is returned."""
    assert probe is not None
    for _ in range(subject.policy.successes - 1):
        succeed(subject, subject.policy.open_for)
    return probe


def test_a_late_probe_of_an_earlier_half_open_period_frees_no_lease_of_this_one() -> None:
    subject = opened("half-open")
    late, failing = enter(subject, 30.0), enter(subject, 30.0)
    subject.failure(failing, 30.0)
    for _ in range(3):
        enter(subject, 60.0)
    subject.success(late, 61.0)
    assert subject.try_enter(61.0) is None
    assert state(subject) is State.HALF_OPEN


@pytest.mark.parametrize("preset", PRESETS)
def test_a_strike_counts_like_a_failure_and_is_nothing_new_to_an_open_breaker(preset: str) -> None:
    policy, subject = PRESETS[preset], breaker(preset)
    *permits, last = [enter(subject, 0.0) for _ in range(policy.failures + 1)]
    for permit in (*permits, last):
        subject.success(permit, 0.0)
    for permit in permits:
        assert state(subject) is State.CLOSED
        subject.strike(permit, 0.0)
    assert state(subject) is State.OPEN
    subject.strike(last, 1.0)
    assert subject.until == policy.open_for
    assert subject.count(1.0) == policy.failures


def test_a_strike_while_half_open_opens_again() -> None:
    subject = opened("half-open")
    probe, other = enter(subject, 60.0), enter(subject, 60.0)
    subject.success(probe, 60.5)
    subject.strike(probe, 61.0)
    assert state(subject) is State.OPEN
    assert subject.until == 61.0 + PRESETS["half-open"].open_for
    subject.success(other, 62.0)
    assert state(subject) is State.OPEN


def test_a_strike_of_an_earlier_epoch_changes_nothing() -> None:
    """The probe's stream had closed the breaker; it was cut two states later, when another probe was out."""
    subject = opened("consecutive")
    old = enter(subject, 60.0)
    subject.success(old, 61.0)
    for permit in [enter(subject, 62.0) for _ in range(5)]:
        subject.failure(permit, 62.0)
    enter(subject, 122.0)
    subject.strike(old, 123.0)
    assert state(subject) is State.HALF_OPEN
    assert subject.leases == 1


@pytest.mark.parametrize("first", ["success", "failure", "abandon"])
@pytest.mark.parametrize("second", ["success", "failure", "abandon"])
def test_handing_a_permit_back_twice_is_a_bug_of_the_caller(first: str, second: str) -> None:
    subject = breaker("four-layer")
    permit = enter(subject, 0.0)
    getattr(subject, first)(permit, 0.0)
    with pytest.raises(AssertionError, match="exactly once"):
        getattr(subject, second)(permit, 0.0)


@pytest.mark.parametrize(
    "fields",
    [{"failures": 0}, {"window": -1.0}, {"open_for": 0.0}, {"probes": -1}, {"successes": 0}, {"failures": 1.5}],
)
def test_a_policy_that_cannot_work_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises((ValueError, TypeError)):
        BreakerPolicy(**fields)  # type: ignore[arg-type]


@define(eq=False)
class Oracle:
    """The rules said another way: failures as a plain list, state from when it opened."""

    policy: BreakerPolicy
    failures: list[float] = field(init=False, factory=list)
    until: float | None = field(init=False, default=None)
    half_open: bool = field(init=False, default=False)
    leased: list[Permit] = field(init=False, factory=list)
    valid: list[Permit] = field(init=False, factory=list)
    won: int = field(init=False, default=0)
    done: list[Permit] = field(init=False, factory=list)  # succeeded in the present state, or made it

    def enters(self, now: float) -> bool:
        if self.until is not None and now >= self.until:
            self.until, self.half_open = None, bool(self.policy.probes)
            self.won = self.won if self.half_open else 0
            self.leased, self.valid, self.done = [], [], []
        return self.until is None and (not self.half_open or len(self.leased) < self.policy.probes)

    def resorts(self, now: float) -> bool:
        """One at a time while it is open; else as any other."""
        return not self.leased if self.until is not None and now < self.until else self.enters(now)

    def open(self, now: float) -> None:
        self.until, self.half_open, self.won = now + self.policy.open_for, False, 0
        self.leased, self.valid, self.done = [], [], []

    def settle(self, permit: Permit, verb: str, now: float) -> None:
        if permit not in self.valid:
            return
        self.valid.remove(permit)
        if permit in self.leased:
            self.leased.remove(permit)
        if verb == "success" and (self.half_open or self.until is not None):
            self.won += 1
            if self.won == self.policy.successes:
                self.failures, self.half_open, self.until, self.won = [], False, None, 0
                self.leased, self.valid, self.done = [], [], []
        elif verb == "success" and not self.policy.window:
            self.failures = []
        elif verb == "failure":
            self.fail(now)
        if verb == "success":
            self.done.append(permit)

    def strike(self, permit: Permit, now: float) -> None:
        if permit in self.done:
            self.fail(now)

    def fail(self, now: float) -> None:
        probing = self.half_open or self.until is not None
        if not probing or self.policy.failed_probe == "count":
            self.failures.append(now)
        if probing or len(self.counting(now)) >= self.policy.failures:
            self.open(now)

    def counting(self, now: float) -> list[float]:
        return [at for at in self.failures if not self.policy.window or at > now - self.policy.window]


class BreakerAgainstOracle(RuleBasedStateMachine):
    """Any sequence of entering, settling in any order, and waiting."""

    @initialize(
        policy=st.sampled_from(list(PRESETS.values()))
        | st.builds(
            BreakerPolicy,
            failures=st.integers(1, 3),
            window=st.sampled_from([0.0, 10.0]),
            open_for=st.sampled_from([5.0, 20.0]),
            probes=st.integers(0, 2),
            successes=st.integers(1, 3),
            failed_probe=st.sampled_from(["keep", "count"]),
        )
    )
    def begin(self, policy: BreakerPolicy) -> None:
        self.now = 0.0
        self.breaker, self.oracle = Breaker(policy), Oracle(policy)
        self.out: list[Permit] = []
        self.succeeded: list[Permit] = []

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def resort(self) -> None:
        wanted = self.oracle.resorts(self.now)
        permit = self.breaker.resort(self.now)
        assert (permit is not None) == wanted
        if permit is not None:
            self.out.append(permit)
            self.oracle.valid.append(permit)
            if permit.probe:
                self.oracle.leased.append(permit)

    @rule()
    def trip(self) -> None:
        self.breaker.trip(self.now)
        if self.oracle.until is None and not self.oracle.half_open:
            self.oracle.open(self.now)

    @rule()
    def try_enter(self) -> None:
        admitted = self.breaker.admits(self.now)
        permit = self.breaker.try_enter(self.now)
        assert (permit is not None) == admitted == self.oracle.enters(self.now)
        if permit is not None:
            assert permit.probe is self.oracle.half_open
            self.out.append(permit)
            self.oracle.valid.append(permit)
            if permit.probe:
                self.oracle.leased.append(permit)

    @rule(data=st.data(), verb=st.sampled_from(["success", "failure", "failure", "abandon"]))
    def settle(self, data: st.DataObject, verb: str) -> None:
        if self.out:
            permit = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
            getattr(self.breaker, verb)(permit, self.now)
            self.oracle.settle(permit, verb, self.now)
            if verb == "success":
                self.succeeded.append(permit)

    @rule(data=st.data())
    def strike(self, data: st.DataObject) -> None:
        if self.succeeded:
            permit = data.draw(st.sampled_from(self.succeeded))
            self.breaker.strike(permit, self.now)
            self.oracle.strike(permit, self.now)

    @invariant()
    def they_agree(self) -> None:
        assert self.breaker.count(self.now) == len(self.oracle.counting(self.now))
        if self.oracle.until is not None:
            assert self.breaker.state is State.OPEN
            assert self.breaker.until == self.oracle.until
        else:
            assert self.breaker.state is (State.HALF_OPEN if self.oracle.half_open else State.CLOSED)
        assert self.breaker.leases == len(self.oracle.leased) <= max(1, self.breaker.policy.probes)


TestBreakerAgainstOracle = BreakerAgainstOracle.TestCase
