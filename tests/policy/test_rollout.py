"""A rollout: its table of moves, its steps by themselves, and that nobody loses the candidate but by a rollback."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.comparison import Outcome, Tolerance
from trioproxy.policy.rollout import BASELINE, CANDIDATE, Move, NoSuchMove, Rollout, RolloutPolicy, State, Verb

HOLD = 600.0
POLICY = RolloutPolicy("fast-chat", (10, 50, 100), HOLD, Tolerance(sample=20))
GOOD, REFUSED, FAILED, SLOW = (
    Outcome(seconds=1.0, cost=10),
    Outcome(refused=True),
    Outcome(failed=True),
    Outcome(seconds=9.0),
)
TABLE = {
    State.IDLE: {Verb.START: (State.RUNNING, 10)},
    State.RUNNING: {
        Verb.STEP: (State.RUNNING, 50),
        Verb.PAUSE: (State.PAUSED, 10),
        Verb.ROLLBACK: (State.ROLLED_BACK, 0),
    },
    State.PAUSED: {
        Verb.START: (State.RUNNING, 10),
        Verb.STEP: (State.RUNNING, 50),
        Verb.ROLLBACK: (State.ROLLED_BACK, 0),
    },
    State.DONE: {Verb.ROLLBACK: (State.ROLLED_BACK, 0)},
    State.ROLLED_BACK: {Verb.START: (State.RUNNING, 10)},
}
WAYS = {
    State.IDLE: (),
    State.RUNNING: (Verb.START,),
    State.PAUSED: (Verb.START, Verb.PAUSE),
    State.DONE: (Verb.START, Verb.STEP, Verb.STEP, Verb.STEP),
    State.ROLLED_BACK: (Verb.START, Verb.ROLLBACK),
}


def in_state(state: State) -> Rollout:
    rollout = Rollout(POLICY)
    for verb in WAYS[state]:
        rollout.order(verb, 0.0)
    assert rollout.state is state
    return rollout


def feed(rollout: Rollout, candidate: Outcome = GOOD, baseline: Outcome = GOOD, calls: int = 20) -> list[Move]:
    moves = []
    for _ in range(calls):
        moves += [rollout.note(BASELINE, baseline), rollout.note(CANDIDATE, candidate)]
    return [move for move in moves if move is not None]


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("state", State)
def test_every_verb_in_every_state(state: State, verb: Verb) -> None:
    rollout = in_state(state)
    if verb in TABLE[state]:
        reached, percent = TABLE[state][verb]
        assert rollout.order(verb, 5.0) == Move(percent, reached, "by hand")
        assert (rollout.state, rollout.percent) == (reached, percent)
    else:
        can = ", ".join(each.value for each in TABLE[state])
        with pytest.raises(
            NoSuchMove, match=f"^a rollout that is {state.value} takes no {verb.value}; it takes {can}$"
        ):
            rollout.order(verb, 5.0)
        assert rollout.state is state


def test_it_goes_on_when_it_was_held_and_is_well_and_not_a_moment_sooner() -> None:
    rollout = in_state(State.RUNNING)
    for start, percent, state in ((0.0, 50, "running"), (HOLD, 100, "running"), (2 * HOLD, 100, "done")):
        feed(rollout)
        assert rollout.review(start + HOLD - 0.001) is None
        assert rollout.review(start + HOLD) == Move(percent, State(state), "held and well")
    assert rollout.review(9 * HOLD) is None


def test_it_never_goes_on_for_want_of_data() -> None:
    rollout = in_state(State.RUNNING)
    feed(rollout, calls=19)
    assert rollout.review(1000 * HOLD) is None
    assert (rollout.state, rollout.percent) == (State.RUNNING, 10)
    feed(rollout, calls=1)
    assert rollout.review(1000 * HOLD) == Move(50, State.RUNNING, "held and well")


def test_every_step_is_judged_by_its_own_calls() -> None:
    rollout = in_state(State.RUNNING)
    feed(rollout)
    rollout.review(HOLD)
    assert (rollout.candidate.calls, rollout.baseline.calls) == (0, 0)
    assert rollout.review(9 * HOLD) is None


def test_at_a_hundred_percent_it_is_compared_with_the_baseline_from_before() -> None:
    rollout = in_state(State.RUNNING)
    rollout.order(Verb.STEP, 0.0)
    feed(rollout)
    rollout.order(Verb.STEP, 0.0)
    assert (rollout.percent, rollout.candidate.calls, rollout.baseline.calls) == (100, 0, 20)


@pytest.mark.parametrize(("bad", "word"), [(REFUSED, "refused"), (FAILED, "failed")])
def test_a_worse_candidate_is_rolled_back_at_the_first_call_that_settles_it(bad: Outcome, word: str) -> None:
    """All bad against none: sure as soon as the sample is there, and said at that very call."""
    rollout = in_state(State.RUNNING)
    feed(rollout, bad, calls=19)
    rollout.note(BASELINE, GOOD)
    assert rollout.state is State.RUNNING
    told = f"20 of 20 calls {word}, 0 of 20 at the baseline"
    assert rollout.note(CANDIDATE, bad) == Move(0, State.ROLLED_BACK, told)
    assert rollout.arm("anybody") == ""
    assert rollout.note(CANDIDATE, bad) is None  # a straggler


def test_a_worse_candidate_goes_back_too_when_it_is_the_baseline_that_was_waited_for() -> None:
    rollout = in_state(State.RUNNING)
    for _ in range(20):
        assert rollout.note(CANDIDATE, FAILED) is None
    feed_baseline = [rollout.note(BASELINE, GOOD) for _ in range(20)]
    assert feed_baseline == [None] * 20
    assert rollout.review(1.0) == Move(0, State.ROLLED_BACK, "20 of 20 calls failed, 0 of 20 at the baseline")


def test_a_paused_rollout_is_still_rolled_back() -> None:
    rollout = in_state(State.PAUSED)
    assert [move.state for move in feed(rollout, REFUSED)] == [State.ROLLED_BACK]


def test_a_pause_forgets_nothing_of_what_was_seen() -> None:
    rollout = in_state(State.RUNNING)
    feed(rollout, calls=7)
    rollout.order(Verb.PAUSE, 5.0)
    assert (rollout.candidate.calls, rollout.baseline.calls, rollout.since) == (7, 7, 0.0)


def test_a_finished_one_is_left_alone() -> None:
    rollout = in_state(State.DONE)
    assert feed(rollout, FAILED) == []


def test_a_slower_candidate_pauses_it_and_somebody_who_has_looked_starts_it_again() -> None:
    rollout = in_state(State.RUNNING)
    feed(rollout, SLOW)
    move = rollout.review(1.0)
    assert move is not None
    assert (move.state, move.percent) == (State.PAUSED, 10)
    assert move.why == "p95 latency is 9.51 s, 8.72 times the baseline's"
    assert rollout.review(9 * HOLD) is None
    rollout.order(Verb.START, 9 * HOLD)
    assert rollout.review(9 * HOLD) is None  # judged afresh
    feed(rollout)
    assert rollout.review(10 * HOLD - 1) is None  # and held anew
    assert rollout.review(10 * HOLD) == Move(50, State.RUNNING, "held and well")


def test_what_seems_worse_but_may_be_chance_waits() -> None:
    rollout = in_state(State.RUNNING)
    feed(rollout)
    rollout.note(CANDIDATE, REFUSED)
    assert rollout.review(9 * HOLD) is None
    assert rollout.state is State.RUNNING
    feed(rollout, calls=50)
    assert rollout.review(9 * HOLD) == Move(50, State.RUNNING, "held and well")


@given(st.text(), st.lists(st.sampled_from([Verb.START, Verb.STEP, Verb.PAUSE]), max_size=12))
def test_who_has_the_candidate_keeps_it(key: str, verbs: list[Verb]) -> None:
    rollout = Rollout(POLICY)
    had = False
    for verb in verbs:
        try:
            rollout.order(verb, 0.0)
        except NoSuchMove:
            continue
        has = rollout.arm(key) == CANDIDATE
        assert has or not had
        had = has


def test_ten_percent_are_ten_percent() -> None:
    rollout = in_state(State.RUNNING)
    share = sum(rollout.arm(f"session {n}") == CANDIDATE for n in range(20_000)) / 20_000
    assert abs(share - 0.1) < 0.011


@pytest.mark.parametrize("state", State)
def test_a_restart_forgets_nothing(state: State) -> None:
    before = in_state(state)
    feed(before, calls=7)
    told = json.loads(json.dumps(before.snapshot(100.0)))
    after = Rollout(POLICY)
    after.restore(told, 5000.0)
    assert after.snapshot(5000.0) == told
    assert [after.arm(str(n)) for n in range(100)] == [before.arm(str(n)) for n in range(100)]


def test_the_time_between_two_processes_is_not_held() -> None:
    before = in_state(State.RUNNING)
    feed(before)
    after = Rollout(POLICY)
    after.restore(before.snapshot(HOLD - 10.0), 0.0)
    assert after.review(9.9) is None
    assert after.review(10.0) == Move(50, State.RUNNING, "held and well")


def test_a_restart_with_other_steps_gives_nobody_the_candidate() -> None:
    before = in_state(State.RUNNING)
    before.order(Verb.STEP, 0.0)
    after = Rollout(RolloutPolicy("fast-chat", (5, 25, 75)))
    after.restore(before.snapshot(0.0), 0.0)
    assert after.percent == 25


@pytest.mark.parametrize(
    "change",
    [{"state": "odd"}, {"percent": "10"}, {"held": None}, {"held": float("nan")}, {"baseline": 1}, {"candidate": {}}],
)
def test_what_is_no_snapshot_changes_nothing(change: dict[str, object]) -> None:
    told = {**in_state(State.PAUSED).snapshot(0.0), **change}
    rollout = Rollout(POLICY)
    with pytest.raises((KeyError, TypeError, ValueError)):
        rollout.restore(told, 0.0)
    assert rollout.snapshot(0.0) == Rollout(POLICY).snapshot(0.0)


def test_an_objection_holds_a_step_that_is_due_and_is_told_once() -> None:
    rollout = Rollout(POLICY)
    rollout.order(Verb.START, 0.0)
    feed(rollout)
    assert (rollout.due(HOLD - 0.001), rollout.due(HOLD)) == (False, True)
    assert rollout.review(HOLD, "no reading") == Move(10, State.RUNNING, "the next step waits: no reading")
    assert rollout.review(HOLD + 1, "an old reading") is None
    assert rollout.why == "the next step waits: an old reading"
    with pytest.raises(NoSuchMove, match="the next step waits: an old reading"):
        rollout.order(Verb.STEP, HOLD + 2, objection="an old reading")
    assert rollout.percent == 10
    assert rollout.review(HOLD + 3) == Move(50, State.RUNNING, "held and well")
    assert not rollout.due(HOLD + 3)


def test_what_gives_it_to_nobody_more_meets_no_objection() -> None:
    rollout = Rollout(POLICY)
    with pytest.raises(NoSuchMove):
        rollout.order(Verb.START, 0.0, objection="no reading")
    assert (rollout.state, rollout.percent) == (State.IDLE, 0)
    rollout.order(Verb.START, 0.0)
    rollout.order(Verb.PAUSE, 0.0, objection="no reading")
    assert rollout.order(Verb.START, 0.0, objection="no reading").state is State.RUNNING  # on again, at its step
    for _ in range(2):
        rollout.order(Verb.STEP, 0.0)
    assert (rollout.percent, rollout.last) == (100, True)
    assert rollout.order(Verb.STEP, 0.0, objection="no reading").state is State.DONE
    assert rollout.order(Verb.ROLLBACK, 0.0, objection="no reading").state is State.ROLLED_BACK
