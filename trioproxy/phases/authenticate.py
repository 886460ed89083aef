"""Who asks: a bearer token or `x-api-key`, known to us by its hash only.

The presented key is hashed with SHA-256 and the digest is looked up. What the look-up's timing could tell is about a
digest that a caller cannot choose, so it is as good as a constant-time comparison of the key itself.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime

from attrs import define, field, frozen

from trioproxy.call import Caller
from trioproxy.config.model import Key
from trioproxy.errors import Refusal, RefusalKind

ANONYMOUS = Caller("anonymous", "default")


@frozen
class _Entry:
    caller: Caller
    expires: float | None


@define(eq=False)
class Keyring:
    """The keys that are known. Without any, everybody is `anonymous`: a sidecar on loopback."""

    _entries: dict[bytes, _Entry] = field(factory=dict, repr=False)

    @classmethod
    def of(cls, keys: Iterable[Key]) -> "Keyring":
        entries = {}
        for key in keys:
            expires = None if key.expires is None else datetime.fromisoformat(key.expires).timestamp()
            caller = Caller(key.id, key.tenant, key.models, key.classes, key.endpoints)
            entries[bytes.fromhex(key.hash.removeprefix("sha256:"))] = _Entry(caller, expires)
        return cls(entries)

    def named(self, key_id: str, wall: float) -> Caller:
        """The caller with this id, who showed its key before. Raises `Refusal` where it is good no more."""
        if not self._entries and key_id == ANONYMOUS.key_id:
            return ANONYMOUS
        entry = next((each for each in self._entries.values() if each.caller.key_id == key_id), None)
        if entry is None:
            raise Refusal(RefusalKind.INVALID_KEY, f"the API key {key_id!r} is no key of this gateway any more")
        return _good(entry, wall)

    def caller(self, headers: Mapping[bytes, bytes], wall: float) -> Caller:
        """The caller behind these headers. `wall` is Unix seconds. Raises `Refusal`."""
        if not self._entries:
            return ANONYMOUS
        key = _presented(headers)
        entry = self._entries.get(hashlib.sha256(key).digest()) if key else None
        if entry is None:
            hint = "send it as 'Authorization: Bearer …' or 'x-api-key'" if not key else "check the key"
            raise Refusal(RefusalKind.INVALID_KEY, f"no valid API key in the request; {hint}")
        return _good(entry, wall)


def _good(entry: _Entry, wall: float) -> Caller:
    if entry.expires is not None and wall >= entry.expires:
        raise Refusal(RefusalKind.KEY_EXPIRED, f"the API key {entry.caller.key_id!r} has expired; ask for a new one")
    return entry.caller


def _presented(headers: Mapping[bytes, bytes]) -> bytes:
    authorization = headers.get(b"authorization")
    if authorization is not None:
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() == b"bearer":
            return token.strip()
    return headers.get(b"x-api-key", b"").strip()
