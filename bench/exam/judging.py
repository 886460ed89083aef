"""Verdicts on what a client got. Pure.

pass = everything the case asks for; partial = answered, but a clause is missed; safe = an honest error, in time; fail = wrong,
dishonest or hanging. A call counts as answered only when all sixty words of one upstream came, and nothing of the other.
"""

import enum
from collections.abc import Callable, Iterable

from attrs import frozen

from bench.exam import speech
from bench.exam.asking import Outcome
from bench.exam.provider import Hit
from bench.exam.speech import Who

SLACK = 0.7  # seconds that a busy machine may add to any deadline


class Grade(enum.IntEnum):
    """The better, the higher."""

    FAIL = 0
    SAFE = 1
    PARTIAL = 2
    PASS = 3

    @property
    def word(self) -> str:
        """As it is written in tables."""
        return self.name.lower()


@frozen
class Verdict:
    """A grade and what was observed."""

    grade: Grade
    reason: str = ""


PASS = Verdict(Grade.PASS)
WhoSays = Callable[[Outcome], Who | None]


@frozen
class Evidence:
    """What one case has shown: the client's outcomes, the calls that reached A and B, the scale, and who the target says answered."""

    outcomes: tuple[Outcome, ...]
    a: tuple[Hit, ...]
    b: tuple[Hit, ...]
    scale: float
    says: WhoSays | None = None

    @property
    def one(self) -> Outcome:
        """The outcome, where there is one call."""
        return self.outcomes[0]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The lowest grade, with its reason; equal grades join their reasons."""
    found = list(verdicts)
    grade = min((verdict.grade for verdict in found), default=Grade.PASS)
    reasons = dict.fromkeys(verdict.reason for verdict in found if verdict.grade == grade and verdict.reason)
    return Verdict(grade, "; ".join(reasons))


def partial(reason: str) -> Verdict:
    """Answered, but."""
    return Verdict(Grade.PARTIAL, reason)


def fail(reason: str) -> Verdict:
    """Wrong."""
    return Verdict(Grade.FAIL, reason)


def require(holds: bool, reason: str) -> Verdict:
    """A clause that costs the pass when it does not hold."""
    return PASS if holds else partial(reason)


def times(count: int) -> str:
    """`once`, `3 times`."""
    return "once" if count == 1 else f"{count} times"


def answerer(outcome: Outcome) -> Who | None:
    """Whose whole answer it is; None when it is nobody's."""
    for who in ("a", "b"):
        if outcome.status == 200 and outcome.text == speech.text(who) and outcome.finishes == ["stop"]:
            return who
    return None


def describe(outcome: Outcome) -> str:
    """What the client got, in words."""
    if outcome.status is None:
        return f"client got no answer: {outcome.trouble or 'connection closed'}"
    if outcome.status != 200:
        return f"client got {outcome.status}" + (f" ({brief(outcome.error)})" if outcome.error else "")
    words = len(outcome.text) // 4
    size = f"{words} of {speech.WORDS} words" if outcome.payloads or outcome.streamed else f"{len(outcome.raw)} bytes"
    parts = [f"client got 200 with {size}"]
    parts += ["a second answer mixed in"] if {word[0] for word in outcome.text.split()} == {"a", "b"} else []
    parts += ["a finish_reason"] if outcome.finishes else []
    parts += [f"an error frame ({brief(outcome.error)})"] if outcome.error else []
    parts += ["[DONE]"] if outcome.dones else []
    joined = " and ".join(parts)
    tail = outcome.trouble or (
        "" if outcome.error or outcome.dones else "a clean end" if outcome.streamed else "no JSON"
    )
    return f"{joined}, then {tail}" if tail else joined


def brief(said: str | None) -> str:
    """The first words of an error."""
    one = " ".join((said or "").split()).replace("|", "/")
    return one if len(one) <= 60 else one[:57] + "..."


def honest(outcome: Outcome) -> bool:
    """Whether what is no whole answer says so: an error status, an error frame without a finish, or a visible cut."""
    if outcome.status is None or outcome.trouble.startswith("nothing more"):
        return False
    if outcome.status >= 400:
        return not outcome.trouble
    return not outcome.finishes and (outcome.error is not None or bool(outcome.trouble))


def answered(outcome: Outcome, within: float) -> Verdict:
    """Whether it is a whole answer, in good form and in time."""
    if answerer(outcome) is None:
        return Verdict(Grade.SAFE if honest(outcome) and outcome.took <= within else Grade.FAIL, describe(outcome))
    clauses = [require(outcome.took <= within, f"answered after {outcome.took:.1f} s, limit {within:.1f} s")]
    clauses.append(require(not outcome.trouble, f"whole answer, then {outcome.trouble}"))
    clauses.append(require(outcome.error is None, f"whole answer with an error frame in it ({brief(outcome.error)})"))
    if outcome.streamed:
        clauses.append(require(outcome.dones == 1, f"{outcome.dones or 'no'} [DONE]"))
    return worst(clauses)


def all_answered(e: Evidence, within: float) -> Verdict:
    """The same of every call; how many were not, where there are many."""
    verdicts = [answered(outcome, within) for outcome in e.outcomes]
    bad = [verdict for verdict in verdicts if verdict.grade < Grade.PASS]
    if not bad:
        return PASS
    lowest = worst(bad)
    same = next(verdict for verdict in bad if verdict.grade == lowest.grade)
    count = f"{len(bad)} of {len(verdicts)} calls: " if len(verdicts) > 1 else ""
    return Verdict(lowest.grade, count + same.reason)


def if_answered(verdict: Verdict, *clauses: Verdict) -> Verdict:
    """Further clauses, which matter only where there is an answer."""
    return worst((verdict, *clauses)) if verdict.grade >= Grade.PARTIAL else verdict
