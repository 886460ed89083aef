"""What each case of the exam asks for, as functions from evidence to verdict. Pure."""

import json

from bench.exam import speech
from bench.exam.asking import ASKED, Outcome
from bench.exam.judging import (
    PASS,
    SLACK,
    Evidence,
    Grade,
    Verdict,
    all_answered,
    answered,
    answerer,
    describe,
    fail,
    honest,
    if_answered,
    partial,
    require,
    times,
    worst,
)
from bench.exam.steps import CUT_AT

RETRY_AFTER = 2
# What the targets' own deadlines are set to where they can be, in the case's seconds.
HEADERS, FIRST_CONTENT, IDLE, OPEN_FOR = 12.0, 15.0, 10.0, 60.0
PLAIN_GATE = 30.0
DOWN, BACK, S15_CALLS = 60, 30, 93
MAY_PROBE = 10  # calls to A while it is down that still pass for bounded probes, of 60


def s01(e: Evidence) -> Verdict:
    """B at once, and A left alone for as long as it asked."""
    began = e.a[0].at if e.a else 0.0
    again = [hit.at - began for hit in e.a[1:] if hit.at - began < RETRY_AFTER - 0.02]
    early = f"A asked again after {again[0]:.1f} s" if again else ""
    return if_answered(all_answered(e, SLACK), require(not again, early))


def s02(e: Evidence) -> Verdict:
    """A once per cooldown."""
    lasted = e.outcomes[-1].began - e.outcomes[0].began
    most = int(lasted / RETRY_AFTER) + 1
    asked = require(len(e.a) <= most, f"A asked {times(len(e.a))} in {len(e.outcomes)} calls, {most} cooldowns")
    return if_answered(all_answered(e, SLACK), asked)


def s03(e: Evidence) -> Verdict:
    """One answer for at most one extra attempt."""
    count = len(e.a) + len(e.b)
    return if_answered(answered(e.one, SLACK), require(count <= 2, f"{count} attempts"))


def s04(e: Evidence) -> Verdict:
    """A breaker."""
    asked = require(len(e.a) <= 3, f"A asked {times(len(e.a))} in {len(e.outcomes)} calls")
    return if_answered(all_answered(e, SLACK), asked)


def s05(e: Evidence) -> Verdict:
    """B, and A not hammered."""
    return if_answered(answered(e.one, SLACK), require(len(e.a) <= 2, f"A asked {times(len(e.a))}"))


def s06(e: Evidence) -> Verdict:
    """B within the header deadline, after one attempt at A."""
    asked = require(len(e.a) == 1, f"A asked {times(len(e.a))}")
    return if_answered(answered(e.one, HEADERS * e.scale + SLACK), asked)


def s07_quick(e: Evidence) -> Verdict:
    """B within the first-content deadline."""
    return answered(e.one, FIRST_CONTENT * e.scale + SLACK)


def s07_patient(e: Evidence) -> Verdict:
    """A's late answer, whole."""
    return answered(e.one, PLAIN_GATE * e.scale + SLACK)


def cut_plain(e: Evidence) -> Verdict:
    """A stream: 40 tokens and an error frame. A whole answer: another channel's."""
    if not e.one.streamed or answerer(e.one):
        return answered(e.one, SLACK)
    return truthful(e.one)


def stalled_plain(e: Evidence) -> Verdict:
    """The same, decided by the idle deadline, or by the total one of targets that have only that for whole answers."""
    within = max(IDLE, HEADERS) * e.scale + SLACK
    if not e.one.streamed or answerer(e.one):
        return answered(e.one, within)
    late = require(e.one.took <= within, f"ended after {e.one.took:.1f} s, limit {within:.1f} s")
    return if_answered(truthful(e.one), late)


def truthful(one: Outcome) -> Verdict:
    """What was said, then an error frame; no finish, no `[DONE]`, nothing of another answer."""
    said = "".join(speech.words("a", 0, CUT_AT))
    if not honest(one):
        return fail(describe(one))
    if one.status != 200:
        return Verdict(Grade.SAFE, describe(one))
    if one.text != said:
        return fail(describe(one))
    if one.error is None:
        return partial(f"no error frame: {one.trouble}")
    return worst((require(not one.dones, "[DONE] after the error frame"), require(not one.trouble, one.trouble)))


def replaced(e: Evidence) -> Verdict:
    """The whole answer of B, in an assured class."""
    return if_answered(answered(e.one, SLACK), require(answerer(e.one) == "b", "not B's answer"))


def replaced_in_time(e: Evidence) -> Verdict:
    """The same, after the idle deadline."""
    return if_answered(answered(e.one, IDLE * e.scale + SLACK), require(answerer(e.one) == "b", "not B's answer"))


def garbled_plain(e: Evidence) -> Verdict:
    """The stream goes on, or ends truthfully; a whole answer is another channel's."""
    one = e.one
    if one.streamed and not answerer(one) and honest(one) and one.error and one.text[:1] in ("", "a"):
        return PASS
    return answered(one, SLACK)


def s11(e: Evidence) -> Verdict:
    """Complete, with the `[DONE]` that was missing; `answered` counts them."""
    return if_answered(answered(e.one, 2 + SLACK), require(len(e.b) == 0, f"B asked {times(len(e.b))}"))


def refused(e: Evidence, *marks: str) -> Verdict:
    """The client's own 400, with one of these marks of what A said."""
    shopped = f", B asked {times(len(e.b))}" if e.b else ""
    if answerer(e.one):
        return fail(f"shopped to B silently{shopped}")
    if e.one.status != 400:
        return Verdict(Grade.SAFE if honest(e.one) else Grade.FAIL, describe(e.one) + shopped)
    kept = require(any(mark.encode() in e.one.raw for mark in marks), f"400 without {' or '.join(marks)}")
    again = require(len(e.a) <= 1, f"A asked {times(len(e.a))}")
    return worst((kept, again, require(not e.b, f"400, but B asked {times(len(e.b))}")))


def s12(e: Evidence) -> Verdict:
    """A 400 for the client to read; what B makes of it is nobody's wish, though it is an answer."""
    return (
        partial("B answered what A refused as too long")
        if answerer(e.one)
        else refused(e, "context_length_exceeded", "maximum context length")
    )


def s13_refused(e: Evidence) -> Verdict:
    """A filter's 400 as it is."""
    return refused(e, "content_filter")


def s13_finish(e: Evidence) -> Verdict:
    """A filter's finish reason as it is."""
    if answerer(e.one):
        return fail("shopped to B silently")
    relayed = e.one.status == 200 and e.one.text == "a00 " and e.one.finishes == ["content_filter"]
    if not relayed:
        return Verdict(Grade.SAFE if honest(e.one) else Grade.FAIL, describe(e.one))
    return require(not e.b, f"relayed, but B asked {times(len(e.b))}")


def s14(e: Evidence) -> Verdict:
    """Whatever B is asked is what the client asked."""
    original = [{"role": "user", "content": ASKED}]
    other = [hit.asked["messages"] for hit in e.b if hit.asked["messages"] != original]
    if other:
        return fail(f"B was asked {json.dumps(other[0])[:80]}; {describe(e.one)}")
    return answered(e.one, SLACK)


def s15(e: Evidence) -> Verdict:
    """Back on A within 30 s of its recovery, through few probes."""
    began = e.a[0].at if e.a else 0.0
    probes = sum(hit.at - began < DOWN * e.scale for hit in e.a)
    first = next((one.began - began for one in e.outcomes if answerer(one) == "a"), None)
    back = "never back on A" if first is None else f"back on A {first / e.scale - DOWN:.0f} s after its recovery"
    soon = first is not None and first <= (DOWN + BACK) * e.scale + SLACK / 2
    few = require(probes <= MAY_PROBE, f"A asked {times(probes)} while it was down")
    return if_answered(all_answered(e, SLACK), require(soon, back), few)


def s16(e: Evidence) -> Verdict:
    """Model, usage and a header are B's."""
    one = e.one
    model = require(speech.model("a") not in one.models, f"model says {', '.join(sorted(one.models))}")
    usage = {name: (one.usage or {}).get(name) for name in speech.usage("b")}
    counted = require(usage == speech.usage("b"), f"usage is not B's: {json.dumps(usage)}")
    says = e.says(one) if e.says else None
    named = {"b": "", "a": "header names A", None: "no header says who answered"}[says]
    return if_answered(answered(one, SLACK), model, counted, require(says == "b", named))
