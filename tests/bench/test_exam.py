"""The exam's verdicts are fair: a whole answer passes, half of one never does, and a lie is worse than an honest error."""

import json
from collections.abc import Sequence

import pytest
import trio

from bench.exam import rulings, speech, steps
from bench.exam.asking import Caller, Outcome
from bench.exam.cases import Case, cases
from bench.exam.course import Sitting, serving
from bench.exam.judging import Evidence, Grade, answered, answerer, describe, honest, worst
from bench.exam.peers import SETUPS
from bench.exam.provider import Hit, Step
from bench.exam.speech import DONE, Who
from bench.workload import Endpoint

STREAM = {"content-type": "text/event-stream"}
ERROR = b"data: " + speech.error("upstream broke off", "server_error") + b"\n\n"


def stream(*frames: bytes, trouble: str = "", took: float = 0.0) -> Outcome:
    return Outcome(200, STREAM, b"".join(frames), trouble, 0.0, took)


def whole(who: Who) -> list[bytes]:
    return [speech.role(who), *speech.contents(who), *speech.ending(who)]


def half(who: Who) -> list[bytes]:
    return [speech.role(who), *speech.contents(who, 0, steps.CUT_AT)]


def refusal(status: int, body: bytes) -> Outcome:
    return Outcome(status, {"content-type": "application/json"}, body)


def evidence(one: Outcome, a: Sequence[float] = (0.0,), b: Sequence[float] = ()) -> Evidence:
    asked = {"messages": [{"role": "user", "content": "Count to sixty, please."}]}
    hits = [tuple(Hit(at, asked) for at in moments) for moments in (a, b)]
    return Evidence((one,), hits[0], hits[1], 1.0)


def test_a_whole_answer_passes_and_tells_who_gave_it() -> None:
    one = stream(*whole("b"), DONE)
    assert answerer(one) == "b"
    assert answered(one, 1.0).grade is Grade.PASS


@pytest.mark.parametrize(
    ("one", "grade", "reason"),
    [
        (stream(*whole("b")), Grade.PARTIAL, "no [DONE]"),
        (stream(*whole("b"), DONE, DONE), Grade.PARTIAL, "2 [DONE]"),
        (stream(*whole("b"), DONE, took=3.0), Grade.PARTIAL, "answered after 3.0 s, limit 1.0 s"),
        (
            stream(*whole("b"), ERROR, DONE),
            Grade.PARTIAL,
            "whole answer with an error frame in it (upstream broke off)",
        ),
        (stream(*half("a"), ERROR), Grade.SAFE, "client got 200 with 40 of 60 words and an error frame"),
        (stream(*half("a"), DONE), Grade.FAIL, "client got 200 with 40 of 60 words and [DONE]"),
        (stream(*half("a")), Grade.FAIL, "client got 200 with 40 of 60 words, then a clean end"),
        (stream(*half("a"), *whole("b"), DONE), Grade.FAIL, "a second answer mixed in"),
        (refusal(502, speech.error("bad gateway", "server_error")), Grade.SAFE, "client got 502 (bad gateway)"),
        (Outcome(None, trouble="nothing more in 9.0 s"), Grade.FAIL, "client got no answer: nothing more in 9.0 s"),
        (refusal(200, b'{"choices":[{"mess'), Grade.FAIL, "client got 200 with 18 bytes, then no JSON"),
    ],
)
def test_what_is_not_a_good_whole_answer_is_graded_by_its_honesty(one: Outcome, grade: Grade, reason: str) -> None:
    verdict = answered(one, 1.0)
    assert verdict.grade is grade
    assert reason in verdict.reason


def test_an_honest_error_after_the_limit_is_a_failure() -> None:
    late = Outcome(504, {}, b"{}", "", 0.0, 9.0)
    assert honest(late)
    assert answered(late, 1.0).grade is Grade.FAIL


@pytest.mark.parametrize(
    ("one", "grade"),
    [
        (stream(*half("a"), ERROR), Grade.PASS),
        (stream(*half("a"), ERROR, DONE), Grade.PARTIAL),
        (stream(*half("a"), trouble="connection cut"), Grade.PARTIAL),
        (stream(*whole("b"), DONE), Grade.PASS),
        (refusal(502, b"{}"), Grade.SAFE),
        (stream(*half("a")), Grade.FAIL),
        (stream(*half("a"), speech.delta("a", {}, "stop"), ERROR), Grade.FAIL),
        (stream(*half("a"), *half("b"), ERROR), Grade.FAIL),
    ],
)
def test_s08_wants_what_was_said_and_then_the_truth(one: Outcome, grade: Grade) -> None:
    assert rulings.cut_plain(evidence(one)).grade is grade


def test_s01_minds_an_early_second_call_to_a() -> None:
    one = stream(*whole("b"), DONE)
    assert rulings.s01(evidence(one, a=(5.0, 7.1))).grade is Grade.PASS
    assert rulings.s01(evidence(one, a=(5.0, 5.3))).reason == "A asked again after 0.3 s"


def test_s04_counts_the_calls_to_a() -> None:
    one = stream(*whole("b"), DONE)
    assert rulings.s04(evidence(one, a=[0.0] * 3)).grade is Grade.PASS
    assert rulings.s04(evidence(one, a=[0.0] * 15)).reason == "A asked 15 times in 1 calls"


def test_s13_shopping_a_filtered_prompt_around_is_a_failure() -> None:
    shopped = rulings.s13_refused(evidence(stream(*whole("b"), DONE), b=(0.1,)))
    assert (shopped.grade, shopped.reason) == (Grade.FAIL, "shopped to B silently, B asked once")
    said = speech.error(steps.FILTERED, "invalid_request_error", "content_filter")
    assert rulings.s13_refused(evidence(refusal(400, said))).grade is Grade.PASS


def test_s16_wants_usage_model_and_header_of_b() -> None:
    one = refusal(200, speech.completion("b"))
    named = Evidence((one,), (), (), 1.0, lambda _: "b")
    assert rulings.s16(named).grade is Grade.PASS
    assert rulings.s16(Evidence((one,), (), (), 1.0)).reason == "no header says who answered"
    lie = json.loads(speech.completion("b")) | {"usage": speech.usage("a")}
    assert "usage is not B's" in rulings.s16(Evidence((refusal(200, json.dumps(lie).encode()),), (), (), 1.0)).reason


def test_the_worst_verdict_counts_and_nothing_is_no_fault() -> None:
    verdicts = [answered(stream(*half("a")), 1.0), answered(stream(*whole("b"), DONE), 1.0)]
    assert worst(verdicts).grade is Grade.FAIL
    assert worst([]).grade is Grade.PASS


def test_the_exam_has_sixteen_cases_and_a_corner_for_each_variant() -> None:
    every = [(case, streamed) for case in cases(1.0) for streamed in case.streamed]
    assert {case.id for case, _ in every} == {f"S{number:02}" for number in range(1, 17)}
    assert len({case.name(streamed) for case, streamed in every}) == len(every)
    assert {manner for setup in SETUPS.values() for manner in setup.manners} == {"quick", "patient", "assured"}


STRAIGHT: dict[str, tuple[Step, str | None, str]] = {
    "healthy": (steps.healthy("b"), "b", ""),
    "fails": (steps.fails(503), None, "client got 503 (scripted fault)"),
    "resets": (steps.resets, None, "client got no answer: connection reset"),
    "filters": (steps.filters, None, "client got 200 with 1 of 60 words and a finish_reason"),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("script", STRAIGHT)
async def test_the_client_hears_what_the_upstream_does(script: str, streamed: bool) -> None:
    step, who, said = STRAIGHT[script]
    case = Case("S00", "whatever", step, rulings.s05)
    async with serving([Sitting(case, streamed)]) as (a, _):
        caller = Caller(Endpoint(a.port, path=f"/{case.name(streamed)}/v1/chat/completions"), streamed, 5.0)
        with trio.fail_after(10):
            one = await caller.ask()
        assert answerer(one) == who
        assert said in describe(one)
        assert [hit.asked.get("stream", False) for hit in a.desks[case.name(streamed)].hits] == [streamed]
