"""Those who wait for something of their own alone are asked when that may have changed, and never in between."""

import math
from collections.abc import Hashable

from tests.fakes.capacity import FakeCapacity, Tank
from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.order import Order
from trioproxy.policy.queueing import Queues
from trioproxy.policy.tenant import Tenant
from trioproxy.policy.tickets import State, Ticket

POLICIES = {"chat": QueuePolicy(0, bound=5_000, max_wait=900.0), "night": QueuePolicy(1, bound=5_000, max_wait=900.0)}


def blocked(count: int) -> tuple[Queues, FakeCapacity]:
    """So many tenants, each with one call under way and one that waits for the only place of its own."""
    own: dict[Hashable, int] = {("key", n): 1 for n in range(count)}
    capacity = FakeCapacity(slots=own, own=own)
    queues = Queues.from_policies(capacity, POLICIES)
    return queues, capacity


def ticket(n: int, name: str = "chat") -> Ticket:
    return Ticket(name, f"t{n}", 10, ("all", ("key", n)))


def test_a_thousand_tenants_that_wait_for_their_own_are_not_asked_for_what_is_anothers() -> None:
    queues, capacity = blocked(1_001)
    running = [ticket(n) for n in range(1_000)]
    waiting = [ticket(n) for n in range(1_000)]
    for each in running + waiting:
        queues.offer(each, 0.0)
    assert queues.waiting == 1_000
    capacity.asked = 0
    stranger = ticket(1_000)
    assert queues.offer(stranger, 1.0).granted == (stranger,)
    capacity.give_back(stranger, 10)
    assert queues.settle(stranger, 10, 2.0).granted == ()
    assert capacity.asked == 1
    capacity.give_back(running[7], 10)
    assert queues.settle(running[7], 10, 3.0).granted == (waiting[7],)
    assert capacity.asked == 2


def test_what_another_call_of_the_tenant_gives_back_without_a_ticket_is_told_by_pump() -> None:
    queues, capacity = blocked(1)
    capacity.held[("key", 0)] = 1
    waiting = ticket(0)
    queues.offer(waiting, 0.0)
    capacity.held[("key", 0)] = 0
    assert queues.pump(1.0).granted == ()
    assert queues.pump(1.0, "t0").granted == (waiting,)


def test_a_tenant_whose_guarantee_paid_for_the_call_is_asked_when_it_ends() -> None:
    capacity = FakeCapacity(slots={"mine": 1}, own={"mine"})
    policy = QueuePolicy(0, tokens_per_minute=6_000)
    queues = Queues.from_policies(capacity, {"chat": policy}, {"chat": {"ann": 50.0}})
    first, second = Ticket("chat", "ann", 10, ("mine",)), Ticket("chat", "ann", 10, ("mine",))
    queues.offer(first, 0.0)
    queues.offer(second, 0.0)
    assert (first.borrowed, second.state) == (False, State.WAITING)
    capacity.give_back(first, 10)
    assert queues.settle(first, 10, 1.0).granted == (second,)


def test_its_time_wakes_it_and_the_line_asks_for_that() -> None:
    tank = Tank(rate=10, burst=100, level=0)
    capacity = FakeCapacity({"mine": tank}, own={"mine"})
    queues = Queues.from_policies(capacity, POLICIES)
    waiting = Ticket("chat", "ann", 50, ("mine",))
    assert queues.offer(waiting, 0.0).wake_at == 5.0
    other = Ticket("chat", "bob", 50, ())
    assert queues.offer(other, 1.0).wake_at == 5.0
    asked = capacity.asked
    assert queues.pump(4.0).wake_at == 5.0
    assert capacity.asked == asked
    assert queues.pump(5.0).granted == (waiting,)


def test_a_big_call_is_not_overtaken_by_a_small_one_of_its_tenant_in_another_class() -> None:
    tank = Tank(rate=10, burst=100, level=20)
    capacity = FakeCapacity({"mine": tank}, own={"mine"})
    queues = Queues.from_policies(capacity, POLICIES)
    big, small = Ticket("chat", "ann", 50, ("mine",)), Ticket("night", "ann", 10, ("mine",))
    queues.offer(big, 0.0)
    assert queues.offer(small, 0.0).granted == ()
    assert queues.pump(3.0).granted == (big,)


def test_an_order_has_everybody_whether_it_rests_or_not() -> None:
    order = Order()
    tenants = [Tenant(str(n), counter=float(n), turn=n) for n in range(4)]
    for tenant in reversed(tenants):
        order.add(tenant)
    order.rest(tenants[0], 7.0)
    order.rest(tenants[2], math.inf)
    assert [entry[2] for entry in order] == tenants
    assert [entry[2] for entry in order.awake] == [tenants[1], tenants[3]]
    assert (len(order), order.first(), order.next_end()) == (4, tenants[0], 7.0)
    order.rouse_due(6.9)
    assert tenants[0].rests == 7.0
    order.rouse_due(7.0)
    order.remove(tenants[2])
    assert [entry[2] for entry in order.awake] == [tenants[0], tenants[1], tenants[3]] == [entry[2] for entry in order]
    assert order.next_end() == math.inf


def test_rest_that_is_over_early_leaves_nothing_behind() -> None:
    order, tenant = Order(), Tenant("ann")
    order.add(tenant)
    for n in range(1_000):
        order.rest(tenant, 1_000.0 + n)
        order.rouse(tenant)
    assert len(order.naps) <= 66
