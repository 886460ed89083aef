"""What an attempt holds of an answer until it decides: nothing of it has gone downstream yet.

A unary answer is held whole, so that a cut one fails over and never looks complete. Of a stream the gate holds the first
frames, and assured mode all of them. The bytes are judged, not the label: what came in the other form than was asked for
is turned into it.
"""

from collections.abc import Callable

from attrs import define, evolve, field

from trioproxy.call import Call
from trioproxy.channel import ChannelState
from trioproxy.codec.frame import Frame, Kind, StreamReader
from trioproxy.codec.sse import EventTooLong
from trioproxy.errors import AttemptError, Fault
from trioproxy.http.client import Exchange
from trioproxy.journal import Usage
from trioproxy.phases.relay import CUT, TOO_LONG, again, patience_for
from trioproxy.phases.waiting import Wait, Waiting
from trioproxy.policy.gate import UNREADABLE, Gate, Verdict

# What assured mode holds at most; a longer stream is committed as it stands and goes on in plain mode.
MAX_ASSURED = 16 * 1024 * 1024
LOOKED_AT = 512  # bytes at the start of an answer that show what it is


@define(eq=False)
class Holding:
    """The answer of one attempt. Raises `AttemptError` where it is none; cancelled, it has decided nothing."""

    call: Call
    channel: ChannelState
    exchange: Exchange
    waiting: Waiting
    wall: Callable[[], float]
    rewrite_model: str | None = None
    body: bytes = field(init=False, default=b"", repr=False)  # a unary answer, whole
    reader: StreamReader | None = field(init=False, default=None)  # a stream's
    _gate: Gate | None = field(init=False, default=None)
    _usage: Usage | None = field(init=False, default=None)

    @property
    def usage(self) -> Usage | None:
        """What the provider says was used, where it said so."""
        return self._usage if self._usage or self.reader is None else self.reader.usage

    @property
    def finished(self) -> bool:
        """It has said all, and may only be forgetting to close."""
        return self.waiting.what is Wait.END and self.reader is not None and self.reader.finished

    def expire(self) -> Fault | None:
        """The gate's time is over: let a slow model through, but not what cannot be read."""
        gate = self._gate
        return gate.fault if gate is not None and gate.expire() is Verdict.FAIL else None

    def released(self, reader: StreamReader) -> tuple[bytes, bool]:
        """The held bytes of a stream, and whether they are the whole answer, terminator included."""
        assert self._gate is not None, "a stream has a gate"
        held = self._gate.held
        held.append(reader.follow(b""))  # what came behind the frame that decided
        over = self.exchange.whole() or self.waiting.what is Wait.END
        complete = over and reader.finished and reader.fault is None
        if complete:
            held.append(reader.terminator())
        return b"".join(held), complete

    # Unary

    async def unary(self) -> None:
        """Hold the whole answer."""
        policy = self.call.policy
        if policy.on_gate_timeout == "failover":
            self.waiting.shorten(Wait.CONTENT, policy.gate_timeout)
        body = await self._whole()
        dialect = self.call.endpoint.dialect
        if looks_like(body) == "sse":
            body = dialect.answer_from_stream(body) or body
        self._read(body)
        self.body = dialect.dressed(body, self.rewrite_model)

    def _read(self, body: bytes) -> None:
        """Take a whole answer's usage, or say why it is no answer, with what the headers say of it."""
        wall = self.wall()
        fault, self._usage = self.call.endpoint.dialect.read_answer(body, 200, wall)
        if fault is not None:
            raise AttemptError(fault_of(self.call, self.exchange, body, wall))

    async def _whole(self, start: bytes = b"") -> bytes:
        """All of the body. Once it has begun, white space (a provider's keep-alive) apart, it may not stall."""
        parts: list[bytes] = []
        size = 0
        data = start or await self.exchange.receive()
        while data:
            parts.append(data)
            size += len(data)
            if size > self.channel.max_answer:
                message = f"the upstream's answer is over the limit of {self.channel.max_answer} bytes"
                raise AttemptError(evolve(again(TOO_LONG), message=message))
            if self.waiting.what is Wait.END or not (data.isspace() or self.exchange.whole()):
                self.waiting.begin(Wait.END, self.call.policy.idle_timeout)
            data = await self.exchange.receive()
        return b"".join(parts)

    # Streams

    async def stream(self) -> None:
        """Hold a stream until its gate decides, or in assured mode until it ended well."""
        policy, facts = self.call.policy, self.call.facts
        if policy.mode == "assured" and policy.on_gate_timeout == "commit":
            # Nothing is committed before its end. What a plain class bears after the gate, this one bears before.
            self.waiting.begin(Wait.END, policy.gate_timeout + policy.idle_timeout)
        else:
            self.waiting.begin(Wait.CONTENT, policy.gate_timeout)
        gate = self._gate = Gate()
        reader = self.reader = self.call.endpoint.dialect.reader(
            drop_usage=not facts.wants_usage,
            choices=facts.choices,
            rewrite_model=self.rewrite_model,
            secrets=self.channel.secrets,
        )
        first = await self._opening()
        if looks_like(first) not in ("sse", ""):
            await self._unlabelled(first, gate, reader)
            return
        await self._pass(first, gate, reader)
        if policy.mode == "assured":
            await self._assure(gate, reader)

    async def _opening(self) -> bytes:
        """The first bytes of a stream, as many as it takes to see what it is."""
        data = await self.exchange.receive()
        while not looks_like(data) and len(data) < LOOKED_AT and (more := await self.exchange.receive()):
            data += more
        return data

    async def _pass(self, data: bytes, gate: Gate, reader: StreamReader) -> None:
        while True:
            verdict = gate.feed(_frames(reader.gated, data) if data else reader.close())
            if verdict is Verdict.HOLD and not data:
                verdict = gate.end()
            if verdict is Verdict.FAIL:
                assert gate.fault is not None
                raise AttemptError(gate.fault)
            if verdict is Verdict.COMMIT:
                return
            data = await self.exchange.receive()

    async def _assure(self, gate: Gate, reader: StreamReader) -> None:
        """Hold the whole stream until it ended well; then a cut after content still fails over."""
        if gate.expire() is Verdict.FAIL:
            raise AttemptError(UNREADABLE)
        frames = reader.feed(b"")
        while _hold(frames, gate, reader) and not reader.ended:
            self.waiting.begin(Wait.END, patience_for(reader, self.call.policy.idle_timeout))
            try:
                data = await self.exchange.receive()
            except AttemptError:
                data = b""
            if not data:  # however it ended: what counts is whether it had finished
                _hold(reader.close(), gate, reader)
                break
            frames = _frames(reader.feed, data)
        if not reader.finished and gate.size <= MAX_ASSURED:
            raise AttemptError(again(CUT))

    async def _unlabelled(self, first: bytes, gate: Gate, reader: StreamReader) -> None:
        """A stream was asked for and something else came."""
        body = await self._whole(first)
        self._read(body)
        stream = self.call.endpoint.dialect.stream_from_answer(body, self.call.facts.wants_usage)
        if stream is None:
            raise AttemptError(UNREADABLE)
        gate.hold(reader.feed(stream))


def fault_of(call: Call, exchange: Exchange, body: bytes, wall: float) -> Fault:
    """Why this answer is none, by its status, headers and body."""
    assert exchange.head is not None
    fault = call.endpoint.dialect.fault_of(exchange.head.status, exchange.head.headers, body, wall)
    assert fault is not None, "only called for an answer that is none"
    return fault


def looks_like(data: bytes) -> str:
    """What the first bytes say, whatever the label: "sse", "json", "html" or "" for nothing to see yet."""
    start = data[:LOOKED_AT].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    return {b"": "", b"{": "json", b"[": "json", b"<": "html"}.get(start, "sse")


def _hold(frames: list[Frame], gate: Gate, reader: StreamReader) -> bool:
    """Hold frames that must all be good; whether there is room for more."""
    if reader.fault is not None:
        raise AttemptError(again(reader.fault))
    if any(frame.kind is Kind.SUSPECT for frame in frames):
        raise AttemptError(UNREADABLE)
    gate.hold(frames)
    return gate.size <= MAX_ASSURED


def _frames(step: Callable[[bytes], list[Frame]], data: bytes) -> list[Frame]:
    try:
        return step(data)
    except EventTooLong as exc:
        raise AttemptError(again(TOO_LONG)) from exc
