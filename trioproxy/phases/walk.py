"""Down the chain: one attempt after the other, each a child task of the request's nursery, until one commits.

A child that fails in a way that is worth another channel begins the next one as it ends, so nobody has to be woken in between.
Only failures that are worth another channel move on. The walk holds at most one attempt at a time, so releasing the walk
releases everything that the request holds upstream.
"""

from collections.abc import Callable, Iterator

import trio
from attrs import define, field

from trioproxy.call import Call
from trioproxy.channel import ChannelState
from trioproxy.errors import ChainExhausted, Fault, FaultKind
from trioproxy.family import Family
from trioproxy.journal import AttemptRecord
from trioproxy.phases.admit import Admission
from trioproxy.phases.attempt import Attempt
from trioproxy.policy.chain import Candidate, Chain

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
    committed: Attempt | None = field(init=False, default=None)
    error: ChainExhausted | None = field(init=False, default=None)
    decided: trio.Event = field(init=False, factory=trio.Event)
    skipped: list[tuple[str, str]] = field(init=False, factory=list)
    _records: list[AttemptRecord] = field(init=False, factory=list)
    _faults: list[Fault] = field(init=False, factory=list)
    _upstream_time: float = field(init=False, default=0.0)
    _current: Attempt | None = field(init=False, default=None)
    _late: bool = field(init=False, default=False)
    _left: Iterator[Candidate] = field(init=False)
    _places: int = field(init=False)  # who is passed over because of a limit of its own takes none

    def __attrs_post_init__(self) -> None:
        self._left = iter(self.chain.steps + self.chain.beyond)
        self._places = len(self.chain.steps)

    async def go(self, nursery: trio.Nursery) -> None:
        """Begin the next attempt, or decide where none is left. Cancelled, it leaves what it holds to `release`."""
        for step in self._left:
            self._late = trio.current_time() + self.call.policy.min_attempt > self.call.deadlines.start
            if self._late or not self._places:
                break
            if self.admission is not None and (objection := await self.admission.enter(step)):
                self.skipped.append((step.channel, objection))
                continue
            self._places -= 1
            nursery.start_soon(self._attempt, self._next(step), nursery)
            return
        self._decide()

    def _decide(self) -> None:
        if self.committed is None:
            self.error = self._exhausted(out_of_time=self._late)
        self.decided.set()

    def _exhausted(self, *, out_of_time: bool) -> ChainExhausted:
        late = out_of_time or bool(self._faults and self._faults[-1].kind is FaultKind.DEADLINE)
        error = self.exhausted(self.chain, self._faults, trio.current_time(), deadline=late)
        return error if self.admission is None else self.admission.judged(error)

    def _next(self, step: Candidate) -> Attempt:
        channel = self.channels.state[step.channel]
        callers_name = step.bound or step.model == self.call.facts.model
        attempt = self._current = Attempt(
            self.call, channel, step.model, self.channels, self.wall, self.rewrite_model, callers_name
        )
        attempt.resort = step.resort
        if self.admission is not None:
            attempt.longest = self.admission.longest(step)
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
        if attempt is None or attempt.decided:
            return self._upstream_time
        return self._upstream_time + trio.current_time() - attempt.asked

    @property
    def limited(self) -> bool:
        """Nobody was asked, and some because of a limit of their own."""
        return self.admission is not None and bool(self.admission.refused) and not self._records

    @property
    def records(self) -> tuple[AttemptRecord, ...]:
        return tuple(self._records)
