"""Where nobody waits a ticket goes through in one step, and that comes to the same as standing in line."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.capacity import FakeCapacity, Tank
from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.fairshare import FairShare
from trioproxy.policy.lending import Pool
from trioproxy.policy.queueing import Queues
from trioproxy.policy.tickets import Moves, Objection, State, Ticket

POLICY = QueuePolicy(bound=10, max_wait=50.0, tokens_per_minute=6_000, burst=10.0)


def share() -> FairShare:
    return FairShare(Pool(100.0, 10.0, {"gold": 50.0}))


@given(st.lists(st.tuples(st.sampled_from(["gold", "lead"]), st.integers(1, 400), st.floats(0, 30)), max_size=12))
def test_boarding_is_joining_and_flying(calls: list[tuple[str, int, float]]) -> None:
    one, other = share(), share()
    now = 0.0
    for number, (tenant, cost, pause) in enumerate(calls, 1):
        now += pause
        pair = Ticket("c", tenant, cost, weight=2.0), Ticket("c", tenant, cost, weight=2.0)
        for ticket in pair:
            ticket.sequence = number
        one.board(pair[0], now)
        other.join(pair[1], now)
        other.fly(pair[1], now)
        assert pair[0].borrowed == pair[1].borrowed
        assert one.statistics(now) == other.statistics(now)
        for each, ticket in zip((one, other), pair, strict=True):
            each.land(ticket, cost // 2, now)
    assert {name: each.counter for name, each in one.tenants.items()} == {
        name: each.counter for name, each in other.tenants.items()
    }


def test_a_quiet_line_grants_without_a_round_and_leaves_no_alarm() -> None:
    capacity = FakeCapacity({"model": Tank(10, 100, 100)})
    queues = Queues.from_policies(capacity, {"c": POLICY})
    ticket = Ticket("c", "t", 60, ("model",))
    assert queues.offer(ticket, 1.0) == Moves((ticket,), (), math.inf)
    assert (ticket.state, ticket.waited, capacity.asked, queues.waiting) == (State.GRANTED, 0.0, 1, 0)
    later = Ticket("c", "t", 60, ("model",))
    assert queues.offer(later, 1.0) == Moves((), (), 3.0)
    assert queues.pump(3.0).granted == (later,)
    assert queues.settle(ticket, 60, 4.0) == Moves((), (), math.inf)
    assert queues.settle(later, 60, 4.0) == Moves((), (), math.inf)


def test_who_passed_a_quiet_line_goes_behind_who_did_not() -> None:
    capacity = FakeCapacity(slots={"model": 1})
    queues = Queues.from_policies(capacity, {"c": QueuePolicy()})
    queues.lines["c"].share.passed("ann", 500, 1.0, 0.0)
    capacity.held["model"] = 1
    tickets = [Ticket("c", tenant, 10, ("model",)) for tenant in ("ann", "bob")]
    assert [queues.offer(ticket, 1.0).granted for ticket in tickets] == [(), ()]
    capacity.held["model"] = 0
    assert queues.pump(2.0).granted == (tickets[1],)


def test_a_known_time_is_asked_again_though_the_wait_is_unknown() -> None:
    def capacity(ticket: Ticket, now: float) -> Objection | None:
        return Objection("model", None, 5.0 - now) if now < 5.0 else None

    queues = Queues.from_policies(capacity, {"c": QueuePolicy()})
    ticket = Ticket("c", "t", 10, ("model",))
    assert queues.offer(ticket, 1.0).wake_at == 5.0
    assert queues.pump(5.0).granted == (ticket,)
