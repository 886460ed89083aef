"""What a single value of the configuration must be, as attrs validators that stand beside the fields in `config.model`.

A rule raises ValueError with a sentence that names the value, the limit and what to do. It looks at the value alone, never
at the instance: the loader runs each rule by itself, so that one bad field does not hide the next. What must hold between
fields is in `config.consistency`. A value that may hold a credential is never shown.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from attrs import frozen

from trioproxy.journal import AlertCause
from trioproxy.policy.breaker import PRESETS, BreakerPolicy

Rule = Callable[[Any, Any, Any], None]  # (instance, attribute, value), as attrs calls it

SHOWN = 60  # characters of a value in a message
NAME = re.compile(r"[A-Za-z0-9._:/@+-]{1,128}")  # may stand in a header, a log line and a metric label as it is
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2
FIELD_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")  # RFC 9110 section 5.5, without obs-text
HOST = re.compile(r"[A-Za-z0-9._-]{1,253}")
KEY_HASH = re.compile(r"sha256:[0-9a-f]{64}")
RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
# What the gateway itself says to the upstream: framing and routing (RFC 9112), and the codings that it can read.
OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer"})
OWN_HEADERS |= {"upgrade", "expect", "accept-encoding"}
CAUSES = tuple(cause.value for cause in AlertCause if cause is not AlertCause.TEST)


def shown(value: object) -> str:
    """The value as TOML would write it, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def at_least(low: float) -> Rule:
    def check(_instance: Any, _attribute: Any, value: Any) -> None:
        if not isinstance(value, int | float) or not value >= low:
            raise ValueError(f"{shown(value)} is too little: give at least {low:g}")

    return check


def between(low: int, high: int) -> Rule:
    def check(_instance: Any, _attribute: Any, value: Any) -> None:
        if not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{shown(value)} is out of range: give {low} to {high}")

    return check


def positive(_instance: Any, _attribute: Any, value: Any) -> None:
    if not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{shown(value)} is not a time to wait: give more than 0 seconds")


def share(_instance: Any, _attribute: Any, value: Any) -> None:
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"{shown(value)} is no share: give more than 0, at most 1")


def below_one(_instance: Any, _attribute: Any, value: Any) -> None:
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{shown(value)} is no share: give 0 or more, and less than 1")


def each(rule: Rule) -> Rule:
    """The rule for every element; the message counts them from 0."""

    def check(instance: Any, attribute: Any, value: Any) -> None:
        for index, element in enumerate(value):
            try:
                rule(instance, attribute, element)
            except ValueError as exc:
                raise ValueError(f"element {index}: {exc}") from None

    return check


def name(_instance: Any, _attribute: Any, value: str) -> None:
    if not NAME.fullmatch(value):
        raise ValueError(f"{shown(value)} is no name: give 1 to 128 of the characters A-Z a-z 0-9 . _ : / @ + -")


def model_name(_instance: Any, _attribute: Any, value: str) -> None:
    """A model's name, or a pattern with one "*"."""
    if not 1 <= len(value) <= 256 or not value.isprintable() or value != value.strip():
        raise ValueError(f"{shown(value)} is no model name: give 1 to 256 printable characters, no space at the ends")
    pattern(_instance, _attribute, value)


def not_blank(_instance: Any, _attribute: Any, value: str) -> None:
    if not value.strip():
        raise ValueError(f"{shown(value)} says nothing: give the text that callers get")


def printable(_instance: Any, _attribute: Any, value: str) -> None:
    if not value.isprintable() or len(value) > 256:
        raise ValueError(f"{shown(value)} is no name: give at most 256 printable characters")


def growing_percentages(_instance: Any, _attribute: Any, value: tuple[int, ...]) -> None:
    if not value or list(value) != sorted(set(value)) or not 1 <= value[0] <= value[-1] <= 100:
        raise ValueError(f"{shown(list(value))} are no steps: give growing percentages from 1 to 100")


def socket_path(_instance: Any, _attribute: Any, value: str) -> None:
    # sun_path of unix(7) holds 108 bytes, the last one NUL
    if not value.startswith("/") or "\0" in value or len(value.encode()) > 107:
        raise ValueError(f"{shown(value)} is no place for a socket: give an absolute path of at most 107 bytes")


def pattern(_instance: Any, _attribute: Any, value: str) -> None:
    if not value:
        raise ValueError('"" matches nothing: give a name or a pattern such as "openai/*"')
    if value.count("*") > 1:
        raise ValueError(f'{shown(value)} has {value.count("*")} "*": a pattern may have one')


def base_url(_instance: Any, _attribute: Any, value: str) -> None:
    try:
        url = urlsplit(value)
        port = url.port
    except ValueError as exc:
        raise ValueError(f"this is no URL ({exc}): give one such as https://api.openai.com/v1") from None
    if url.username is not None or url.password is not None:  # not shown: it may hold a credential
        raise ValueError("a URL with user:password@ shows the credential in logs: put it in api_key")
    if url.scheme not in ("http", "https"):
        raise ValueError(f"{shown(value)} has no http:// or https://: give a URL such as https://api.openai.com/v1")
    if not _is_host(url.hostname or ""):
        raise ValueError(f"{shown(value)} names no host: give a URL such as https://api.openai.com/v1")
    if port == 0:
        raise ValueError(f"{shown(value)} has port 0: give 1 to 65535, or leave it out")
    if "#" in value:
        raise ValueError(f"{shown(value)} has a fragment: take away the # and what follows")
    if not re.fullmatch(r"[\x21-\x7e]*", value):
        raise ValueError(f"{shown(value)} has a character that a URL may not have: percent-encode it")


def webhook(_instance: Any, _attribute: Any, value: Any) -> None:
    """A URL to post to. Never shown: many services put their credential into its path."""
    if value is None:
        return
    try:
        url = urlsplit(value)
        named = _is_host(url.hostname or "") and url.port != 0
    except ValueError as exc:
        raise ValueError(f"this is no URL ({exc}): give one such as https://hooks.example.com/alerts") from None
    if url.scheme not in ("http", "https") or not named or not re.fullmatch(r"[\x21-\x7e]*", value):
        raise ValueError("this is no URL to post to: give one such as https://hooks.example.com/alerts")
    if url.username is not None or url.password is not None or url.fragment:
        raise ValueError("user:password@ and # are not sent: take them out, and sign with secret")


def cause(_instance: Any, _attribute: Any, value: str) -> None:
    if value != "*" and value not in CAUSES:
        near = get_close_matches(value, CAUSES, n=1)
        meant = f"did you mean {shown(near[0])}?" if near else f"known are {', '.join(CAUSES)}"
        raise ValueError(f'{shown(value)} is no cause of an alert; {meant}; "*" is all of them')


def told(cause: str, chosen: Collection[str]) -> bool:
    """Whether a list of causes takes this one."""
    return "*" in chosen or cause in chosen


def headers(_instance: Any, _attribute: Any, value: Mapping[str, str]) -> None:
    """Names and values that HTTP allows and that the gateway does not set itself."""
    for key, content in value.items():
        if not TOKEN.fullmatch(key):
            raise ValueError(f"{shown(key)} is no header name: use letters, digits and -")
        if key.lower() in OWN_HEADERS:
            raise ValueError(f"{shown(key)} is set by the gateway itself: take it out")
        if not FIELD_VALUE.fullmatch(content):  # not shown: it may hold a credential
            raise ValueError(f"the value of {shown(key)} is empty, has a space at an end, or is not printable ASCII")
    if len({key.lower() for key in value}) < len(value):
        raise ValueError("two names differ only in upper and lower case: give each header once")


def holds_credential(header: str) -> bool:
    """Whether a header of this name is likely to hold a credential."""
    return any(word in header.lower() for word in ("auth", "key", "token", "secret", "cookie"))


def names_only(value: Mapping[str, str]) -> str:
    """For a `repr`: the headers' names without what they hold."""
    return f"<{', '.join(value) or 'none'}>"


def key_hash(_instance: Any, _attribute: Any, value: str) -> None:
    if not KEY_HASH.fullmatch(value):  # not shown: it may be the key itself
        raise ValueError('this is not "sha256:" and 64 hex digits in lower case: make it with `trioproxy keys hash`')


def expiry(_instance: Any, _attribute: Any, value: str | None) -> None:
    if value is not None:
        moment(value)


def one_source(_instance: Any, _attribute: Any, value: Any) -> None:
    """Exactly one place where a `Secret` is found, and not an empty one."""
    if value is None:
        return
    given = [place for place in ("env", "file", "value") if getattr(value, place) is not None]
    if len(given) != 1:
        found = " and ".join(given) if given else "nothing"
        raise ValueError(f'{found} given: say where the key is once, such as {{ env = "OPENAI_API_KEY" }}')
    if not getattr(value, given[0]):
        raise ValueError(f'{given[0]} is "": say where the key is, such as {{ env = "OPENAI_API_KEY" }}')


def preset(_instance: Any, _attribute: Any, value: str | BreakerPolicy | None) -> None:
    if isinstance(value, str) and value not in PRESETS:
        raise ValueError(f"{shown(value)} is no breaker preset: give one of {', '.join(map(shown, PRESETS))}")


def address(_instance: Any, _attribute: Any, value: str) -> None:
    Address.of(value)


def not_empty(_instance: Any, _attribute: Any, value: Any) -> None:
    if not value:
        raise ValueError("the list is empty: give at least one")


def moment(text: str) -> datetime:
    """An RFC 3339 time with its offset. Raises ValueError with what to write instead."""
    if RFC3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError as exc:
            raise ValueError(f"{shown(text)} is no time ({exc})") from None
    raise ValueError(f"{shown(text)} is no RFC 3339 time: write it as 2027-01-31T00:00:00Z")


@frozen
class Address:
    """Where to listen: a host and a port, or the path of a Unix socket."""

    host: str
    port: int
    path: str | None = None

    @classmethod
    def of(cls, text: str) -> "Address":
        """Read `host:port`, `[v6]:port` or `unix:/path`. Raises ValueError with what to write instead."""
        if text.startswith("unix:"):
            path = text.removeprefix("unix:")
            if not path.startswith("/") or "\0" in path:
                raise ValueError(f"{shown(text)} needs an absolute path: write unix:/run/trioproxy.sock")
            return cls("", 0, path)
        host, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or int(port[:6]) > 65_535:
            raise ValueError(f"{shown(text)} has no port from 0 to 65535: write it as 127.0.0.1:8787")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if (":" in bare) != (bare != host) or not _is_host(bare):
            raise ValueError(f"{shown(text)} is no address: write host:port, [v6]:port or unix:/path")
        return cls(bare, int(port))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.path is not None or is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, by its name or its number; no lookup is made."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")  # RFC 6761


def _is_host(host: str) -> bool:
    if ":" not in host:
        return HOST.fullmatch(host) is not None
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
