"""Reads one upstream chat stream: every frame judged before commit, bytes passed on after it.

Before commit `feed` gives frames, each with the exact bytes it came as. After commit `follow` gives whole frames only, as
they came, so that what we may have to say ourselves (an error, the terminator) always stands between two of them. Nothing
is passed on after the terminator or after an error frame.

Bytes are changed in five cases only. NaN and Infinity become null. `model` is replaced if the reader was told to. A
terminator that comes before every choice has finished is withheld, because a client would take it for a good end. An error
in a shape that the client's SDK would pass over is followed by one that it sees, and our secrets are taken out of any. Text is
never decoded on its way, so a character cut in two by the network stays whole.
"""

from attrs import define, evolve, field

from trioproxy.codec import jsonread, sse
from trioproxy.codec.chat_chunk import Verdict, judge
from trioproxy.codec.chat_template import Template
from trioproxy.codec.frame import Frame, Kind
from trioproxy.codec.jsonsplice import DuplicateKey, NotAnObject, members, splice
from trioproxy.codec.problem import error_frame, problem_of
from trioproxy.codec.scrub import scrub
from trioproxy.errors import AttemptError, Fault
from trioproxy.journal import Usage

DONE = b"data: [DONE]\n\n"
# A template is learned from a frame that none recognised. A stream whose frames are never alike stops trying.
_LESSONS = 32


@define(eq=False)
class ChatStream:
    """One stream, satisfying `frame.StreamReader`. Raises `sse.EventTooLong` from `feed` and `follow`."""

    drop_usage: bool = False
    choices: int = 1
    rewrite_model: str | None = None
    limit: int = sse.LIMIT
    secrets: tuple[str, ...] = field(default=(), repr=False)  # besides what looks like one

    usage: Usage | None = field(init=False, default=None)
    finished: bool = field(init=False, default=False)
    ended: bool = field(init=False, default=False)
    content: bool = field(init=False, default=False)
    fault: Fault | None = field(init=False, default=None)
    refused: bool = field(init=False, default=False)
    output_bytes: int = field(init=False, default=0)

    _framer: sse.Framer = field(init=False)
    _template: Template | None = field(init=False, default=None)
    _heads: tuple[bytes, bytes] | None = field(init=False, default=None)  # the template's, and the one to send instead
    _lessons: int = field(init=False, default=_LESSONS)
    _done: set[int] = field(init=False, factory=set)
    _waiting: bytes = field(init=False, default=b"")  # whole frames that `feed` has not judged

    def __attrs_post_init__(self) -> None:
        self._framer = sse.Framer(self.limit)

    def feed(self, data: bytes) -> list[Frame]:
        """Every frame that is whole now, judged; none after the terminator or an error."""
        return self._frames(data, gated=False)

    def gated(self, data: bytes) -> list[Frame]:
        """As `feed`, up to and with the first frame that has content or a finish.

        What came behind it waits for the next call, so that the rest of a burst need not be judged frame by frame.
        """
        return self._frames(data, gated=True)

    def _frames(self, data: bytes, *, gated: bool) -> list[Frame]:
        whole = self._taken(data)
        frames: list[Frame] = []
        at = 0
        while at < len(whole) and not self._over and not (gated and (self.content or self.finished)):
            end = self._framer.end_of(whole, at)
            frames.append(self._judge(whole[at:end]))
            at = end
        self._waiting = whole[at:]
        return frames

    def follow(self, data: bytes) -> bytes:
        """The bytes that may go downstream now: whole frames, without the usage frame if it was not asked for."""
        whole = self._taken(data)
        if self._over:
            return b""
        passed: list[bytes] = []
        at = kept = 0  # `whole[kept:at]` goes on as it came
        while at < len(whole) and not self._over:
            known = self._template.run(whole, at) if self._template else at
            if known > at:
                self._recognised(known - at)
                if self._heads is not None:
                    passed += (whole[kept:at], whole[at:known].replace(*self._heads))
                    kept = known
                at = known
                continue
            end = self._framer.end_of(whole, at)
            raw = whole[at:end]
            frame = self._judge(raw)
            if frame.usage_only or frame.raw is not raw:
                passed += (whole[kept:at], b"" if frame.usage_only else frame.raw)
                kept = end
            at = end
        if kept == 0:
            return whole[:at]
        passed.append(whole[kept:at])
        return b"".join(passed)

    def close(self) -> list[Frame]:
        """At the upstream's end: the last frame if it only lacks its blank line, made whole; what was cut is dropped."""
        frames = self.feed(b"")  # what a gate left waiting
        rest = self._framer.close()
        if not rest or self._over:
            return frames
        if not rest.strip(b"\r\n"):
            return [*frames, Frame(rest, Kind.NEUTRAL)]
        event = sse.parse(sse.complete(rest))
        verdict = judge(event)
        readable = event.data.strip() or verdict.kind is Kind.ERROR
        return [*frames, self._note(event, verdict)] if readable and verdict.kind is not Kind.SUSPECT else frames

    def terminator(self) -> bytes:
        """What a good end still owes the client: `[DONE]`, where every choice finished and the upstream sent none."""
        return DONE if self.finished and not self._over else b""

    def _taken(self, data: bytes) -> bytes:
        """The whole frames that are there now, those that waited first."""
        whole = self._framer.cut(data)
        if self._waiting:
            whole, self._waiting = self._waiting + whole, b""
        return whole

    @property
    def _over(self) -> bool:
        return self.ended or self.fault is not None

    def _judge(self, raw: bytes) -> Frame:
        event = sse.parse(raw)
        verdict = judge(event)
        frame = self._note(event, verdict)
        if verdict.kind is Kind.CONTENT and verdict.usage is None and verdict.strict is None and self._lessons:
            self._learn(raw, frame.raw)
        return frame

    def _learn(self, raw: bytes, dressed: bytes) -> None:
        """Recognise what is like `raw` from now on; what it is dressed as may differ in its head only."""
        self._lessons -= 1
        template = Template.from_frame(raw)
        model = Template.from_frame(dressed)
        if template is None or model is None or model.after_head() != template.after_head():
            return
        self._template = template
        self._heads = None if dressed is raw else (template.head, model.head)

    def _recognised(self, size: int) -> None:
        self.output_bytes += size
        self.content = True
        self._lessons = _LESSONS

    def _note(self, event: sse.Event, verdict: Verdict) -> Frame:
        if verdict.usage is not None:
            self.usage = verdict.usage
        if verdict.content:
            self.content = True
            self.output_bytes += len(event.raw)
        if verdict.finished:
            self._done.update(verdict.finished)
            self.finished = len(self._done) >= self.choices
        if verdict.refused:
            self.refused = True
        if verdict.kind is Kind.END:
            self.ended = True
        if verdict.fault is not None:
            self.fault = verdict.fault = self._shown(verdict.fault)
        raw = self._dressed(event, verdict)
        return Frame(raw, verdict.kind, verdict.content, verdict.usage_only and self.drop_usage, verdict.fault)

    def _dressed(self, event: sse.Event, verdict: Verdict) -> bytes:
        """The frame's bytes as the client may have them: as they came, but for the cases in the module's docstring."""
        if verdict.kind is Kind.END and not self.finished:
            return b""
        raw = self._reworded(event, verdict)
        if verdict.fault is None:
            return raw
        owed = b"" if verdict.told else error_frame(problem_of(AttemptError(verdict.fault)))
        return scrub(raw, self.secrets) + owed

    def _reworded(self, event: sse.Event, verdict: Verdict) -> bytes:
        data = verdict.strict or event.data
        if self.rewrite_model is not None:
            data = with_model(data, self.rewrite_model)
        if data is event.data:
            return event.raw
        before, found, after = event.raw.rpartition(event.data)
        if found and b"\n" not in data:  # one line of data: in its place, and the lines beside it stay
            return before + data + after
        name = b"event: " + event.event + b"\n" if event.event else b""
        lines = b"".join(b"data: " + line + b"\n" for line in data.split(b"\n"))
        return name + lines + b"\n"

    def _shown(self, fault: Fault) -> Fault:
        return evolve(fault, message=scrub(fault.message, self.secrets), body=scrub(fault.body, self.secrets))


def with_model(text: bytes, model: str) -> bytes:
    """The JSON object with its top-level `model` replaced; anything else, and an object without one, as it is."""
    try:
        span = members(text).get("model")
    except (NotAnObject, DuplicateKey):
        return text
    return text if span is None else splice(text, [(*span, jsonread.write(model))])
