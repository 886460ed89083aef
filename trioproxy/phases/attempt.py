"""One try at one channel, up to the moment that decides: committed with an answer, or failed with a fault.

An attempt runs as a child task and reports by `decided`. Until then nothing of it has gone downstream, so its failure costs
the caller nothing but time. What it holds (a slot, the breaker's permit, a connection) it holds until `release`, which is
synchronous and which the line calls on every way out.
"""

import contextlib
import math
from collections.abc import Callable

import trio
from attrs import define, evolve, field
from msgspec.structs import replace

from trioproxy.call import Call
from trioproxy.channel import ChannelState, Pass
from trioproxy.codec.frame import StreamReader
from trioproxy.codec.ratelimits import telling
from trioproxy.errors import AttemptError, Blame, Fault, FaultKind, Refusal
from trioproxy.family import Family
from trioproxy.http.client import Exchange
from trioproxy.journal import AttemptRecord, Usage
from trioproxy.phases.holding import Holding, fault_of
from trioproxy.phases.relay import Relay
from trioproxy.phases.waiting import Waiting
from trioproxy.policy.pace import Sent
from trioproxy.policy.slots import Ticket

MAX_ERROR_BODY = 65_536
ERROR_BODY_TIMEOUT = 5.0
MODEL_PARK = 600.0  # a deployment that is being set up needs minutes
NO_EVIDENCE = frozenset({FaultKind.DEADLINE, FaultKind.DRAINED})


class Skipped(Exception):
    """The channel may not be asked any more; nothing was sent."""


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
    longest: float = math.inf  # seconds that an answer may stream
    resort: bool = False  # the channel is asked although it is out, because everybody is
    sent: Sent | None = None  # what it took of what the channel may be sent, where that is known
    decided: bool = field(init=False, default=False)
    committed: bool = field(init=False, default=False)
    skipped: bool = field(init=False, default=False)
    entered: bool = field(init=False, default=False)  # the request may have gone out
    fault: Fault | None = field(init=False, default=None)
    relay: Relay | None = field(init=False, default=None)  # the body of a committed stream
    started: float = field(init=False, default=0.0)
    asked: float = field(init=False, default=0.0)  # when the slot was there and the request could go
    answered: float = field(init=False, default=0.0)
    exchange: Exchange = field(init=False)
    _ticket: Ticket = field(init=False, factory=Ticket)
    _leave: Pass | None = field(init=False, default=None)
    _holding: Holding | None = field(init=False, default=None)
    _released: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.exchange = Exchange(self.channel.upstream)

    def hold(self, slot: Ticket) -> None:
        """The slot that the call was given when it was admitted; it goes back with everything else."""
        self._ticket = slot

    async def run(self) -> None:
        """The child task. Cancelled, it decides nothing; `release` is still the caller's."""
        self.started = self.asked = trio.current_time()
        policy, start = self.call.policy, self.call.deadlines.start
        try:
            with trio.CancelScope(deadline=min(self.started + policy.headers_timeout, start)) as scope:
                waiting = Waiting(policy, start, scope)
                await self._try(waiting)
            if scope.cancelled_caught:
                self.fault = self._ran_out(waiting)
        except AttemptError as exc:
            self.fault = self.channel.shown(self._ours_or_theirs(exc.fault))
        except Skipped:
            self.skipped = True
        self.answered = trio.current_time()
        if self.fault is None and not self.skipped:
            self._commit()
        self.decided = True

    async def _try(self, waiting: Waiting) -> None:
        await self.channel.slot(self._ticket)
        self.asked = trio.current_time()
        request = self._request()
        streamed = self.call.facts.stream
        self._leave = await self.family.decide(
            self.channel.try_enter, self.model, self.asked, streamed=streamed, resort=self.resort, sent=self.sent
        )
        if self._leave is None:
            raise Skipped
        self.entered = True
        head = await self.exchange.open(request)
        if told := telling(self.channel.pace.family, head.headers):
            now = trio.current_time()
            if head.status >= 300 or not self.channel.pace.calm(self.model, now):
                self.family.post(self.channel.pacer.heard, self.model, self.sent, told, now=now, wall=self.wall())
        if not 200 <= head.status < 300:
            body = await self._error_body()
            raise AttemptError(fault_of(self.call, self.exchange, body, self.wall()))
        holding = self._holding = Holding(
            self.call, self.channel, self.exchange, waiting, self.wall, self.rewrite_model
        )
        if self.call.facts.stream:
            await holding.stream()
        else:
            await holding.unary()

    def _request(self) -> bytes:
        call, channel = self.call, self.channel
        try:
            body = call.endpoint.dialect.request(call.body, call.facts, channel.shape, self.model)
        except Refusal as exc:  # what the caller sent cannot be said to this channel, which proves nothing about it
            fault = Fault(FaultKind.BAD_REQUEST, Blame.CLIENT, exc.message, param=exc.param)
            raise AttemptError(fault) from exc
        return channel.request(call.endpoint.suffix, call.forwarded, body)

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

    # Deciding

    def _ours_or_theirs(self, fault: Fault) -> Fault:
        """A model that the provider does not know: the caller's mistake where the name is the caller's, else ours."""
        if fault.kind is not FaultKind.MODEL_NOT_FOUND:
            return fault
        if self.callers_name:
            return evolve(fault, blame=Blame.CLIENT, retry=False)
        return evolve(fault, park=MODEL_PARK)

    def _ran_out(self, waiting: Waiting) -> Fault | None:
        """Why time has run out; None where what is held may be given all the same."""
        holding = self._holding
        if holding is not None and holding.finished:
            return None
        fault = waiting.ran_out(trio.current_time())
        return holding.expire() if fault is None and holding is not None else fault

    def _commit(self) -> None:
        self.committed = True
        reader = self.reader
        if reader is None:
            self.release()  # read whole: the channel has proved itself, and serves the next call however slow our reader is
            return
        assert self._leave is not None
        assert self._holding is not None
        if reader.content or reader.finished:  # a gate that has run out of time proves nothing
            self.family.post(self.channel.commit, self._leave, self.answered)
        held, complete = self._holding.released(reader)
        idle = self.call.policy.idle_timeout
        deadlines = self.call.deadlines
        if self.longest < math.inf:
            deadlines = replace(deadlines, total=min(deadlines.total, self.answered + self.longest))
        self.relay = Relay(self.exchange, reader, deadlines, idle, self.call.endpoint.dialect, held, complete)

    # Afterwards

    @property
    def reader(self) -> StreamReader | None:
        """The reader of a stream; None for a unary answer."""
        return self._holding.reader if self._holding is not None else None

    @property
    def body(self) -> bytes:
        """A unary answer, whole."""
        return self._holding.body if self._holding is not None else b""

    @property
    def refused(self) -> bool:
        """Whether the model, or its provider's filter, would not answer. Reads a unary body anew: ask only where it matters."""
        reader = self.reader
        return self.call.endpoint.dialect.refused(self.body) if reader is None else reader.refused

    @property
    def usage(self) -> Usage | None:
        """What the provider says was used, where it said so."""
        return self._holding.usage if self._holding is not None else None

    def release(self, *, evidence: bool = True) -> None:
        """Give everything back: synchronous, idempotent. Without `evidence` the channel learns nothing from it."""
        if self._released:
            return
        self._released = True
        now = trio.current_time()
        try:
            self.exchange.close(now)
        finally:
            self.channel.leave(self._ticket)
            self._give_back(now, evidence=evidence)

    def _give_back(self, now: float, *, evidence: bool) -> None:
        leave, self._leave = self._leave, None
        if leave is None:
            return
        fault = self.fault or (self.relay.fault if self.relay else None)
        known = self.committed or self.fault is not None
        if known and evidence and not (fault and fault.kind in NO_EVIDENCE):
            self.family.post(self.channel.settle, leave, fault, now)
        else:
            self.family.post(self.channel.abandon, leave, now, unanswered=self.exchange.unanswered)

    def record(self) -> AttemptRecord:
        """The attempt as the journal tells it. A unary answer is over when it is here, a stream when it was relayed."""
        end = self.answered if self.decided and self.relay is None else trio.current_time()
        return AttemptRecord(
            self.channel.name,
            self.model,
            self.started,
            end - self.started,
            self.fault or (self.relay.fault if self.relay else None),
            self.exchange.reused,
            self.answered - self.started if self.committed else None,
        )
