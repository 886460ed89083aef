"""The log: one structured line per exchange, and one per change of a channel's state.

A subscriber of the journal. Lines are made on the spot and written by a task of their own, in batches and in a thread, so that
a full pipe or a slow disk never holds up an answer; past `MAX_WAITING` lines the newest are counted and dropped.
No prompt text and no secret is in any event, so none can get here.
"""

import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, BinaryIO

import trio
from attrs import define, field

from trioproxy.codec import jsonread
from trioproxy.config.model import Logging
from trioproxy.journal import Event
from trioproxy.ops.lines import line_of
from trioproxy.ops.story import told

MAX_WAITING = 10_000
LAST_WORDS = 2.0  # seconds for the last lines at the end
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@define(eq=False)
class LineWriter:
    """Collects lines and writes them behind the scenes."""

    stream: BinaryIO
    dropped: int = field(init=False, default=0)
    _thread: trio.CapacityLimiter = field(init=False, factory=lambda: trio.CapacityLimiter(1))
    _waiting: deque[bytes] = field(init=False, factory=deque)
    _more: trio.Event = field(init=False, factory=trio.Event)

    def write(self, line: bytes | str) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        self._waiting.append(line if isinstance(line, bytes) else line.encode("utf-8", "replace"))
        self._more.set()

    async def run(self) -> None:
        """Write until cancelled. Lines that are waiting then are for `close`."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            await self._flush_behind()
            await trio.sleep(0.05)  # a batch instead of a thread hop per line

    async def close(self) -> None:
        """Write what is waiting. Bound it: a reader that never reads keeps nobody from leaving."""
        await self._flush_behind()

    async def _flush_behind(self) -> None:
        # A thread of its own: one that is stuck in a full pipe takes none that others need, and is left behind at the end.
        await trio.to_thread.run_sync(self.flush, abandon_on_cancel=True, limiter=self._thread)

    def flush(self) -> None:
        """Write what is waiting now, in this thread. A log without a reader, or on a full disk, ends no gateway."""
        # One by one off a deque, whose every step is atomic: to swap a list under the loop's hands could lose a line.
        lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not lines:
            return
        try:
            rest = b"\n".join(lines) + b"\n"
            while rest:  # an unbuffered stream may take a part only
                rest = rest[self.stream.write(rest) or 0 :]
            self.stream.flush()
        except OSError:
            self.dropped += len(lines)


@define(eq=False)
class Log:
    """The subscriber. Money is shown in USD, durations in milliseconds.

    The pipeline is structlog's: processors, each from dict to dict, and a renderer last. It is called here directly, because
    a bound logger around it takes 4 of the 8 µs that a line may cost.
    """

    writer: LineWriter
    _processors: tuple[Any, ...]
    _least: int
    _accounted: int = field(init=False, default=0)

    @classmethod
    def to(cls, stream: BinaryIO, settings: Logging, wall: Callable[[], float]) -> "Log":
        """A log on a stream: JSON, or for people where that is asked for or the stream is a terminal."""
        human = settings.format == "human" or (settings.format == "auto" and stream.isatty())
        stamp = _timestamp(wall, human=human)
        processors: tuple[Any, ...] = (stamp, _render_json)
        if human:
            import structlog  # brings rich along: a fifth of the time to start, for people only

            processors = (stamp, told, _printable, structlog.dev.ConsoleRenderer(colors=stream.isatty()))
        return cls(LineWriter(stream), processors, _LEVELS[settings.level])

    def __call__(self, event: Event) -> None:
        line = line_of(event)
        if line is not None:
            self._line(*line)

    def bug(self, exc: BaseException) -> None:
        """A fault of our own, with its traceback."""
        self._line("error", "bug", {"exception": "".join(traceback.format_exception(exc))})

    def say(self, message: str, **fields: object) -> None:
        self._line("info", message, fields)

    def warn(self, message: str, **fields: object) -> None:
        self._line("warning", message, fields)

    def whisper(self, message: str, **fields: object) -> None:
        self._line("debug", message, fields)

    def account(self) -> None:
        """Say how many lines could not be written since it was last said."""
        lost = self.writer.dropped - self._accounted
        if lost:
            self._accounted += lost
            self.warn("dropped", lines=lost)

    def _line(self, level: str, name: str, fields: dict[str, Any]) -> None:
        if _LEVELS[level] < self._least:
            return
        line: Any = {"event": name, "level": level, **fields}
        for processor in self._processors:
            line = processor(None, level, line)
        self.writer.write(line)


def _timestamp(wall: Callable[[], float], *, human: bool) -> Any:
    """A processor that stamps a line: the time of day for people, RFC 3339 in UTC for machines."""
    shape = "%H:%M:%S" if human else "%Y-%m-%dT%H:%M:%S"
    second = [-1, ""]  # the text of the present second: formatting it costs more than the rest of the line

    def stamp(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        now = wall()
        if second[0] != int(now):
            second[:] = [int(now), time.strftime(shape, time.gmtime(now))]
        event["timestamp"] = second[1] if human else f"{second[1]}.{int(now % 1 * 1000):03d}Z"
        return event

    return stamp


def _printable(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Whatever an upstream says, it does not command a terminal. A traceback of our own keeps its lines."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable() and name != "exception":
            event[name] = "".join(letter if letter.isprintable() else "\ufffd" for letter in value)
    return event


def _render_json(_logger: object, _method: str, event: dict[str, Any]) -> bytes:
    return jsonread.write(event)  # an upstream's words may hold what UTF-8 cannot
