"""B42 to B44: what crosses from one side to the other, and from one attempt to the next: framing, credentials, bodies."""

import json

import pytest
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.client import Reply, Stream
from tests.fakes.http1 import Head
from tests.fakes.upstream import Exchange, Headers, Step, chunk
from tests.scene import PROMPT, Scene, scene

HOP_BY_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "upgrade", "x-secret", "x-hop"),
}
ODD = [
    ("host", "odd.example:99"),
    ("connection", "keep-alive, X-Secret"),
    ("x-secret", "1"),
    ("proxy-authorization", "Basic c2VjcmV0"),
    ("proxy-connection", "keep-alive"),
    ("te", "trailers"),
    ("transfer-encoding", "chunked"),
]
THEIRS = [
    ("connection", "keep-alive, X-Hop"),
    ("x-hop", "1"),
    ("keep-alive", "timeout=5"),
    ("proxy-authenticate", "Basic"),
    ("trailer", "x-sum"),
    ("x-kept", "yes"),
]
CREDENTIALS = [
    ("authorization", "Bearer gateway-key"),
    ("x-api-key", "gateway-key-2"),
    ("x-goog-api-key", "gateway-key-3"),
    ("cookie", "session=gateway-cookie"),
]
both = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])


def answering(text: str, headers: Headers) -> Step:
    """As `steps.chat`, with headers of the upstream's own."""

    async def step(x: Exchange) -> None:
        if not x.request.json.get("stream"):
            await steps.chat_answer(text, headers=headers)(x)
            return
        await x.start(headers=headers)
        for frame in (steps.delta(text), steps.delta(finish="stop"), steps.DONE):
            await x.write(frame)
        await x.end()

    return step


async def asked(s: Scene, streamed: bool, headers: Headers, body: object = None) -> Reply | Stream:
    """One call with raw headers; the answer read to its end."""
    if streamed:
        stream = await s.open_stream(body, headers)
        await stream.rest()
        return stream
    return await s.post(body, headers)


def count(head: Head, name: str) -> int:
    return sum(given == name for given, _ in head.items)


def prompt(streamed: bool) -> dict[str, object]:
    return {**PROMPT, "stream": True} if streamed else PROMPT


@both
async def test_b42_a_request_gets_one_fitting_frame_and_nothing_hop_by_hop(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        raw = json.dumps(prompt(streamed)).encode()
        body = chunk(raw[:10]) + chunk(raw[10:]) + b"0\r\n\r\n"
        answer = await asked(s, streamed, ODD, body)
        assert answer.status == 200
        (request,) = s.a.requests
        assert request.json["model"] == "a-model"
        assert count(request.head, "content-length") == 1
        assert count(request.head, "transfer-encoding") == 0
        assert int(request.headers["content-length"]) == len(request.body)
        assert [value for name, value in request.head.items if name == "host"] == ["a.test"]
        assert not HOP_BY_HOP & request.headers.keys()
        assert request.headers["authorization"] == "Bearer sk-secret-a"


@both
async def test_b42_an_answer_brings_none_of_the_upstreams_hop_by_hop_headers(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(answering("hello", THEIRS))
        answer = await asked(s, streamed, ())
        assert answer.status == 200
        assert answer.headers["x-kept"] == "yes"
        assert not HOP_BY_HOP & answer.headers.keys()
        assert count(answer.head, "content-length") + count(answer.head, "transfer-encoding") == 1
        assert ("transfer-encoding" in answer.headers) == streamed


@both
async def test_b42_an_upgrade_offered_in_an_answer_is_no_harm(streamed: bool, autojump_clock: MockClock) -> None:
    """Apache puts `Upgrade: h2c` on ordinary answers (RFC 9110 7.8 allows it); nothing switches."""
    async with scene("a") as s:
        s.a.script(answering("hello", [("upgrade", "h2c"), ("connection", "upgrade")]))
        answer = await asked(s, streamed, ())
        assert answer.status == 200
        assert not HOP_BY_HOP & answer.headers.keys()


@both
async def test_b43_each_attempt_carries_its_channels_key_only(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(503))
        s.b.script(answering("hello", [("set-cookie", "provider=1"), ("set-cookie2", "provider=2")]))
        answer = await asked(s, streamed, CREDENTIALS)
        assert answer.status == 200
        for upstream in (s.a, s.b):
            (request,) = upstream.requests
            assert request.headers["authorization"] == f"Bearer sk-secret-{upstream.name}"
            assert count(request.head, "authorization") == 1
            whole = request.head.raw + request.body
            assert b"gateway-" not in whole
            assert not {"cookie", "x-api-key", "x-goog-api-key"} & request.headers.keys()
        assert b"sk-secret-a" not in s.b.requests[0].head.raw
        assert not {"set-cookie", "set-cookie2"} & answer.headers.keys()


@both
async def test_b43_a_channel_without_a_key_is_skipped(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b", credentials={"b": "sk-secret-b"}) as s:
        s.b.script(steps.chat("hello"))
        status, text, headers = await s.ask(streamed=streamed, headers=CREDENTIALS)
        assert (status, text, headers["x-trioproxy-channel"]) == (200, "hello", "b")
        assert s.hits() == "a=0 b=1"
        await s.rest()
        (ended,) = s.ended
        assert ended.skipped == (("a", "it has no credential"),)


@both
async def test_b43_without_any_key_nobody_is_asked_and_the_gateway_key_goes_nowhere(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", credentials={}) as s:
        answer = await asked(s, streamed, CREDENTIALS)
        assert answer.status == 503
        assert s.hits() == "a=0 b=0"


# A takes other names than B: it renames one field and drops another; what it did must not be seen at B.
NARROW = """
[[channels]]
name = "narrow"
base_url = "http://a.test:80/v1"
auth = "none"
params = { rename = { max_tokens = "max_completion_tokens" }, allow = ["messages", "max_tokens"] }
[[channels]]
name = "strict"
base_url = "http://b.test:80/v1"
auth = "none"
params = { rename = { user = "end_user" } }
[[models]]
name = "n"
order = "listed"
channels = [ { channel = "narrow", model = "narrow-model" }, { channel = "strict", model = "strict-model" } ]
"""


def strict(x: Exchange) -> str | None:
    """What B would say is wrong with a body, as a provider that refuses what it does not know."""
    body = x.request.json
    unknown = body.keys() - {"model", "messages", "max_tokens", "seed", "end_user", "stream", "stream_options"}
    if unknown:
        return f"unknown fields {sorted(unknown)}"
    return None if body["model"] == "strict-model" else f"unknown model {body['model']!r}"


async def refusing(x: Exchange) -> None:
    if (complaint := strict(x)) is not None:
        await x.reply(400, {"error": {"message": complaint, "type": "invalid_request_error"}})
    else:
        await steps.chat("hello")(x)


@both
async def test_b44_what_one_attempt_did_to_the_body_is_not_seen_by_the_next(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=NARROW) as s:
        s.a.script(steps.error(500))
        s.b.script(refusing)
        for _ in range(2):
            status, text, headers = await s.ask(streamed=streamed, model="n", max_tokens=5, seed=7, user="u1")
            assert (status, text, headers["x-trioproxy-channel"]) == (200, "hello", "strict")
        first, second = s.b.requests
        assert first.body == second.body
        added = {"stream", "stream_options"}
        assert {key: value for key, value in first.json.items() if key not in added} == {
            "model": "strict-model",
            "messages": PROMPT["messages"],
            "max_tokens": 5,
            "seed": 7,
            "end_user": "u1",
        }
        narrowed = s.a.requests[0].json
        assert narrowed.keys() - added == {"model", "messages", "max_completion_tokens"}
        assert s.a.requests[0].body == s.a.requests[1].body
