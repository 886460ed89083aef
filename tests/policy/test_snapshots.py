"""What a snapshot keeps and a restore takes up: what was used, with its age, and nothing that was only held."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.policy.breaker import PRESETS, Breaker, State
from trioproxy.policy.hierarchy import Quota
from trioproxy.policy.limits import Limits, Need
from trioproxy.policy.reservation import Path, Rank, Reservation, Scope, Step
from trioproxy.policy.standing import Standing

WALL = 1_764_000_000.0  # in the afternoon, UTC
LIMITS = Limits(
    concurrency=5,
    requests_per_minute=60,
    tokens_per_minute=6000,
    tokens_per_day=100_000,
    micro_usd_per_month=1_000_000,
    balance=5_000_000,
)
TENANT = Scope(Rank.TENANT, "acme")


def again(value: Any) -> Any:
    """Through a store and back."""
    return json.loads(json.dumps(value))


def path(limits: Limits = LIMITS, scope: Scope = TENANT) -> Path:
    return Path((Step(scope, limits),))


def restored(kept: Any, limits: Limits = LIMITS, *, now: float, age: float, later: float = 0.0) -> Quota:
    quota = Quota()
    steps = {("tenant", "acme"): Step(TENANT, limits)}
    quota.accounts.restore(kept, steps, now, wall=WALL + later, age=age)
    return quota


def left(quota: Quota, now: float, wall: float, limits: Limits = LIMITS) -> dict[str, int]:
    return {gauge.dimension.value: gauge.remaining for gauge in quota.gauges(path(limits), now, wall)}


def need(tokens: int) -> Need:
    return Need(1, tokens, 0, tokens, tokens * 10)


CALLS = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900), st.booleans()), max_size=12)


@given(CALLS, st.floats(0, 30), st.floats(-1e6, 1e6))
def test_settled_use_survives_and_what_is_held_does_not(
    calls: list[tuple[int, int, bool]], age: float, origin: float
) -> None:
    """As if the calls that were open had never been: the two differ in nothing that a later call could see."""
    quota, model = Quota(), Quota()
    for reserved, actual, ended in calls:
        held = quota.reserve(path(), need(reserved), 100.0, WALL)
        if not isinstance(held, Reservation) or not ended:
            continue
        quota.settle(held, need(actual), 100.0)
        twin = model.reserve(path(), need(0), 100.0, WALL)
        assert isinstance(twin, Reservation)
        model.settle(twin, need(actual), 100.0)
    after = restored(again(quota.snapshot(100.0, WALL)), now=origin, age=age, later=age)
    assert left(after, origin, WALL + age) == pytest.approx(left(model, 100.0 + age, WALL + age), abs=1)


def test_a_day_that_is_over_is_over_and_its_debt_is_todays() -> None:
    limits = Limits(tokens_per_day=1000, balance=1_000_000)
    quota = Quota()
    held = quota.reserve(path(limits), need(900), 0.0, WALL)
    assert isinstance(held, Reservation)
    quota.settle(held, need(1300), 0.0)
    kept = again(quota.snapshot(0.0, WALL))
    today = restored(kept, limits, now=0.0, age=60.0, later=60.0)
    assert left(today, 0.0, WALL + 60.0, limits) == {"tokens_per_day": 0, "balance": 987_000}
    tomorrow = restored(kept, limits, now=0.0, age=86_400.0, later=86_400.0)
    assert left(tomorrow, 0.0, WALL + 86_400.0, limits) == {"tokens_per_day": 700, "balance": 987_000}
    week = restored(kept, limits, now=0.0, age=7 * 86_400.0, later=7 * 86_400.0)
    assert left(week, 0.0, WALL + 7 * 86_400.0, limits) == {"tokens_per_day": 1000, "balance": 987_000}


def test_a_call_that_is_open_across_midnight_holds_nothing_of_either_day() -> None:
    """Its reservation is yesterday's, so it is yesterday's count that is kept without it, and no debt of it today's."""
    limits, midnight = Limits(tokens_per_day=1000), WALL - WALL % 86_400 + 86_400
    quota = Quota()
    held = quota.reserve(path(limits), need(700), 0.0, midnight - 60)
    assert isinstance(held, Reservation)
    spent = quota.reserve(path(limits), need(300), 0.0, midnight - 60)
    assert isinstance(spent, Reservation)
    quota.settle(spent, need(500), 0.0)  # yesterday is overrun by 200 as long as the other is open
    today = quota.reserve(path(limits), need(100), 60.0, midnight + 1)
    assert isinstance(today, Reservation)
    quota.settle(today, need(100), 60.0)
    assert left(quota, 60.0, midnight + 1, limits) == {"tokens_per_day": 700}
    ((*_, state),) = quota.snapshot(60.0, midnight + 1)
    assert state == {"used": 100, "before": 500, "end": midnight + 86_400}
    after = restored(again(quota.snapshot(60.0, midnight + 1)), limits, now=60.0, age=1.0, later=midnight + 2 - WALL)
    assert left(after, 60.0, midnight + 2, limits) == {"tokens_per_day": 900}
    after.charge(
        path(limits), need(800), 60.0, midnight - 60
    )  # the ledger has it as interrupted, at what it had reserved, or more
    assert left(after, 60.0, midnight + 2, limits) == {"tokens_per_day": 600}


def test_the_accounts_in_parts_are_the_accounts() -> None:
    quota = Quota()
    for number in range(10):
        held = quota.reserve(path(scope=Scope(Rank.TENANT, f"t{number}")), need(10 * number), 0.0, WALL)
        if number % 3:
            assert isinstance(held, Reservation)
            quota.settle(held, need(number), 0.0)
    accounts = list(quota.accounts)
    parts = [row for start in range(0, 10, 4) for row in quota.snapshot(0.0, WALL, accounts[start : start + 4])]
    assert parts == quota.snapshot(0.0, WALL)
    assert {name for _, name, *_ in parts} == {f"t{n}" for n in range(10) if n % 3}


def test_a_changed_limit_finds_the_same_amount_used() -> None:
    quota = Quota()
    held = quota.reserve(path(Limits(tokens_per_day=1000, tokens_per_minute=1000)), need(400), 0.0, WALL)
    assert isinstance(held, Reservation)
    quota.settle(held, need(400), 0.0)
    kept = again(quota.snapshot(0.0, WALL))
    more = Limits(tokens_per_day=5000, tokens_per_minute=5000, requests_per_day=10)
    raised = restored(kept, more, now=0.0, age=0.0)
    assert left(raised, 0.0, WALL, more) == {"tokens_per_minute": 4600, "tokens_per_day": 4600, "requests_per_day": 10}


def test_another_time_zone_does_not_forgive_today() -> None:
    quota = Quota()
    there = Limits(tokens_per_day=1000, zone="Pacific/Auckland")
    held = quota.reserve(path(Limits(tokens_per_day=1000)), need(400), 0.0, WALL)
    assert isinstance(held, Reservation)
    quota.settle(held, need(400), 0.0)
    moved = restored(again(quota.snapshot(0.0, WALL)), there, now=0.0, age=0.0)
    assert left(moved, 0.0, WALL, there) == {"tokens_per_day": 600}


def test_a_scope_that_is_gone_is_passed_over() -> None:
    quota = Quota()
    gone = path(LIMITS, Scope(Rank.TENANT, "gone"))
    held = quota.reserve(gone, need(400), 0.0, WALL)
    assert isinstance(held, Reservation)
    quota.settle(held, need(400), 0.0)
    assert len(restored(again(quota.snapshot(0.0, WALL)), now=0.0, age=0.0).accounts) == 0


@pytest.mark.parametrize("preset", PRESETS)
def test_an_open_breaker_stays_open_for_the_rest_of_its_time(preset: str) -> None:
    policy = PRESETS[preset]
    breaker = Breaker(policy)
    for _ in range(policy.failures):
        permit = breaker.try_enter(1000.0)
        assert permit is not None
        breaker.failure(permit, 1000.0)
    other = Breaker(policy)
    other.restore(again(breaker.snapshot(1010.0)), now=5.0, age=7.0)
    assert other.state is State.OPEN
    assert other.until == pytest.approx(5.0 + policy.open_for - 17.0)
    assert other.count(5.0) == breaker.count(1017.0)
    assert not other.admits(5.0)
    assert other.admits(5.0 + policy.open_for)


def test_a_probe_that_was_out_is_asked_again() -> None:
    breaker = Breaker(PRESETS["consecutive"])
    for _ in range(5):
        permit = breaker.try_enter(0.0)
        assert permit is not None
        breaker.failure(permit, 0.0)
    assert breaker.try_enter(61.0) is not None
    other = Breaker(PRESETS["consecutive"])
    other.restore(again(breaker.snapshot(62.0)), now=0.0, age=1.0)
    assert (other.state, other.leases) == (State.HALF_OPEN, 0)
    assert other.try_enter(0.0) is not None
    without = Breaker(PRESETS["four-layer"])
    without.restore(again(breaker.snapshot(62.0)), now=0.0, age=1.0)
    assert without.state is State.CLOSED


def test_what_is_no_snapshot_changes_nothing() -> None:
    breaker, standing = Breaker(PRESETS["four-layer"]), Standing()
    for kept in ({}, {"state": "ajar", "remaining": 0, "ages": []}, {"state": "open", "remaining": "x", "ages": []}):
        with pytest.raises((KeyError, ValueError)):
            breaker.restore(kept, 0.0, 0.0)
        with pytest.raises((KeyError, ValueError)):
            standing.restore_from(kept, 0.0, 0.0)
    assert breaker.admits(0.0)
    assert standing.objection(0.0) is None


def test_a_park_keeps_its_rest_and_its_doubling() -> None:
    standing, other = Standing(), Standing()
    assert standing.snapshot(0.0) is None
    standing.park(100.0, 300.0, "the key was refused")
    other.restore_from(again(standing.snapshot(150.0)), 0.0, 50.0)
    assert other.wait(0.0) == pytest.approx(200.0)
    assert "the key was refused" in (other.objection(0.0) or "")
    assert other.park(300.0, 300.0, "again") == 600.0
