"""A channel under any sequence of calls, last resorts and health checks: leave is always given back, and it always heals."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.test_supervisor import ADAPTER, BAD, BROKEN, REFUSED, THROTTLED, UNKNOWN, channel
from trioproxy.channel import Pass
from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.policy.breaker import PRESETS, State
from trioproxy.policy.standing import LAST_PARK

UNTOLD = Fault(FaultKind.RATE_LIMITED, Blame.RATE, "slow down", retry=True)
FAULTS = [None, None, BROKEN, BROKEN, THROTTLED, UNTOLD, REFUSED, UNKNOWN, BAD, ADAPTER]


class Channel(RuleBasedStateMachine):
    """`out` is every pass that is not handed back, with whether it is a health check's."""

    @initialize(preset=st.sampled_from(list(PRESETS)))
    def begin(self, preset: str) -> None:
        self.now = 0.0
        self.channel = channel(PRESETS[preset], luck=lambda: 0.5)
        self.out: list[tuple[Pass, bool]] = []
        self.seen = 0

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 12.0, 35.0, 60.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(model=st.sampled_from("mn"), streamed=st.booleans(), resort=st.booleans())
    def enters(self, model: str, streamed: bool, resort: bool) -> None:
        objection = self.channel.objection(model, self.now)
        leave = self.channel.try_enter(model, self.now, streamed=streamed, resort=resort)
        assert resort or (leave is None) == (objection is not None)
        assert leave is not None or objection is not None
        if leave is not None:
            self.out.append((leave, False))

    @rule(closes=st.booleans())
    def is_checked(self, closes: bool) -> None:
        parked = self.channel.standing.parked
        leave = self.channel.enter_probe("m", self.now, closes=closes)
        assert not (parked and leave)
        if leave is not None:
            self.out.append((leave, True))

    @rule(data=st.data())
    def commits(self, data: st.DataObject) -> None:
        streams = [leave for leave, check in self.out if leave.streamed and not check and not leave.permit.spent]
        if streams:
            self.channel.commit(data.draw(st.sampled_from(streams)), self.now)

    @rule(data=st.data(), fault=st.sampled_from(FAULTS))
    def settles(self, data: st.DataObject, fault: Fault | None) -> None:
        if self.out:
            leave, check = self.take(data)
            (self.channel.settle_probe if check else self.channel.settle)(leave, fault, self.now)

    @rule(data=st.data(), unanswered=st.booleans())
    def abandons(self, data: st.DataObject, unanswered: bool) -> None:
        if self.out:
            leave, _ = self.take(data)
            self.channel.abandon(leave, self.now, unanswered=unanswered)

    @rule()
    def trips(self) -> None:
        self.channel.trip(self.now)

    def take(self, data: st.DataObject) -> tuple[Pass, bool]:
        return self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))

    @invariant()
    def leases_are_those_that_are_out(self) -> None:
        breaker = self.channel.breaker
        probes = [leave for leave, _ in self.out if leave.permit.probe and not leave.permit.spent]
        assert breaker.leases <= len(probes)
        assert breaker.leases <= max(1, breaker.policy.probes)
        assert breaker.state is not State.CLOSED or not breaker.leases

    @invariant()
    def totals_only_grow_and_a_reading_changes_nothing(self) -> None:
        reading = self.channel.statistics(self.now)
        assert reading == self.channel.statistics(self.now)
        assert reading.successes + reading.failed >= self.seen
        self.seen = reading.successes + reading.failed
        assert (reading.open_for > 0) <= (reading.breaker == "open")

    def teardown(self) -> None:
        """Given back, healthy and with time, every channel is in order again."""
        if not hasattr(self, "channel"):
            return
        for held, _ in self.out:
            self.channel.abandon(held, self.now)
        assert self.channel.breaker.leases == 0
        self.now += LAST_PARK
        for _ in range(5):
            leave = self.channel.try_enter("m", self.now)
            assert leave is not None
            self.channel.settle(leave, None, self.now)
        assert self.channel.breaker.state is State.CLOSED
        assert self.channel.objection("m", self.now) is None


TestChannel: Any = Channel.TestCase
TestChannel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
