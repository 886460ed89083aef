"""Server-sent events, the WHATWG grammar in full, from bytes in any split.

Two steps. `Framer` finds where events end (a blank line; lines end with LF, CRLF or CR, in any mix) and gives out whole
events only, so that whoever relays them is always between two events. `parse` reads the fields of one. Bytes are never
decoded here, so a character cut in two by the network is no concern.

A leading byte-order mark belongs to the encoding, not to the events: it is dropped.
"""

import re

from attrs import define, field

BOM = b"\xef\xbb\xbf"
# An event larger than this while incomplete is an attack or a mistake; the largest honest chat chunk carries one
# tool call whole. httpx2 bounds at 1 MiB, which audio deltas exceed.
LIMIT = 4 * 1024 * 1024

_LINE = re.compile(rb"\r\n|\n|\r")
# Two line ends in a row. A CR at the very end may be half a CRLF, so it waits for the next byte, but for streams
# that use bare CR: there it ends the event, and an LF after it is an empty line.
_BLANK = re.compile(rb"(?>\r\n|\n)(?>\r\n|\n|\r(?!\Z))|\r(?!\n)(?>\r\n|\r)")
_ALONE = re.compile(rb"(?:\r\n|\n|\r(?!\Z))+")  # blank lines where an event might begin
_OVERLAP = 3  # the longest blank line, CR LF CR LF, less one


class EventTooLong(Exception):
    """An event grew over the limit before it ended. `limit` is in bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"one event of the stream is longer than {limit} bytes")
        self.limit = limit


@define(eq=False)
class Event:
    """One event. `raw` is its exact bytes, blank line included; `data` its data lines joined; `event` its name."""

    raw: bytes
    data: bytes
    event: bytes = b""


@define(eq=False)
class Framer:
    """Cuts a byte stream between events. Linear: what was searched once is not searched again."""

    limit: int = LIMIT
    _pending: bytearray = field(init=False, factory=bytearray)
    _carriage: bool = field(init=False, default=False)  # a CR was seen: the slow search from now on
    _opening: bytes | None = field(init=False, default=b"")  # what may yet be a byte-order mark; None = past it

    def cut(self, data: bytes) -> bytes:
        """All whole events that are there now, as one run of bytes. The rest is kept. Raises `EventTooLong`."""
        if self._opening is not None:
            data = self._open(data)
        if b"\r" in data:
            self._carriage = True
        pending = self._pending
        if not pending and data.endswith((b"\n\n", b"\r\n\r\n")):
            return data
        searched = max(0, len(pending) - _OVERLAP)
        pending += data
        end = self._last_end(searched)
        if len(pending) - end > self.limit:
            raise EventTooLong(self.limit)
        if not end:
            return b""
        with memoryview(pending) as view:
            whole = bytes(view[:end])
        del pending[:end]
        return whole

    def end_of(self, whole: bytes, at: int) -> int:
        """Where the event that begins at `at` ends, in a run that `cut` gave. A blank line between two is one alone."""
        if whole[at] in b"\r\n":
            return at + (2 if whole.startswith(b"\r\n", at) else 1)
        if self._carriage:
            blank = _BLANK.search(whole, at)
            return blank.end() if blank else len(whole)
        end = whole.find(b"\n\n", at)
        return end + 2 if end >= 0 else len(whole)

    def close(self) -> bytes:
        """What is left at the end of the stream, unterminated."""
        rest = bytes(self._pending)
        self._pending.clear()
        return rest

    def _open(self, data: bytes) -> bytes:
        data = (self._opening or b"") + data
        if len(data) < len(BOM) and BOM.startswith(data):
            self._opening = data
            return b""
        self._opening = None
        return data.removeprefix(BOM)

    def _last_end(self, searched: int) -> int:
        end = 0
        if not self._carriage:
            end = self._pending.rfind(b"\n\n", searched) + 2
            end = end if end > 1 else 0
        else:
            for blank in _BLANK.finditer(self._pending, searched):
                end = blank.end()
        alone = None if end else _ALONE.match(self._pending)
        return alone.end() if alone else end


def parse(raw: bytes) -> Event:
    """The fields of one event, with or without its blank line. Comments and unknown fields are passed over."""
    if raw.startswith(b"data: ") and raw.endswith(b"\n\n") and raw.find(b"\n") == len(raw) - 2 and b"\r" not in raw:
        return Event(raw, raw[6:-2])
    lines = []
    name = b""
    for line in _LINE.split(raw):
        label, _, value = line.partition(b":")
        if label == b"data":
            lines.append(value.removeprefix(b" "))
        elif label == b"event":
            name = value.removeprefix(b" ")
    return Event(raw, b"\n".join(lines), name)


def complete(raw: bytes) -> bytes:
    """An unterminated event with the blank line that it lacks."""
    return raw + (b"\n" if raw.endswith(b"\n") else b"\n\n")


def events(body: bytes) -> list[Event]:
    """All events of a whole body; a last one without its blank line is taken too."""
    framer = Framer(limit=len(body))
    whole = framer.cut(body)
    found = []
    at = 0
    while at < len(whole):
        end = framer.end_of(whole, at)
        found.append(parse(whole[at:end]))
        at = end
    rest = framer.close()
    if rest.strip():
        found.append(parse(complete(rest)))
    return found
