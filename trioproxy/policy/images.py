"""What an image costs, from its size and the rules of the model that looks at it.

The size comes from the header inside the base64 text, read at a few places without decoding the rest: byte `n` of a file
stands in characters `n // 3 * 4` of its base64. A size that cannot be told (an image behind a URL) is assumed, generously;
settlement corrects it.
"""

import math
import re
from binascii import Error, a2b_base64
from collections.abc import Callable
from typing import Literal, Protocol

from attrs import frozen

from trioproxy.codec.jsonsplice import Span

Size = tuple[int, int]  # width, height in pixels
Detail = Literal["low", "high", "original", "auto"]
Peek = Callable[[int, int], bytes]  # offset, count → bytes of the file, fewer at its end

HEAD = 128 * 1024  # characters of base64 in which a header must stand: a JPEG's comes after thumbnails and profiles
SEGMENTS = 32  # of a JPEG that are passed over
LARGEST = 65_535  # pixels a side; more is not believed
_SCHEME = re.compile(rb"data:[\w.+/;=-]{0,100}?;base64,")
# JPEG: a start of frame holds the size; C4, C8 and CC in its range are tables.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Rule(Protocol):
    """Tokens of one image. `size` is None where it is unknown."""

    def tokens(self, size: Size | None, detail: Detail) -> int: ...


@frozen
class Tiles:
    """OpenAI until gpt-5: a base, and so much for every 512-pixel tile of the image fitted to 2048² and then 768 across."""

    base: int
    tile: int

    def tokens(self, size: Size | None, detail: Detail) -> int:
        if detail == "low":
            return self.base
        if size is None:
            return self.base + 6 * self.tile  # 1,105 for gpt-4o: a portrait photograph
        width, height = _fitted(size, 2048)
        scale = min(1.0, 768 / min(width, height))
        return self.base + self.tile * _grid((width * scale, height * scale), 512)


@frozen
class Patches:
    """OpenAI since: 32-pixel patches times a factor, scaled down to a budget. `high` and `original` are (patches, side)."""

    factor: float
    high: tuple[int, int] = (1536, 2048)
    original: tuple[int, int] | None = None
    auto: Literal["high", "original"] = "high"

    def tokens(self, size: Size | None, detail: Detail) -> int:
        if size is None:
            return max(1100, math.ceil(1024 * self.factor))
        wanted = self.auto if detail == "auto" else detail
        budget, side = self.original if self.original and wanted == "original" else self.high
        return math.ceil(self._patches(_fitted(size, side), budget) * self.factor)

    def _patches(self, size: tuple[float, float], budget: int) -> int:
        patches = _grid(size, 32)
        if patches <= budget:
            return patches
        across, down = size[0] / 32, size[1] / 32
        scale = math.sqrt(budget / (across * down))
        # Scaled down a little further, until the side that is nearer to it is of whole patches.
        whole = [max(1, math.floor(side * scale)) / (side * scale) for side in (across, down)]
        return min(budget, _grid((size[0] * scale * min(whole), size[1] * scale * min(whole)), 32))


@frozen
class Capped:
    """Anthropic: 28-pixel patches of the image fitted to a side, and never more than so many."""

    side: int
    most: int

    def tokens(self, size: Size | None, detail: Detail) -> int:
        return self.most if size is None else min(self.most, _grid(_fitted(size, self.side), 28))


@frozen
class Flat:
    """Gemini 3 and later: one figure, whatever the size."""

    each: int

    def tokens(self, size: Size | None, detail: Detail) -> int:
        return self.each


@frozen
class Crops:
    """Gemini 2: one figure for a small image and for every 768-pixel tile of a larger one."""

    each: int

    def tokens(self, size: Size | None, detail: Detail) -> int:
        if size is None:
            return 4 * self.each
        return self.each if max(size) <= 384 else self.each * _grid(size, 768)


def size_of(body: bytes, span: Span) -> Size | None:
    """Pixels of the image whose base64 (with or without `data:`) stands at `span`; None for anything unreadable."""
    start, end = span
    end = min(end, start + HEAD)
    # Some writers escape every slash, which would shift what stands behind it; base64 has one in 64 characters.
    if body.find(b"\\", start, min(end, start + 1024)) >= 0:
        body = body[start:end].replace(b"\\/", b"/")
        start, end = 0, len(body)
    scheme = _SCHEME.match(body, start, end)
    begin = scheme.end() if scheme else start

    def peek(offset: int, count: int) -> bytes:
        first = begin + offset // 3 * 4
        quads = body[first : min(end, first + (count + 2) // 3 * 4 + 4)]
        try:
            return a2b_base64(quads[: len(quads) // 4 * 4])[offset % 3 :][:count]
        except Error:
            return b""

    return _size(peek)


def _size(peek: Peek) -> Size | None:
    start = peek(0, 30)
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        found = _pair(start[16:20], start[20:24])
    elif start.startswith((b"GIF87a", b"GIF89a")):
        found = _pair(start[7:5:-1], start[9:7:-1])
    elif start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        found = _webp(start)
    else:
        found = _jpeg(peek) if start.startswith(b"\xff\xd8") else (0, 0)
    return found if min(found) > 0 and max(found) <= LARGEST else None


def _webp(start: bytes) -> Size:
    form = start[12:16]
    if form == b"VP8X":
        return _pair(start[26:23:-1], start[29:26:-1], more=1)
    if form == b"VP8L":
        bits = int.from_bytes(start[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8 " and start[23:26] == b"\x9d\x01\x2a":
        width, height = _pair(start[27:25:-1], start[29:27:-1])
        return width & 0x3FFF, height & 0x3FFF  # the two upper bits are a scale
    return 0, 0


def _jpeg(peek: Peek) -> Size:
    at = 2
    for _ in range(SEGMENTS):
        head = peek(at, 9)
        if len(head) < 9 or head[0] != 0xFF:
            break
        if head[1] in _FRAMES:
            return _pair(head[7:9], head[5:7])
        # A marker may be preceded by any number of fill bytes.
        at += 1 if head[1] == 0xFF else 2 + int.from_bytes(head[2:4])
    return 0, 0


def _pair(width: bytes, height: bytes, more: int = 0) -> Size:
    return int.from_bytes(width) + more, int.from_bytes(height) + more


def _fitted(size: tuple[float, float], side: int) -> tuple[float, float]:
    scale = min(1.0, side / max(size))
    return size[0] * scale, size[1] * scale


def _grid(size: tuple[float, float], cell: int) -> int:
    # Scaling leaves 768.0000000001 where 768 is meant.
    return math.ceil(size[0] / cell - 1e-9) * math.ceil(size[1] / cell - 1e-9)
