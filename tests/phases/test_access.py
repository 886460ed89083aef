"""Access: who may come in, what a key may use, and that what it may not use cannot be told from what is not there."""

import io
import json
from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.fakes import steps
from tests.fakes.client import Reply
from tests.scene import Scene, scene
from trioproxy.config.load import parse_config
from trioproxy.config.model import Logging
from trioproxy.config.secrets import credentials
from trioproxy.journal import EndReason, ExchangeEnded
from trioproxy.ops.log import Log
from trioproxy.policy.access import key_hash


def key(name: str, **fields: object) -> str:
    """A `[[keys]]` table; the key itself is `sk-NAME`."""
    lines = "".join(f"{field} = {json.dumps(value)}\n" for field, value in fields.items())
    return f'[[keys]]\nid = "{name}"\nhash = "{key_hash(f"sk-{name}")}"\n{lines}'


def bearer(name: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer sk-{name}"), ("x-request-id", "req_fixed")]


def model(name: str, *links: tuple[str, str]) -> str:
    shown = ", ".join(f'{{ channel = "{channel}", model = "{theirs}" }}' for channel, theirs in links)
    return f'[[models]]\nname = "{name}"\nchannels = [ {shown} ]\n'


async def ended(s: Scene) -> list[ExchangeEnded]:
    """The records, once the gateway has made them; a client may have its answer a moment earlier."""
    await wait_all_tasks_blocked()
    return s.ended


def code(reply: Reply) -> tuple[int, str]:
    """An error as an SDK sees it; the dialect's whole envelope must be there."""
    assert reply.headers["content-type"] == "application/json"
    assert set(reply.json) == {"error"}
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}
    return reply.status, reply.json["error"]["code"]


KEYS = key("team") + key("other", tenant="acme")


# Who is asking.


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer sk-team")],
        [("authorization", "bearer sk-team")],
        [("authorization", "BEARER   sk-team ")],
        [("x-api-key", "sk-team")],
        [("authorization", "Basic c2stdGVhbQ=="), ("x-api-key", "sk-team")],
    ],
)
async def test_a_known_key_comes_in_either_way(headers: list[tuple[str, str]], autojump_clock: MockClock) -> None:
    async with scene("a", toml=KEYS) as s:
        s.a.script(steps.chat("hello"))
        assert (await s.post(headers=headers)).status == 200
        assert ((await ended(s))[0].key_id, (await ended(s))[0].tenant) == ("team", "default")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "Bearer sk-wrong")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer")],
        [("authorization", "sk-team")],
        [("authorization", "Basic sk-team")],
        [("authorization", "Bearer sk-team sk-team")],
        [("authorization", f"Bearer {key_hash('sk-team')}")],
        [("authorization", "Bearer sk-wrong"), ("x-api-key", "sk-team")],  # one is enough to be wrong
        [("x-api-key", "")],
        [("x-api-key", "SK-TEAM")],
        [("cookie", "key=sk-team")],
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_nobody_else_comes_in(headers: list[tuple[str, str]], streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", toml=KEYS) as s:
        reply = await s.post(headers=headers, stream=streamed)
        assert code(reply) == (401, "invalid_api_key")
        assert reply.headers["x-should-retry"] == "false"
        assert "sk-wrong" not in reply.body.decode()
        assert s.hits() == "a=0"
        (record,) = await ended(s)
        assert (record.reason, record.key_id, record.status) == (EndReason.REFUSED_AUTH, "anonymous", 401)


async def test_a_refusal_says_how_a_key_is_sent(autojump_clock: MockClock) -> None:
    async with scene("a", toml=KEYS) as s:
        assert "Authorization: Bearer" in (await s.post()).json["error"]["message"]


async def test_a_refused_key_is_judged_before_what_it_asks(autojump_clock: MockClock) -> None:
    """A stranger learns nothing of the gateway's models, classes or limits."""
    async with scene("a", toml=KEYS) as s:
        odd = [("x-trioproxy-class", "nope"), ("x-request-timeout", "soon")]
        assert code(await s.post(b"{not json", odd)) == (401, "invalid_api_key")
        assert code(await s.get("/v1/models")) == (401, "invalid_api_key")
        assert code(await s.get("/v1/models/m")) == (401, "invalid_api_key")


async def test_without_keys_everybody_is_anonymous(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        assert (await s.post(headers=bearer("anything"))).status == 200
        assert ((await ended(s))[0].key_id, (await ended(s))[0].tenant) == ("anonymous", "default")


async def test_the_tenant_of_a_key_is_on_record(autojump_clock: MockClock) -> None:
    async with scene("a", toml=KEYS) as s:
        s.a.script(steps.chat("hello"))
        await s.post(headers=bearer("other"))
        assert ((await ended(s))[0].key_id, (await ended(s))[0].tenant) == ("other", "acme")


async def test_a_key_is_good_until_the_second_in_which_it_expires(autojump_clock: MockClock) -> None:
    """The scene's clock stands at 2025-11-24T16:00:00Z when it begins; the zone of the date counts."""
    toml = key("team", expires="2025-11-24T18:00:10+02:00")
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat("hello"))
        await s.rest(9.5)
        assert (await s.post(headers=bearer("team"))).status == 200
        await s.rest(0.5)
        reply = await s.post(headers=bearer("team"))
        assert code(reply) == (401, "api_key_expired")
        assert "'team'" in reply.json["error"]["message"]
        assert (s.hits(), (await ended(s))[-1].reason) == ("a=1", EndReason.REFUSED_AUTH)
        assert code(await s.get("/v1/models", bearer("team"))) == (401, "api_key_expired")


# What a key may use.


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_forbidden_model_looks_exactly_like_an_unknown_one(streamed: bool, autojump_clock: MockClock) -> None:
    toml = model("secret", ("a", "x")) + key("team", models=["m", "open-*"])
    async with scene("a", toml=toml) as s:
        forbidden = await s.post(headers=bearer("team"), model="secret", stream=streamed)
        unknown = await s.post(headers=bearer("team"), model="nosuch", stream=streamed)
        assert code(forbidden) == code(unknown) == (404, "model_not_found")
        assert forbidden.body.replace(b"secret", b"nosuch") == unknown.body
        timed = {"x-trioproxy-overhead-ms", "date"}
        assert {k: v for k, v in forbidden.headers.items() if k not in timed} == {
            k: v for k, v in unknown.headers.items() if k not in timed
        }
        assert s.hits() == "a=0"
        one, other = await ended(s)
        assert (one.reason, one.status, one.note) == (other.reason, other.status, other.note)


async def test_a_forbidden_model_cannot_be_looked_up_either(autojump_clock: MockClock) -> None:
    toml = model("secret", ("a", "x")) + key("team", models=["m"])
    async with scene("a", toml=toml) as s:
        forbidden = await s.get("/v1/models/secret", bearer("team"))
        unknown = await s.get("/v1/models/nosuch", bearer("team"))
        assert code(forbidden) == code(unknown) == (404, "model_not_found")
        assert forbidden.body.replace(b"secret", b"nosuch") == unknown.body
        assert (await s.get("/v1/models/m", bearer("team"))).json["id"] == "m"


async def test_the_list_of_models_is_what_the_key_may_use(autojump_clock: MockClock) -> None:
    models = model("secret", ("a", "x")) + model("open-1", ("a", "y")) + model("openai/*", ("a", "*"))
    toml = models + key("team", models=["m", "open-*"]) + key("boss") + key("nobody", models=["none"])
    async with scene("a", toml=toml) as s:

        async def listed(name: str) -> list[str]:
            reply = await s.get("/v1/models", bearer(name))
            assert (reply.status, reply.json["object"]) == (200, "list")
            assert all(entry["object"] == "model" for entry in reply.json["data"])
            return [entry["id"] for entry in reply.json["data"]]

        assert await listed("team") == ["m", "open-1"]
        assert await listed("boss") == ["m", "open-1", "secret"]  # a pattern stands for names that nobody can list
        assert await listed("nobody") == []


@pytest.mark.parametrize(
    ("patterns", "name", "allowed"),
    [
        (["*"], "m", True),
        (["m"], "m", True),
        (["open*", "m"], "m", True),
        (["*m"], "m", True),
        (["M"], "m", False),
        (["m?"], "m", False),
        (["openai/*"], "openai/gpt-4o", True),
        (["openai/gpt-*"], "openai/o3", False),
        (["openai/*"], "m", False),
    ],
)
async def test_a_keys_models_are_names_and_patterns(
    patterns: list[str], name: str, allowed: bool, autojump_clock: MockClock
) -> None:
    toml = model("openai/*", ("a", "*")) + key("team", models=patterns)
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat("hello"))
        assert (await s.post(headers=bearer("team"), model=name)).status == (200 if allowed else 404)


CLASSES = "[classes.batch]\ntotal_timeout = 1200.0\n[classes.eval]\n"


async def test_a_class_that_the_key_may_not_use_is_forbidden(autojump_clock: MockClock) -> None:
    toml = CLASSES + key("team", classes=["default", "ba*"])
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat("hello"))
        reply = await s.post(headers=[*bearer("team"), ("x-trioproxy-class", "eval")])
        assert code(reply) == (403, "class_not_allowed")
        assert "'eval'" in reply.json["error"]["message"]
        assert ((await ended(s))[0].reason, s.hits()) == (EndReason.REFUSED_AUTH, "a=0")
        for name in ("batch", "default"):
            assert (await s.post(headers=[*bearer("team"), ("x-trioproxy-class", name)])).status == 200
            assert (await ended(s))[-1].traffic_class == name


async def test_a_key_may_be_kept_to_a_class_and_then_has_to_name_it(autojump_clock: MockClock) -> None:
    async with scene("a", toml=CLASSES + key("team", classes=["batch"])) as s:
        assert code(await s.post(headers=bearer("team"))) == (403, "class_not_allowed")


async def test_an_unknown_class_is_a_mistake_and_the_known_ones_are_named(autojump_clock: MockClock) -> None:
    async with scene("a", toml=CLASSES) as s:
        reply = await s.post(headers=[("x-trioproxy-class", "Batch")])
        assert code(reply) == (400, "invalid_request")
        assert reply.json["error"]["param"] == "x-trioproxy-class"
        assert "'Batch'" in reply.json["error"]["message"]
        assert "batch, default, eval" in reply.json["error"]["message"]
        assert (await ended(s))[0].reason is EndReason.REFUSED_REQUEST


async def test_an_endpoint_that_the_key_may_not_use_is_forbidden(autojump_clock: MockClock) -> None:
    toml = key("team", endpoints=["embeddings"]) + key("boss", endpoints=["chat.*"])
    async with scene("a", toml=toml) as s:
        s.a.script(steps.chat("hello"))
        assert code(await s.post(headers=bearer("team"))) == (403, "endpoint_not_allowed")
        assert (await s.post(headers=bearer("boss"))).status == 200


# Names with "*".


WILD = (
    model("openai/*", ("a", "*"), ("b", "vendor/*"))
    + model("openai/gpt-4o", ("b", "exact"))
    + model("*-mini", ("a", "mini"))
)


@pytest.mark.parametrize(
    ("asked", "upstream", "theirs"),
    [
        ("openai/o3", "a", "o3"),
        ("openai/a/b", "a", "a/b"),
        ("openai/", "a", ""),  # "*" stands for nothing too
        ("openai/gpt-4o", "b", "exact"),  # an exact name wins over a pattern
        ("openai/o3-mini", "a", "o3-mini"),  # the pattern with more letters wins
        ("x-mini", "a", "mini"),
    ],
)
async def test_a_pattern_maps_names_to_the_channels_own(
    asked: str, upstream: str, theirs: str, autojump_clock: MockClock
) -> None:
    async with scene("a", "b", toml=WILD) as s:
        s.upstreams[upstream].script(steps.chat("hello"))
        reply = await s.post(model=asked)
        assert reply.status == 200
        assert s.upstreams[upstream].requests[0].json["model"] == theirs
        assert (reply.headers["x-trioproxy-channel"], reply.headers["x-trioproxy-model"]) == (upstream, theirs)
        assert (await ended(s))[0].model == asked


async def test_every_channel_of_a_pattern_gets_the_name_in_its_own_form(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=WILD) as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat("hello"))
        assert (await s.post(model="openai/o3")).status == 200
        assert s.b.requests[0].json["model"] == "vendor/o3"


async def test_a_name_under_a_pattern_can_be_looked_up_and_is_not_listed(autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=WILD) as s:
        assert (await s.get("/v1/models/openai%2Fo3")).json["id"] == "openai/o3"
        assert (await s.get("/v1/models/openai/o3")).json["id"] == "openai/o3"
        names = [entry["id"] for entry in (await s.get("/v1/models")).json["data"]]
        assert names == ["m", "openai/gpt-4o"]


# No secret is told.


async def answered(s: Scene) -> str:
    """What callers are told, heads included, whatever they ask."""
    answers: list[Any] = [await s.get(path, bearer("team")) for path in ("/v1/models", "/healthz", "/readyz", "/x")]
    answers += [await s.post(headers=bearer("team")), await s.post(), await s.post(b"{", bearer("team"))]
    stream = await s.stream(headers=bearer("team"))
    return (b"".join(answer.head.raw + answer.body for answer in answers) + stream.head.raw + stream.raw).decode()


async def test_a_literal_key_is_in_no_answer_line_or_repr(autojump_clock: MockClock) -> None:
    sink = io.BytesIO()
    secret = "literal-credential-of-ours"
    echo = {"error": {"message": f"bad key {secret}", "type": "invalid_request_error", "code": "invalid_api_key"}}
    async with scene("a", "b", toml=key("team"), credentials={"a": secret, "b": secret}) as s:
        log = Log.to(sink, Logging("json", "debug"), lambda: 0.0)
        s.gateway.journal.subscribe(log)
        s.a.script(steps.error(401, echo))
        s.b.script(steps.error(400, {"error": {"message": f"bad request, {secret}", "type": "invalid_request_error"}}))
        # Before any call: the network in memory remembers what its upstreams were sent, and the gateway knows its network.
        text = repr(s.gateway) + repr(s.gateway.supervisor) + repr(s.door)
        text += await answered(s)
        await s.rest()
        log.writer.flush()
        text += sink.getvalue().decode() + repr(s.events) + repr(s.gateway.statistics())
        assert s.a.requests[0].headers["authorization"] == f"Bearer {secret}"
    assert "scripted" not in text
    assert "parked" in text
    at = text.find(secret)
    assert at < 0, text[max(0, at - 300) : at + 60]
    assert "sk-team" not in text


def test_a_literal_key_in_the_file_is_in_no_repr() -> None:
    text = """
    [[channels]]
    name = "a"
    base_url = "https://a.test/v1"
    api_key = { value = "literal-credential-of-ours" }
    headers = { x-extra = "literal-header-of-ours" }
    [[models]]
    name = "m"
    channels = [ { channel = "a", model = "x" } ]
    """
    config = parse_config(text, "gateway.toml")
    found = credentials(config, {})
    assert found["a"].value == "literal-credential-of-ours"
    assert "of-ours" not in repr(config) + repr(found) + str(found)
