"""What may cross the gateway in a header, and what may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.http.headers import HOP_BY_HOP, forwardable, get, joined, nominated, relayable, safe_value

CREDENTIALS = [
    b"authorization",
    b"x-api-key",
    b"x-goog-api-key",
    b"api-key",
    b"cookie",
    b"host",
    b"openai-organization",
    b"openai-project",
    b"proxy-authorization",
    b"te",
    b"transfer-encoding",
    b"content-length",
]


def test_only_what_is_allowed_goes_to_a_provider() -> None:
    allowed = {b"traceparent": b"00-1", b"idempotency-key": b"k", b"openai-beta": b"x", b"tracestate": b"t"}
    others = {b"user-agent": b"u", b"x-secret": b"1", b"accept-encoding": b"gzip"}
    assert dict(forwardable(allowed | others)) == allowed
    assert forwardable(others) == []


@pytest.mark.parametrize("name", [*CREDENTIALS, *sorted(HOP_BY_HOP)])
def test_credentials_and_framing_never_go(name: bytes) -> None:
    assert forwardable({name: b"v"}) == []


def test_what_connection_nominates_stays() -> None:
    fields = {
        b"connection": b"keep-alive, X-Secret, Accept\t,,traceparent",
        b"traceparent": b"t",
        b"tracestate": b"kept",
    }
    assert forwardable(fields) == [(b"tracestate", b"kept")]
    assert nominated([*fields.items()]) >= {b"keep-alive", b"x-secret", b"accept", b"traceparent"}


def test_an_answer_passes_as_header_lines_in_order() -> None:
    fields = [
        (b"content-type", b"text/event-stream"),
        (b"content-encoding", b"gzip"),
        (b"openai-version", b"1"),
        (b"x", b""),
    ]
    assert (
        relayable(fields)
        == b"content-type: text/event-stream\r\ncontent-encoding: gzip\r\nopenai-version: 1\r\nx: \r\n"
    )
    assert relayable([]) == b""


@pytest.mark.parametrize(
    "name",
    [
        *sorted(HOP_BY_HOP),
        b"content-length",
        b"set-cookie",
        b"openai-organization",
        b"openai-project",
        b"x-ratelimit-remaining-tokens",
        b"ratelimit",
        b"ratelimit-policy",
        b"anthropic-ratelimit-requests-limit",
        b"anthropic-organization-id",
        b"retry-after",
        b"retry-after-ms",
        b"x-should-retry",
        b"server",
        b"date",
        b"alt-svc",
        b"strict-transport-security",
        b"via",
        b"cf-ray",
        b"x-trioproxy-channel",
    ],
)
def test_what_belongs_to_the_connection_the_site_or_our_account_is_not_relayed(name: bytes) -> None:
    assert relayable([(name, b"v"), (b"x-kept", b"1")]) == b"x-kept: 1\r\n"


def test_what_an_answers_connection_nominates_is_not_relayed() -> None:
    assert relayable([(b"x-private", b"1"), (b"connection", b"X-Private"), (b"x-kept", b"2")]) == b"x-kept: 2\r\n"


def test_the_providers_request_id_gets_another_name() -> None:
    assert relayable([(b"x-request-id", b"req_1")]) == b"x-upstream-request-id: req_1\r\n"


def test_a_provider_that_invents_names_is_relayed_the_same_for_ever() -> None:
    """The memory for names is bounded; forgetting one changes no verdict."""
    for number in range(3000):
        assert relayable([(b"x-%d" % number, b"v")]) == b"x-%d: v\r\n" % number
    assert relayable([(b"set-cookie", b"v")]) == b""


def test_get_is_the_first_value_and_joined_all_of_them() -> None:
    fields = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    assert get(fields, b"a") == b"1"
    assert get(fields, b"c") is None
    assert joined(fields, b"a") == b"1, 3"
    assert joined(fields, b"c") == b""


def test_a_safe_value_keeps_what_latin_1_has() -> None:
    assert safe_value(" na\r\nïve\x00 €\x7f\x85 ") == b"na\xefve ?"


@given(st.text(max_size=3000))
def test_a_safe_value_never_breaks_the_head(text: str) -> None:
    value = safe_value(text)
    assert len(value) <= 1024
    assert all(byte >= 0x20 and not 0x7F <= byte < 0xA0 for byte in value)
    assert value == value.strip()
