"""What is changed on the way: the model's name in answers, and parameters for channels that want them otherwise."""

import json
from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.fakes import steps
from tests.fakes.upstream import Exchange, Received
from tests.scene import CHAT, PROMPT, Scene, scene

REWRITE = "rewrite_model = true"
both = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])


async def models_of(s: Scene, *, streamed: bool, **fields: Any) -> set[str]:
    """Every model that one answer names."""
    if streamed:
        stream = await s.stream(**fields)
        assert (stream.status, stream.complete) == (200, True)
        return {payload["model"] for payload in stream.payloads() if "model" in payload}
    return {(await s.post(**fields)).json["model"]}


async def sent(s: Scene, body: object, *, streamed: bool = False) -> Received:
    """One call; what the first upstream was sent for it."""
    payload = {**PROMPT, "stream": streamed, **body} if isinstance(body, dict) else body
    s.a.script(steps.chat("hello"))
    client = await s.client()
    reply = await client.post(CHAT, payload)
    client.close()
    assert reply.status == 200
    return s.a.requests[-1]


# The model's name.


@both
async def test_an_answer_names_the_providers_model_as_it_came(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello there"))
        assert await models_of(s, streamed=streamed) == {"a-model"}


@both
async def test_an_answer_names_the_public_model_where_that_is_asked_for(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", model=REWRITE) as s:
        s.a.script(steps.chat("hello there"))
        assert await models_of(s, streamed=streamed) == {"m"}
        assert s.a.requests[0].json["model"] == "a-model"


@both
async def test_the_name_is_the_one_that_was_asked_for_also_under_a_pattern(
    streamed: bool, autojump_clock: MockClock
) -> None:
    toml = '[[models]]\nname = "openai/*"\nrewrite_model = true\nchannels = [ { channel = "a", model = "vendor/*" } ]\n'
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat("hello"))
        assert await models_of(s, streamed=streamed, model="openai/gpt-4o") == {"openai/gpt-4o"}
        assert s.a.requests[0].json["model"] == "vendor/gpt-4o"


@both
async def test_the_name_is_the_same_whichever_channel_answers(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b", model=REWRITE) as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat("hello"))
        assert await models_of(s, streamed=streamed) == {"m"}


async def test_a_rewritten_answer_is_otherwise_the_very_same_bytes(autojump_clock: MockClock) -> None:
    """Spaces, order, escapes and numbers survive: it is spliced, not written anew."""
    body = (
        b'{ "id":"1",  "model" : "a-model", "choices":[{"index":0,"message":{"role":"assistant","content":"\\u00fc 1.0e5 '
        b'\\"model\\": \\"a-model\\""},"finish_reason":"stop","logprobs":{"x":1.0e5}}],\n "model_note": "a-model" }'
    )

    async def answer(x: Exchange) -> None:
        await x.reply(200, body)

    async with scene("a", model=REWRITE) as s:
        s.a.script(answer)
        reply = await s.post()
        assert reply.body == body.replace(b'"model" : "a-model"', b'"model" : "m"')


async def test_a_rewritten_stream_is_otherwise_the_very_same_bytes(autojump_clock: MockClock) -> None:
    frames = [
        b': hello\r\nid: 7\r\ndata: {"model": "a-model", "choices":[{"index":0,"delta":{"content":"a-model \\u00fc"}}]}\r\n\r\n',
        b'data:{"choices":[{"index":0,"delta":{"content":"no model here"}}]}\n\n',
        b'event: x\ndata: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],  "model":"a-model"}\n\n',
        b"data: [DONE]\n\n",
    ]
    async with scene("a", model=REWRITE) as s:
        s.a.script(steps.sse(frames, every=0.1))
        stream = await s.stream()
        assert [payload.get("model") for payload in stream.payloads()] == ["m", None, "m"]
        assert stream.text() == "a-model üno model here"
        assert stream.raw.replace(b'"m"', b'"a-model"') == b"".join(frames)


@pytest.mark.parametrize("size", [1, 7, 50])
async def test_a_stream_is_rewritten_however_its_bytes_are_cut(size: int, autojump_clock: MockClock) -> None:
    whole = b"".join(
        [steps.delta("one", model="a-model"), steps.delta(" two", finish="stop", model="a-model"), steps.DONE]
    )
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    async with scene("a", model=REWRITE) as s:
        s.a.script(steps.sse(pieces, every=0.001))
        stream = await s.stream()
        assert stream.raw == whole.replace(b'"a-model"', b'"m"')


@both
async def test_a_public_name_of_any_letters_is_good_json(streamed: bool, autojump_clock: MockClock) -> None:
    toml = '[[models]]\nname = \'ü "quoted" *\'\nrewrite_model = true\nchannels = [ { channel = "a", model = "x" } ]\n'
    name = 'ü "quoted" \\u'
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat("hello"))
        assert await models_of(s, streamed=streamed, model=name) == {name}


@both
async def test_the_header_tells_the_truth_beside_a_rewritten_name(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", model=REWRITE) as s:
        s.a.script(steps.chat("hello"))
        _, _, headers = await s.ask(streamed=streamed)
        assert (headers["x-trioproxy-channel"], headers["x-trioproxy-model"]) == ("a", "a-model")


# Parameters.


async def test_a_body_is_passed_on_as_it_is_but_for_the_model(autojump_clock: MockClock) -> None:
    body = b'{"temperature" : 1.0e0, "model":"m","messages" :[ {"role":"user","content":"h\\u00e9"} ], "x_own":[1 ,2]}'
    async with scene("a") as s:
        assert (await sent(s, body)).body == body.replace(b'"m"', b'"a-model"')


@both
async def test_a_parameter_is_called_what_the_channel_calls_it(streamed: bool, autojump_clock: MockClock) -> None:
    channel = 'params = { rename = { max_tokens = "max_completion_tokens", user = "end_user" } }'
    async with scene("a", channel=channel) as s:
        got = (await sent(s, {"max_tokens": 5, "user": "u", "top_p": 0.5}, streamed=streamed)).json
        assert (got["max_completion_tokens"], got["end_user"], got["top_p"]) == (5, "u", 0.5)
        assert not {"max_tokens", "user"} & set(got)


async def test_both_names_of_one_parameter_must_agree(autojump_clock: MockClock) -> None:
    async with scene("a", channel='params = { rename = { max_tokens = "max_completion_tokens" } }') as s:
        got = (await sent(s, {"max_tokens": 5, "max_completion_tokens": 5})).json
        assert (got["max_completion_tokens"], "max_tokens" in got) == (5, False)
        hits = s.a.hits
        reply = await s.post(max_tokens=5, max_completion_tokens=6)
        assert reply.status == 400
        assert "max_tokens is 5 and max_completion_tokens is 6" in reply.json["error"]["message"]
        assert s.a.hits == hits


@both
async def test_only_allowed_parameters_reach_the_channel(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", channel='params = { allow = ["temperature"] }') as s:
        got = (await sent(s, {"temperature": 0, "top_p": 1, "user": "u", "seed": 1}, streamed=streamed)).json
        expected = {"model", "messages", "stream", "temperature"} | ({"stream_options"} if streamed else set())
        assert set(got) == expected


NULLS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": []},
]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("keep", {"role": "assistant", "content": None, "tool_calls": []}),
        ("empty", {"role": "assistant", "content": "", "tool_calls": []}),
        ("drop", {"role": "assistant", "tool_calls": []}),
    ],
)
async def test_content_null_has_the_form_that_the_channel_reads(
    form: str, message: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with scene("a", channel=f'params = {{ null_content = "{form}" }}') as s:
        assert (await sent(s, {"messages": NULLS})).json["messages"] == [NULLS[0], message]


@both
async def test_every_channel_of_a_chain_gets_the_body_in_its_own_form(
    streamed: bool, autojump_clock: MockClock
) -> None:
    """The second one starts from what the client sent, not from what was made of it for the first."""
    toml = """
    [[channels]]
    name = "c"
    base_url = "http://b.test/v1"
    auth = "none"
    price = { input = 9.0, output = 9.0 }
    params = { rename = { max_tokens = "n_predict" }, null_content = "empty" }
    [[models]]
    name = "two"
    channels = [ { channel = "a", model = "x" }, { channel = "c", model = "y" } ]
    """
    async with scene("a", "b", toml=toml, channel='params = { allow = ["user"], null_content = "drop" }') as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat("hello"))
        status, _, _ = await s.ask(streamed=streamed, model="two", messages=NULLS, max_tokens=5, user="u")
        assert status == 200
        first, second = s.a.requests[0].json, s.b.requests[0].json
        assert ("max_tokens" in first, "content" in first["messages"][1]) == (False, False)
        assert (second["n_predict"], second["user"], second["messages"][1]["content"]) == (5, "u", "")


# The usage frame.


@pytest.mark.parametrize("wanted", [None, {"include_usage": True}, {"include_usage": False}])
async def test_usage_is_asked_for_and_shown_to_those_who_asked(
    wanted: dict[str, bool] | None, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        options: dict[str, Any] = {} if wanted is None else {"stream_options": wanted}
        stream = await s.stream(**options)
        assert s.a.requests[0].json["stream_options"]["include_usage"] is True
        shown = [payload for payload in stream.payloads() if payload.get("usage")]
        assert bool(shown) == bool(wanted and wanted["include_usage"])
        await wait_all_tasks_blocked()
        usage = s.ended[0].usage
        assert (usage.input, usage.output, usage.estimated) == (9, 3, False)


@pytest.mark.parametrize("wanted", [False, True])
async def test_a_channel_that_refuses_stream_options_never_gets_them(wanted: bool, autojump_clock: MockClock) -> None:
    """Its usage is then our estimate, and flagged as such."""
    async with scene("a", channel="params = { include_usage = false }") as s:
        s.a.script(steps.chat("hello there"))
        options: dict[str, Any] = {"stream_options": {"include_usage": True}} if wanted else {}
        stream = await s.stream(**options)
        assert (stream.status, stream.text()) == (200, "hello there")
        assert "stream_options" not in s.a.requests[0].json
        await wait_all_tasks_blocked()
        usage = s.ended[0].usage
        assert usage.estimated
        assert usage.input > 0
        assert usage.output > 0
        assert s.ended[0].cost


async def test_usage_that_such_a_channel_sends_anyway_is_believed(autojump_clock: MockClock) -> None:
    frames = [steps.delta("hi"), steps.delta(finish="stop"), steps.usage_frame((20, 7)), steps.DONE]
    async with scene("a", channel="params = { include_usage = false }") as s:
        s.a.script(steps.sse(frames))
        await s.stream()
        await wait_all_tasks_blocked()
        usage = s.ended[0].usage
        assert (usage.input, usage.output, usage.estimated) == (20, 7, False)


@both
async def test_streamed_or_unary_the_same_tokens_cost_the_same(streamed: bool, autojump_clock: MockClock) -> None:
    """9 at 1.0 and 3 at 4.0 micro-USD, whichever way."""
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        await s.ask(streamed=streamed)
        await wait_all_tasks_blocked()
        assert s.ended[0].cost == 21


@both
async def test_tokens_from_the_providers_cache_cost_what_the_price_says(
    streamed: bool, autojump_clock: MockClock
) -> None:
    """100 prompted, 80 of them cached: 20 at 1.0, 80 at 0.1, 10 at 4.0."""
    report = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 80}}

    async def answer(x: Exchange) -> None:
        if streamed:
            usage = json.loads(steps.usage_frame()[6:]) | {"usage": report}
            await steps.sse([steps.delta("hi", finish="stop"), steps.frame(usage), steps.DONE])(x)
        else:
            await x.reply(200, steps.completion("hi", usage=None) | {"usage": report})

    async with scene("a") as s:
        s.a.script(answer)
        await s.ask(streamed=streamed)
        await wait_all_tasks_blocked()
        (record,) = s.ended
        assert (record.usage.input, record.usage.cached, record.usage.output, record.cost) == (20, 80, 10, 68)
