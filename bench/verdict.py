"""Whether an answer is complete and is the answer to this very request: the only kind that counts.

An answer must carry its request's marker; a stream must have every content frame once and in order, a finish reason and
exactly one end, last. Pure; bytes may come in any split.
"""

import re

from attrs import define, field

CONTENT = re.compile(rb'"(?:content|text)"\s*:\s*"([0-9a-f]{8})\.(\d{5}) ')
FINISH = re.compile(rb'"(?:finish_reason|stop_reason)"\s*:\s*"(?:stop|end_turn)"')
ENDS = {"openai": b"data: [DONE]", "anthropic": b'data: {"type":"message_stop"'}


@define(eq=False)
class UnaryVerdict:
    """Judges a whole JSON answer."""

    marker: bytes
    pieces: list[bytes] = field(factory=list, init=False)

    def feed(self, data: bytes) -> int:
        """Take a piece of the body; the number of content frames in it, which is none."""
        self.pieces.append(data)
        return 0

    def fault(self) -> str | None:
        """What is wrong with the answer, once it has ended; None when nothing is."""
        body = b"".join(self.pieces)
        found = CONTENT.search(body)
        if not found or not FINISH.search(body):
            return "incomplete answer"
        return None if found[1] == self.marker else "another call's answer"


@define(eq=False)
class StreamVerdict:
    """Judges a stream as it comes."""

    marker: bytes
    chunks: int
    end: bytes
    seen: int = field(default=0, init=False)
    rest: bytes = field(default=b"", init=False)
    finished: bool = field(default=False, init=False)
    ends: int = field(default=0, init=False)
    wrong: str | None = field(default=None, init=False)

    def feed(self, data: bytes) -> int:
        """Take a piece of the body; the number of content frames that it completed."""
        data = self.rest + data
        cut = data.rfind(b"\n\n") + 2
        if cut < 2:
            self.rest = data
            return 0
        self.rest = data[cut:]
        return self.judge(data[:cut])

    def judge(self, frames: bytes) -> int:
        """Check whole frames."""
        contents = CONTENT.findall(frames)
        count = len(contents)
        if self.ends or (self.finished and contents):
            self.wrong = self.wrong or "frames after the end"
        if [(self.marker, b"%05d" % number) for number in range(self.seen, self.seen + count)] != contents:
            others = any(marker != self.marker for marker, _ in contents)
            self.wrong = self.wrong or ("another call's answer" if others else "frames lost or out of order")
        self.seen += count
        if count < 2 and self.seen < self.chunks:
            # The common case, a frame at a time: only an error would be of interest, and it shows as a missing frame.
            return count
        self.finished = self.finished or FINISH.search(frames) is not None
        self.ends += frames.count(self.end)
        return count

    def fault(self) -> str | None:
        """What is wrong with the stream, once it has ended; None when nothing is."""
        if self.rest:
            rest, self.rest = self.rest, b""
            self.judge(rest)
        if self.wrong:
            return self.wrong
        if self.seen != self.chunks:
            return "frames missing"
        if not self.finished:
            return "no finish reason"
        return None if self.ends == 1 else f"{self.ends} ends of stream"


Verdict = UnaryVerdict | StreamVerdict
