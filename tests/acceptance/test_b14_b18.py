"""B14, B15, B18: what is the caller's own is no evidence against a channel, and frames without choices are no trouble."""

import hashlib
import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.asking import ask
from tests.fakes import steps
from tests.fakes.steps import DONE, delta, frame, sse, usage_frame, usage_json
from tests.scene import scene
from trioproxy.errors import Blame, FaultKind
from trioproxy.journal import EndReason, Usage

forms = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])


def key(name: str) -> str:
    return f'[[keys]]\nid = "{name}"\nhash = "sha256:{hashlib.sha256(name.encode()).hexdigest()}"\n'


KEYS = key("key1") + key("key2")
ONE = [("authorization", "Bearer key1")]
TWO = [("authorization", "Bearer key2")]


def refused(code: str | None, message: str, type_: str = "invalid_request_error") -> dict[str, object]:
    return {"error": {"message": message, "type": type_, "param": "messages", "code": code}}


LENGTH = refused("context_length_exceeded", "This model's maximum context length is 8192 tokens.")


@forms
async def test_b14_a_request_that_is_too_long_is_its_callers_own_fault(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", toml=KEYS) as s:
        s.a.script(steps.error(400, LENGTH), steps.chat("fine"), steps.error(500))
        first = await ask(s, streamed=streamed, headers=ONE)
        assert (first.status, json.loads(first.body)) == (400, LENGTH)
        assert first.headers["x-should-retry"] == "false"
        assert (s.failures(), s.gateway.statistics()["a"].objection) == (0, None)
        second = await ask(s, streamed=streamed, headers=TWO)
        assert (second.status, second.text, s.hits()) == (200, "fine", "a=2")
        third = await ask(s, streamed=streamed, headers=TWO)
        assert third.status == 500
        assert (s.breaker(), s.failures()) == ("closed", 1)
        await s.rest()
        assert [(ended.key_id, ended.reason) for ended in s.ended] == [
            ("key1", EndReason.REJECTED_UPSTREAM),
            ("key2", EndReason.ANSWERED),
            ("key2", EndReason.CHAIN_EXHAUSTED),
        ]
        assert s.ended[0].cost == 0
        assert s.held() == {}


@forms
@pytest.mark.parametrize(
    "status, body",
    [
        (400, LENGTH),
        (400, refused(None, "prompt is too long: 250000 tokens > 200000 maximum")),
        (400, refused("content_filter", "flagged")),
        (400, refused("invalid_value", "temperature must be at most 2")),
        (400, b"not even JSON"),
        (413, refused("request_too_large", "too large")),
        (415, refused(None, "send JSON")),
        (422, {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}),
    ],
    ids=["length", "length in prose", "filter", "value", "no JSON", "413", "415", "422"],
)
async def test_b14_no_number_of_request_faults_opens_a_breaker(
    status: int, body: object, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(status, body))
        for _ in range(10):
            said = await ask(s, streamed=streamed)
            assert said.status == status
            assert said.error["message"]
        assert (s.breaker(), s.failures(), s.hits()) == ("closed", 0, "a=10 b=0")
        assert {ended.reason for ended in s.ended} == {EndReason.REJECTED_UPSTREAM}
        assert s.held() == {}


@forms
@pytest.mark.parametrize("status", [400, 403, 429])
async def test_b14_a_credit_balance_that_is_too_low_counts_against_the_channel(
    status: int, streamed: bool, autojump_clock: MockClock
) -> None:
    message = "Your credit balance is too low to access the API. Please go to Plans & Billing."
    async with scene("a", "b") as s:
        s.a.script(steps.error(status, refused(None, message)))
        s.b.script(steps.chat("from b"))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text, said.headers["x-trioproxy-channel"]) == (200, "from b", "b")
        assert (s.failures(), s.hits()) == (1, "a=1 b=1")
        (fault,) = [record.fault for record in s.ended[0].attempts if record.fault]
        assert (fault.kind, fault.blame) == (FaultKind.BILLING, Blame.KEY)
        assert (await ask(s, streamed=streamed)).text == "from b"
        assert (s.hits(), s.held()) == ("a=1 b=2", {})  # parked: money does not come back in a second


@forms
@pytest.mark.parametrize("header", ["x-request-timeout", "x-stainless-timeout"])
async def test_b15_a_callers_tiny_deadline_is_no_evidence(
    header: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", toml=KEYS) as s:
        s.a.script(steps.after(0.3, steps.chat("in time")))
        for _ in range(10):
            said = await ask(s, streamed=streamed, headers=[*ONE, (header, "0.05")])
            assert (said.status, said.took) == (504, 0.05)
            assert said.error["code"] == "deadline_exceeded"
        assert (s.breaker(), s.failures(), s.hits()) == ("closed", 0, "a=10")
        assert [ended.reason for ended in s.ended] == [EndReason.DEADLINE] * 10
        other = await ask(s, streamed=streamed, headers=TWO)
        assert (other.status, other.text, other.took) == (200, "in time", 0.3)
        await s.rest()
        assert s.held() == {}
        assert s.a.open <= 1  # the ten that were given up are closed


@forms
@pytest.mark.parametrize("held", [b": ping\n\n", delta("", role=True)], ids=["comment", "role"])
async def test_b15_a_deadline_that_passes_between_headers_and_content_is_no_evidence(
    held: bytes, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(sse([held], end="hang"))
        for _ in range(5):
            said = await ask(s, streamed=streamed, headers=[("x-request-timeout", "0.5")])
            assert (said.status, said.took) == (504, 0.5)
        assert (s.breaker(), s.failures(), s.hits()) == ("closed", 0, "a=5 b=0")
        assert (s.a.open, s.held()) == (0, {})


async def test_b15_a_deadline_that_passes_in_the_middle_of_an_answer_is_no_evidence(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_stream(["x"] * 100, every=0.1))
        for _ in range(5):
            said = await ask(s, streamed=True, headers=[("x-request-timeout", "0.55")])
            assert (said.status, said.text, said.took) == (200, "xxxxx", 0.55)
            assert b"deadline_exceeded" in said.body
            assert b"[DONE]" not in said.body
            assert b'"finish_reason":"stop"' not in said.body
        assert (s.breaker(), s.failures(), s.a.open, s.held()) == ("closed", 0, 0, {})
        assert [ended.reason for ended in s.ended] == [EndReason.DEADLINE] * 5


@forms
async def test_b15_a_deadline_that_has_passed_before_an_attempt_asks_nobody(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        said = await ask(s, streamed=streamed, headers=[("x-request-timeout", "0.001")])
        assert (said.status, said.took, s.hits()) == (504, 0.0, "a=0 b=0")
        assert (s.failures(), s.ended[0].reason, s.held()) == (0, EndReason.DEADLINE, {})


USAGE = Usage(input=9, output=3)
ODD = {
    "empty": {"choices": []},
    "null": {"choices": None},
    "missing": {},
    "object": {"choices": {}},
}
odd = pytest.mark.parametrize("choices", ODD.values(), ids=ODD.keys())


def reported(choices: dict[str, object]) -> bytes:
    return frame({"id": "x", "object": "chat.completion.chunk", **choices, "usage": usage_json()})


@odd
@pytest.mark.parametrize("asked", [False, True], ids=["not asked for", "asked for"])
async def test_b18_a_usage_frame_without_choices_ends_well(
    choices: dict[str, object], asked: bool, autojump_clock: MockClock
) -> None:
    content = [delta("a"), delta("b"), delta("c"), delta(finish="stop")]
    fields: dict[str, Any] = {"stream_options": {"include_usage": True}} if asked else {}
    async with scene("a") as s:
        s.a.script(sse([*content, reported(choices), DONE]))
        said = await ask(s, streamed=True, **fields)
        assert (said.status, said.text, said.complete) == (200, "abc", True)
        assert said.body.count(DONE) == 1
        assert said.body.endswith(DONE)
        assert (reported(choices) in said.body) == (asked or choices.get("choices") not in ([], None, {}))
        await s.rest()
        assert (s.ended[0].reason, s.ended[0].usage) == (EndReason.ANSWERED, USAGE)
        assert (s.failures(), s.held()) == (0, {})


@odd
async def test_b18_as_the_first_frame_it_does_not_open_the_gate(
    choices: dict[str, object], autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(sse([reported(choices), steps.error_frame()], every=0.5))
        s.b.script(steps.chat("from b"))
        said = await ask(s, streamed=True)
        assert (said.status, said.text, said.took, s.hits()) == (200, "from b", 0.5, "a=1 b=1")
        assert s.failures() == 1


@odd
async def test_b18_as_the_first_frame_it_does_not_spoil_the_answer(
    choices: dict[str, object], autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(sse([reported(choices), delta("a"), delta("b", finish="stop"), DONE], every=0.5))
        said = await ask(s, streamed=True)
        assert (said.status, said.text, s.hits()) == (200, "ab", "a=1 b=0")
        assert s.ended[0].attempts[-1].first_content == 0.5
        assert s.ended[0].usage == USAGE
        assert said.body.endswith(DONE)


@odd
async def test_b18_in_the_middle_it_is_passed_over(choices: dict[str, object], autojump_clock: MockClock) -> None:
    annotation = frame({**choices, "prompt_filter_results": [{"prompt_index": 0}]})  # Azure's, with content around it
    async with scene("a") as s:
        s.a.script(sse([annotation, delta("a"), annotation, delta("b", finish="stop"), usage_frame(), DONE]))
        said = await ask(s, streamed=True)
        assert (said.text, said.body.count(annotation), said.complete) == ("ab", 2, True)
        assert (s.ended[0].reason, s.ended[0].usage) == (EndReason.ANSWERED, USAGE)


@odd
async def test_b18_a_whole_answer_without_choices_is_no_answer(
    choices: dict[str, object], autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(200, {"object": "chat.completion", **choices, "usage": usage_json()}))
        s.b.script(steps.chat("from b"))
        said = await ask(s, streamed=False)
        assert (said.status, said.text, s.hits(), s.failures()) == (200, "from b", "a=1 b=1", 1)
        await trio.sleep(1)
        assert s.held() == {}
