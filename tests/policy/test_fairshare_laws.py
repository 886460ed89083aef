"""The fairness bound, the end of hoarding and the reclaim bound, over any order of events."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.fakes.capacity import Clockwork, FakeCapacity
from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.fairshare import MEMORY, FairShare
from trioproxy.policy.queueing import Queues
from trioproxy.policy.tickets import Moves, State, Ticket

WEIGHTS = {"ann": 1.0, "bob": 2.0, "cem": 3.0, "dee": 1.0}
DEAREST = 40  # tokens, of an estimate as of what is used
AT_ONCE = 3


class Backlogs(RuleBasedStateMachine):
    """Tenants come, wait, leave and return, on one bound of calls at once; what is used may differ from the estimate.

    `given` is the work a tenant was given: estimates until they are settled, then what was used. For each pair that waits,
    `since` holds what both had been given when the later one began to wait.
    """

    @initialize(slots=st.integers(1, AT_ONCE))
    def begin(self, slots: int) -> None:
        self.capacity = FakeCapacity(slots={"slots": slots})
        self.slots = slots
        policy = QueuePolicy(0, bound=10_000, max_wait=1e9)
        self.queues = Queues.from_policies(self.capacity, {"only": policy})
        self.line = self.queues.lines["only"]
        self.now = 0.0
        self.given = dict.fromkeys(WEIGHTS, 0)
        self.waiting: dict[str, list[Ticket]] = {name: [] for name in WEIGHTS}
        self.flying: list[Ticket] = []
        self.since: dict[tuple[str, str], tuple[int, int]] = {}

    @rule(name=st.sampled_from(tuple(WEIGHTS)), costs=st.lists(st.integers(1, DEAREST), min_size=1, max_size=12))
    def offer(self, name: str, costs: list[int]) -> None:
        for cost in costs:
            ticket = Ticket("only", name, cost, ("slots",), weight=WEIGHTS[name])
            self.waiting[name].append(ticket)
            self._take(self.queues.offer(ticket, self.now))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), used=st.none() | st.integers(0, DEAREST))
    def settle(self, data: st.DataObject, used: int | None) -> None:
        ticket = data.draw(st.sampled_from(self.flying))
        self.flying.remove(ticket)
        actual = ticket.cost if used is None else used
        self.capacity.give_back(ticket, 0)
        self.given[ticket.tenant] += actual - ticket.cost
        self._take(self.queues.settle(ticket, actual, self.now))

    @precondition(lambda self: self.flying)
    @rule(count=st.integers(1, 30))
    def a_while(self, count: int) -> None:
        for _ in range(count):
            if self.flying:
                ticket = self.flying.pop(0)
                self.capacity.give_back(ticket, 0)
                self._take(self.queues.settle(ticket, ticket.cost, self.now))

    @rule(name=st.sampled_from(tuple(WEIGHTS)))
    def all_leave(self, name: str) -> None:
        for ticket in self.waiting[name][:]:
            self.waiting[name].remove(ticket)
            self._take(self.queues.withdraw(ticket, self.now))

    @rule(seconds=st.sampled_from([1.0, MEMORY + 1.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._take(self.queues.pump(self.now))

    def _take(self, moves: Moves) -> None:
        assert not moves.refused
        for ticket in moves.granted:
            self.waiting[ticket.tenant].remove(ticket)
            self.flying.append(ticket)
            self.given[ticket.tenant] += ticket.cost
        backlogged = [name for name, tickets in self.waiting.items() if tickets]
        pairs = {(a, b) for a in backlogged for b in backlogged if a < b}
        self.since = {pair: self.since.get(pair) or (self.given[pair[0]], self.given[pair[1]]) for pair in pairs}

    @invariant()
    def work_over_weight_differs_by_the_bound_at_most(self) -> None:
        """F6: 2 · max(tokens in flight / weight), where one may be corrected for each that is under way."""
        for (a, b), (a_before, b_before) in self.since.items():
            gap = (self.given[a] - a_before) / WEIGHTS[a] - (self.given[b] - b_before) / WEIGHTS[b]
            bound = 2 * (1 + self.slots) * DEAREST / min(WEIGHTS[a], WEIGHTS[b])
            assert abs(gap) <= bound

    @invariant()
    def slots_are_busy_while_anyone_waits(self) -> None:
        assert len(self.flying) == self.slots or not any(self.waiting.values())

    @invariant()
    def the_order_is_that_of_the_counters(self) -> None:
        order = list(self.line.share.order)
        assert order == sorted(order, key=lambda entry: entry[:2])
        assert [(tenant.counter, tenant.turn) for _, _, tenant in order] == [entry[:2] for entry in order]
        assert {tenant.name for _, _, tenant in order} == {name for name, tickets in self.waiting.items() if tickets}


TestBacklogs = Backlogs.TestCase
TestBacklogs.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@settings(max_examples=100, deadline=None)
@given(
    costs=st.lists(st.integers(1, 50), min_size=60, max_size=120),
    weights=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    head_start=st.integers(0, 40),
)
def test_with_exact_estimates_the_bound_is_twice_the_dearest_call(
    costs: list[int], weights: tuple[int, int], head_start: int
) -> None:
    """One that returns is treated as one that was always there: from its return on, both are within 2 · max(cost/weight)."""
    share = FairShare()
    tickets = [Ticket("only", "ab"[n % 2], cost, weight=float(weights[n % 2])) for n, cost in enumerate(costs)]
    for n, ticket in enumerate(tickets):
        ticket.sequence = n
    early, late = tickets[0::2], tickets[1::2]
    for ticket in early:
        share.join(ticket, 0.0)
    for _ in range(min(head_start, len(early) - 1)):
        share.fly(early.pop(0), 0.0)
    for ticket in late:
        share.join(ticket, 0.0)
    work = {"a": 0.0, "b": 0.0}
    while early and late:
        first = share.first()
        assert first is not None
        share.fly(first, 0.0)
        (early if first.tenant == "a" else late).remove(first)
        work[first.tenant] += first.cost / first.weight
        assert abs(work["a"] - work["b"]) <= 2 * 50 / min(weights)


@settings(max_examples=80, deadline=None)
@given(
    part=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    loan=st.integers(500, 3_000),
    returns=st.floats(0.0, 200.0),
    spends=st.lists(st.tuples(st.floats(0.0, 20.0), st.integers(1, 1_000)), min_size=1, max_size=10),
)
def test_an_owner_never_waits_for_a_borrower_longer_than_the_reclaim_bound(
    part: float, loan: int, returns: float, spends: list[tuple[float, int]]
) -> None:
    """Within its guarantee: `reclaim` seconds, in proportion to its part of the pool, from its return on."""
    rate, reclaim = 1_000.0, 5.0
    policy = QueuePolicy(0, bound=100_000, max_wait=1e9, tokens_per_minute=60_000, burst=10.0, reclaim=reclaim)
    capacity = FakeCapacity()
    queues = Queues.from_policies(capacity, {"only": policy}, {"only": {"owner": part * rate}})
    work = Clockwork(queues, capacity)
    work.arrive(0.0, [Ticket("only", "borrower", loan) for _ in range(1 + int(230_000 / loan))])
    when, owned, level = returns, [], part * rate * reclaim
    for gap, cost in spends:
        when += gap
        level = min(part * rate * reclaim, level + gap * part * rate)
        if cost <= level:  # what its guarantee covers, and no more
            level -= cost
            owned.append(Ticket("only", "owner", cost))
            work.arrive(when, owned[-1:])
    work.run(until=when + 10.0)
    assert all(ticket.state is State.GONE for ticket in owned)
    assert all(not ticket.borrowed for ticket in owned)
    assert all(ticket.waited <= reclaim * part + 0.01 for ticket in owned)
    total = sum(ticket.cost for ticket in work.granted)
    assert total <= rate * (10.0 + work.now) + loan  # nothing is lent twice
