"""Summaries count what was asked, cost only what is known, and two answers differ only where they do."""

import pytest

from trioproxy.codec.chat_said import Said, ToolCall
from trioproxy.journal import Usage
from trioproxy.policy.expect import Check
from trioproxy.policy.outcome import Outcome, Summary, differences

GOOD, BAD = Check("x", met=True), Check("x", met=False)


def answer(seconds: float, *checks: Check, cost: int | None = 7) -> Outcome:
    return Outcome(seconds, Said("a"), checks, Usage(input=2, cached=1, output=3), cost)


def test_a_failure_never_passes_and_an_answer_needs_every_check() -> None:
    assert answer(1, GOOD).passed
    assert not answer(1, GOOD, BAD).passed
    assert not Outcome(1, failure="cut: gone").passed


def test_a_summary_is_of_all_that_was_asked() -> None:
    outcomes = [answer(1, GOOD), answer(2, BAD), answer(3, GOOD, cost=None), Outcome(99, failure="timeout")]
    summary = Summary.of(outcomes)
    assert summary == Summary(4, 2, 3, 2, 3, input_tokens=9, output_tokens=9, cost=14, unpriced=1)
    assert summary.pass_rate == 0.5


def test_a_channel_that_was_not_asked_passes_nothing() -> None:
    assert Summary.of([]) == Summary(0, 0, 0, None, None, 0, 0, 0, 0)
    assert Summary.of([]).pass_rate == 0


def test_the_ranks_are_measured_values() -> None:
    summary = Summary.of([answer(float(seconds)) for seconds in range(1, 21)])
    assert (summary.p50, summary.p95) == (10, 19)


def said(text: str = "a", **fields: object) -> Outcome:
    return Outcome(1, Said(text, **fields))  # type: ignore[arg-type]  # a case's own fields


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (said(), said(), ()),
        (said("a b"), said("a  b\n"), ("other white space",)),
        (said("a b"), said("a c"), ("other words",)),
        (said("ab"), said("abcd"), ("other words, 2.0 times as long",)),
        (said(""), said("abcd"), ("other words",)),
        (said(finish="stop"), said(finish="length"), ("ends with stop / length",)),
        (said(), said(refusal="no"), ("one refuses",)),
        (said(calls=(ToolCall("f"),)), said(), ("other tools",)),
        (said(calls=(ToolCall("f", "1"),)), said(calls=(ToolCall("f", "2"),)), ("other arguments",)),
        (said(), Outcome(1, failure="x"), ("only one answered",)),
        (Outcome(1, failure="y"), Outcome(1, failure="x"), ()),
        (Outcome(1, Said("a"), (BAD,)), said(), ("one passes, one does not",)),
    ],
)
def test_differences_are_told_in_words(one: Outcome, other: Outcome, told: tuple[str, ...]) -> None:
    assert differences(one, other) == told
