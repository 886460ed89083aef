"""Fair share inside one class: counters, weights, lift, guarantees and lending, with exact virtual numbers."""

import math

import pytest

from tests.fakes.capacity import Clockwork, FakeCapacity, Tank
from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.fairshare import FairShare
from trioproxy.policy.lending import Pool, Supply
from trioproxy.policy.queueing import Queues
from trioproxy.policy.tickets import Ticket

# 1,000 tokens a second, 10 s of them at once; a guarantee is saved up for 5 s.
POOLED = {"only": QueuePolicy(0, bound=1_000, max_wait=1e6, tokens_per_minute=60_000, burst=10.0, reclaim=5.0)}
PLAIN = {"only": QueuePolicy(0, bound=1_000, max_wait=1e6)}


def ticket(tenant: str, cost: int = 1, weight: float = 1.0, scopes: tuple[str, ...] = ("model",)) -> Ticket:
    return Ticket("only", tenant, cost, scopes, weight=weight)


def work_on(capacity: FakeCapacity, guaranteed: dict[str, float] | None = None, seconds: float = 0.0) -> Clockwork:
    policies = PLAIN if guaranteed is None else POOLED
    queues = Queues.from_policies(capacity, policies, {"only": guaranteed or {}})
    return Clockwork(queues, capacity, seconds=lambda _: seconds)


def times(work: Clockwork, tenant: str) -> list[float | None]:
    return [granted.granted_at for granted in work.granted if granted.tenant == tenant]


def bucket(rate: float, level: float = 0.0) -> FakeCapacity:
    return FakeCapacity({"model": Tank(rate, 10_000, level)})


# Counters


def test_the_spare_is_shared_by_weight() -> None:
    work = work_on(bucket(1))
    work.arrive(0.0, [ticket("heavy", weight=3.0) for _ in range(40)])
    work.arrive(0.0, [ticket("light") for _ in range(40)])
    work.run(until=40.0)
    assert (len(times(work, "heavy")), len(times(work, "light"))) == (30, 10)


def test_between_equal_counters_the_first_to_wait_is_first() -> None:
    """A name is no privilege."""
    work = work_on(bucket(1))
    work.arrive(0.0, [ticket(name) for name in ("zoe", "mia", "ann")])
    work.run()
    assert [granted.tenant for granted in work.granted] == ["zoe", "mia", "ann"]


def test_idleness_earns_nothing() -> None:
    """Bob comes after 100 s in which Ann had everything: from then on they take turns."""
    work = work_on(bucket(1))
    work.arrive(0.0, [ticket("ann") for _ in range(200)])
    work.arrive(100.5, [ticket("bob") for _ in range(50)])
    work.run(until=140.5)
    assert len([at for at in times(work, "ann") if at and at > 100.5]) == 20
    assert len(times(work, "bob")) == 20


def test_a_call_under_way_does_not_keep_an_old_counter_low() -> None:
    """Bob's long call began at the start; when he comes back for more he is lifted all the same."""
    work = work_on(bucket(1, 1.0), seconds=1_000.0)
    work.arrive(0.0, [ticket("bob")])
    work.arrive(0.0, [ticket("ann") for _ in range(200)])
    work.arrive(100.5, [ticket("bob") for _ in range(50)])
    work.run(until=140.5)
    assert len(times(work, "bob")) == 1 + 20


def test_settling_corrects_the_counter_by_what_was_used() -> None:
    """Ann's estimate was five times too high: what she did not use she is given before Bob."""
    capacity = FakeCapacity(slots={"model": 1})
    queues = Queues.from_policies(capacity, PLAIN)
    anns, bobs = [ticket("ann", 100) for _ in range(3)], [ticket("bob", 30) for _ in range(2)]
    for each in (*anns, *bobs):
        queues.offer(each, 0.0)
    capacity.give_back(anns[0], 0)
    (second,) = queues.settle(anns[0], 20, 1.0).granted
    assert second is bobs[0]  # 20 against 0
    capacity.give_back(second, 0)
    assert queues.settle(second, 30, 2.0).granted == (anns[1],)  # 20 against 30
    shares = {share.tenant: share.borrowed for share in queues.statistics(2.0)["only"].tenants}
    assert shares == {"ann": 120, "bob": 30}


def test_an_overrun_is_charged_as_well() -> None:
    capacity = FakeCapacity(slots={"model": 1})
    queues = Queues.from_policies(capacity, PLAIN)
    anns, bobs = [ticket("ann", 10) for _ in range(2)], [ticket("bob", 10) for _ in range(3)]
    for each in (*anns, *bobs):
        queues.offer(each, 0.0)
    order, used = [], {"ann": 25, "bob": 10}
    running: Ticket | None = anns[0]
    while running is not None:
        order.append(running.tenant)
        capacity.give_back(running, 0)
        running = next(iter(queues.settle(running, used[running.tenant], 1.0).granted), None)
    assert order == ["ann", "bob", "bob", "bob", "ann"]


def test_a_call_withdrawn_before_it_was_sent_costs_nothing() -> None:
    capacity = FakeCapacity()
    queues = Queues.from_policies(capacity, PLAIN)
    only = ticket("ann", 100)
    queues.offer(only, 0.0)
    queues.withdraw(only, 0.0)
    assert [share.borrowed for share in queues.statistics(0.0)["only"].tenants] == [0]


def test_a_new_weight_holds_from_the_next_time_the_tenant_waits() -> None:
    share = FairShare()
    first, second = ticket("ann", 10, weight=2.0), ticket("ann", 10, weight=5.0)
    share.join(first, 0.0)
    share.fly(first, 0.0)
    share.join(second, 0.0)
    assert (share.weights, share.tenants["ann"].counter) == (5.0, 5.0)
    share.land(first, 0, 0.0)
    assert share.tenants["ann"].counter == 0.0  # given back at the weight at which it was charged


# Guarantees and lending


def test_idle_capacity_is_lent_whole() -> None:
    """Gold is guaranteed 600 of 1,000 a second but is not there: the other one has all of it."""
    work = work_on(FakeCapacity(), {"gold": 600.0})
    work.arrive(0.0, [ticket("free", 1_000) for _ in range(15)])
    work.run()
    assert times(work, "free") == [*([0.0] * 10), 1.0, 2.0, 3.0, 4.0, 5.0]


def test_what_was_lent_is_reclaimed_when_its_owner_returns() -> None:
    """The pool is empty when gold returns at 10.25. Gold's 1,000 tokens are there at 11.0, before any borrower's 500; and
    the borrower then leaves what gold has not spent: 3,000 once saved up, so its own 500 fit at 14.5."""
    work = work_on(FakeCapacity(), {"gold": 600.0})
    work.arrive(0.0, [ticket("free", 500) for _ in range(100)])
    work.arrive(10.25, [ticket("gold", 1_000)])
    work.run(until=14.6)
    assert times(work, "gold") == [11.0]
    assert times(work, "free") == [*([0.0] * 20), *(0.5 + n / 2 for n in range(20)), 14.5]


def test_an_active_owner_finds_its_whole_guarantee_at_once() -> None:
    work = work_on(FakeCapacity(), {"gold": 600.0})
    work.arrive(0.0, [ticket("gold", 100), *(ticket("free", 500) for _ in range(100))])
    for when in (20.0, 25.0, 30.0):  # every 5 s all that 5 s bring
        work.arrive(when, [ticket("gold", 1_000) for _ in range(3)])
    work.run(until=40.0)
    assert times(work, "gold") == [0.0, *([20.0] * 3), *([25.0] * 3), *([30.0] * 3)]
    used = sum(granted.cost for granted in work.granted)
    assert 10_000 + 40 * 1_000 - 3_500 <= used <= 10_000 + 40 * 1_000  # the rest was lent, nothing lies idle


def test_room_is_kept_for_a_minute_after_the_owners_last_call() -> None:
    work = work_on(FakeCapacity(), {"gold": 600.0})
    work.arrive(0.0, [ticket("gold", 100)])
    work.arrive(59.0, [ticket("free", 500) for _ in range(15)])
    work.arrive(60.5, [ticket("free", 500)])
    work.run()
    # 10,000 are there at 59.0, of which 3,000 are kept; at 60.5 they are not kept any longer.
    assert times(work, "free")[:14] == [59.0] * 14
    assert times(work, "free")[14] == 59.5


def test_an_owner_behind_a_big_loan_is_woken_when_its_guarantee_covers_it() -> None:
    """The pool is empty, and free's 5,000 come first by counter; gold's next 100 are covered 1 s later."""
    work = work_on(FakeCapacity(), {"gold": 100.0})
    work.arrive(0.0, [ticket("gold", 500), ticket("gold", 9_500), ticket("free", 5_000), ticket("gold", 100)])
    work.run()
    assert times(work, "gold") == [0.0, 0.0, 1.0]
    # At t, 1,000 t - 100 are there, of which gold's 100 (t - 1) are kept for it.
    assert times(work, "free") == pytest.approx([5_000 / 900])


def test_beyond_its_guarantee_an_owner_borrows_like_the_others() -> None:
    """Gold and free both want all: 600 of 1,000 are gold's, of the other 400 each has half. (At first gold was alone, and
    had all that the pool held: 3,000 of its own and 7,000 borrowed.)"""
    work = work_on(FakeCapacity(), {"gold": 600.0})
    for tenant in ("gold", "free"):
        work.arrive(0.0, [ticket(tenant, 100) for _ in range(800)])
    work.run(until=60.0)
    shares = {share.tenant: share for share in work.queues.statistics(60.0)["only"].tenants}
    gold, free = shares["gold"], shares["free"]
    assert gold.guaranteed == 600.0
    assert gold.assured == pytest.approx(3_000 + 60 * 600, abs=200)
    assert gold.borrowed - 7_000 == pytest.approx(free.borrowed, abs=200)
    assert gold.assured + gold.borrowed + free.borrowed == pytest.approx(10_000 + 60 * 1_000, abs=200)
    assert (free.guaranteed, free.unspent, free.assured) == (0.0, 0.0, 0)


def test_what_a_guarantee_covers_does_not_count_against_its_owner() -> None:
    pool = Pool(1_000.0, 10.0, {"gold": 600.0})
    share = FairShare(pool)
    covered, beyond = ticket("gold", 3_000), ticket("gold", 10)
    for each in (covered, beyond):
        share.join(each, 0.0)
        share.fly(each, 0.0)
    assert (covered.borrowed, beyond.borrowed) == (False, True)
    assert (share.tenants["gold"].counter, pool.unspent("gold", 0.0)) == (10.0, 0.0)
    share.land(covered, 1_000, 0.0)
    assert (share.tenants["gold"].counter, pool.unspent("gold", 0.0)) == (10.0, 2_000.0)
    assert pool.supply.level == 10_000 - 1_000 - 10


def test_more_than_the_pool_holds_passes_when_it_is_full() -> None:
    work = work_on(FakeCapacity(), {})
    work.arrive(0.0, [ticket("free", 12_000), ticket("free", 1_000)])
    work.run()
    assert times(work, "free") == [0.0, 3.0]  # the debt of 2,000 is paid first


def test_one_overrun_locks_nobody_out_for_long() -> None:
    supply = Supply(10.0, 100.0)
    supply.add(0.0, -1_000_000.0)
    assert supply.short(30.0, 100.0) == 0.0


def test_guarantees_beyond_the_pool_are_refused() -> None:
    with pytest.raises(ValueError, match="guarantees of 1100 tokens/s exceed the pool's 1000"):
        Pool(1_000.0, guaranteed={"gold": 600.0, "blue": 500.0})


def test_where_all_is_guaranteed_and_unspent_a_borrower_waits_until_that_is_saved_up() -> None:
    pool = Pool(100.0, 30.0, {"gold": 100.0}, reclaim=5.0)
    pool.enter("gold")
    pool.take("gold", 500, 0.0, borrowed=False)
    assert pool.wait("free", 2_500, 0.0) == 0.0  # gold has spent what it had
    pool.take("free", 1_000, 0.0, borrowed=True)
    # 1,500 are there; in 5 s gold's 500 are saved up again, and in 6 s 2,100 are there.
    assert pool.wait("free", 1_600, 0.0) == 6.0
    assert pool.covered_in("free", 1, 0.0) == math.inf
    assert pool.covered_in("gold", 50, 0.0) == 0.5
