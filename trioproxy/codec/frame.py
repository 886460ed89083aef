"""What the dialects share: frames of a stream, facts of a request, and the verbs every codec has.

Gate, relay, settle and classifier know these and never JSON. A frame keeps the exact bytes it came as, so that what is
relayed is what was sent.
"""

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from attrs import define, field, frozen
from msgspec import Struct

from trioproxy.codec.problem import Problem
from trioproxy.errors import Fault
from trioproxy.journal import Usage


class Kind(enum.Enum):
    """What a frame means to the gate (provider deviations are the codec's business)."""

    NEUTRAL = "neutral"  # role-only delta, ping, comment, usage: decides nothing
    CONTENT = "content"  # decisive: the model said something
    FINISH = "finish"  # the model ended its answer (finish_reason), with or without content in the same frame
    ERROR = "error"  # decisive: an error inside the stream
    END = "end"  # the terminator (`[DONE]`)
    SUSPECT = "suspect"  # unreadable: an error before content, relayed untouched after it


@define(eq=False)
class Frame:
    """One event of a stream. `raw` spans its bytes, the blank line included."""

    raw: bytes
    kind: Kind
    content: bool = False  # carries decisive content, whatever the kind
    usage_only: bool = False  # the usage frame that we asked for and the client may not have
    fault: Fault | None = None


NOTHING_IN_IT: Mapping[str, tuple[int, int]] = MappingProxyType({})


class Facts(Struct, frozen=True):
    """What a request body says, as far as the line needs it. Sizes are bytes, caps are tokens."""

    model: str
    stream: bool = False
    wants_usage: bool = False  # the client asked for the usage frame itself
    output_cap: int | None = None
    user: str | None = None
    choices: int = 1  # `n`: how many answers must finish
    members: Mapping[str, tuple[int, int]] = NOTHING_IN_IT  # top-level key → span of its value

    def __repr__(self) -> str:
        """Without the names in the body."""
        return f"Facts({self.model!r}, stream={self.stream}, output_cap={self.output_cap})"


class StreamReader(Protocol):
    """Reads one upstream stream, in whatever pieces the bytes come.

    Before commit `gated` gives frames, judged, up to the one that decides, and `feed` gives every frame. After commit
    `follow` gives the bytes that may go downstream and looks only for what settle needs. They may be mixed; the order is
    the caller's. After any of them, the attributes tell what has been seen so far.
    """

    usage: Usage | None
    finished: bool  # every choice has its finish_reason
    ended: bool  # the terminator was seen; nothing may follow it
    content: bool  # decisive content was seen
    fault: Fault | None  # an error frame was seen
    refused: bool  # the model, or its provider's filter, would not answer
    output_bytes: int  # bytes of content frames, for an estimate where usage never comes

    def feed(self, data: bytes) -> list[Frame]: ...
    def gated(self, data: bytes) -> list[Frame]: ...
    def follow(self, data: bytes) -> bytes: ...
    def close(self) -> list[Frame]: ...
    def terminator(self) -> bytes: ...


class Dialect(Protocol):
    """One wire dialect: pure, stateless, one instance for the process."""

    @property
    def name(self) -> str: ...
    def facts(self, body: bytes) -> Facts: ...
    def request(self, body: bytes, facts: Facts, shape: "Shape", model: str) -> bytes: ...
    def reader(
        self, *, drop_usage: bool, choices: int, rewrite_model: str | None, secrets: tuple[str, ...] = ()
    ) -> StreamReader: ...
    def read_answer(self, body: bytes, status: int, wall: float) -> tuple[Fault | None, Usage | None]: ...
    def fault_of(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, wall: float
    ) -> Fault | None: ...
    def refused(self, body: bytes) -> bool: ...
    def dressed(self, body: bytes, rewrite_model: str | None) -> bytes: ...
    def answer_from_stream(self, body: bytes) -> bytes | None: ...
    def stream_from_answer(self, body: bytes, wants_usage: bool) -> bytes | None: ...
    def spoken(self, text: str, model: str, facts: Facts, *, request_id: str, created: int) -> bytes: ...
    def unstreamed(self, body: bytes, facts: Facts) -> bytes: ...
    def render_error(self, problem: Problem, request_id: str) -> bytes: ...
    def error_frame(self, problem: Problem) -> bytes: ...


@frozen
class Shape:
    """How one channel wants its request bodies.

    `rename` maps a top-level parameter to the channel's word for it; `allow`, where given, is the list of parameters that
    may pass (model, messages and stream always do); `null_content` says what becomes of `"content": null` in messages:
    "keep", "empty" (an empty string) or "drop" (the member goes).
    """

    rename: Mapping[str, str] = field(factory=dict)
    allow: frozenset[str] | None = None
    null_content: str = "keep"
    force_usage: bool = True  # ask for the usage frame on streams
