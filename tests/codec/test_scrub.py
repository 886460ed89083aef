"""Secrets and addresses never get through, and JSON stays JSON."""

import json

import pytest

from trioproxy.codec.scrub import GONE, MOST, scrub, unquoted


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abcDEF123.",
        "Incorrect API key provided: sk-pro******f123. You can find it",
        "Incorrect API key provided: mysecret-of-no-known-form",
        "Authorization: Bearer sk-proj-abcDEF123",
        "basic sk-proj-abcDEF123",
        "see https://upstream.internal:8443/v1/chat?key=mysecret now",
        r"see https:\/\/upstream.internal\/v1\/sk-proj-abcDEF123 now",
        "wss://upstream.internal/x",
        "api_key=mysecret&x=1",
        "key AIzaSyA1234567890abcdef",
        "gsk_abc123DEF",
    ],
)
def test_what_looks_like_a_key_or_an_address_goes(text: str) -> None:
    clean = scrub(text)
    assert GONE in clean
    for secret in ("sk-pro", "mysecret", "upstream.internal", "AIzaSyA", "gsk_abc", "abcDEF123"):
        assert secret not in clean


def test_given_secrets_go_longest_first() -> None:
    assert scrub("a token-1234 b token", ["token", "token-1234", ""]) == f"a {GONE} b {GONE}"


def test_bytes_are_scrubbed_alike_and_stay_json() -> None:
    body = b'{"error":{"message":"key sk-abc123 at https://host/v1","x":"Bearer abc"},"y":"\xe4\xba\xac"}'
    clean = scrub(body, ["京"])
    assert json.loads(clean)["error"] == {"message": f"key {GONE} at {GONE}", "x": f"Bearer {GONE}"}
    assert scrub(b"\xff sk-abc123") == b"\xff " + GONE.encode()


def test_plain_words_stay() -> None:
    text = "This model's maximum context length is 8192 tokens; the risk-free token count was 9000."
    assert scrub(text) == text


def test_what_a_provider_quotes_of_a_request_goes_and_names_of_parameters_stay() -> None:
    request = json.dumps(
        {"max_completion_tokens": 9, "messages": [{"role": "user", "content": "who is Jörg from\nBerlin"}]}
    )
    said = "I will not say who is J\u00f6rg from\nBerlin: max_completion_tokens is too small for a user"
    assert unquoted(said, request.encode()) == f"I will not say {GONE}: max_completion_tokens is too small for a user"
    assert unquoted("who is Ilse from", request.encode()) == "who is Ilse from"


def test_of_a_request_that_is_too_large_to_look_through_nothing_is_told() -> None:
    assert unquoted("prompt is too long", b'"' + b"x" * MOST + b'"') == GONE
    assert unquoted("prompt is too long", b"{broken") == GONE
