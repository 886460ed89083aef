"""One try at one channel, up to the moment that decides: committed with an answer, or failed with a fault.

An attempt runs as a child task and reports by `decided`. Until then nothing of it has gone downstream, so its failure costs
the caller nothing but time. What it holds (a slot, the breaker's permit, a connection) it holds until `release`, which is
synchronous and which the line calls on every way out.

One cancel scope serves its deadlines one after the other: headers (and the wait for a slot), then the gate, then, in assured
mode, each gap. `_waiting_for` says which one ran out, so the blame is right; the caller's own deadline is no evidence.
"""

import contextlib
import enum
from collections.abc import Callable

import trio
from attrs import define, evolve, field

from trioproxy.call import Call
from trioproxy.codec.frame import Frame, Kind, StreamReader
from trioproxy.codec.problem import problem_of
from trioproxy.codec.sse import EventTooLong
from trioproxy.errors import AttemptError, Blame, Fault, FaultKind, Refusal
from trioproxy.http.client import Exchange
from trioproxy.http.message import ResponseHead
from trioproxy.journal import AttemptRecord, Usage
from trioproxy.phases.relay import CUT, STALLED, TOO_LONG, Relay, patience_for
from trioproxy.policy.gate import UNREADABLE, Gate, Verdict
from trioproxy.policy.slots import Ticket
from trioproxy.supervisor import ChannelState, Family, Pass

MAX_ERROR_BODY = 65_536
LOOKED_AT = 512  # bytes by which an answer shows what it is: a byte-order mark and white space may come first
ERROR_BODY_TIMEOUT = 5.0
MODEL_PARK = 600.0  # a deployment that is being set up needs minutes
# What assured mode holds at most; a longer stream is committed as it stands and goes on in plain mode.
MAX_ASSURED = 16 * 1024 * 1024


class Skipped(Exception):
    """The channel may not be asked any more; nothing was sent."""


class Wait(enum.Enum):
    """What an attempt is waiting for, and with it whose clock ran out."""

    HEADERS = "headers"
    CONTENT = "content"
    END = "end"


@define(eq=False)
class Attempt:
    """One attempt. Exactly one of `committed`, `fault` and `skipped` is set once `decided` is."""

    call: Call
    channel: ChannelState
    model: str
    family: Family[dict[str, ChannelState]]
    wall: Callable[[], float]
    rewrite_model: str | None = None
    callers_name: bool = False  # the provider's name for the model came from the caller, not from our configuration
    decided: trio.Event = field(init=False, factory=trio.Event)
    committed: bool = field(init=False, default=False)
    skipped: bool = field(init=False, default=False)
    fault: Fault | None = field(init=False, default=None)
    head: ResponseHead | None = field(init=False, default=None)
    body: bytes = field(init=False, default=b"", repr=False)  # a unary answer, whole
    relay: Relay | None = field(init=False, default=None)  # a stream
    reader: StreamReader | None = field(init=False, default=None)
    started: float = field(init=False, default=0.0)
    asked: float = field(init=False, default=0.0)  # when the slot was there and the request could go
    answered: float = field(init=False, default=0.0)
    exchange: Exchange = field(init=False)
    _ticket: Ticket = field(init=False, factory=Ticket)
    _leave: Pass | None = field(init=False, default=None)
    _waiting_for: Wait = field(init=False, default=Wait.HEADERS)
    _usage: Usage | None = field(init=False, default=None)
    _gate: Gate = field(init=False, factory=Gate)

    def __attrs_post_init__(self) -> None:
        self.exchange = Exchange(self.channel.upstream)

    async def run(self) -> None:
        """The child task. Cancelled, it decides nothing; `release` is still the caller's."""
        self.started = self.asked = trio.current_time()
        headers_by = self.started + self.call.policy.headers_timeout
        try:
            with trio.CancelScope(deadline=min(headers_by, self.call.deadlines.start)) as scope:
                await self._try(scope)
            if scope.cancelled_caught:
                self._out_of_time()
        except AttemptError as exc:
            self.fault = self.channel.shown(self._ours_or_theirs(exc.fault))
        except Skipped:
            self.skipped = True
        self.answered = trio.current_time()
        if self.fault is None and not self.skipped:
            self._commit()
        self.decided.set()

    async def _try(self, scope: trio.CancelScope) -> None:
        await self.channel.slot(self._ticket)
        self.asked = trio.current_time()
        request = self._request()
        self._leave = await self.family.decide(self.channel.try_enter, self.model, self.asked)
        if self._leave is None:
            raise Skipped
        head = self.head = await self.exchange.open(request)
        if not 200 <= head.status < 300:
            body = await self._error_body()
            raise AttemptError(self._fault_of(head.status, body))
        if self.call.facts.stream:
            await self._stream(scope)
        else:
            await self._unary(scope)

    def _request(self) -> bytes:
        call, channel = self.call, self.channel
        try:
            body = call.endpoint.dialect.request(call.body, call.facts, channel.shape, self.model)
        except (
            Refusal
        ) as exc:  # what the caller sent cannot be said to this channel; that tells nothing about the channel
            fault = Fault(FaultKind.BAD_REQUEST, Blame.CLIENT, exc.message, param=exc.param)
            raise AttemptError(fault) from exc
        return channel.request(call.endpoint.suffix, call.forwarded, body)

    def _fault_of(self, status: int, body: bytes) -> Fault:
        assert self.head is not None
        fault = self.call.endpoint.dialect.fault_of(status, self.head.headers, body, self.wall())
        assert fault is not None, "only called for an answer that is none"
        return fault

    def _ours_or_theirs(self, fault: Fault) -> Fault:
        """A model that the provider does not know: the caller's mistake where the name is the caller's, else ours."""
        if fault.kind is not FaultKind.MODEL_NOT_FOUND:
            return fault
        if self.callers_name:
            return evolve(fault, blame=Blame.CLIENT, retry=False)
        return evolve(fault, park=MODEL_PARK)

    async def _error_body(self) -> bytes:
        """As much of an error's body as comes soon; a status is worth something without it."""
        parts: list[bytes] = []
        with trio.move_on_after(ERROR_BODY_TIMEOUT), contextlib.suppress(AttemptError):
            await self._collect(parts)
        return b"".join(parts)[:MAX_ERROR_BODY]

    async def _collect(self, parts: list[bytes]) -> None:
        size = 0
        while size < MAX_ERROR_BODY and (data := await self.exchange.receive()):
            parts.append(data)
            size += len(data)

    # Unary: the whole answer is held, so that a cut one fails over and never looks complete.

    async def _unary(self, scope: trio.CancelScope) -> None:
        if self.call.policy.on_gate_timeout == "failover":
            self._waiting_for = Wait.CONTENT
            scope.deadline = min(scope.deadline, trio.current_time() + self.call.policy.gate_timeout)
        body = await self._whole(scope)
        dialect = self.call.endpoint.dialect
        if _looks_like(body) == "sse":
            body = dialect.answer_from_stream(body) or body
        fault, self._usage = dialect.read_answer(body, 200, self.wall())
        if fault is not None:
            raise AttemptError(self._fault_of(200, body))  # with what the headers say of it
        self.body = dialect.dressed(body, self.rewrite_model)

    async def _whole(self, scope: trio.CancelScope, start: bytes = b"") -> bytes:
        """All of the body. Once it has begun, white space (a provider's keep-alive) apart, it may not stall."""
        parts: list[bytes] = []
        size = 0
        data = start or await self.exchange.receive()
        while data:
            parts.append(data)
            size += len(data)
            if size > self.channel.max_answer:
                message = f"the upstream's answer is over the limit of {self.channel.max_answer} bytes"
                raise AttemptError(evolve(_again(TOO_LONG), message=message))
            if self._waiting_for is Wait.END or not (data.isspace() or self.exchange.whole()):
                self._waiting_for = Wait.END
                scope.deadline = min(trio.current_time() + self.call.policy.idle_timeout, self.call.deadlines.start)
            data = await self.exchange.receive()
        return b"".join(parts)

    # Streams: the gate holds the first frames until they decide, assured mode holds all of them.

    async def _stream(self, scope: trio.CancelScope) -> None:
        policy, facts = self.call.policy, self.call.facts
        self._waiting_for, patience = Wait.CONTENT, policy.gate_timeout
        if policy.mode == "assured" and policy.on_gate_timeout == "commit":
            # Nothing is committed before its end. What a plain class bears after the gate, this one bears before.
            self._waiting_for, patience = Wait.END, policy.gate_timeout + policy.idle_timeout
        scope.deadline = min(trio.current_time() + patience, self.call.deadlines.start)
        self.reader = self.call.endpoint.dialect.reader(
            drop_usage=not facts.wants_usage,
            choices=facts.choices,
            rewrite_model=self.rewrite_model,
            secrets=self.channel.secrets,
        )
        first = await self._opening()
        if _looks_like(first) not in ("sse", ""):
            await self._unlabelled(scope, first)
            return
        await self._pass_gate(first, self.reader)
        if policy.mode == "assured":
            await self._assure(scope, self.reader)

    async def _opening(self) -> bytes:
        """The first bytes of a stream, as many as it takes to see what it is."""
        data = await self.exchange.receive()
        while not _looks_like(data) and len(data) < LOOKED_AT and (more := await self.exchange.receive()):
            data += more
        return data

    async def _pass_gate(self, data: bytes, reader: StreamReader) -> None:
        gate = self._gate
        while True:
            verdict = gate.feed(_read(reader.gated, data) if data else reader.close())
            if verdict is Verdict.HOLD and not data:
                verdict = gate.end()
            if verdict is Verdict.FAIL:
                assert gate.fault is not None
                raise AttemptError(gate.fault)
            if verdict is Verdict.COMMIT:
                return
            data = await self.exchange.receive()

    async def _assure(self, scope: trio.CancelScope, reader: StreamReader) -> None:
        """Hold the whole stream until it ended well; then a cut after content still fails over."""
        self._waiting_for = Wait.END
        if self._gate.expire() is Verdict.FAIL:
            raise AttemptError(UNREADABLE)
        frames = reader.feed(b"")
        while self._hold(frames, reader) and not reader.ended:
            patience = patience_for(reader, self.call.policy.idle_timeout)
            scope.deadline = min(trio.current_time() + patience, self.call.deadlines.start)
            try:
                data = await self.exchange.receive()
            except AttemptError:
                data = b""
            if not data:  # however it ended: what counts is whether it had finished
                self._hold(reader.close(), reader)
                break
            frames = _read(reader.feed, data)
        if not reader.finished and self._gate.size <= MAX_ASSURED:
            raise AttemptError(_again(CUT))

    def _hold(self, frames: list[Frame], reader: StreamReader) -> bool:
        """Hold frames that must all be good; whether there is room for more."""
        if reader.fault is not None:
            raise AttemptError(_again(reader.fault))
        if any(frame.kind is Kind.SUSPECT for frame in frames):
            raise AttemptError(UNREADABLE)
        self._gate.hold(frames)
        return self._gate.size <= MAX_ASSURED

    async def _unlabelled(self, scope: trio.CancelScope, first: bytes) -> None:
        """A stream was asked for and something else came: judge the bytes, not the label."""
        body = await self._whole(scope, first)
        dialect = self.call.endpoint.dialect
        fault, self._usage = dialect.read_answer(body, 200, self.wall())
        if fault is not None:
            raise AttemptError(self._fault_of(200, body))
        stream = dialect.stream_from_answer(body, self.call.facts.wants_usage)
        if stream is None or self.reader is None:
            raise AttemptError(UNREADABLE)
        self._gate.hold(self.reader.feed(stream))

    # Deciding

    def _out_of_time(self) -> None:
        now = trio.current_time()
        policy, waiting_for = self.call.policy, self._waiting_for
        if waiting_for is Wait.END and self.reader is not None and self.reader.finished:
            return  # it has said all, and forgets to close
        if now >= self.call.deadlines.start:
            self.fault = Fault(FaultKind.DEADLINE, Blame.CLIENT, "the deadline passed before an answer began")
        elif waiting_for is Wait.HEADERS:
            message = f"no answer from the upstream within {policy.headers_timeout:g} s"
            self.fault = Fault(FaultKind.HEADERS_TIMEOUT, Blame.PROVIDER, message, retry=True, counts=True)
        elif waiting_for is Wait.END:
            self.fault = _again(STALLED)
        elif policy.on_gate_timeout == "failover":
            message = f"no content from the upstream within {policy.gate_timeout:g} s"
            self.fault = Fault(FaultKind.FIRST_CONTENT_TIMEOUT, Blame.PROVIDER, message, retry=True, counts=True)
        elif self._gate.expire() is Verdict.FAIL:
            self.fault = self._gate.fault

    def _commit(self) -> None:
        self.committed = True
        assert self._leave is not None
        if self.reader is None:
            self.release()  # read whole: the channel has proved itself and serves the next call, however slow our reader is
            return
        if self.reader.content or self.reader.finished:  # a gate that has run out of time proves nothing
            self.family.post(self.channel.commit, self._leave, self.answered)
        held = self._gate.held
        held.append(self.reader.follow(b""))  # what came behind the frame that decided
        over = self.exchange.whole() or self._waiting_for is Wait.END
        complete = over and self.reader.finished and self.reader.fault is None
        if complete:
            held.append(self.reader.terminator())
        self.relay = Relay(
            self.exchange,
            self.reader,
            self.call.deadlines,
            self.call.policy.idle_timeout,
            self._error_frame,
            b"".join(held),
            complete,
        )

    def _error_frame(self, fault: Fault) -> bytes:
        return self.call.endpoint.dialect.error_frame(problem_of(AttemptError(fault)))

    # Afterwards

    @property
    def usage(self) -> Usage | None:
        """What the provider says was used, where it said so."""
        return self._usage if self._usage or self.reader is None else self.reader.usage

    def release(self, *, evidence: bool = True) -> None:
        """Give everything back: synchronous, idempotent. Without `evidence` the channel learns nothing from it."""
        now = trio.current_time()
        self.exchange.close(now)
        self.channel.leave(self._ticket)
        leave, self._leave = self._leave, None
        if leave is None:
            return
        fault = self.fault or (self.relay.fault if self.relay else None)
        known = self.committed or self.fault is not None
        if known and evidence and not (fault and fault.kind is FaultKind.DEADLINE):
            self.family.post(self.channel.settle, leave, fault, now)
        else:
            self.family.post(self.channel.abandon, leave, now)

    def record(self, now: float) -> AttemptRecord:
        """The attempt as the journal tells it."""
        end = self.answered if self.fault is not None else now
        return AttemptRecord(
            self.channel.name,
            self.model,
            self.started,
            end - self.started,
            self.fault or (self.relay.fault if self.relay else None),
            self.exchange.reused,
            self.answered - self.started if self.committed else None,
        )


def _read(step: Callable[[bytes], list[Frame]], data: bytes) -> list[Frame]:
    try:
        return step(data)
    except EventTooLong as exc:
        raise AttemptError(_again(TOO_LONG)) from exc


def _again(fault: Fault) -> Fault:
    """The same fault before commit, where another channel may still be asked."""
    return Fault(fault.kind, fault.blame, fault.message, fault.status, retry=True, counts=fault.counts)


def _looks_like(data: bytes) -> str:
    """What the first bytes say, whatever the label: "sse", "json", "html" or "" for nothing to see yet."""
    start = data[:LOOKED_AT].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    return {b"": "", b"{": "json", b"[": "json", b"<": "html"}.get(start, "sse")
