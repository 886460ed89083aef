"""What came of asking: one outcome a call, a summary a channel, and in what two answers differ.

An outcome is an answer with its checks, or a failure; a failure never passes. Costs are micro-USD, None where they are not known.
"""

import math
from collections.abc import Sequence

from attrs import frozen

from trioproxy.codec.chat_said import Said
from trioproxy.journal import Usage
from trioproxy.policy.expect import Check
from trioproxy.policy.refusal import refusal_in


@frozen
class Outcome:
    """One prompt asked once. `failure` says why there is no answer; `seconds` is from the request to the end of its answer."""

    seconds: float
    said: Said | None = None
    checks: tuple[Check, ...] = ()
    usage: Usage | None = None
    cost: int | None = None
    failure: str = ""
    status: int = 0  # the provider's, 0 where it gave none

    @property
    def passed(self) -> bool:
        return self.said is not None and all(check.met for check in self.checks)


@frozen
class Summary:
    """All that one channel was asked. Times are seconds; `cost` is of what is known, `unpriced` counts answers it leaves out."""

    runs: int
    passed: int
    answered: int
    p50: float | None
    p95: float | None
    input_tokens: int
    output_tokens: int
    cost: int
    unpriced: int

    @property
    def pass_rate(self) -> float:
        """A share of 1; 0 where nothing was asked."""
        return self.passed / self.runs if self.runs else 0.0

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Summary":
        answered = [outcome for outcome in outcomes if outcome.said is not None]
        times = sorted(outcome.seconds for outcome in answered)
        usages = [outcome.usage for outcome in answered if outcome.usage is not None]
        return cls(
            runs=len(outcomes),
            passed=sum(outcome.passed for outcome in outcomes),
            answered=len(answered),
            p50=_rank(times, 0.5),
            p95=_rank(times, 0.95),
            input_tokens=sum(usage.input + usage.cached for usage in usages),
            output_tokens=sum(usage.output for usage in usages),
            cost=sum(outcome.cost or 0 for outcome in answered),
            unpriced=sum(outcome.cost is None for outcome in answered),
        )


def _rank(ordered: Sequence[float], share: float) -> float | None:
    """The nearest rank: a value that was really measured."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def differences(one: Outcome, other: Outcome) -> tuple[str, ...]:
    """In what the second differs from the first, in words that stand without names; empty where both say the same."""
    if one.said is None or other.said is None:
        return ("only one answered",) if (one.said is None) is not (other.said is None) else ()
    told = ["one passes, one does not"] if one.passed is not other.passed else []
    first, second = one.said, other.said
    if bool(refusal_in(first)) is not bool(refusal_in(second)):
        told.append("one refuses")
    if [call.name for call in first.calls] != [call.name for call in second.calls]:
        told.append("other tools")
    elif first.calls != second.calls:
        told.append("other arguments")
    if first.finish != second.finish:
        told.append(f"ends with {first.finish or 'nothing'} / {second.finish or 'nothing'}")
    if first.text != second.text:
        told.append(_texts(first.text, second.text))
    return tuple(told)


def _texts(first: str, second: str) -> str:
    if first.split() == second.split():
        return "other white space"
    short, long = sorted((len(first), len(second)))
    return f"other words, {long / short:.1f} times as long" if short and long >= 1.5 * short else "other words"
