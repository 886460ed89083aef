"""The canonical path, one form for authorisation and routing whatever a caller writes, and a request as an embedder makes it."""

import json

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from trioproxy.call import Request, canonical_path


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/chat/completions///", "/v1/chat/completions"),
        ("/v1/chat/completions?x=/../y", "/v1/chat/completions"),
        ("/v1/models#part", "/v1/models"),
        ("/v1/models?a#b", "/v1/models"),
        ("/v1/models#a?b", "/v1/models"),
        ("/", "/"),
        ("/?x", "/"),
        ("//", "/"),
        ("/v1%2Fchat", "/v1/chat"),
        ("/v1/%63hat", "/v1/chat"),
        ("/v1/models/openai%2Fgpt-4o", "/v1/models/openai/gpt-4o"),
        ("/v1/models/a%20b", "/v1/models/a b"),
        ("/v1/models/%C3%BC", "/v1/models/ü"),
        ("/v1/%2563hat", "/v1/%63hat"),  # decoded once, and never again
        ("/v1/a%3Fb", "/v1/a?b"),
        ("/v1/100%", "/v1/100%"),
        ("/v1/%zz", "/v1/%zz"),
        ("/V1/Chat", "/V1/Chat"),
        ("/v1/..a", "/v1/..a"),
        ("/v1/...", "/v1/..."),
    ],
)
def test_a_path_has_one_form(target: str, path: str) -> None:
    assert canonical_path(target) == path


@pytest.mark.parametrize(
    "target",
    [
        "",
        "*",
        "v1/chat",
        "http://a.test/v1/chat",
        "?/v1/chat",
        "/v1/../admin",
        "/v1/..",
        "/..",
        "/v1/./chat",
        "/.",
        "/v1/%2e%2e/admin",
        "/v1/%2E./admin",
        "/v1/%2e/chat",
        "/v1%2F..%2Fadmin",
        "/v1/..%2fadmin",
        "//v1/chat",
        "/v1//chat",
        "/v1/%2F/chat",
        "/%2Fv1",
        "/v1/\x00",
        "/v1/%00",
        "/v1/%0d%0aset-cookie:x",
        "/v1/%7f",
        "/v1/a\tb",
        "/v1/%ff",
        "/v1/%C3",
        "/v1/%ed%a0%80",
    ],
)
def test_what_has_no_business_in_a_path_is_refused(target: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the promise is the type: a bad escape has a message of its own
        canonical_path(target)


pieces = st.lists(
    st.sampled_from(["/", "%2f", ".", "%2e", "..", "v1", "chat", "%252e", "?", "#", "%00", "\\", ";", "ü"])
)


@given(pieces)
def test_an_accepted_path_holds_nothing_to_climb_by(parts: list[str]) -> None:
    try:
        path = canonical_path("/" + "".join(parts))
    except ValueError:
        return
    assert path.startswith("/")
    assert path == "/" or not {"", ".", ".."} & set(path[1:].split("/"))
    assert not any(ord(letter) < 0x20 for letter in path)


@given(st.lists(st.text("abc-_", min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_canonical_path_stays_as_it_is(segments: list[str]) -> None:
    path = "/" + "/".join(segments)
    assert canonical_path(path) == canonical_path(path + "/") == path


async def test_a_request_as_an_embedder_makes_it(autojump_clock: MockClock) -> None:
    await trio.sleep(3)
    request = Request.post("/v1/chat/completions/?x", {"model": "m", "text": "ü"}, {"X-Api-Key": "k", "x-é": "é"})
    assert (request.method, request.path, request.started) == ("POST", "/v1/chat/completions", 3.0)
    assert request.headers == {b"x-api-key": b"k", "x-é".encode("latin-1"): "é".encode("latin-1")}
    assert json.loads(request.body) == {"model": "m", "text": "ü"}


async def test_a_request_without_headers_has_none() -> None:
    assert Request.post("/x", []).headers == {}


@pytest.mark.parametrize(
    "headers", [{"x-note": "one\r\nx-api-key: stolen"}, {"x\nname": "v"}, {"x": "\x00"}, {"x": "tab\tbed"}]
)
async def test_a_header_of_more_than_one_line_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="control characters"):
        Request.post("/x", {}, headers)


async def test_a_request_to_no_path_at_all_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="chat"):
        Request.post("chat", {})


async def test_neither_headers_nor_body_are_in_a_requests_repr() -> None:
    request = Request.post("/v1/chat/completions", {"prompt": "private"}, {"authorization": "Bearer secret"})
    assert "private" not in repr(request)
    assert "secret" not in repr(request)
