"""A run asks each channel as it is configured, in its bounds of calls, time and money, and loses nothing when it is ended."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step
from tests.scene import Scene, scene
from trioproxy.assembly import CHAT_COMPLETIONS
from trioproxy.codec.chat_said import Said, ToolCall
from trioproxy.config.promptset import parse_set
from trioproxy.journal import Usage
from trioproxy.ops.regression import KEPT, Plan, Regression, Target, hidden, reach
from trioproxy.ops.regression_data import document
from trioproxy.ops.regression_page import page
from trioproxy.policy.outcome import Outcome
from trioproxy.policy.reading import Required, meets, readings_in

ONE = '[[prompts]]\nprompt = "Hi"\nexpect = { contains = ["yes"] }\n'


def plan(s: Scene, text: str = ONE, names: str = "ab", **bounds: Any) -> Plan:
    states = s.gateway.supervisor.channels.state
    targets = tuple(Target(states[name], f"{name}-model") for name in names)
    return Plan(parse_set(text, "set.toml"), "m", targets, CHAT_COMPLETIONS, **bounds)


async def ran(planned: Plan) -> Regression:
    run = Regression(planned, lambda: 1000.0 + trio.current_time())
    await run.run()
    return run


def first(run: Regression, channel: str = "a") -> Outcome:
    return run.outcomes[0, channel][0]


def first_failures(run: Regression) -> str:
    return "\n".join(outcome.failure for outcome in run.of("a"))


def answering(message: Mapping[str, Any], finish: str = "stop") -> Step:
    async def step(x: Exchange) -> None:
        answer = steps.completion("")
        answer["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
        await x.reply(200, answer)

    return step


async def test_each_channel_is_asked_with_its_own_model_shape_and_credential(autojump_clock: MockClock) -> None:
    text = 'params = { max_tokens = 9, top_p = 1 }\n[[prompts]]\nprompt = "Hi"\nexpect.min_length = 1'
    shape = 'params = { rename = { max_tokens = "max_completion_tokens" }, allow = ["max_tokens"] }'
    async with scene("a", "b", channel=shape) as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.chat("yes"))
        await ran(plan(s, text))
        for name, upstream in s.upstreams.items():
            (asked,) = upstream.requests
            assert asked.target == "/v1/chat/completions"
            assert asked.headers["authorization"] == f"Bearer sk-secret-{name}"
            body = {
                "model": f"{name}-model",
                "messages": [{"role": "user", "content": "Hi"}],
                "max_completion_tokens": 9,
            }
            assert asked.json == body


async def test_answers_are_judged_timed_and_priced_to_the_micro_dollar(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.chat_answer("yes", delay=2, usage=(1001, 33)))
        s.b.script(steps.chat_answer("no", delay=3, usage=(1001, 33)))
        run = await ran(plan(s))
    a, b = first(run), first(run, "b")
    assert (a.passed, b.passed) == (True, False)
    assert (a.seconds, b.seconds) == (2, 3)
    # a: 1 USD in, 4 USD out a million; b: 2 and 8
    assert (a.cost, b.cost) == (1001 + 33 * 4, 1001 * 2 + 33 * 8)
    assert run.summary("a").cost == 1133


async def test_what_it_will_cost_is_the_tariff_of_the_forecast_times_the_repeats(autojump_clock: MockClock) -> None:
    text = '[[prompts]]\nprompt = "Hi"\nparams.max_tokens = 100\nexpect.min_length = 1\n' + ONE
    async with scene("a") as s:
        planned = plan(s, text, "a", repeat=3, unknown=500)
        capped, free = planned.forecasts(planned.targets[0])
        assert (capped.output, free.output) == (100, 500)
        assert 5 <= capped.input == free.input <= 20
        assert planned.cost_ahead(planned.targets[0]) == 3 * (2 * capped.input + 600 * 4)
        assert s.a.hits == 0


async def test_without_a_price_or_usage_the_cost_is_unknown_and_not_nothing(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.gateway.supervisor.channels.state["b"].tariff = None
        s.a.script(steps.chat_answer("yes", usage=None))
        s.b.script(steps.chat("yes"))
        planned = plan(s)
        assert planned.cost_ahead(planned.targets[1]) is None
        run = await ran(planned)
    assert (first(run).cost, first(run, "b").cost) == (None, None)
    assert run.summary("a").unpriced == run.summary("b").unpriced == 1
    assert page(run).count("<dd>unknown</dd>") == 2


@pytest.mark.parametrize(
    ("step", "failure"),
    [
        (steps.error(503), "server_error: 503 "),
        (steps.error(429), "rate_limited: 429 "),
        (steps.error(401), "auth: 401 "),
        (steps.hang_up(), "cut: "),
        (steps.silence(), "timeout: no whole answer within 20 s"),
        (steps.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>"), "not_an_answer: 200 "),
    ],
    ids=["503", "429", "401", "hang-up", "silence", "html"],
)
async def test_a_failure_is_a_result_and_nothing_is_retried(
    step: Step, failure: str, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(step)
        run = await ran(plan(s, names="a", timeout=20))
        assert first(run).failure.startswith(failure)
        assert not first(run).passed
        assert s.a.hits == 1
        assert s.breaker() == "closed"
        assert s.failures() == 0
    assert list(reach(run)) == ["a"]


async def test_a_filter_that_refuses_by_status_is_a_refusal_and_no_failure(autojump_clock: MockClock) -> None:
    body = {"error": {"code": "content_filter", "message": "filtered", "type": None, "param": "prompt"}}
    async with scene("a") as s:
        s.a.script(steps.error(400, body))
        run = await ran(plan(s, '[[prompts]]\nprompt = "x"\nexpect.refusal = true', "a"))
    assert first(run).passed
    assert reach(run) == {}


@pytest.mark.parametrize("content", ["", None])
async def test_an_empty_answer_is_an_answer_that_says_nothing(content: str | None, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(answering({"role": "assistant", "content": content}))
        run = await ran(plan(s, names="a"))
    assert first(run).said == Said(finish="stop")
    assert [check.found for check in first(run).checks] == ["there is no text"]


async def test_a_provider_that_streams_unasked_is_read_all_the_same(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_stream(["y", "es"]))
        run = await ran(plan(s, names="a"))
    assert first(run).passed


async def test_every_channel_has_its_workers_and_no_more(autojump_clock: MockClock) -> None:
    text = "".join(f'[[prompts]]\nprompt = "{number}"\nexpect.min_length = 1\n' for number in range(10))
    most = {"a": 0, "b": 0}
    now = dict(most)

    async def step(x: Exchange) -> None:
        name = x.upstream.name
        now[name] += 1
        most[name] = max(most[name], now[name])
        await trio.sleep(1)
        now[name] -= 1
        await x.reply(200, steps.completion("yes"))

    async with scene("a", "b") as s:
        for upstream in s.upstreams.values():
            upstream.script(step)
        started = trio.current_time()
        run = await ran(plan(s, text, concurrency=3, repeat=2))
        assert trio.current_time() - started == 7  # 20 calls, three at once, both channels side by side
        assert s.hits() == "a=20 b=20"
    assert most == {"a": 3, "b": 3}
    assert {len(outcomes) for outcomes in run.outcomes.values()} == {2}


async def test_a_channel_s_own_bound_of_calls_holds(autojump_clock: MockClock) -> None:
    async with scene("a", channel="max_concurrency = 1") as s:
        s.a.script(steps.chat_answer("yes", delay=1))
        await ran(plan(s, names="a", repeat=5))
        assert trio.current_time() >= 5


async def test_the_budget_counts_what_is_under_way_and_ends_the_run_before_it_is_overspent(
    autojump_clock: MockClock,
) -> None:
    text = '[[prompts]]\nprompt = "Hi"\nparams.max_tokens = 100\nexpect.contains = ["yes"]'
    async with scene("a") as s:
        s.a.script(steps.chat_answer("yes", delay=1, usage=(10, 100)))
        planned = plan(s, text, "a", repeat=50, concurrency=8, max_cost=2000)
        run = await ran(planned)
        assert 1 <= s.a.hits <= 4
    assert run.summary("a").cost <= 2000
    assert run.stopped == "the next call might cost more than is left"
    assert not run.reading(planned.targets[0]).complete


@pytest.mark.parametrize(
    ("step", "asked"),
    [
        (steps.chat_answer("yes", usage=(10, 5)), 60),  # 30 each instead of the 500 that were expected
        (steps.error(503), 100),  # an error is free
        (steps.silence(), 4),  # whoever does not answer may charge all the same
        (steps.chat_answer("yes", usage=None), 4),  # as one who tells no usage
    ],
    ids=["cheaper", "error", "silent", "untold"],
)
async def test_what_was_set_aside_is_replaced_by_what_was_spent(
    step: Step, asked: int, autojump_clock: MockClock
) -> None:
    text = '[[prompts]]\nprompt = "Hi"\nparams.max_tokens = 122\nexpect.contains = ["yes"]'
    async with scene("a") as s:
        s.a.script(step)
        planned = plan(s, text, "a", repeat=100, concurrency=1)
        ahead = planned.forecasts(planned.targets[0])[0]
        bound = 4 * (ahead.input + ahead.output * 4) if asked != 60 else 59 * 30 + ahead.input + ahead.output * 4
        await ran(evolve(planned, max_cost=bound, timeout=5))
        assert s.a.hits == asked


async def test_an_answer_longer_than_the_channel_may_give_is_a_failure(autojump_clock: MockClock) -> None:
    async with scene("a", channel="max_answer = 1000") as s:
        s.a.script(steps.chat_answer("x" * 2000))
        run = await ran(plan(s, names="a"))
    assert first(run).failure == "too_long: the answer is longer than the channel's max_answer"


async def test_an_error_whose_body_never_ends_is_told_by_its_status(autojump_clock: MockClock) -> None:
    async def stuck(x: Exchange) -> None:
        await x.start(503)
        await x.write(b'{"error"')
        await trio.sleep_forever()

    async with scene("a") as s:
        s.a.script(stuck)
        run = await ran(plan(s, names="a"))
    assert first(run).status == 503
    assert first(run).seconds == 5


async def test_cancelled_at_any_time_it_keeps_what_had_ended(autojump_clock: MockClock) -> None:
    for moment in range(1, 8):
        async with scene("a") as s:
            s.a.script(steps.chat_answer("yes", delay=1))
            planned = plan(s, names="a", repeat=6, concurrency=1)
            run = Regression(planned, lambda: 0.0)
            with trio.move_on_after(moment + 0.5):
                await run.run()
            assert run.summary("a").runs == min(moment, 6)
            assert run.reading(planned.targets[0]).complete is (moment >= 6)
            await s.rest()
            assert s.held() == {}
            assert s.a.open <= 1


async def test_each_outcome_is_told_once(autojump_clock: MockClock) -> None:
    told: list[float] = []
    async with scene("a", "b") as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.chat("yes"))
        await Regression(plan(s, repeat=3), lambda: 0.0).run(lambda: told.append(trio.current_time()))
    assert len(told) == 6


async def test_the_reading_is_one_that_a_rollout_can_require(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.chat_answer("yes", delay=2))
        s.b.script(steps.chat("no"))
        planned = plan(s)
        run = await ran(planned)
    good, bad = readings_in(json.loads(json.dumps(document(run))))
    assert (good.channel, good.provider_model, good.pass_rate, bad.pass_rate) == ("a", "a-model", 1.0, 0.0)
    assert good.at == 1000 + 2
    required = Required("a", set_hash=planned.prompts.hash, model="m")
    assert meets(good, required, now=1010)
    assert not meets(bad, required, now=1010)


async def test_no_report_has_a_credential_in_it_whoever_repeats_it(autojump_clock: MockClock) -> None:
    key = "sk-secret-a"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": f'{{"k": "{key}"}}'}}
    odd = json.dumps({"error": {"message": f"broken {key}", "type": "server_error"}}).encode()
    async with scene("a") as s:
        s.a.script(
            answering({"content": f"your key is {key}", "tool_calls": [call]}),
            answering({"content": None, "refusal": f"not with {key}"}, finish=key),
            steps.error(401, {"error": {"message": f"Incorrect API key provided: {key}"}}),
            steps.error(400, {"error": {"message": f"odd {key} at a.test"}}),
            steps.raw(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(odd) + odd),
        )
        run = await ran(plan(s, names="a", repeat=5, concurrency=1, secrets=(key,)))
    assert "odd [redacted] at [redacted]" in first_failures(run)
    text = json.dumps(document(run)) + page(run) + repr(run.plan) + repr(run)
    assert "your key is [redacted]" in text
    assert key not in text


async def test_a_long_answer_is_judged_whole_and_kept_in_part(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat_answer("x" * 1_000_000 + "yes"))
        run = await ran(plan(s, names="a"))
    said = first(run).said
    assert first(run).passed
    assert said is not None
    assert len(said.text) < KEPT + 50
    assert said.text.endswith(f"… ({1_000_003 - KEPT} more characters)")


def test_only_what_is_secret_is_taken_out() -> None:
    said = Said("see https://example.com, sk-other", "", "stop", (ToolCall("f", "{}"),))
    assert hidden(said, ("sk-mine",)) == said


async def test_usage_with_a_cached_part_is_priced_as_the_ledger_prices_it(autojump_clock: MockClock) -> None:
    async def step(x: Exchange) -> None:
        usage = {"prompt_tokens": 1000, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 995}}
        await x.reply(200, steps.completion("yes", usage=None) | {"usage": usage})

    async with scene("a") as s:
        s.a.script(step)
        run = await ran(plan(s, names="a"))
    assert first(run).usage == Usage(input=5, cached=995, output=7)
    assert first(run).cost == 133  # 5 + 99.5 + 28 = 132.5, rounded half up
