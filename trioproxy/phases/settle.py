"""The account of one exchange: ended exactly once, by whatever way the exchange ends.

A settlement is a block around the whole exchange; leaving it releases what the walk holds and emits the one record. All of it
is synchronous, so nothing can cancel it. Failed attempts cost the tenant nothing; a cut or cancelled answer is settled at
what was received, estimated and flagged where the provider did not say.
"""

from types import TracebackType
from typing import Self

import trio
from attrs import define, field
from msgspec.structs import replace

from trioproxy.answer import Answer
from trioproxy.call import Call, Caller, Request
from trioproxy.codec.problem import telling
from trioproxy.errors import Blame, ChainExhausted, FaultKind, Limited, Refusal, RefusalKind
from trioproxy.journal import AnswerBegan, EndReason, ExchangeEnded, Journal, Usage
from trioproxy.phases.admit import Admission
from trioproxy.phases.keepalive import Keepalive
from trioproxy.phases.walk import Walk

# Used only where the provider told nothing: about 4 bytes are a token of English, and of what a stream brings a frame is a
# token more often than not.
BYTES_PER_TOKEN = 4
BYTES_PER_FRAME = 200

AUTH = {
    RefusalKind.INVALID_KEY,
    RefusalKind.KEY_EXPIRED,
    RefusalKind.FORBIDDEN_CLASS,
    RefusalKind.FORBIDDEN_ENDPOINT,
}

LATE = {FaultKind.DEADLINE: EndReason.DEADLINE, FaultKind.DRAINED: EndReason.DRAINED}
SAID = {EndReason.DRAINED: 503}  # where there was no answer yet, by the door, in its own words
INSTEAD = {"answer": EndReason.DEGRADED, "defer": EndReason.DEFERRED}
EVIDENCE = {EndReason.ANSWERED, EndReason.CUT_AFTER_COMMIT}


def refused(journal: Journal, request: Request, answer: Answer, *, request_id: str, caller: Caller) -> None:
    """The record of a request that was refused before any channel was asked; `answer` is what the caller is told."""
    refusal = answer.error
    assert isinstance(refusal, Refusal), "the answer to a refusal carries it"
    record = _unasked(request, request_id, caller)
    if refusal.queued:
        record = replace(record, queued=refusal.queued)
    if refusal.limited is not None:
        record = _limited(record, refusal.limited)
    elif refusal.kind in AUTH:
        record = replace(record, reason=EndReason.REFUSED_AUTH)
    journal.emit(replace(record, status=answer.status, note=refusal.kind.value))


def put_off(journal: Journal, call: Call, answer: Answer) -> None:
    """The record of a call that was put off before any channel was asked, or that had been before."""
    error, now = answer.error, trio.current_time()
    journal.emit(
        ExchangeEnded(
            call.request_id,
            EndReason.DEFERRED,
            answer.status,
            call.endpoint.path,
            call.facts.model,
            call.facts.stream,
            call.caller.key_id,
            call.caller.tenant,
            call.traffic_class,
            started=call.started,
            duration=now - call.started,
            overhead=now - call.started,
            session=call.session,
            queued=error.queued if isinstance(error, Refusal) else 0.0,
            note=error.kind.value if isinstance(error, Refusal) else "repeated",
        )
    )


def _limited(record: ExchangeEnded, limited: Limited) -> ExchangeEnded:
    """The same record with the limit that refused the call."""
    return replace(
        record,
        reason=EndReason.REFUSED_QUOTA,
        model=limited.model,
        traffic_class=limited.request_class,
        estimated_input=limited.estimated_input_tokens,
        estimated_output=limited.estimated_output_tokens,
        limiter=limited.limiter,
        scope=limited.scope,
        wait=None if limited.retry_after_ms is None else limited.retry_after_ms / 1000,
    )


def broken_off(journal: Journal, request: Request, exc: BaseException, *, request_id: str, caller: Caller) -> None:
    """The record of a request that ended by a bug, or by its caller's leaving, before it was understood."""
    cancelled = _cancelled(exc)
    reason = EndReason.BUG if cancelled is None else _gone(cancelled)
    journal.emit(replace(_unasked(request, request_id, caller), reason=reason, status=SAID.get(reason, 0)))


def left_early(journal: Journal, call: Call, walk: Walk | None, exc: BaseException) -> None:
    """The record of a call that ended so while it was being admitted, in the queue of its class as a rule."""
    cancelled = _cancelled(exc)
    reason = EndReason.BUG if cancelled is None else _gone(cancelled)
    duration = trio.current_time() - call.started
    journal.emit(
        ExchangeEnded(
            call.request_id,
            reason,
            SAID.get(reason, 0),
            call.endpoint.path,
            call.facts.model,
            call.facts.stream,
            call.caller.key_id,
            call.caller.tenant,
            call.traffic_class,
            skipped=() if walk is None else walk.chain.skipped,
            started=call.started,
            duration=duration,
            overhead=duration,
            traceparent=call.traceparent,
            session=call.session,
            arm="" if walk is None else walk.chain.arm,
            queued=0.0 if walk is None else walk.queued or 0.0,
        )
    )


def _unasked(request: Request, request_id: str, caller: Caller) -> ExchangeEnded:
    duration = trio.current_time() - request.started
    return ExchangeEnded(
        request_id,
        EndReason.REFUSED_REQUEST,
        0,
        request.path,
        key_id=caller.key_id,
        tenant=caller.tenant,
        started=request.started,
        duration=duration,
        overhead=duration,
    )


@define(eq=False)
class Settlement:
    """The account of one call that went to its channels."""

    call: Call
    walk: Walk
    journal: Journal
    answer: Answer | None = field(init=False, default=None)
    overhead: float = field(init=False, default=0.0)
    _early: Keepalive | None = field(init=False, default=None)

    def __enter__(self) -> Self:
        return self

    def begin(self, answer: Answer, early: Keepalive | None = None) -> None:
        """The answer's first byte may go downstream now; where it is `early`, of what comes before the model's."""
        self.answer, self._early = answer, early
        self.overhead = answer.overhead
        if answer.whole and self.walk.admission is not None:
            self.walk.admission.stir()
        if not self.journal.wanted(AnswerBegan):
            return
        if self.walk.committed is not None:
            self.began()
        elif early is not None:
            early.began = self.began

    def began(self) -> None:
        """Say that from here on the call costs somebody something, and how much likely: a unary answer has told."""
        call, walk, attempt = self.call, self.walk, self.walk.committed
        assert attempt is not None, "an answer begins with a channel that gave it"
        admission = walk.admission
        estimate = None if admission is None or attempt.relay is None else admission.estimate
        if estimate is None or not estimate.input:
            usage = self._usage()
            tokens = usage.input + usage.cached, usage.output
        else:
            tokens = estimate.input, estimate.output
        self.journal.emit(
            AnswerBegan(
                call.request_id,
                attempt.channel.name,
                call.facts.model,
                call.caller.key_id,
                call.caller.tenant,
                *tokens,
                attempt.model,
                call.traffic_class,
                "" if admission is None else admission.way.user,
            )
        )

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._early is not None:  # it is the answer's, and the answer is ours: a cycle with all of the call in it
            self._early.began = None
        reason = self._reason(exc)
        usage = self._usage()
        cost = self._cost(usage)
        try:
            self.walk.release(evidence=reason in EVIDENCE)
        finally:
            if self.walk.admission is not None:
                self._settle(self.walk.admission, reason, usage, cost)
        self.journal.emit(self._record(reason, usage, cost))

    def _settle(self, admission: Admission, reason: EndReason, usage: Usage, cost: int | None) -> None:
        """Replace what the call holds of its quota by what it used."""
        attempt = self.walk.committed
        if attempt is None:
            admission.refund()
            return
        admission.settle(usage, cost, attempt.channel.name)
        seconds = trio.current_time() - attempt.answered if attempt.relay is not None else None
        step = attempt.channel.name, attempt.model
        admission.learn(usage, step, seconds=seconds, whole=reason is EndReason.ANSWERED)

    def _record(self, reason: EndReason, usage: Usage, cost: int | None) -> ExchangeEnded:
        call, admission = self.call, self.walk.admission
        record = ExchangeEnded(
            call.request_id,
            reason,
            self._status(reason),
            call.endpoint.path,
            call.facts.model,
            call.facts.stream,
            call.caller.key_id,
            call.caller.tenant,
            call.traffic_class,
            self.walk.records,
            self.walk.chain.skipped + tuple(self.walk.skipped),
            usage,
            cost,
            call.started,
            trio.current_time() - call.started,
            self.overhead,
            self.answer.sent if self.answer is not None else 0,
            traceparent=call.traceparent,
            estimated_input=0 if admission is None else admission.estimate.input,
            estimated_output=0 if admission is None else admission.estimate.output,
            session=call.session,
            arm=self.walk.arm,
            preferred_cost=self._preferred_cost(usage),
            refused=bool(self.walk.arm) and self.walk.committed is not None and self.walk.committed.refused,
            queued=self.walk.queued or 0.0,
            fallback=self.walk.stand_in if self.walk.committed is not None else "",
            user="" if admission is None else admission.way.user,
            note=self.walk.why,
        )
        return _limited(record, self.walk.stopped()) if reason is EndReason.REFUSED_QUOTA else record

    def _status(self, reason: EndReason) -> int:
        if self.answer is not None:
            return self.answer.status
        return SAID.get(reason, 0)

    def _reason(self, exc: BaseException | None) -> EndReason:
        cancelled = _cancelled(exc)
        if exc is not None and cancelled is None:
            return EndReason.BUG
        if self._early is not None and self._early.down:
            return EndReason.DRAINED
        if self.walk.error is not None:
            if self.walk.instead:
                return INSTEAD[self.walk.instead]
            limited = self.walk.limited and not self.walk.error.deadline
            return EndReason.REFUSED_QUOTA if limited else _exhausted(self.walk.error)
        attempt, answer = self.walk.committed, self.answer
        if attempt is not None and answer is not None:
            if attempt.relay is not None and attempt.relay.fault is not None:
                return LATE.get(attempt.relay.fault.kind, EndReason.CUT_AFTER_COMMIT)
            if answer.delivered:  # also if its reader left right after the last byte
                return EndReason.ANSWERED
        return _gone(cancelled)

    def _usage(self) -> Usage:
        attempt = self.walk.committed
        if attempt is None:
            return Usage()
        told = attempt.usage
        if told is not None:
            return told
        size = attempt.reader.output_bytes if attempt.reader is not None else len(attempt.body)
        expected = self.walk.admission.expectation if self.walk.admission is not None else None
        measured = -(-len(self.call.body) // BYTES_PER_TOKEN) if expected is None else expected.tokens(attempt.model)
        return Usage(
            input=measured,
            output=max(1, size // (BYTES_PER_TOKEN if attempt.reader is None else BYTES_PER_FRAME)),
            estimated=True,
        )

    def _cost(self, usage: Usage) -> int | None:
        attempt = self.walk.committed
        if attempt is None:
            return 0
        return attempt.channel.tariff.cost(usage) if attempt.channel.tariff is not None else None

    def _preferred_cost(self, usage: Usage) -> int | None:
        """What the detour's tokens would have cost at the channel of first choice; None where there was no detour."""
        attempt, first = self.walk.committed, self.walk.own.first
        if attempt is None or first is None or attempt.channel.name == first.channel:
            return None
        tariff = self.walk.channels.state[first.channel].tariff
        return tariff.cost(usage) if tariff is not None else None


def _exhausted(error: ChainExhausted) -> EndReason:
    if error.deadline:
        return EndReason.DEADLINE
    told = telling(error.faults) if error.faults else None
    if told is not None and told.blame is Blame.CLIENT and told.kind is not FaultKind.DEADLINE:
        return EndReason.REJECTED_UPSTREAM
    return EndReason.CHAIN_EXHAUSTED


def _gone(cancelled: trio.Cancelled | None) -> EndReason:
    drained = cancelled is not None and cancelled.reason == "drain"
    return EndReason.DRAINED if drained else EndReason.CLIENT_LEFT


def _cancelled(exc: BaseException | None) -> trio.Cancelled | None:
    """The cancellation that ended a block, alone or as a nursery passes it on; None if there was anything else."""
    while isinstance(exc, BaseExceptionGroup):
        others = exc.split(trio.Cancelled)[1]
        exc = others if others is not None else exc.exceptions[0]
        if others is not None:
            return None
    return exc if isinstance(exc, trio.Cancelled) else None
