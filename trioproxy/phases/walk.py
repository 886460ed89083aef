"""Down the chain: one attempt after the other, each a child task of the request's nursery, until one commits.

A child that fails in a way that is worth another channel begins the next one as it ends, so nobody has to be woken in between.
Only failures that are worth another channel move on; where a policy names another model, its chain comes after. The walk holds at
most one attempt at a time, so releasing the walk releases everything that the request holds upstream.
"""

from collections.abc import Callable, Iterator

import trio
from attrs import define, evolve, field

from trioproxy.call import Call
from trioproxy.channel import ChannelState
from trioproxy.config.model import Model
from trioproxy.errors import ChainExhausted, Fault, FaultKind, Limited, Refusal
from trioproxy.family import Family
from trioproxy.journal import AttemptRecord
from trioproxy.phases import pacing
from trioproxy.phases.admit import Admission, Admitter
from trioproxy.phases.attempt import Attempt
from trioproxy.phases.fallback import StandIn, StandIns
from trioproxy.policy.chain import Candidate, Chain
from trioproxy.policy.pace import Sent
from trioproxy.policy.throttle import Short

UNSENT = frozenset({FaultKind.SATURATED, FaultKind.CONNECT})


@define(eq=False)
class Walk:
    """The attempts of one call. Once `decided`, either `committed` or `error` is set."""

    call: Call
    chain: Chain
    channels: Family[dict[str, ChannelState]]
    wall: Callable[[], float]
    exhausted: Callable[..., ChainExhausted]
    rewrite_model: str | None = None
    admission: Admission | None = None
    stand_ins: StandIns | None = None  # None where no other model may answer
    policy: Model | None = None  # what is delivered where nobody answers; None: the error
    instead: str = field(init=False, default="")  # what was: "answer" or "defer"
    why: str = field(init=False, default="")  # the code of the error that it was delivered in place of
    stand_in: str = field(init=False, default="")  # the model whose chain this is, where it is not the one asked for
    own: Chain = field(init=False)  # of the model asked for
    arm: str = field(init=False)  # of its rollout; "" too where nobody of it could be asked for lack of a turn
    committed: Attempt | None = field(init=False, default=None)
    error: ChainExhausted | None = field(init=False, default=None)
    decided: trio.Event = field(init=False, factory=trio.Event)
    skipped: list[tuple[str, str]] = field(init=False, factory=list)
    _paced: list[pacing.Held] = field(init=False, factory=list)
    _sent: Sent | None = field(init=False, default=None)
    _records: list[AttemptRecord] = field(init=False, factory=list)
    _faults: list[Fault] = field(init=False, factory=list)
    _upstream_time: float = field(init=False, default=0.0)
    _current: Attempt | None = field(init=False, default=None)
    _late: bool = field(init=False, default=False)
    _steps: list[Candidate] = field(init=False)  # may grow while they are gone through
    _left: Iterator[Candidate] = field(init=False)
    _places: int = field(init=False)  # who is passed over because of a limit of its own takes none
    _waited: float = field(init=False, default=0.0)  # in queues, for models before this one

    def __attrs_post_init__(self) -> None:
        self._set_out(self.chain)

    def _set_out(self, chain: Chain) -> None:
        self.chain = chain
        if not self.stand_in:
            self.own, self.arm = chain, chain.arm
        self._steps = [*chain.steps, *chain.beyond]
        self._left = iter(self._steps)
        self._places = len(chain.steps)

    async def enter(self, admitter: Admitter, model: Model, user: bytes, live: Callable[[float], Chain]) -> None:
        """Have what the call needs held for it, or for a stand-in. Raises `Refusal`. Cancelled, nothing is held."""
        began = trio.current_time()
        try:
            await self._enter(admitter, model, user, live)
        except trio.Cancelled:  # it leaves; all that took time was standing in line
            self._waited = trio.current_time() - began
            raise

    async def _enter(self, admitter: Admitter, model: Model, user: bytes, live: Callable[[float], Chain]) -> None:
        refused: Refusal | None = None
        try:
            self.admission = await admitter.admit(self.call, model, self.chain, user, live=live)
        except Refusal as refusal:
            refused = refusal.with_traceback(None)  # which has this frame in it
        if refused is None:
            if self.admission is not None and self.admission.turn is not None:
                self._set_out(self.admission.turn.chain)
            return
        stand_in = None if self.stand_ins is None else await self.stand_ins.after_refusal(refused)
        if stand_in is None:
            if refused.limited is not None:
                refused.limited = evolve(refused.limited, fallback_allowed=self.stand_ins is not None)
            raise refused
        self._waited = refused.queued
        self._turn_to(stand_in)
        self.arm = ""

    def _turn_to(self, stand_in: StandIn) -> None:
        self.skipped = [*self.chain.skipped, *self.skipped]
        self.stand_in = self.rewrite_model = stand_in.model
        self.admission = stand_in.admission
        held = None if self.admission is None else self.admission.turn
        self._set_out(stand_in.chain if held is None else held.chain)

    async def go(self, nursery: trio.Nursery) -> None:
        """Begin the next attempt, or decide where none is left. Cancelled, it leaves what it holds to `release`."""
        more = True
        while more:
            for step in self._left:
                now = trio.current_time()
                self._late = now + self.call.policy.min_attempt > self.call.deadlines.start
                if self._late or not self._places:
                    break
                bound = self.admission is not None or not self.channels.state[step.channel].pace.free
                if bound and (objection := await self._passed_over(step, now)):
                    self.skipped.append((step.channel, objection))
                    continue
                self._places -= 1
                nursery.start_soon(self._attempt, self._next(step), nursery)
                return
            more = self.stand_ins is not None and await self._replaced(self.stand_ins)
        self._decide()

    async def _replaced(self, stand_ins: StandIns) -> bool:
        """Whether another model is asked from here on; what was held for the one before is given back in any case."""
        if self.admission is not None:
            self.admission.refund()
        began = trio.current_time()
        try:
            stand_in = await stand_ins.after_exhaustion(self._exhausted(out_of_time=self._late))
        except trio.Cancelled:
            self._waited += trio.current_time() - began
            raise
        if stand_in is None:
            return False
        self._waited = self.queued or 0.0
        self._turn_to(stand_in)
        return True

    def _decide(self) -> None:
        if self.committed is None:
            self.error = self._exhausted(out_of_time=self._late)
        self.decided.set()

    async def _passed_over(self, step: Candidate, now: float) -> str | None:
        """Why a step is passed over; else what it holds of its channel's own limits is held."""
        channel = self.channels.state[step.channel]
        if not channel.pace.free:
            need = pacing.need_of(self.call, channel, step, self.admission)
            alone = step is self._steps[-1] or self._steps.count(step) > 1
            said = await self.channels.decide(channel.pacer.may_send, step.model, need, now, alone=alone)
            if isinstance(said, Short):
                if self.admission is not None:
                    self.admission.forgo(step)
                if said.rule == pacing.WARMUP:  # after the others it may still be asked
                    self._steps.append(step)
                else:
                    self._paced.append((step, said))
                return said.why
            self._sent = said
        if self.admission is None:
            return None
        try:
            objection = await self.admission.enter(step)
        except trio.Cancelled:
            self._unsent(channel, step.model, self._sent)
            raise
        if objection is not None:
            sent, self._sent = self._sent, None
            self._unsent(channel, step.model, sent)
        return objection

    def _unsent(self, channel: ChannelState, model: str, sent: Sent | None) -> None:
        """Nothing went to the provider: what was to be sent is not counted."""
        if sent is not None:
            self.channels.post(channel.pace.give_back, model, sent, trio.current_time())

    def _exhausted(self, *, out_of_time: bool) -> ChainExhausted:
        late = out_of_time or bool(self._faults and self._faults[-1].kind is FaultKind.DEADLINE)
        error = self.exhausted(self.chain, self._faults, trio.current_time(), deadline=late)
        if self.admission is not None:
            error = self.admission.judged(error)
        return pacing.judged(error, self._paced)

    def _next(self, step: Candidate) -> Attempt:
        channel = self.channels.state[step.channel]
        callers_name = not self.stand_in and (step.bound or step.model == self.call.facts.model)
        attempt = self._current = Attempt(
            self.call, channel, step.model, self.channels, self.wall, self.rewrite_model, callers_name
        )
        attempt.resort = step.resort
        if self.admission is not None:
            attempt.longest = self.admission.longest(step)
            if (slot := self.admission.slot()) is not None:
                attempt.hold(slot)
        attempt.sent, self._sent = self._sent, None
        return attempt

    async def _attempt(self, attempt: Attempt, nursery: trio.Nursery) -> None:
        """The child task of one attempt. Where it fails in a way that is worth another channel, the next one begins."""
        await attempt.run()
        self._upstream_time += attempt.answered - attempt.asked
        if attempt.committed:
            self.committed = attempt
            self._decide()
            return
        self._let_go(attempt)
        if attempt.fault is None or attempt.fault.kind in UNSENT:
            self._unsent(attempt.channel, attempt.model, attempt.sent)
        if attempt.fault is None:
            self.skipped.append((attempt.channel.name, "objected when it was its turn"))
        else:
            self._faults.append(attempt.fault)
        if attempt.fault is None or attempt.fault.retry:
            await self.go(nursery)
        else:
            self._decide()

    def _let_go(self, attempt: Attempt) -> None:
        self._current = None
        attempt.release()
        if self.admission is not None:
            self.admission.leave(sent=attempt.fault is not None and attempt.fault.kind not in UNSENT)
        if not attempt.skipped:
            self._records.append(attempt.record())

    def release(self, *, evidence: bool) -> None:
        """Give back whatever is held. `evidence` False: the present attempt teaches its channel nothing."""
        attempt, self._current = self._current, None
        if attempt is None:
            return
        if not attempt.entered:
            self._unsent(attempt.channel, attempt.model, attempt.sent)
        attempt.release(evidence=evidence)
        if not attempt.skipped:
            self._records.append(attempt.record())

    @property
    def upstream_time(self) -> float:
        """Seconds that channels had the call, attempts together, the one that is under way included."""
        attempt = self._current
        if attempt is None or attempt.decided:
            return self._upstream_time
        return self._upstream_time + trio.current_time() - attempt.asked

    @property
    def queued(self) -> float | None:
        """Seconds in the queue of its class; None where it never was before one."""
        waited = None if self.admission is None else self.admission.queued
        return self._waited or None if waited is None else self._waited + waited

    @property
    def limited(self) -> bool:
        """Nobody was asked, and some because of a limit of their own or of their provider."""
        refused = self.admission is not None and bool(self.admission.refused)
        return (refused or bool(self._paced)) and not self._records

    def stopped(self) -> Limited:
        """What is told where that was all that was in the way."""
        return pacing.stopped(self.call, self.channels.state, self._paced, self.admission)

    @property
    def records(self) -> tuple[AttemptRecord, ...]:
        return tuple(self._records)
