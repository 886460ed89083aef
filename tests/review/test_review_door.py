"""The door and the gateway's own answers: what a request's target means, what is said, and what is on record."""

import contextlib
import socket
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import CHAT, PROMPT, scene
from trioproxy.call import Request
from trioproxy.doors.listener import bind_unix
from trioproxy.errors import Refusal

KEYS = '[[keys]]\nid = "k1"\nhash = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"\n'


@pytest.mark.parametrize(
    "target",
    [
        "/healthz?next=http://elsewhere/v1/chat/completions",
        "/healthz#http://elsewhere/v1/chat/completions",
        "/healthz/://elsewhere/v1/chat/completions",
    ],
)
async def test_what_stands_behind_a_path_is_no_path(target: str, autojump_clock: MockClock) -> None:
    """A proxy in front that lets only `/healthz` through must not be talked past by a query."""
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        client = await s.client()
        reply = await client.post(target, PROMPT)
        assert reply.status in {400, 404, 405}
        assert s.hits() == "a=0"
        client.close()


async def test_the_absolute_form_of_a_target_is_taken(autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        client = await s.client()
        assert (await client.post("http://gateway.test/v1/chat/completions?x=1", PROMPT)).status == 200
        client.close()


async def test_a_method_that_is_refused_learns_which_one_is_taken(autojump_clock: MockClock) -> None:
    """RFC 9110, 15.5.6: a 405 must carry Allow."""
    async with scene("a") as s:
        assert (await s.get(CHAT)).headers["allow"] == "POST"
        client = await s.client()
        assert (await client.post("/v1/models", {})).headers["allow"] == "GET, HEAD"
        client.close()


async def test_a_401_names_the_scheme(autojump_clock: MockClock) -> None:
    """RFC 9110, 15.5.2: a 401 must carry WWW-Authenticate."""
    async with scene("a", toml=KEYS) as s:
        assert (await s.post()).headers["www-authenticate"] == "Bearer"
        assert (await s.get("/v1/models")).headers["www-authenticate"] == "Bearer"


async def test_every_refusal_is_on_record_also_where_no_dialect_begins(autojump_clock: MockClock) -> None:
    """Keys tried at /v1/models and a base URL that lacks its /v1 are what an operator looks for in the log."""
    async with scene("a", toml=KEYS) as s:
        await s.get("/v1/models")
        await s.get("/chat/completions")
        await s.get(CHAT)
        assert [(end.reason.value, end.status, end.endpoint) for end in s.ended] == [
            ("refused_auth", 401, "/v1/models"),
            ("refused_request", 404, "/chat/completions"),
            ("refused_request", 405, CHAT),
        ]
        assert len({end.request_id for end in s.ended}) == 3


async def test_an_embedder_cannot_write_a_header_line_of_its_own(autojump_clock: MockClock) -> None:
    """The door's reader takes no CR or LF in a value; without a door nobody else looks before the provider does."""
    async with scene("a") as s:
        s.a.script(steps.chat("hello"))
        headers = {"idempotency-key": "1\r\nauthorization: Bearer other"}
        with pytest.raises(ValueError, match="idempotency-key"):
            Request.post(CHAT, PROMPT, headers)
        raw = {name.encode(): value.encode() for name, value in headers.items()}
        body = Request.post(CHAT, PROMPT).body
        async with s.gateway.dispatch(Request("POST", CHAT, raw, body)) as answer:
            assert answer.status == 400
            assert isinstance(answer.error, Refusal)
        assert s.hits() == "a=0"


async def test_a_drained_door_lets_no_late_comer_stay(autojump_clock: MockClock) -> None:
    """A connection that was accepted when the drain began is as idle as the others, and does not hold the exit up."""
    async with scene("a") as s:
        s.door.drain()
        client = await s.client()
        began = trio.current_time()
        assert await client.ended()
        assert trio.current_time() == began


@pytest.mark.parametrize("name", ["x-accel-redirect", "x-accel-expires", "x-sendfile", "x-reproxy-url"])
async def test_a_provider_gives_no_orders_to_the_proxy_in_front(name: str, autojump_clock: MockClock) -> None:
    """nginx and its kin obey these from whatever stands behind them: a provider could have them send any file."""
    async with scene("a") as s:
        s.a.script(steps.chat_answer("hello", headers=[(name, "/etc/passwd")]))
        reply = await s.post()
        assert reply.status == 200
        assert name not in reply.headers


async def test_a_busy_process_keeps_its_unix_socket(tmp_path: Path) -> None:
    """A queue that is full refuses nobody, it only does not answer: not to be waited for, and not dead."""
    path = tmp_path / "gateway.sock"
    with contextlib.ExitStack() as held:
        live = held.enter_context(socket.socket(socket.AF_UNIX))
        live.bind(str(path))
        live.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                caller = held.enter_context(socket.socket(socket.AF_UNIX))
                caller.setblocking(False)
                caller.connect(str(path))
        began = trio.current_time()
        with pytest.raises(OSError, match="in use"):
            bind_unix(path)
        assert trio.current_time() - began < 5
        assert path.exists()
