"""A channel's standing: cooldowns and parks with their exact seconds, one trial at a time, and what lifts them."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trioproxy.policy.standing import FIRST_COOLDOWN, LAST_COOLDOWN, LAST_PARK, TRIAL, Standing


def test_a_new_channel_is_in_order_for_any_number_of_attempts() -> None:
    standing = Standing()
    assert standing.objection(0.0) is None
    assert all(standing.enter(0.0) for _ in range(100))


def test_a_hint_is_obeyed_to_the_second() -> None:
    standing = Standing()
    assert standing.cool(100.0, 7.0, "slow down") == 7.0
    assert standing.objection(100.0) == "cooling down for another 7 s: slow down"
    assert not standing.enter(106.999)
    assert standing.objection(106.999) is not None
    assert standing.objection(107.0) is None
    assert standing.enter(107.0)


def test_without_a_hint_the_cooldown_doubles_from_one_second_to_a_minute() -> None:
    standing, now, waits = Standing(), 0.0, []
    for _ in range(9):
        waits.append(standing.cool(now, None, "429"))
        now = standing.until
        assert standing.enter(now)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert (waits[0], waits[-1]) == (FIRST_COOLDOWN, LAST_COOLDOWN)


def test_answers_that_were_on_their_way_together_are_one_strike() -> None:
    """Ten calls get a 429 at once: the cooldown is still the first one."""
    standing = Standing()
    assert standing.cool(0.0, None, "429") == 1.0
    assert [standing.cool(0.25, None, "429") for _ in range(10)] == [0.75] * 10
    assert standing.until == 1.0
    assert standing.cool(1.0, None, "429") == 2.0


def test_a_longer_hint_lengthens_a_cooldown_and_a_shorter_one_does_not_shorten_it() -> None:
    standing = Standing()
    standing.cool(0.0, 10.0, "first")
    standing.cool(1.0, 30.0, "longer")
    assert standing.until == 31.0
    standing.cool(2.0, 1.0, "shorter")
    assert standing.until == 31.0


def test_one_attempt_tries_a_channel_whose_cooldown_is_over_and_the_others_skip_it() -> None:
    standing = Standing()
    standing.cool(0.0, 5.0, "429")
    assert standing.enter(5.0)
    assert not standing.enter(5.0)
    assert standing.objection(5.0) == "on trial: another call is asking whether it is back"


def test_a_trial_holds_the_others_up_for_a_moment_only() -> None:
    """A refusal comes at once and an answer takes its time: what says nothing for so long is probably answering."""
    standing = Standing()
    standing.cool(0.0, 5.0, "429")
    assert standing.enter(5.0)
    assert not standing.enter(5.0 + TRIAL - 0.001)
    assert standing.objection(5.0 + TRIAL - 0.001) is not None
    assert standing.objection(5.0 + TRIAL) is None
    assert all(standing.enter(5.0 + TRIAL) for _ in range(3))


def test_the_first_attempt_after_a_rest_is_known_to_be_the_trial() -> None:
    standing = Standing()
    seen = [standing.on_probation]
    standing.cool(0.0, 5.0, "429")
    seen.append(standing.on_probation)
    standing.enter(5.0)
    seen.append(standing.on_probation)
    standing.abandon()
    seen.append(standing.on_probation)
    standing.restore(6.0)
    seen.append(standing.on_probation)
    assert seen == [False, True, False, True, False]


def test_only_a_rest_that_the_provider_asked_for_is_cooling() -> None:
    standing = Standing()
    seen = [standing.cooling(0.0)]
    standing.cool(0.0, 5.0, "429")
    seen += [standing.cooling(4.9), standing.cooling(5.0)]
    standing.park(5.0, 300.0, "401")
    seen.append(standing.cooling(6.0))
    assert seen == [False, True, False, False]


def test_a_trial_that_succeeds_restores_and_forgets() -> None:
    standing = Standing()
    standing.cool(0.0, None, "429")
    standing.cool(standing.until, None, "429")
    standing.enter(3.0)
    standing.restore(3.5)
    assert standing.objection(3.5) is None
    assert standing.why == ""
    assert all(standing.enter(3.5) for _ in range(3))
    assert standing.cool(4.0, None, "429") == 1.0


def test_a_trial_that_ends_without_evidence_leaves_room_for_the_next() -> None:
    standing = Standing()
    standing.cool(0.0, 5.0, "429")
    assert standing.enter(5.0)
    standing.abandon()
    assert standing.objection(5.0) is None
    assert standing.enter(5.0)
    assert not standing.enter(5.0)


def test_a_trial_that_fails_begins_the_next_and_longer_cooldown() -> None:
    standing = Standing()
    standing.cool(0.0, None, "429")
    assert standing.enter(1.0)
    assert standing.cool(1.5, None, "429") == 2.0
    assert standing.objection(3.4) == "cooling down for another 0 s: 429"
    assert standing.enter(3.5)


def test_a_success_from_before_lifts_nothing_while_the_channel_rests() -> None:
    standing = Standing()
    standing.cool(0.0, 5.0, "429")
    standing.restore(4.999)
    assert standing.objection(4.999) is not None
    standing.restore(5.0)
    assert standing.objection(5.0) is None


def test_parks_double_to_a_day_until_a_success() -> None:
    standing, now, waits = Standing(), 0.0, []
    for _ in range(12):
        waits.append(standing.park(now, 300.0, "our key was refused"))
        assert standing.parked
        now = standing.until
        assert standing.enter(now)
    assert waits == [300.0 * 2**power for power in range(9)] + [LAST_PARK] * 3
    assert LAST_PARK == 24 * 3600
    standing.restore(now)
    assert not standing.parked
    assert standing.park(now, 300.0, "again") == 300.0


def test_a_park_is_told_as_such() -> None:
    standing = Standing()
    standing.park(0.0, 300.0, "our key was refused")
    assert standing.objection(60.0) == "parked for another 240 s: our key was refused"


def test_parks_of_calls_that_were_under_way_together_are_one() -> None:
    standing = Standing()
    assert standing.park(0.0, 300.0, "401") == 300.0
    assert [standing.park(100.0, 300.0, "401") for _ in range(5)] == [200.0] * 5
    assert standing.until == 300.0
    assert standing.park(300.0, 300.0, "401") == 600.0


@pytest.mark.parametrize("hint", [None, 1.0, 100_000.0])
def test_a_throttle_never_touches_a_park(hint: float | None) -> None:
    standing = Standing()
    standing.park(0.0, 300.0, "our key was refused")
    standing.cool(1.0, hint, "429")
    assert (standing.until, standing.parked, standing.why) == (300.0, True, "our key was refused")


def test_a_park_never_shortens_a_cooldown() -> None:
    standing = Standing()
    standing.cool(0.0, 3600.0, "429")
    standing.park(1.0, 300.0, "401")
    assert standing.parked
    assert standing.until == 3600.0


def test_a_cooldown_before_the_first_park_does_not_make_the_second_more_than_double() -> None:
    standing = Standing()
    standing.cool(0.0, 1.0, "429")
    standing.enter(1.0)
    assert standing.park(1.0, 300.0, "401") == 300.0
    standing.enter(301.0)
    assert standing.park(301.0, 300.0, "401") == 600.0


def test_a_throttle_between_two_parks_is_no_success() -> None:
    standing = Standing()
    standing.park(0.0, 300.0, "401")
    standing.enter(300.0)
    standing.cool(300.0, 1.0, "429")
    standing.enter(301.0)
    assert standing.park(301.0, 300.0, "401") == 600.0


def guessing(strikes: int = 1) -> Standing:
    """A channel that rests by our own guess; the rest began at the end of the one before."""
    standing = Standing()
    for _ in range(strikes):
        standing.cool(standing.until, None, "429")
    return standing


def test_only_a_rest_that_nobody_asked_for_may_be_doubted() -> None:
    assert not Standing().doubtful(0.0)
    assert guessing().doubtful(0.5)
    assert not guessing().doubtful(1.0)  # it is over: the next attempt is its trial anyway
    hinted, parked = Standing(), guessing()
    hinted.cool(0.0, 5.0, "429")
    parked.park(0.5, 300.0, "401")
    assert not hinted.doubtful(0.5)
    assert not parked.doubtful(0.6)


def test_a_hint_during_a_guessed_rest_makes_it_the_providers_word() -> None:
    standing = guessing(5)
    began = standing.until - 16.0
    standing.cool(began + 1.0, 3.0, "429")
    assert not standing.doubtful(began + 2.0)
    assert standing.until == began + 16.0


def test_an_answer_to_the_doubt_ends_the_rest() -> None:
    standing = guessing(5)
    now = standing.until - 10.0
    standing.doubt(now)
    assert not standing.doubtful(now)
    assert standing.objection(now) is not None  # for all the others
    standing.restore(now + 0.5)  # an answer to a call from before
    assert standing.objection(now + 0.5) is not None
    standing.restore(now + 1.0, trial=True)
    assert standing.objection(now + 1.0) is None
    assert standing.cool(now + 2.0, None, "429") == 1.0


def test_another_refusal_confirms_the_guess_which_is_longer_then_and_doubted_no_more() -> None:
    standing = guessing(3)
    now = standing.until - 3.0
    standing.doubt(now)
    assert standing.cool(now + 0.1, None, "429", trial=True) == 8.0
    assert standing.until == now + 8.1
    assert not standing.doubtful(now + 6.0)
    assert standing.enter(now + 8.1)
    assert standing.cool(now + 8.2, None, "429", trial=True) == 16.0
    assert standing.doubtful(now + 9.0)  # a new guess


def test_the_providers_word_to_the_doubt_takes_the_place_of_the_guess() -> None:
    standing = guessing(7)
    now = standing.until - 50.0
    standing.doubt(now)
    assert standing.cool(now + 0.1, 2.0, "429", trial=True) == 2.0
    assert standing.until == now + 2.1
    assert not standing.doubtful(now + 1.0)


def test_a_doubt_without_evidence_may_be_had_again() -> None:
    standing = guessing(5)
    now = standing.until - 10.0
    standing.doubt(now)
    standing.abandon()
    assert standing.doubtful(now)


seconds = st.sampled_from([0.5, 1.0, 5.0, 60.0, 300.0, 4000.0])


class Life(RuleBasedStateMachine):
    """Whatever answers come in, in whatever order: rest is never cut short, and one trial at a time is begun."""

    def __init__(self) -> None:
        super().__init__()
        self.standing = Standing()
        self.now = 0.0
        self.trial: float | None = None  # since when one is out
        self.clean = True  # nothing against the channel

    @property
    def rests(self) -> bool:
        return self.now < self.standing.until

    @property
    def held_up(self) -> bool:
        return self.trial is not None and self.now < self.trial + TRIAL

    @rule(passed=seconds)
    def time_passes(self, passed: float) -> None:
        self.now += passed

    @rule(hint=st.none() | seconds)
    def throttled(self, hint: float | None) -> None:
        before, parked_now = self.standing.until, self.rests and self.standing.parked
        asked = self.standing.cool(self.now, hint, "429")
        assert asked > 0
        if parked_now:
            assert (self.standing.until, self.standing.parked) == (before, True)
        else:
            assert self.standing.until >= max(before, self.now + asked)
        self._struck()

    @rule(base=seconds)
    def parked(self, base: float) -> None:
        before = self.standing.until
        told = self.standing.park(self.now, base, "401")
        assert 0 < told <= LAST_PARK
        assert self.standing.until >= max(before, self.now + told)
        assert self.standing.parked
        self._struck()

    @rule()
    def answered(self) -> None:
        rests = self.rests
        self.standing.restore(self.now)
        if not rests:
            self.trial, self.clean = None, True

    @rule()
    def enters(self) -> None:
        allowed = self.standing.enter(self.now)
        assert allowed == (self.clean or not (self.rests or self.held_up))
        if allowed and not self.clean and self.trial is None:
            self.trial = self.now

    @precondition(lambda self: self.standing.doubtful(self.now))
    @rule(hint=st.none() | seconds, outcome=st.sampled_from(["answer", "refusal", "nothing"]))
    def doubted(self, hint: float | None, outcome: str) -> None:
        """One attempt during the rest, decided at once."""
        assert self.rests
        assert not self.standing.parked
        self.standing.doubt(self.now)
        assert not self.standing.doubtful(self.now)
        if outcome == "answer":
            self.standing.restore(self.now, trial=True)
            self.trial, self.clean = None, True
        elif outcome == "refusal":
            told = self.standing.cool(self.now, hint, "429", trial=True)
            assert self.standing.until == self.now + told
            assert not self.standing.doubtful(self.now)
            self._struck()
        else:
            self.standing.abandon()
            self.trial = None

    @precondition(lambda self: self.trial is not None)
    @rule()
    def trial_leaves(self) -> None:
        self.standing.abandon()
        self.trial = None

    def _struck(self) -> None:
        self.trial, self.clean = None, False

    @invariant()
    def it_objects_while_it_rests_and_while_it_is_tried_and_never_else(self) -> None:
        assert (self.standing.objection(self.now) is None) == (self.clean or not (self.rests or self.held_up))

    @invariant()
    def the_wait_that_it_tells_is_exact(self) -> None:
        wait = self.standing.wait(self.now)
        assert (wait == 0) == (self.standing.objection(self.now) is None)
        assert self.standing.objection(self.now + wait) is None

    @invariant()
    def rest_has_an_end(self) -> None:
        assert self.standing.until - self.now <= LAST_PARK


TestLife = Life.TestCase
