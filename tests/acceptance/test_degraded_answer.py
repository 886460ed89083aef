"""Where no channel answers, the model's policy may have a text of the operator's delivered: in form, marked, and free of charge."""

import pytest
from trio.testing import MockClock

from tests.acceptance.limited import bearer, key, tenant
from tests.fakes import steps
from tests.scene import scene
from trioproxy.journal import AlertTold, EndReason

TEXT = "We are sorry: ask again in a few minutes."
ANSWER = f'on_exhausted = "answer"\ndegraded = {{ text = "{TEXT}" }}\n'
DOWN = steps.error(503)


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_configured_text_is_a_good_answer_that_says_what_it_is(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", model=ANSWER) as s:
        s.a.script(DOWN)
        s.b.script(DOWN)
        status, said, headers = await s.ask(streamed=streamed)
        assert (status, said) == (200, TEXT)
        assert headers["x-trioproxy-degraded"] == "answer"
        assert "x-should-retry" not in headers
        assert s.hits() == "a=1 b=1"
        await s.rest()
        (ended,) = s.ended
        assert (ended.reason, ended.status, ended.cost, len(ended.attempts)) == (EndReason.DEGRADED, 200, 0, 2)
        assert ended.note == "upstream_unavailable"
        assert s.held() == {}


async def test_a_whole_answer_has_all_that_a_client_reads(autojump_clock: MockClock) -> None:
    async with scene("a", model=ANSWER.replace("}", ', model = "house/apology" }')) as s:
        s.a.script(DOWN)
        answer = (await s.post(n=2)).json
        assert (answer["object"], answer["model"]) == ("chat.completion", "house/apology")
        assert [choice["index"] for choice in answer["choices"]] == [0, 1]
        assert all(choice["finish_reason"] == "stop" for choice in answer["choices"])
        assert answer["choices"][0]["message"] == {"role": "assistant", "content": TEXT}
        assert answer["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@pytest.mark.parametrize("wanted", [False, True])
async def test_a_stream_has_role_content_finish_and_usage_where_it_was_asked_for(
    wanted: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", model=ANSWER) as s:
        s.a.script(DOWN)
        stream = await s.stream(stream_options={"include_usage": wanted})
        chunks = stream.payloads()
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert {chunk["model"] for chunk in chunks} == {"degraded"}
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
        assert choices[0]["delta"] == {"role": "assistant", "content": TEXT}
        assert [choice["finish_reason"] for choice in choices] == [None, "stop"]
        assert [chunk["usage"]["total_tokens"] for chunk in chunks if "usage" in chunk] == [0] * wanted
        assert stream.raw.endswith(b"data: [DONE]\n\n")


async def test_it_comes_behind_a_keepalive_too(autojump_clock: MockClock) -> None:
    async with scene("a", toml="[defaults]\nkeepalive_after = 1", model=ANSWER) as s:
        s.a.script(steps.after(2.5, DOWN))
        stream = await s.stream()
        assert (stream.status, stream.text()) == (200, TEXT)
        assert stream.raw.startswith(b": keepalive")
        assert stream.raw.endswith(b"data: [DONE]\n\n")
        await s.rest()
        assert [ended.reason for ended in s.ended] == [EndReason.DEGRADED]


async def test_nobody_is_asked_while_the_breaker_is_open_and_the_alert_is_raised_all_the_same(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", model=ANSWER) as s:
        s.a.script(DOWN)
        for _ in range(5):
            assert (await s.post()).status == 200
        await s.rest(2)
        assert s.a.hits == 3
        assert s.ended[-1].note == "all_channels_exhausted"
        told = {event.cause.value for event in s.events if isinstance(event, AlertTold)}
        assert "chain_exhausted" in told


async def test_what_is_the_caller_s_own_is_told_as_it_is(autojump_clock: MockClock) -> None:
    """A bad request, a deadline of its own, a limit of its own."""
    toml = key() + key("small", 'tenant = "acme"') + tenant("balance = 0.000001")
    async with scene("a", toml=toml, model=ANSWER) as s:
        s.a.script(steps.error(400), steps.after(5, DOWN), DOWN)
        assert (await s.post(headers=bearer())).status == 400
        assert (await s.post(headers=[*bearer(), ("x-request-timeout", "1")])).status == 504
        assert (await s.post(headers=bearer())).status == 200
        assert (await s.post(headers=bearer("small"))).status == 402
        reasons = [ended.reason for ended in s.ended]
        assert reasons == [
            EndReason.REJECTED_UPSTREAM,
            EndReason.DEADLINE,
            EndReason.DEGRADED,
            EndReason.REFUSED_QUOTA,
        ]


async def test_other_models_have_their_turn_first(autojump_clock: MockClock) -> None:
    other = '[[models]]\nname = "n"\nchannels = [{ channel = "b", model = "small" }]\n'
    async with scene("a", "b", toml=other, links=("a",), model=ANSWER + 'fallback = [{ model = "n" }]') as s:
        s.a.script(DOWN)
        s.b.script(steps.chat("from b"), DOWN)
        assert (await s.ask(streamed=False))[1] == "from b"
        assert (await s.ask(streamed=False))[1] == TEXT
        assert s.hits() == "a=2 b=2"


async def test_the_quota_is_given_back(autojump_clock: MockClock) -> None:
    toml = key(rest='tenant = "acme"') + tenant("limits = { tokens_per_day = 100000 }")
    async with scene("a", toml=toml, model=ANSWER) as s:
        s.a.script(DOWN)
        assert (await s.post(headers=bearer())).status == 200
        assert [gauge.remaining for gauge in s.gateway.limits() if gauge.scope.name == "acme"] == [100_000]
