"""Down the chain: one attempt after the other, each a child task of the request's nursery, until one commits.

Only failures that are worth another channel move on; where a policy names another model, its chain comes after. The walk holds at most one attempt at a time, so releasing the walk
releases everything that the request holds upstream.
"""

from collections.abc import Callable

import trio
from attrs import define, evolve, field

from trioproxy.call import Call
from trioproxy.channel import ChannelState
from trioproxy.config.model import Model
from trioproxy.errors import ChainExhausted, Fault, FaultKind, Refusal
from trioproxy.family import Family
from trioproxy.journal import AttemptRecord
from trioproxy.phases.admit import Admission, Admitter
from trioproxy.phases.attempt import Attempt
from trioproxy.phases.fallback import StandIn, StandIns
from trioproxy.policy.chain import Candidate, Chain

UNSENT = frozenset({FaultKind.SATURATED, FaultKind.CONNECT})


@define(eq=False)
class Walk:
    """The attempts of one call. After `go` either `committed` or `error` is set."""

    call: Call
    chain: Chain
    channels: Family[dict[str, ChannelState]]
    wall: Callable[[], float]
    exhausted: Callable[..., ChainExhausted]
    rewrite_model: str | None = None
    admission: Admission | None = None
    stand_ins: StandIns | None = None  # None where no other model may answer
    stand_in: str = field(init=False, default="")  # the model whose chain this is, where it is not the one asked for
    committed: Attempt | None = field(init=False, default=None)
    error: ChainExhausted | None = field(init=False, default=None)
    decided: trio.Event = field(init=False, factory=trio.Event)
    skipped: list[tuple[str, str]] = field(init=False, factory=list)
    _records: list[AttemptRecord] = field(init=False, factory=list)
    _faults: list[Fault] = field(init=False, factory=list)
    _upstream_time: float = field(init=False, default=0.0)
    _current: Attempt | None = field(init=False, default=None)
    _waited: float = field(init=False, default=0.0)  # in queues, for models before this one

    async def enter(self, admitter: Admitter, model: Model, user: bytes, live: Callable[[float], Chain]) -> None:
        """Have what the call needs held for it, or for a stand-in. Raises `Refusal`. Cancelled, nothing is held."""
        refused: Refusal | None = None
        try:
            self.admission = await admitter.admit(self.call, model, self.chain, user, live=live)
        except Refusal as refusal:
            refused = refusal
        if refused is None:
            if self.admission is not None and self.admission.turn is not None:
                self.chain = self.admission.turn.chain
            return
        stand_in = None if self.stand_ins is None else await self.stand_ins.after_refusal(refused)
        if stand_in is None:
            if refused.limited is not None:
                refused.limited = evolve(refused.limited, fallback_allowed=self.stand_ins is not None)
            raise refused
        self._waited = refused.queued
        self._turn_to(stand_in)

    def _turn_to(self, stand_in: StandIn) -> None:
        self.stand_in = self.rewrite_model = stand_in.model
        self.admission, self.chain = stand_in.admission, stand_in.chain
        if self.admission is not None and self.admission.turn is not None:
            self.chain = self.admission.turn.chain

    async def go(self, nursery: trio.Nursery) -> None:
        """Try the chain's channels in order, then those of stand-ins. Cancelled, it leaves what it holds to `release`."""
        error = await self._along(nursery)
        while error is not None and self.stand_ins is not None:
            if self.admission is not None:
                self.admission.refund()
            stand_in = await self.stand_ins.after_exhaustion(error)
            if stand_in is None:
                break
            self._waited = self.queued or 0.0
            self._turn_to(stand_in)
            error = await self._along(nursery)
        self.error = error
        self.decided.set()

    async def _along(self, nursery: trio.Nursery) -> ChainExhausted | None:
        out_of_time = False
        places = len(self.chain.steps)  # who is passed over because of a limit of its own takes none
        for step in self.chain.steps + self.chain.beyond:
            if not places:
                break
            out_of_time = trio.current_time() + self.call.policy.min_attempt > self.call.deadlines.start
            if out_of_time:
                break
            if self.admission is not None and (objection := await self.admission.enter(step)):
                self.skipped.append((step.channel, objection))
                continue
            places -= 1
            if not await self._attempt(nursery, step):
                break
        return self._exhausted(out_of_time=out_of_time) if self.committed is None else None

    def _exhausted(self, *, out_of_time: bool) -> ChainExhausted:
        late = out_of_time or bool(self._faults and self._faults[-1].kind is FaultKind.DEADLINE)
        error = self.exhausted(self.chain, self._faults, trio.current_time(), deadline=late)
        return error if self.admission is None else self.admission.judged(error)

    async def _attempt(self, nursery: trio.Nursery, step: Candidate) -> bool:
        """Make one attempt; whether the next channel is to be asked."""
        channel = self.channels.state[step.channel]
        callers_name = not self.stand_in and (step.bound or step.model == self.call.facts.model)
        attempt = self._current = Attempt(
            self.call, channel, step.model, self.channels, self.wall, self.rewrite_model, callers_name
        )
        if self.admission is not None:
            attempt.longest = self.admission.longest(step)
            if (slot := self.admission.slot()) is not None:
                attempt.hold(slot)
        nursery.start_soon(attempt.run)
        await attempt.decided.wait()
        self._upstream_time += attempt.answered - attempt.asked
        if attempt.committed:
            self.committed = attempt
            return False
        self._let_go(attempt)
        if attempt.fault is None:
            self.skipped.append((step.channel, "objected when it was its turn"))
            return True
        self._faults.append(attempt.fault)
        return attempt.fault.retry

    def _let_go(self, attempt: Attempt) -> None:
        self._current = None
        attempt.release()
        if self.admission is not None:
            self.admission.leave(sent=attempt.fault is not None and attempt.fault.kind not in UNSENT)
        if not attempt.skipped:
            self._records.append(attempt.record(attempt.answered))

    def release(self, *, evidence: bool) -> None:
        """Give back whatever is held. `evidence` False: the present attempt teaches its channel nothing."""
        attempt, self._current = self._current, None
        if attempt is None:
            return
        attempt.release(evidence=evidence)
        if not attempt.skipped:
            self._records.append(attempt.record(trio.current_time()))

    @property
    def upstream_time(self) -> float:
        """Seconds that channels had the call, attempts together, the one that is under way included."""
        attempt = self._current
        if attempt is None or attempt.decided.is_set():
            return self._upstream_time
        return self._upstream_time + trio.current_time() - attempt.asked

    @property
    def queued(self) -> float | None:
        """Seconds in the queue of its class; None where it never was before one."""
        waited = None if self.admission is None else self.admission.queued
        return self._waited or None if waited is None else self._waited + waited

    @property
    def limited(self) -> bool:
        """Nobody was asked, and some because of a limit of their own."""
        return self.admission is not None and bool(self.admission.refused) and not self._records

    @property
    def records(self) -> tuple[AttemptRecord, ...]:
        return tuple(self._records)
