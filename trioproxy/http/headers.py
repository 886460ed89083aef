"""Header hygiene: what may cross the gateway, in either direction (RFC 9110, 7.6.1).

The two sides are different trust domains. Towards a provider an allow-list decides, so that nothing a client invents
(credentials, cookies, hop-by-hop names of its own) gets there by default. Towards the client everything passes except
what belongs to one connection, to the provider's site, or to *our* account there.

Field names are lower-case and values hold no CR, LF or NUL, as a reader of `http.message` hands them over.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

Headers = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

# About the answer or its trace; none of them names who is asking. What is not here does not go: no credential, no cookie,
# no account, no framing of the client's.
FORWARDED = (b"idempotency-key", b"openai-beta", b"traceparent", b"tracestate")

NEVER_RELAYED = HOP_BY_HOP | {
    b"alt-svc",
    b"anthropic-organization-id",
    b"content-length",
    b"date",
    b"openai-organization",
    b"openai-project",
    b"retry-after",
    b"retry-after-ms",
    b"server",
    b"set-cookie",
    b"set-cookie2",
    b"strict-transport-security",
    b"via",
    b"x-reproxy-url",
    b"x-sendfile",
    b"x-should-retry",
}
NEVER_RELAYED_PREFIXES = (
    b"anthropic-fast-",
    b"anthropic-priority-",
    b"anthropic-ratelimit-",
    b"azure-openai-deployment-",
    b"cf-",
    b"ratelimit",
    b"x-accel-",  # with the two above: orders that a proxy in front of us would obey
    b"x-ms-spillover-",
    b"x-ratelimit-",
    b"x-trioproxy-",
)
RENAMED = {b"x-request-id": b"x-upstream-request-id"}  # `x-request-id` downstream is our own

MAX_VALUE = 1024  # bytes of a header value that we write ourselves
_NOT_PRINTABLE = bytes([*range(0x20), 0x7F, *range(0x80, 0xA0)])  # C0, DEL and Latin-1's C1


def forwardable(headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """What of a client's request may go to a provider: the allow-list less what Connection declares hop-by-hop."""
    found = [(name, headers[name]) for name in FORWARDED if name in headers]
    if found and b"connection" in headers:
        gone = nominated([(b"connection", headers[b"connection"])])
        found = [field for field in found if field[0] not in gone]
    return found


def relayable(headers: Headers) -> bytes:
    """What of a provider's answer goes downstream, in order, encoded as `name: value` lines that end in CRLF."""
    gone = nominated(headers)
    lines = [
        b"%b: %b\r\n" % (relayed, value)
        for name, value in headers
        if (relayed := _relayed_name(name)) is not None and name not in gone
    ]
    return b"".join(lines)


@lru_cache(maxsize=1024)  # providers send the same two dozen names for ever; a hostile one only evicts
def _relayed_name(name: bytes) -> bytes | None:
    if name in NEVER_RELAYED or name.startswith(NEVER_RELAYED_PREFIXES):
        return None
    return RENAMED.get(name, name)


def nominated(headers: Headers) -> frozenset[bytes]:
    """The names that the Connection header declares to be hop-by-hop, in lower case."""
    return frozenset(
        token.strip(b" \t") for name, value in headers if name == b"connection" for token in value.lower().split(b",")
    )


def get(headers: Headers, name: bytes) -> bytes | None:
    """The first value of `name`."""
    for found, value in headers:
        if found == name:
            return value
    return None


def joined(headers: Headers, name: bytes) -> bytes:
    """All values of a list header as the one list they mean (RFC 9110, 5.3); empty if there is none."""
    return b", ".join([value for found, value in headers if found == name])


@lru_cache(maxsize=1024)  # names of channels and models, for the most part
def safe_value(text: str) -> bytes:
    """`text` as a header value that cannot break the head: Latin-1, no control characters, at most 1 KiB."""
    return text[:MAX_VALUE].encode("latin-1", "replace").translate(None, _NOT_PRINTABLE).strip(b" ")
