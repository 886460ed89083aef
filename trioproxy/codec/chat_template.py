"""The hot path of a stream: recognise the next frame by how it differs from the last one.

The frames of one stream are alike but for a few strings: the token, and OpenAI's random padding. A `Template` is a frame
that was judged exactly, cut at those strings. Bytes that repeat it, with other non-empty text in the same places, mean the
same: every quote in the text is escaped, so it is still one JSON string, and no field that decides anything is in there. Whatever
differs otherwise is not recognised and is judged exactly. No assumption about spacing or order of keys is needed.

Two searches per frame, 0.15 µs; decoding the same frame costs 0.6 µs and cutting it out another 0.3.
"""

import re
from typing import Self

from attrs import frozen

# Strings of which only "empty or not" matters to a verdict. In valid JSON the pattern matches a key and its value only:
# within a string a quote has a backslash before it.
_SLOT = re.compile(
    rb'"(?:content|reasoning_content|reasoning|text|arguments|obfuscation)":\s?"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL
)

_BACKSLASH = ord("\\")


@frozen(eq=False)
class Template:
    """`head`, then a string, then each of `seams` after one; the last seam is the end of the frame, `tail`."""

    head: bytes
    seams: tuple[bytes, ...]  # between two slots of one frame; the last one leads into the next frame
    tail: bytes

    @classmethod
    def from_frame(cls, raw: bytes) -> Self | None:
        """From a frame that was judged content, blank line included; None if it has no place for a token."""
        pieces = []
        at = 0
        for slot in _SLOT.finditer(raw):
            start, end = slot.span(1)
            if start == end:
                continue
            pieces.append(raw[at:start])
            at = end
        if not pieces:
            return None
        head, *inner = pieces
        tail = raw[at:]
        return cls(head, (*inner, tail + head), tail)

    def after_head(self) -> tuple[bytes, ...]:
        """All that is fixed behind the first slot of one frame."""
        return (*self.seams[:-1], self.tail)

    def run(self, data: bytes, at: int) -> int:
        """Where the run of such frames that begins at `at` ends; `at` itself if the first is another kind."""
        while data.startswith(self.head, at):
            begin = self._plain(data, at)
            at = self._one(data, begin)
            if at == begin:
                break
        return at

    def _plain(self, data: bytes, at: int) -> int:
        """Past the frames whose text has no quote and that another one follows: the loop that bursts are made of."""
        seams, skip = self.seams, len(self.head)
        find, follows = data.find, data.startswith
        here = at + skip
        while True:
            for seam in seams:
                quote = find(b'"', here)
                if quote <= here or not follows(seam, quote):
                    return at
                here = quote + len(seam)
            at = here - skip

    def _one(self, data: bytes, at: int) -> int:
        """Past one frame, escaped quotes in its text or not; `at` itself if it is another kind. The head was seen."""
        here = at + len(self.head)
        for closing in self.after_head():
            quote = data.find(b'"', here)
            if quote == here:
                return at
            while not data.startswith(closing, quote):
                if quote < 0 or data[quote - 1] != _BACKSLASH:
                    return at
                quote = data.find(b'"', quote + 1)
            here = quote + len(closing)
        return here
