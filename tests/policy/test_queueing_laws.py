"""The queues' laws, over any order of offers, departures, settlements and waiting."""

import math
from collections.abc import Hashable

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.fakes.capacity import Clockwork, FakeCapacity, Tank
from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.queueing import Queues
from trioproxy.policy.tickets import Moves, State, Ticket, Why

POLICIES = {
    "first": QueuePolicy(0, bound=4, max_wait=2.0),
    "second": QueuePolicy(1, bound=6, max_wait=10.0, share=0.2),
    "third": QueuePolicy(2, bound=8, max_wait=30.0, share=0.05),
}
TENANTS = ("ann", "bob", "cem")
MODELS = ("x", "y")


class Lines(RuleBasedStateMachine):
    """Three classes, three tenants with their own limits, two models, one bound on calls at once.

    Whenever the line asks to be woken it is woken then and there, as its shell promises.
    """

    @initialize(rate=st.integers(1, 20), slots=st.integers(1, 4))
    def begin(self, rate: int, slots: int) -> None:
        tanks: dict[Hashable, Tank] = {("model", name): Tank(rate, 60, 60) for name in MODELS}
        tanks |= {("tenant", name): Tank(3, 40, 40) for name in TENANTS}
        places: dict[Hashable, int] = {"slots": slots} | {("key", name): 1 for name in TENANTS}
        own = {("tenant", name) for name in TENANTS} | {("key", name) for name in TENANTS}
        self.capacity = FakeCapacity(tanks, places, own=own)
        self.queues = Queues.from_policies(self.capacity, POLICIES)
        self.now = 0.0
        self.wake_at = math.inf
        self.open: list[Ticket] = []
        self.refused = 0

    @rule(
        name=st.sampled_from(tuple(POLICIES)),
        tenant=st.sampled_from(TENANTS),
        model=st.sampled_from(MODELS),
        cost=st.integers(1, 80),
        patience=st.sampled_from([math.inf, 0.0, 0.5, 5.0]),
        keyed=st.booleans(),
    )
    def offer(self, name: str, tenant: str, model: str, cost: int, patience: float, keyed: bool) -> None:
        scopes: tuple[Hashable, ...] = ("slots", ("model", model), ("tenant", tenant))
        scopes = (*scopes, ("key", tenant)) if keyed else scopes
        weight = 1.0 + TENANTS.index(tenant)
        ticket = Ticket(name, tenant, cost, scopes, weight=weight, deadline=self.now + patience)
        self.open.append(ticket)
        self._take(self.queues.offer(ticket, self.now))
        assert ticket.state is not State.GONE or ticket not in self.open

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        """In any state; what it held is given back first."""
        ticket = data.draw(st.sampled_from(self.open))
        before = self.queues.lines[ticket.traffic_class].share.waiting
        self.open.remove(ticket)
        waited = ticket.state is State.WAITING
        if not waited:
            self.capacity.give_back(ticket, ticket.cost)
        moves = self.queues.withdraw(ticket, self.now)
        mine = [other for other in moves.granted if other.traffic_class == ticket.traffic_class]
        gone = [other for other in moves.refused if other.ticket.traffic_class == ticket.traffic_class]
        after = self.queues.lines[ticket.traffic_class].share.waiting
        assert after == before - waited - len(mine) - len(gone)  # its place is free at once
        self._take(moves)
        again = self.queues.withdraw(ticket, self.now)
        assert not again.granted
        assert not again.refused

    @precondition(lambda self: any(ticket.state is State.GRANTED for ticket in self.open))
    @rule(data=st.data(), used=st.integers(0, 100))
    def settle(self, data: st.DataObject, used: int) -> None:
        ticket = data.draw(st.sampled_from([ticket for ticket in self.open if ticket.state is State.GRANTED]))
        self.open.remove(ticket)
        self.capacity.give_back(ticket, ticket.cost - used)
        self._take(self.queues.settle(ticket, used, self.now))

    @rule(seconds=st.sampled_from([0.1, 1.0, 7.0]))
    def time_passes(self, seconds: float) -> None:
        until = self.now + seconds
        woken = 0
        while self.wake_at <= until:
            assert self.wake_at > self.now, "a line that wants to be woken now is a busy loop"
            self.now = self.wake_at
            self._take(self.queues.pump(self.now))
            woken += 1
            assert woken < 200
        self.now = until
        self._take(self.queues.pump(self.now))

    @rule(name=st.sampled_from(tuple(POLICIES)))
    def incident(self, name: str) -> None:
        paused = self.queues.lines[name].paused
        self._take((self.queues.resume if paused else self.queues.pause)(name, self.now))

    def _take(self, moves: Moves) -> None:
        self.wake_at = moves.wake_at
        for ticket in moves.granted:
            assert ticket in self.open
            assert ticket.state is State.GRANTED
            assert self.now < ticket.expires, "nothing is granted after its time"
        for refused in moves.refused:
            assert refused.ticket.state is State.GONE
            assert refused.retry_after is None or 0.0 < refused.retry_after < math.inf
            self.open.remove(refused.ticket)

    def _waiting(self) -> list[Ticket]:
        return [ticket for ticket in self.open if ticket.state is State.WAITING]

    def _rank(self, ticket: Ticket) -> tuple[bool, int, float, int, int]:
        line = self.queues.lines[ticket.traffic_class]
        tenant = line.share.tenants[ticket.tenant]
        return (not line.due, line.policy.priority, tenant.counter, tenant.turn, ticket.sequence)

    @invariant()
    def queues_are_bounded_and_their_counts_are_true(self) -> None:
        for name, line in self.queues.lines.items():
            mine = [ticket for ticket in self._waiting() if ticket.traffic_class == name]
            assert line.share.waiting == len(mine) <= line.policy.bound
            assert line.share.queued == sum(ticket.cost for ticket in mine)
            lanes = {(ticket.tenant, ticket.scopes) for ticket in mine}
            assert line.share.lanes == len(lanes)
            assert line.share.through[0, "slots"] == len(lanes)
            weights = {ticket.tenant: ticket.weight for ticket in mine}
            assert line.share.weights == sum(weights.values())
            flying = [t for t in self.open if t.state is State.GRANTED and t.traffic_class == name]
            assert sum(tenant.flying for tenant in line.share.tenants.values()) == len(flying)

    @invariant()
    def nobody_waits_beyond_its_time(self) -> None:
        assert all(ticket.expires > self.now for ticket in self._waiting())
        assert self.wake_at <= min((ticket.expires for ticket in self._waiting()), default=math.inf)

    @invariant()
    def nobody_waits_whose_need_fits_but_behind_one_who_waits_for_the_same(self) -> None:
        waiting = [t for t in self._waiting() if not self.queues.lines[t.traffic_class].paused]
        heads = [t for t in waiting if self.queues.lines[t.traffic_class].share.is_head(t)]
        objections = {ticket: self.capacity.peek(ticket, self.now) for ticket in heads}
        for ticket in heads:
            if objections[ticket] is None:
                before = [other for other in heads if self._rank(other) < self._rank(ticket)]
                at = {scope for other in before for scope in self.capacity.lacking(other, self.now)}
                assert at & set(ticket.scopes), f"{ticket} waits for nothing"

    @invariant()
    def it_asks_to_be_woken_when_the_first_in_order_will_fit(self) -> None:
        waiting = [t for t in self._waiting() if not self.queues.lines[t.traffic_class].paused]
        heads = [t for t in waiting if self.queues.lines[t.traffic_class].share.is_head(t)]
        if heads:
            first = min(heads, key=self._rank)
            assert self.capacity.peek(first, self.now) is not None
            wait = self.capacity.fits_in(first, self.now)  # all its buckets, not only the one that objects first
            if wait is not None:
                assert self.wake_at <= self.now + max(wait, 0.001) + 1e-6

    def teardown(self) -> None:
        """Drained exactly: when all have left, nothing is held, counted or remembered."""
        for ticket in getattr(self, "open", [])[:]:
            if ticket not in self.open:
                continue
            self.open.remove(ticket)
            if ticket.state is State.GRANTED:
                self.capacity.give_back(ticket, ticket.cost)
            self._take(self.queues.withdraw(ticket, self.now))
        if hasattr(self, "queues"):
            for line in self.queues.lines.values():
                share = line.share
                assert (share.waiting, share.queued, share.lanes, share.weights, line.passed) == (0, 0, 0, 0.0, 0.0)
                assert not share.through
                assert not share.order
            assert self.wake_at == math.inf
            assert not any(self.capacity.held.values())


TestLines = Lines.TestCase
TestLines.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@settings(max_examples=60, deadline=None)
@given(
    costs=st.lists(st.integers(1, 50), min_size=1, max_size=8),
    rival=st.integers(1, 50),
    share=st.sampled_from([0.02, 0.05, 0.2, 0.5]),
)
def test_no_class_starves(costs: list[int], rival: int, share: float) -> None:
    """Each low ticket is served before the others, from then on, have been given its cost over the share, and one more."""
    capacity = FakeCapacity({"model": Tank(10, 60, 0)})
    policies = {
        "high": QueuePolicy(0, bound=10_000, max_wait=1e9),
        "low": QueuePolicy(1, bound=100, max_wait=1e9, share=share),
    }
    work = Clockwork(Queues.from_policies(capacity, policies), capacity)
    work.arrive(
        0.0, [Ticket("high", "chat", rival, ("model",)) for _ in range(1 + int(sum(costs) / share / rival) + 20)]
    )
    work.arrive(0.0, [Ticket("low", "night", cost, ("model",)) for cost in costs])
    work.run()
    passed = 0.0
    for ticket in work.granted:
        if ticket.traffic_class == "high":
            passed += ticket.cost
            continue
        assert passed <= ticket.cost / share + rival
        passed = max(0.0, passed - ticket.cost / share)


@settings(max_examples=60, deadline=None)
@given(arrivals=st.lists(st.tuples(st.floats(0, 20), st.integers(1, 30), st.sampled_from(TENANTS)), max_size=60))
def test_every_ticket_has_exactly_one_end(arrivals: list[tuple[float, int, str]]) -> None:
    capacity = FakeCapacity({"model": Tank(10, 30, 30)}, {"slots": 2})
    work = Clockwork(Queues.from_policies(capacity, POLICIES), capacity, seconds=lambda ticket: ticket.cost / 10)
    tickets = [Ticket("first", tenant, cost, ("model", "slots")) for _, cost, tenant in arrivals]
    for (when, _, _), ticket in zip(arrivals, tickets, strict=True):
        work.arrive(when, [ticket])
    work.run()
    ends = [*work.granted, *(refused.ticket for _, refused in work.refused)]
    assert sorted(map(id, ends)) == sorted(map(id, tickets))
    assert work.peak <= POLICIES["first"].bound
    assert all(ticket.waited < 2.0 for ticket in work.granted)
    assert {refused.why for _, refused in work.refused} <= {Why.FULL, Why.TOO_LONG, Why.MAX_WAIT}
