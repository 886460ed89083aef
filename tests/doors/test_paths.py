"""What the gateway answers by itself, and the one form of a path that authorisation and routing share."""

import hashlib

import pytest
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import CHAT, PROMPT, Scene, scene

KEYS = f"""
[[keys]]
id = "narrow"
hash = "sha256:{hashlib.sha256(b"narrow-key").hexdigest()}"
models = ["m"]
endpoints = ["models"]
[[keys]]
id = "wide"
hash = "sha256:{hashlib.sha256(b"wide-key").hexdigest()}"
"""
MODELS = """
[[models]]
name = "meta/llama:3-70b"
channels = [ { channel = "a", model = "x" } ]
[[models]]
name = "open/*"
channels = [ { channel = "a", model = "*" } ]
"""
NARROW = [("authorization", "Bearer narrow-key")]
WIDE = [("authorization", "Bearer wide-key")]


async def head_only(s: Scene, path: str) -> tuple[int, int, bool]:
    """HEAD: the status, the length told, and whether the next answer on the connection comes right behind it."""
    client = await s.client()
    await client.wire.send(client.request("HEAD", path))
    told = await client.streamed()
    after = await client.get("/healthz")
    return told.status, int(told.headers["content-length"]), after.status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/models"])
async def test_head_tells_what_get_would(path: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        reply = await s.get(path)
        assert reply.status == 200
        assert await head_only(s, path) == (200, len(reply.body), True)


async def test_alive_is_not_ready(autojump_clock: MockClock) -> None:
    """Nobody's key is there: the process lives, and a load balancer should look elsewhere."""
    async with scene("a", credentials={}) as s:
        assert (await s.get("/healthz")).status == 200
        assert (await s.get("/readyz")).status == 503
        assert (await head_only(s, "/readyz"))[0] == 503


async def test_ready_again_once_a_breaker_has_cooled(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(503))
        for _ in range(3):
            await s.post()
        assert (await s.get("/readyz")).status == 503
        await s.rest(61)
        assert (await s.get("/readyz")).status == 200


async def test_models_are_listed(autojump_clock: MockClock) -> None:
    async with scene("a", toml=MODELS) as s:
        reply = await s.get("/v1/models")
        assert reply.json["object"] == "list"
        names = [model["id"] for model in reply.json["data"]]
        assert {"m", "meta/llama:3-70b"} <= set(names)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/models/m", "m"),
        ("/v1/models/meta/llama:3-70b", "meta/llama:3-70b"),
        ("/v1/models/meta%2Fllama:3-70b", "meta/llama:3-70b"),
        ("/v1/models/meta%2fllama%3A3-70b?x=1", "meta/llama:3-70b"),
        ("/v1/models/open/anything:1", "open/anything:1"),
    ],
)
async def test_a_model_is_found_by_whatever_spelling_of_its_path(
    path: str, name: str, autojump_clock: MockClock
) -> None:
    async with scene("a", toml=MODELS) as s:
        reply = await s.get(path)
        assert reply.status == 200
        assert reply.json["id"] == name
        assert reply.json["object"] == "model"


async def test_an_unknown_model_is_404_in_the_openai_envelope(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        reply = await s.get("/v1/models/nobody")
        assert reply.status == 404
        assert reply.json["error"]["code"] == "model_not_found"
        assert reply.json["error"].keys() == {"message", "type", "param", "code"}


async def test_a_key_sees_its_own_models_only(autojump_clock: MockClock) -> None:
    async with scene("a", toml=MODELS + KEYS) as s:
        assert [model["id"] for model in (await s.get("/v1/models", NARROW)).json["data"]] == ["m"]
        assert (await s.get("/v1/models/meta/llama:3-70b", NARROW)).status == 404
        assert (await s.get("/v1/models/meta/llama:3-70b", WIDE)).status == 200
        assert (await s.get("/v1/models")).status == 401


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", CHAT, 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("PUT", "/v1/models/m", 405, "method_not_allowed"),
        ("OPTIONS", "*", 404, "not_found"),
    ],
)
async def test_what_is_not_there_is_said_in_the_openai_envelope(
    method: str, path: str, status: int, code: str, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        client = await s.client()
        await client.wire.send(client.request(method, path))
        reply = await client.reply()
        assert reply.status == status
        assert reply.json["error"]["code"] == code
        assert reply.json["error"].keys() == {"message", "type", "param", "code"}
        assert (await client.get("/healthz")).status == 200  # the connection is as good as before


SAME = [
    CHAT,
    CHAT + "/",
    CHAT + "?api-version=1",
    "/v1/chat%2Fcompletions",
    "/%76%31/chat/completions",
    f"http://gateway.test:8787{CHAT}",
]


@pytest.mark.parametrize("path", SAME)
async def test_every_spelling_of_a_path_is_routed_alike(path: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        client = await s.client()
        assert (await client.post(path, PROMPT)).status == 200
        assert s.a.requests[0].target == CHAT


@pytest.mark.parametrize("path", SAME)
async def test_every_spelling_of_a_path_is_authorised_alike(path: str, autojump_clock: MockClock) -> None:
    async with scene("a", toml=KEYS) as s:
        s.a.script(steps.chat("hello"))
        client = await s.client()
        assert (await client.post(path, PROMPT, NARROW)).status == 403
        assert (await client.post(path, PROMPT)).status == 401
        assert (await client.post(path, PROMPT, WIDE)).status == 200
        assert s.hits() == "a=1"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../v1/chat/completions",
        "/v1/./chat/completions",
        "/v1//chat/completions",
        "//v1/chat/completions",
        "/v1/%2e%2e/v1/chat/completions",
        "/v1/%2E/chat/completions",
        "/v1%2f%2fchat/completions",
        "/v1/models/..",
        "/v1/chat/completions%00",
        "/v1/chat/completions%0d%0ax:1",
        "/v1/%ff",
    ],
)
async def test_a_path_that_could_be_read_two_ways_is_refused(path: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        client = await s.client()
        reply = await client.post(path, PROMPT)
        assert reply.status == 400
        assert reply.json["error"]["code"] == "bad_path"
        assert s.hits() == "a=0"


@pytest.mark.parametrize("path", ["/v1/%252e%252e/chat/completions", "/v1/chat%252Fcompletions"])
async def test_a_path_is_decoded_once_only(path: str, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        client = await s.client()
        assert (await client.post(path, PROMPT)).status == 404
        assert s.hits() == "a=0"
