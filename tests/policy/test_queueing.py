"""The queues, told as scenarios with exact virtual times."""

import math
from itertools import pairwise

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError

from tests.fakes.capacity import Clockwork, FakeCapacity, Tank
from trioproxy.policy.classes import CLASSES, QueuePolicy
from trioproxy.policy.queueing import Queues
from trioproxy.policy.tickets import Objection, Refused, State, Ticket, Why

PLAIN = {"only": QueuePolicy(0, bound=100, max_wait=1e6)}


def work_on(capacity: FakeCapacity, policies: dict[str, QueuePolicy] = CLASSES, seconds: float = 0.0) -> Clockwork:
    return Clockwork(Queues.from_policies(capacity, policies), capacity, seconds=lambda _: seconds)


def times(work: Clockwork, tenant: str) -> list[float | None]:
    return [ticket.granted_at for ticket in work.granted if ticket.tenant == tenant]


def one_slot() -> FakeCapacity:
    return FakeCapacity(slots={"slots": 1})


# The five classes


def test_the_presets_are_the_five_classes_in_order_and_cannot_be_changed() -> None:
    assert list(CLASSES) == ["interactive", "agentic", "batch", "eval", "background"]
    assert [policy.priority for policy in CLASSES.values()] == [0, 1, 2, 3, 4]
    assert (CLASSES["interactive"].max_wait, CLASSES["interactive"].otherwise) == (0.3, "fallback")
    assert CLASSES["batch"].max_wait == 20 * 60
    assert [name for name, policy in CLASSES.items() if policy.pause_in_incident] == ["eval"]
    assert [name for name, policy in CLASSES.items() if policy.tokens_per_minute] == ["eval", "background"]
    assert CLASSES["agentic"].output_headroom > 1.0
    assert sum(policy.share for policy in CLASSES.values()) < 1.0
    with pytest.raises(FrozenInstanceError):
        CLASSES["batch"].bound = 1  # type: ignore[misc]


def test_a_pool_that_cannot_hold_what_it_must_reclaim_is_refused() -> None:
    with pytest.raises(ValueError, match="reclaim of 9"):
        QueuePolicy(0, bound=1, max_wait=1.0, burst=5.0, reclaim=9.0)


def test_guarantees_without_a_pool_are_refused() -> None:
    with pytest.raises(ValueError, match="no pool"):
        Queues.from_policies(FakeCapacity(), PLAIN, {"only": {"gold": 1.0}})


# One ticket


def test_what_fits_is_granted_at_once() -> None:
    queues = Queues.from_policies(FakeCapacity(), CLASSES)
    ticket = Ticket("interactive", "ann", 10)
    moves = queues.offer(ticket, 5.0)
    assert (moves.granted, moves.refused, moves.wake_at) == ((ticket,), (), math.inf)
    assert (ticket.state, ticket.granted_at, ticket.waited) == (State.GRANTED, 5.0, 0.0)


def test_interactive_is_refused_after_exactly_300_ms() -> None:
    work = work_on(one_slot(), seconds=10.0)
    work.arrive(0.0, [Ticket("interactive", "ann", 1, ("slots",)) for _ in range(2)])
    work.run(until=5.0)
    ((when, refused),) = work.refused
    assert (when, refused.why) == (0.3, Why.MAX_WAIT)
    assert work.wakes == 1


def test_a_wait_that_cannot_fit_is_refused_at_once_with_the_bucket_s_own_figure() -> None:
    work = work_on(FakeCapacity({"model": Tank(100, 6_000, 0)}))
    ticket = Ticket("interactive", "ann", 2_000, ("model",))
    work.arrive(0.0, [ticket])
    work.run()
    assert work.refused == [(0.0, Refused(ticket, Why.TOO_LONG, 20.0))]


def test_the_callers_own_deadline_bounds_the_wait() -> None:
    work = work_on(FakeCapacity({"model": Tank(100, 6_000, 0)}))
    late, timely = (
        Ticket("batch", name, 1_000, ("model",), deadline=at) for name, at in (("late", 10.0), ("timely", 11.0))
    )
    work.arrive(0.0, [late, timely])
    work.run()
    assert work.refused == [(0.0, Refused(late, Why.TOO_LONG, 10.0))]
    assert timely.waited == 10.0


def test_a_deadline_that_has_passed_is_refused_unasked() -> None:
    capacity = FakeCapacity()
    ticket = Ticket("batch", "ann", 1, deadline=3.0)
    assert Queues.from_policies(capacity, CLASSES).offer(ticket, 3.0).refused == (Refused(ticket, Why.DEADLINE, None),)
    assert (capacity.asked, ticket.state) == (0, State.GONE)


def test_a_deadline_that_passes_in_the_queue_drops_the_ticket_then() -> None:
    work = work_on(one_slot(), seconds=50.0)
    work.arrive(0.0, [Ticket("batch", "ann", 1, ("slots",)), Ticket("batch", "ann", 1, ("slots",), deadline=7.0)])
    work.run()
    assert [(when, refused.why) for when, refused in work.refused] == [(7.0, Why.DEADLINE)]


def test_what_can_never_fit_is_refused_for_good() -> None:
    queues = Queues.from_policies(lambda ticket, now: Objection("model", math.inf), CLASSES)
    ticket = Ticket("batch", "ann", 1, ("model",))
    assert queues.offer(ticket, 0.0).refused == (Refused(ticket, Why.NEVER, None),)
    assert queues.waiting == 0


def test_ends_happen_once() -> None:
    queues = Queues.from_policies(FakeCapacity(), CLASSES)
    ticket = Ticket("batch", "ann", 10)
    assert queues.withdraw(ticket, 0.0).granted == ()  # never offered: holds nothing
    queues.offer(ticket, 0.0)
    with pytest.raises(AssertionError, match="offered once"):
        queues.offer(ticket, 0.0)
    queues.settle(ticket, 7, 1.0)
    with pytest.raises(AssertionError, match="nothing to settle"):
        queues.settle(ticket, 7, 1.0)
    with pytest.raises(AssertionError, match="offered once"):
        queues.offer(ticket, 1.0)
    assert queues.withdraw(ticket, 1.0).granted == ()
    (share,) = queues.statistics(1.0)["batch"].tenants
    assert (share.borrowed, share.flying, share.waiting) == (7, 0, 0)


# Order


def test_small_calls_do_not_starve_a_big_one() -> None:
    """A needs 1,000 tokens of a bucket that brings 100 a second; the calls of 10 behind it do not slip through."""
    work = work_on(FakeCapacity({"model": Tank(100, 1_000, 0)}), PLAIN)
    work.arrive(0.0, [Ticket("only", "big", 1_000, ("model",))])
    work.arrive(1.0, [Ticket("only", "small", 10, ("model",)) for _ in range(3)])
    work.run()
    assert times(work, "big") == [10.0]
    assert times(work, "small") == pytest.approx([10.1, 10.2, 10.3])


def test_one_tenants_own_limit_holds_nobody_else_up() -> None:
    work = work_on(FakeCapacity({"ann": Tank(1, 100, 0), "model": Tank(1_000, 1_000, 1_000)}), PLAIN)
    work.arrive(0.0, [Ticket("only", "ann", 100, ("ann", "model")), Ticket("only", "bob", 100, ("bob", "model"))])
    work.run()
    assert (times(work, "bob"), times(work, "ann")) == ([0.0], [100.0])


def test_a_call_for_another_model_passes_its_tenants_own_waiting_one() -> None:
    work = work_on(FakeCapacity({"x": Tank(1, 100, 0)}), PLAIN)
    x, y = (Ticket("only", "ann", 50, (model,)) for model in "xy")
    work.arrive(0.0, [x, y])
    work.run()
    assert (y.granted_at, x.granted_at) == (0.0, 50.0)


def test_when_the_one_in_front_leaves_those_behind_it_are_served_then() -> None:
    capacity = FakeCapacity({"model": Tank(0.001, 1_000, 20)})
    queues = Queues.from_policies(capacity, PLAIN)
    big, small = Ticket("only", "a", 500, ("model",)), Ticket("only", "b", 10, ("model",))
    assert queues.offer(big, 0.0).granted == ()
    assert queues.offer(small, 0.0).granted == ()
    assert queues.withdraw(big, 1.0).granted == (small,)


def test_a_grant_gives_up_the_turn_that_its_tenant_held_elsewhere() -> None:
    """Ann's big call waits for x; when her other one has been served it is Bob's turn, and his call fits x."""
    capacity = FakeCapacity({"x": Tank(1, 500, 50)}, {"y": 0})
    queues = Queues.from_policies(capacity, PLAIN)
    big, other, bobs = (
        Ticket("only", *what) for what in (("ann", 400, ("x",)), ("ann", 90, ("y",)), ("bob", 50, ("x",)))
    )
    for ticket in (big, other, bobs):
        assert queues.offer(ticket, 0.0).granted == ()
    capacity.slots["y"] = 1
    assert queues.pump(0.0).granted == (other, bobs)


def test_a_class_that_becomes_due_is_served_within_the_same_round() -> None:
    """The grant on y makes batch due; its call fits x, though a chat call waits there that was asked before."""
    capacity = FakeCapacity({"x": Tank(0.1, 500, 50)}, {"y": 0})
    policies = {"high": QueuePolicy(0, bound=9, max_wait=1e6), "low": QueuePolicy(1, bound=9, max_wait=1e6, share=0.5)}
    queues = Queues.from_policies(capacity, policies)
    chat_x, chat_y, low = (
        Ticket("high", "a", 400, ("x",)),
        Ticket("high", "b", 100, ("y",)),
        Ticket("low", "c", 50, ("x",)),
    )
    for ticket in (chat_x, chat_y, low):
        assert queues.offer(ticket, 0.0).granted == ()
    capacity.slots["y"] = 1
    assert queues.pump(0.0).granted == (chat_y, low)


# Scenarios


def test_a_long_context_tenant_and_a_chat_tenant_share_by_tokens() -> None:
    """1,000 tokens a second: 4,000 for the one, 8 x 500 for the other, in turn."""
    work = work_on(FakeCapacity({"model": Tank(1_000, 4_000, 0)}), PLAIN)
    work.arrive(0.0, [Ticket("only", "archive", 4_000, ("model",)) for _ in range(3)])
    work.arrive(0.0, [Ticket("only", "chat", 500, ("model",)) for _ in range(16)])
    work.run()
    assert times(work, "archive") == [4.0, 12.0, 20.0]
    assert times(work, "chat") == [*(4.5 + n / 2 for n in range(8)), *(12.5 + n / 2 for n in range(8))]


def test_long_context_in_batch_costs_a_chat_its_share_and_no_more() -> None:
    """5 % of what passes is batch's: after 160 calls of 500 tokens one of 4,000 may have its 4 seconds."""
    policies = {"chat": evolve(CLASSES["interactive"], bound=1_000, max_wait=1e6), "batch": CLASSES["batch"]}
    work = work_on(FakeCapacity({"model": Tank(1_000, 4_000, 0)}), policies)
    work.arrive(0.0, [Ticket("chat", "chat", 500, ("model",)) for _ in range(200)])
    work.arrive(0.0, [Ticket("batch", "archive", 4_000, ("model",))])
    work.run()
    assert times(work, "archive") == [84.0]
    assert times(work, "chat")[158:162] == [79.5, 80.0, 84.5, 85.0]


def test_the_spike() -> None:
    """50 calls a second for 10 s against one a second: no collapse."""
    policies = {"only": QueuePolicy(0, bound=5, max_wait=60.0)}
    work = work_on(one_slot(), policies, seconds=1.0)
    tickets = [Ticket("only", f"tenant-{n}", 1, ("slots",)) for n in range(500)]
    for n, ticket in enumerate(tickets):
        work.arrive(n / 50, [ticket])
    work.run()
    assert work.peak == 5
    assert [ticket.granted_at for ticket in work.granted] == [float(n) for n in range(15)]  # busy to the last second
    assert work.granted == sorted(work.granted, key=lambda ticket: ticket.arrived)
    assert (
        max(ticket.waited for ticket in work.granted) <= 6.0
    )  # five places and the call under way, as without a spike
    assert len(work.refused) == 485
    assert {refused.why for _, refused in work.refused} == {Why.FULL}
    at_once = [when == refused.ticket.arrived for when, refused in work.refused]
    assert all(at_once)
    # One call a second, and six that wait with the one refused.
    hints = [refused.retry_after for when, refused in work.refused if when > 2.0]
    assert hints == pytest.approx([6.0] * len(hints), abs=0.1)


def test_a_flood_does_not_take_the_places_of_the_others() -> None:
    policies = {"only": QueuePolicy(0, bound=4, max_wait=60.0)}
    work = work_on(one_slot(), policies, seconds=1.0)
    flood = [Ticket("only", "flood", 1, ("slots",)) for _ in range(50)]
    polite = Ticket("only", "polite", 1, ("slots",))
    work.arrive(0.0, [*flood, polite])
    work.run()
    assert polite.granted_at == 1.0
    assert [ticket for ticket in work.granted if ticket is not polite] == flood[:4]
    assert work.refused[-1][1].ticket is flood[4]  # the newest of the flood that had a place


def test_when_the_one_pushed_out_held_others_up_they_are_served_then() -> None:
    capacity = FakeCapacity({"x": Tank(0.1, 500, 50)}, {"y": 0})
    queues = Queues.from_policies(capacity, {"only": QueuePolicy(0, bound=2, max_wait=1e6)})
    for cost, scope in ((10, "y"), (400, "x")):
        assert queues.offer(Ticket("only", "ann", cost, (scope,)), 0.0).granted == ()
    bobs = Ticket("only", "bob", 50, ("x",))
    moves = queues.offer(bobs, 0.0)
    assert moves.granted == (bobs,)
    assert [(refused.ticket.cost, refused.why) for refused in moves.refused] == [(400, Why.FULL)]


def test_a_nightly_batch_waits_for_twenty_minutes_and_not_longer() -> None:
    work = work_on(FakeCapacity({"model": Tank(10, 12_000, 0)}))
    fits, not_any_more = Ticket("batch", "night", 11_990, ("model",)), Ticket("batch", "other", 12_000, ("model",))
    work.arrive(0.0, [fits])
    work.run(until=0.0)
    work.arrive(0.0, [not_any_more])
    work.run()
    assert fits.granted_at == fits.waited == 1_199.0
    assert work.wakes <= 3  # no polling
    assert [(when, refused.why) for when, refused in work.refused] == [
        (1_199.0, Why.TOO_LONG)
    ]  # 1,200 s more, and 1 s left


def test_without_a_promise_batch_waits_until_its_time_is_up() -> None:
    work = work_on(one_slot(), seconds=5_000.0)
    work.arrive(0.0, [Ticket("batch", "night", 1, ("slots",)) for _ in range(2)])
    work.run()
    assert [(when, refused.why) for when, refused in work.refused] == [(1_200.0, Why.MAX_WAIT)]


def test_eval_is_paused_during_an_incident_and_the_others_go_on() -> None:
    work = work_on(FakeCapacity())
    queues = work.queues
    work.at(0.0, lambda now: queues.pause("eval", now))
    evals = [Ticket("eval", "lab", 100, deadline=deadline) for deadline in (30.0, math.inf)]
    work.arrive(1.0, [*evals, Ticket("batch", "night", 100)])
    work.at(60.0, lambda now: queues.resume("eval", now))
    work.run()
    assert times(work, "night") == [1.0]
    assert times(work, "lab") == [60.0]
    assert work.refused == [(30.0, Refused(evals[0], Why.PAUSED, None))]


def test_background_never_exceeds_its_ceiling() -> None:
    """30,000 tokens a minute, 10 s of them at once: 5,000 at first, then 500 a second."""
    work = work_on(FakeCapacity())
    work.arrive(0.0, [Ticket("background", "crawler", 1_000) for _ in range(10)])
    work.run()
    assert times(work, "crawler") == [0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_no_class_starves_and_places_are_free_at_each_timeout() -> None:
    """Capacity 1, endless interactive calls, one of batch: it is the 21st at the latest (5 %). Then ten time out."""
    policies = {name: evolve(policy, max_wait=1_000.0, bound=500) for name, policy in CLASSES.items()}
    work = work_on(one_slot(), policies, seconds=1.0)
    work.arrive(0.0, [Ticket("interactive", "chat", 1, ("slots",)) for _ in range(100)])
    work.arrive(0.0, [Ticket("batch", "night", 1, ("slots",))])
    work.run(until=50.0)
    assert times(work, "night") == [21.0]  # the first call had been served before it came

    queues = Queues.from_policies(FakeCapacity(slots={"slots": 0}), policies)
    for n in range(10):
        queues.offer(Ticket("interactive", "chat", 1, ("slots",), deadline=1.0 + n), 0.0)
    depths, wake_at = [queues.waiting], queues.pump(0.0).wake_at
    while wake_at < math.inf:
        moves = queues.pump(wake_at)
        depths.append(queues.waiting)
        assert len(moves.refused) == 1
        assert moves.wake_at > wake_at
        wake_at = moves.wake_at
    assert all(before - after == 1 for before, after in pairwise(depths))
    assert depths[-1] == 0


def test_a_newcomer_whose_wait_cannot_fit_the_measured_drain_is_refused_at_the_door() -> None:
    policies = {"only": QueuePolicy(0, bound=100, max_wait=5.0)}
    work = work_on(one_slot(), policies, seconds=1.0)
    work.arrive(0.0, [Ticket("only", "ann", 1, ("slots",)) for _ in range(4)])
    early, late = Ticket("only", "ann", 1, ("slots",), deadline=4.4), Ticket("only", "ann", 1, ("slots",), deadline=4.6)
    work.arrive(1.5, [early, late])
    work.run()
    assert work.refused == [(1.5, Refused(early, Why.TOO_LONG, 3.0))]
    assert late.granted_at == 4.0


def test_those_who_left_are_not_remembered() -> None:
    """A class that waits 20 minutes and whose callers hang up keeps nothing of them, though the first one stays."""
    queues = Queues.from_policies(FakeCapacity(slots={"slots": 0}), CLASSES)
    queues.offer(Ticket("batch", "patient", 1, ("slots",)), 0.0)
    for n in range(5_000):
        ticket = Ticket("batch", f"tenant-{n}", 1, ("slots", n))
        queues.offer(ticket, n * 0.1)
        queues.withdraw(ticket, n * 0.1)
    assert len(queues._expiries) <= 66  # 64, and twice those that wait
    assert len(queues.lines["batch"].share.tenants) <= 2 * 601
    assert queues.lines["batch"].share.through == {(0, "slots"): 1}
