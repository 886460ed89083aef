"""The failover exam, S12 to S16: what is not to be shopped around, what comes back, and who is said to have answered."""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.verdict import WHOLE, Outcome, assert_answered, assert_refused, both, call, scripted, settled
from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step
from tests.scene import Scene, scene
from trioproxy.journal import BreakerMoved, EndReason

ASSURED = '[defaults]\nmode = "assured"'
TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
ROLE = steps.delta("", role=True, model="a-model")


def says(message: str, code: str | int | None, type_: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": "messages", "code": code}}


CONTEXT = {
    "by code": (400, says(TOO_LONG, "context_length_exceeded")),
    "by code alone": (400, says("no", "context_length_exceeded")),
    "by prose alone": (400, says(TOO_LONG, None)),
    "as Anthropic says it": (400, {"type": "error", **says("prompt is too long: 9000 tokens > 8192 maximum", None)}),
    "with a numeric code": (400, says(TOO_LONG, 400, "BadRequestError")),
    "413": (413, says("Request too large", None)),
    "422": (422, says(TOO_LONG, None)),
}


@both
@pytest.mark.parametrize("shape", CONTEXT)
async def test_s12_a_prompt_that_is_too_long_is_the_client_s_own_error(
    shape: str, streamed: bool, autojump_clock: MockClock
) -> None:
    status, body = CONTEXT[shape]
    async with scene("a", "b") as s:
        s.a.script(steps.error(status, body))
        outcome = await call(s, streamed)
        await assert_refused_as_said(s, outcome, status, body)


@pytest.mark.parametrize("mode", ["plain", "assured"])
@pytest.mark.parametrize("before", [[], [ROLE]], ids=["first", "after the role"])
async def test_s12_inside_a_stream_it_is_still_the_client_s_400(
    before: list[bytes], mode: str, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=f'[defaults]\nmode = "{mode}"') as s:
        body = says(TOO_LONG, "context_length_exceeded")
        s.a.script(steps.sse([*before, steps.frame(body), steps.DONE]))
        outcome = await call(s, True)
        await assert_refused_as_said(s, outcome, 400, body)


async def test_s12_inside_a_200_body_it_is_still_the_client_s_400(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        body = says(TOO_LONG, "context_length_exceeded")
        s.a.script(steps.error(200, body))
        await assert_refused_as_said(s, await call(s, False), 400, body)


async def assert_refused_as_said(s: Scene, outcome: Outcome, status: int, body: dict[str, Any]) -> None:
    await assert_refused_alike(s, outcome, status)
    assert outcome.error == body["error"]


async def assert_refused_alike(s: Scene, outcome: Outcome, status: int) -> None:
    assert set(outcome.payloads[0]) <= {"type", "error"}
    assert (outcome.status, outcome.headers["content-type"]) == (status, "application/json")
    assert outcome.headers["x-should-retry"] == "false"
    assert outcome.headers["x-trioproxy-attempts"] == "1"
    ended = await settled(s)
    assert (ended.reason, ended.status) == (EndReason.REJECTED_UPSTREAM, status)
    assert (ended.usage.input, ended.usage.output, ended.cost) == (0, 0, 0)
    assert (s.hits(), s.failures(), s.breaker()) == ("a=1 b=0", 0, "closed")


FILTERED = {
    "OpenAI": says("Your request was rejected by our safety system", "content_policy_violation"),
    "Azure": {
        "error": {
            "message": "The response was filtered",
            "type": None,
            "param": "prompt",
            "code": "content_filter",
            "status": 400,
            "innererror": {
                "code": "ResponsibleAIPolicyViolation",
                "content_filter_result": {"hate": {"filtered": True}},
            },
        }
    },
    "Azure, inner code": {"error": {"message": "filtered", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
    "DashScope": says("Input data may contain inappropriate content.", "data_inspection_failed"),
}


@both
@pytest.mark.parametrize("mode", ["plain", "assured"])
@pytest.mark.parametrize("provider", FILTERED)
async def test_s13_a_filtered_prompt_is_relayed_as_it_is(
    provider: str, mode: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=f'[defaults]\nmode = "{mode}"') as s:
        s.a.script(steps.error(400, FILTERED[provider]))
        outcome = await call(s, streamed)
        await assert_refused_alike(s, outcome, 400)
        assert outcome.raw == json.dumps(FILTERED[provider]).encode()


@pytest.mark.parametrize("mode", ["plain", "assured"])
@pytest.mark.parametrize("said", ["", "I shall", "I shall not|, however"])
async def test_s13_a_filtered_answer_is_relayed_as_it_is(said: str, mode: str, autojump_clock: MockClock) -> None:
    frames = [ROLE, *(steps.delta(token, model="a-model") for token in said.split("|") if token)]
    frames += [steps.delta(finish="content_filter", model="a-model"), steps.usage_frame((9, 3), "a-model"), steps.DONE]
    async with scene("a", "b", toml=f'[defaults]\nmode = "{mode}"') as s:
        s.a.script(steps.sse(frames))
        outcome = await call(s, True)
        await assert_answered(s, outcome, "a", said.replace("|", ""), attempts=1, finish="content_filter")
        assert outcome.raw == b"".join(frame for frame in frames if b"usage" not in frame)
        assert s.hits() == "a=1 b=0"


@pytest.mark.parametrize("said", ["", "I shall"])
async def test_s13_a_filtered_unary_answer_is_relayed_as_it_is(said: str, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        body = steps.completion(said, model="a-model", finish="content_filter")
        s.a.script(steps.error(200, body))
        outcome = await call(s, False)
        await assert_answered(s, outcome, "a", said, attempts=1, finish="content_filter")
        assert outcome.raw == json.dumps(body).encode()
        assert s.hits() == "a=1 b=0"


async def no_prefill(x: Exchange) -> None:
    """A provider that takes no conversation which ends with the assistant."""
    if x.request.json["messages"][-1]["role"] == "assistant":
        await x.reply(400, says("This model does not support assistant message prefill.", None))
    else:
        await scripted()(x)


CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one turn": [{"role": "user", "content": "tell me"}],
    "several": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "tell me"},
        {"role": "assistant", "content": "What?"},
        {"role": "user", "content": [{"type": "text", "text": "all"}]},
    ],
}


@pytest.mark.parametrize("end", ["fin", "reset", "clean"])
@pytest.mark.parametrize("turns", CONVERSATIONS)
async def test_s14_the_next_channel_gets_the_original_conversation(
    turns: str, end: steps.End, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=ASSURED) as s:
        s.a.script(steps.sse([ROLE, steps.delta("Once upon", model="a-model")], end=end))
        s.b.script(no_prefill)
        await assert_answered(s, await call(s, True, messages=CONVERSATIONS[turns]), "b")
        assert s.a.requests[0].json["messages"] == s.b.requests[0].json["messages"] == CONVERSATIONS[turns]
        ours = [{**request.json, "model": "m"} for request in (s.a.requests[0], s.b.requests[0])]
        assert ours[0] == ours[1]


async def test_s14_a_prefill_of_the_client_s_own_is_passed_on_as_it_is(autojump_clock: MockClock) -> None:
    messages = [*CONVERSATIONS["one turn"], {"role": "assistant", "content": "Once"}]
    async with scene("a", "b", toml=ASSURED) as s:
        s.a.script(steps.sse([ROLE, steps.delta(" upon", model="a-model")], end="reset"))
        s.b.script(no_prefill)
        outcome = await call(s, True, messages=messages)
        assert s.b.requests[0].json["messages"] == messages
        await assert_refused(s, outcome, 400, attempts=2, reason=EndReason.REJECTED_UPSTREAM)
        assert s.hits() == "a=1 b=1"


def down_until(moment: float) -> Step:
    async def step(x: Exchange) -> None:
        await (scripted("a is back") if trio.current_time() >= moment else steps.error(503))(x)

    return step


# Preset → requests that A gets while it is down for 60 s of one call a second, and when a call reaches it again.
RETURNS = {"four-layer": (3, 62), "consecutive": (5, 64), "half-open": (6, 64)}


@both
@pytest.mark.parametrize("preset", RETURNS)
@pytest.mark.parametrize("begins", [0, 7])
async def test_s15_traffic_is_back_within_half_a_minute_of_the_recovery(
    begins: int, preset: str, streamed: bool, autojump_clock: MockClock
) -> None:
    hammered, back = RETURNS[preset]
    async with scene("a", "b", toml=f'[defaults]\nbreaker = "{preset}"') as s:
        if begins:
            s.a.script(*[scripted("a is up")] * begins, down_until(begins + 60))
        else:
            s.a.script(down_until(60))
        s.b.script(scripted())
        answers = []
        for moment in range(begins + 95):
            await trio.sleep(moment - trio.current_time())
            outcome = await call(s, streamed)
            assert outcome.status == 200
            answers.append(outcome.headers["x-trioproxy-channel"])
        assert answers == ["a"] * begins + ["b"] * back + ["a"] * (95 - back)
        assert sum(begins <= request.arrived < begins + 60 for request in s.a.requests) == hammered
        assert s.breaker() == "closed"
        if preset != "four-layer":
            moves = [event.state for event in s.events if isinstance(event, BreakerMoved)]
            assert moves == ["open", "half_open"] * (2 if preset == "half-open" else 1) + ["closed"]


@both
@pytest.mark.parametrize(("preset", "probes"), [("consecutive", 1), ("half-open", 3)])
async def test_s15_of_many_calls_at_once_only_the_probes_reach_a_channel_that_may_be_back(
    preset: str, probes: int, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=f'[defaults]\nbreaker = "{preset}"') as s:
        s.a.script(steps.error(503))
        s.b.script(scripted())
        for _ in range(5):
            await call(s, streamed)
        assert (s.breaker(), s.a.hits) == ("open", 5)
        await trio.sleep(60)
        s.a.script(steps.after(0.5, scripted("a is back")))
        answers = []

        async def one() -> None:
            outcome = await call(s, streamed)
            assert outcome.status == 200
            answers.append(outcome.headers["x-trioproxy-channel"])

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
        assert sorted(answers) == ["a"] * probes + ["b"] * (50 - probes)
        await settled(s)
        assert (s.breaker(), s.a.hits) == ("closed", 5 + probes)


FAILED_BEFORE = {
    "503": steps.error(503),
    "a usage and an error": steps.sse([ROLE, steps.usage_frame((900, 300), "a-model"), steps.error_frame()]),
    "a usage and nothing": steps.sse([ROLE, steps.usage_frame((900, 300), "a-model"), steps.DONE]),
    "a cut answer": steps.sse([ROLE, steps.delta("half", model="a-model"), steps.usage_frame((900, 300))], end="reset"),
    "an error with usage": steps.error(
        200, {**says("x", 502), "usage": steps.usage_json((900, 300)), "model": "a-model"}
    ),
    "429": steps.error(429, headers=[("retry-after", "1")]),
    "401": steps.error(401, says("bad key", "invalid_api_key")),
    "silence": steps.silence(),
}


@both
@pytest.mark.parametrize("fault", FAILED_BEFORE)
@pytest.mark.parametrize("rewrite", [False, True], ids=["provider's name", "public name"])
async def test_s16_model_channel_usage_and_cost_are_those_of_who_answered(
    rewrite: bool, fault: str, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", model=f"rewrite_model = {str(rewrite).lower()}", toml=ASSURED) as s:
        s.a.script(FAILED_BEFORE[fault])
        s.b.script(scripted(usage=(70, 11)))
        outcome = await call(s, streamed)
        ended = await assert_answered(s, outcome, "b", usage=(70, 11), model="m" if rewrite else None)
        assert ended.cost == 2 * 70 + 8 * 11
        assert [attempt.channel for attempt in ended.attempts] == ["a", "b"]
        assert b"a-model" not in outcome.raw
        assert "a-model" not in outcome.headers.values()
        assert s.hits() == "a=1 b=1"


@both
async def test_s16_of_three_channels_the_last_may_be_the_one(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b", "c") as s:
        s.a.script(steps.error(500))
        s.b.script(steps.hang_up("reset"))
        s.c.script(scripted())
        outcome = await call(s, streamed)
        assert (outcome.text, outcome.headers["x-trioproxy-channel"]) == (WHOLE, "c")
        assert outcome.headers["x-trioproxy-attempts"] == "3"
        assert outcome.models == {"c-model"}
        ended = await settled(s)
        assert [attempt.channel for attempt in ended.attempts] == ["a", "b", "c"]
        assert (ended.cost, s.hits()) == (3 * 9 + 12 * 3, "a=1 b=1 c=1")
