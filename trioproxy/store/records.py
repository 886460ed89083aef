"""What the ledger keeps, as flat records: they go through the spool as MessagePack and end as rows.

Arrays instead of maps, because a record is written on the loop at every call: a name costs as much as a value. New fields go
to the end and have defaults, so that a spool that an older version left behind can still be read.

Times are Unix seconds, durations seconds, money micro-USD; "" and None are "there was none".
"""

import math
from typing import Any, TypeVar

import msgspec


class Began(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """An answer goes downstream. `serial` is unique over all lives of a spool, which a caller's request id is not."""

    serial: int
    at: float
    request_id: str
    channel: str
    provider_model: str
    model: str
    key_id: str
    tenant: str
    traffic_class: str
    user: str
    estimated_input: int
    estimated_output: int


class Attempted(msgspec.Struct, array_like=True, frozen=True):
    """One try at one channel. `fault` is "" for the one that answered."""

    channel: str
    model: str
    started: float
    duration: float
    fault: str
    blame: str
    status: int
    retry_after: float | None
    message: str
    reused: bool
    first_content: float | None


class Ended(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """One call. `serial` is its `Began`'s, 0 where nothing had gone downstream."""

    serial: int
    at: float
    request_id: str
    reason: str
    status: int
    endpoint: str
    model: str
    stream: bool
    key_id: str
    tenant: str
    traffic_class: str
    user: str
    input: int
    cached: int
    output: int
    estimated: bool
    cost: int | None
    duration: float
    overhead: float
    queued: float
    session: str
    arm: str
    fallback: str
    preferred_cost: int | None
    estimated_input: int
    estimated_output: int
    limiter: str
    scope: str
    note: str
    attempts: tuple[Attempted, ...]


class Transition(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """A breaker moved, or a channel was parked: `state` is then "parked"."""

    at: float
    channel: str
    was: str
    state: str
    seconds: float | None
    why: str


class Switch(msgspec.Struct, array_like=True, frozen=True, tag=4):
    at: float
    model: str
    was: str
    channel: str
    cause: str


class Probe(msgspec.Struct, array_like=True, frozen=True, tag=5):
    at: float
    channel: str
    model: str
    ok: bool
    why: str
    seconds: float
    input: int
    cached: int
    output: int
    cost: int | None


class Rollout(msgspec.Struct, array_like=True, frozen=True, tag=6):
    at: float
    model: str
    percent: int
    state: str
    why: str


class TopUp(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Money that a tenant paid in, or took out where negative."""

    at: float
    tenant: str
    micro_usd: int
    note: str


class KeyChange(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """A key was made, changed or revoked. `hash` is never the key itself."""

    at: float
    key_id: str
    hash: str
    tenant: str
    state: str
    note: str


Record = Began | Ended | Transition | Switch | Probe | Rollout | TopUp | KeyChange

Kind = TypeVar("Kind", bound=msgspec.Struct)

MOST = 2**53  # what every database and every reader of JSON takes for a whole number

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    """Never fails: what cannot be written as it is, such as half a surrogate pair, is written `cleaned`."""
    try:
        return _encode(record)
    except (ValueError, OverflowError):  # UnicodeEncodeError is a ValueError
        return _encode(cleaned(record))


def cleaned(record: Kind) -> Kind:
    """The same with every value in a form that any database takes: a record must not be lost for one odd character."""
    values = {name: _clean(getattr(record, name)) for name in record.__struct_fields__}
    return msgspec.structs.replace(record, **values)


def _clean(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode().replace("\0", "")
        case bool() | None:
            return value
        case int():
            return max(-MOST, min(value, MOST))
        case float():
            return value if math.isfinite(value) else 0.0
        case tuple():
            return tuple(map(_clean, value))
        case msgspec.Struct():
            return cleaned(value)
        case _:
            return value


def decode(payload: bytes) -> Record:
    """Raises `msgspec.DecodeError` for what no version of this has written."""
    return _decoder.decode(payload)
