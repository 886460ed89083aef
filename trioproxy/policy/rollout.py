"""A rollout: a growing share of a model's callers goes to a candidate chain, by steps, each held and compared before the next.

    state        start     step      pause     rollback
    idle         running   -         -         -
    running      -         running*  paused    rolled_back     * `done` where no step is left
    paused       running   running*  -         rolled_back
    done         -         -         -         rolled_back
    rolled_back  running   -         -         -

By itself a running rollout goes one step on when the hold time is over and the comparison is well; never for want of data. It
pauses where the candidate is slower or dearer than tolerated, and goes back, paused too, where it refuses or fails more.
Callers keep their place (`policy.sticky`): within one rollout nobody who has the candidate loses it but by a rollback.
"""

import enum
import math
from collections.abc import Mapping
from typing import NamedTuple

from attrs import define, field, frozen

from trioproxy.policy.comparison import Arm, Outcome, Tolerance, Verdict, compare, worse
from trioproxy.policy.sticky import place, within


class State(enum.Enum):
    IDLE = "idle"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    ROLLED_BACK = "rolled_back"


class Verb(enum.Enum):
    START = "start"
    STEP = "step"
    PAUSE = "pause"
    ROLLBACK = "rollback"


_MOVES = {
    State.IDLE: {Verb.START: State.RUNNING},
    State.RUNNING: {Verb.STEP: State.RUNNING, Verb.PAUSE: State.PAUSED, Verb.ROLLBACK: State.ROLLED_BACK},
    State.PAUSED: {Verb.START: State.RUNNING, Verb.STEP: State.RUNNING, Verb.ROLLBACK: State.ROLLED_BACK},
    State.DONE: {Verb.ROLLBACK: State.ROLLED_BACK},
    State.ROLLED_BACK: {Verb.START: State.RUNNING},
}
_WATCHED = frozenset({State.RUNNING, State.PAUSED})
BASELINE, CANDIDATE = "baseline", "candidate"
WAITS = "the next step waits"


class NoSuchMove(Exception):
    """The verb means nothing in this state, or something is against it; the message says which, and what can be done."""


class Move(NamedTuple):
    """Where the rollout is now, and why it went there."""

    percent: int
    state: State
    why: str


@frozen
class RolloutPolicy:
    """`name` salts the places; `steps` are growing percentages; `hold` is seconds at each."""

    name: str
    steps: tuple[int, ...] = (10, 50, 100)
    hold: float = 600.0
    tolerance: Tolerance = field(factory=Tolerance)


@define(eq=False)
class Rollout:
    """One model's rollout. `now` is monotonic seconds; nothing blocks."""

    policy: RolloutPolicy
    state: State = field(init=False, default=State.IDLE)
    index: int = field(init=False, default=-1)  # of the step; -1: nobody has the candidate
    since: float = field(init=False, default=0.0)  # when the step began, or was taken up again
    why: str = field(init=False, default="")
    baseline: Arm = field(init=False, factory=Arm)
    candidate: Arm = field(init=False, factory=Arm)

    @property
    def percent(self) -> int:
        return self.policy.steps[self.index] if self.index >= 0 else 0

    def arm(self, key: str) -> str:
        """Which arm answers for this key; "" where there is no rollout to speak of."""
        if self.index < 0:
            return ""
        return CANDIDATE if within(place(self.policy.name, key), self.percent / 100) else BASELINE

    def order(self, verb: Verb, now: float, why: str = "by hand", objection: str = "") -> Move:
        """Do what an operator says. Raises `NoSuchMove`, also where an `objection` stands against more callers."""
        state = _MOVES[self.state].get(verb)
        if state is None:
            can = ", ".join(each.value for each in _MOVES[self.state])
            raise NoSuchMove(f"a rollout that is {self.state.value} takes no {verb.value}; it takes {can}")
        if verb is Verb.ROLLBACK:
            return self._back(why)
        if verb is Verb.STEP or self.index < 0:
            if objection and not self.last:
                raise NoSuchMove(f"{WAITS}: {objection}")
            return self._forward(now, why)
        if verb is Verb.START:
            self._anew(now)  # somebody has looked: what the pause was for is judged afresh
        return self._move(state, why)

    def note(self, arm: str, outcome: Outcome) -> Move | None:
        """A call of an arm has ended. A move where the candidate must go back at once."""
        (self.candidate if arm == CANDIDATE else self.baseline).note(outcome)
        if self.state not in _WATCHED or arm != CANDIDATE or not (outcome.refused or outcome.failed):
            return None
        why = worse(self.candidate, self.baseline, self.policy.tolerance)
        return self._back(why) if why else None

    @property
    def last(self) -> bool:
        """Whether no step is left that would give it to more callers."""
        return self.index + 1 == len(self.policy.steps)

    def due(self, now: float) -> bool:
        """Whether a step to more callers would be made by itself now."""
        held = self.state is State.RUNNING and not self.last and now >= self.since + self.policy.hold
        return held and self.verdict()[0] is Verdict.WELL

    def wait(self, objection: str) -> Move | None:
        """A step that is due is not made. A move the first time, and nothing to tell after that."""
        known, self.why = self.why.startswith(WAITS), f"{WAITS}: {objection}"
        return None if known else Move(self.percent, self.state, self.why)

    def review(self, now: float, objection: str = "") -> Move | None:
        """What is to be done by itself now, if anything. Cheap; ask as often as you like.

        `objection` stands against a step to more callers.
        """
        if self.state is not State.RUNNING:
            return None
        verdict, why = self.verdict()
        if verdict is Verdict.WORSE:
            return self._back(why)
        if verdict is Verdict.DEARER:
            return self._move(State.PAUSED, why)
        if verdict is not Verdict.WELL or now < self.since + self.policy.hold:
            return None
        return self.wait(objection) if objection and not self.last else self._forward(now, "held and well")

    def verdict(self) -> tuple[Verdict, str]:
        """How the arms compare now."""
        return compare(self.candidate, self.baseline, self.policy.tolerance)

    def snapshot(self, now: float) -> dict[str, object]:
        """Everything that a restart must not forget, as plain values."""
        arms = {"baseline": self.baseline.snapshot(), "candidate": self.candidate.snapshot()}
        return {"state": self.state.value, "percent": self.percent, "held": now - self.since, "why": self.why, **arms}

    def restore(self, told: Mapping[str, object], now: float) -> None:
        """Take up what `snapshot` said; the time in between is not held.

        Raises `ValueError`, `TypeError` or `KeyError` for anything else, and is then as it was. Where the steps have changed,
        it is the largest that is not above what was reached: nobody is given the candidate by a restart.
        """
        state, percent, held = State(told["state"]), told["percent"], told["held"]
        baseline, candidate = told["baseline"], told["candidate"]
        if not isinstance(percent, int) or not isinstance(held, int | float) or not math.isfinite(held):
            raise TypeError(told)
        if not isinstance(baseline, Mapping) or not isinstance(candidate, Mapping):
            raise TypeError(told)
        arms = Arm.restore(baseline), Arm.restore(candidate)
        self.baseline, self.candidate = arms
        self.state, self.why, self.since = state, str(told["why"]), now - held
        self.index = sum(step <= percent for step in self.policy.steps) - 1

    def _forward(self, now: float, why: str) -> Move:
        if self.last:
            return self._move(State.DONE, why)
        self.index += 1
        self._anew(now)
        return self._move(State.RUNNING, why)

    def _anew(self, now: float) -> None:
        self.since = now
        self.candidate = Arm()
        if self.percent < 100:  # at 100 nobody is left to compare with but those from before
            self.baseline = Arm()

    def _back(self, why: str) -> Move:
        self.index = -1
        return self._move(State.ROLLED_BACK, why)

    def _move(self, state: State, why: str) -> Move:
        self.state, self.why = state, why
        return Move(self.percent, state, why)
