"""The quota over a whole path: all or nothing, the binding limiter named, failover, observing, reload, sweeping."""

import math
from datetime import datetime

import pytest

from trioproxy.policy.hierarchy import Quota
from trioproxy.policy.limits import NOTHING, Dimension, Limits, Need
from trioproxy.policy.reservation import Denial, Path, Rank, Reservation, Scope, Step
from trioproxy.policy.tiers import TIERS

NOON = datetime.fromisoformat("2026-05-04T12:00:00+00:00").timestamp()
DAY = 86_400.0
FREE = Limits()


def step(rank: Rank, limits: Limits = FREE, name: str = "acme") -> Step:
    return Step(Scope(rank, name), limits)


def tokens(count: int, micro_usd: int = 0) -> Need:
    return Need(requests=1, total_tokens=count, micro_usd=micro_usd)


def held(outcome: Reservation | Denial) -> Reservation:
    assert isinstance(outcome, Reservation), outcome
    return outcome


def denied(outcome: Reservation | Denial | None) -> Denial:
    assert isinstance(outcome, Denial)
    return outcome


def left(quota: Quota, path: Path, now: float = 0.0, wall: float = NOON) -> dict[tuple[Rank, Dimension], int]:
    return {(gauge.scope.rank, gauge.dimension): gauge.remaining for gauge in quota.gauges(path, now, wall)}


def minutes(quota: Quota, path: Path, now: float = 0.0) -> list[int]:
    """What remains of the tokens per minute, outermost scope first."""
    return [
        gauge.remaining for gauge in quota.gauges(path, now, NOON) if gauge.dimension is Dimension.TOKENS_PER_MINUTE
    ]


def test_a_call_is_held_at_every_scope_and_settled_at_every_scope() -> None:
    quota = Quota()
    path = Path(
        (
            step(Rank.ORGANIZATION, Limits(tokens_per_minute=1_000)),
            step(Rank.TENANT, Limits(tokens_per_minute=600)),
            step(Rank.KEY, Limits(tokens_per_minute=300)),
        ),
        step(Rank.CHANNEL, Limits(tokens_per_minute=5_000), "a"),
    )
    reservation = held(quota.reserve(path, tokens(200), 0.0, NOON))
    assert minutes(quota, path) == [800, 400, 100, 4_800]
    quota.settle(reservation, tokens(50), 0.0)
    assert minutes(quota, path) == [950, 550, 250, 4_950]


def test_input_output_and_total_are_dimensions_of_their_own() -> None:
    quota = Quota()
    limits = Limits(input_tokens_per_minute=100, output_tokens_per_minute=100, tokens_per_minute=150)
    path = Path((step(Rank.KEY, limits),))
    need = Need(requests=1, input_tokens=30, output_tokens=100, total_tokens=130)
    reservation = held(quota.reserve(path, need, 0.0, NOON))
    quota.settle(reservation, Need(requests=1, input_tokens=40, output_tokens=10, total_tokens=50), 0.0)
    assert left(quota, path) == {
        (Rank.KEY, Dimension.INPUT_TOKENS_PER_MINUTE): 60,
        (Rank.KEY, Dimension.OUTPUT_TOKENS_PER_MINUTE): 90,
        (Rank.KEY, Dimension.TOKENS_PER_MINUTE): 100,
    }


@pytest.mark.parametrize("refusing", [Rank.ORGANIZATION, Rank.TENANT, Rank.KEY, Rank.CHANNEL])
def test_whoever_refuses_nobody_holds_anything(refusing: Rank) -> None:
    quota = Quota()
    steps = [
        step(rank, Limits(tokens_per_minute=99 if rank is refusing else 1_000, requests_per_day=1 - (rank is refusing)))
        for rank in (Rank.ORGANIZATION, Rank.TENANT, Rank.KEY, Rank.CHANNEL)
    ]
    path = Path(tuple(steps[:3]), steps[3])
    before = left(quota, path)
    denial = denied(quota.reserve(path, tokens(100), 0.0, NOON))
    assert denial.binding.scope.rank is refusing
    assert left(quota, path) == before
    assert quota.statistics().open == 0


def test_a_quota_of_a_thousand_admits_ten_of_fifty_calls_of_a_hundred() -> None:
    quota = Quota()
    path = Path((step(Rank.TENANT, Limits(tokens_per_minute=1_000)), step(Rank.KEY, Limits(tokens_per_minute=9_999))))
    outcomes = [quota.reserve(path, tokens(100), 0.0, NOON) for _ in range(50)]
    assert [type(outcome) for outcome in outcomes] == [Reservation] * 10 + [Denial] * 40
    assert minutes(quota, path) == [0, 8_999]


def test_the_limiter_with_the_longest_wait_binds() -> None:
    quota = Quota()
    limits = Limits(requests_per_minute=60, tokens_per_minute=600, requests_per_day=1_000)
    path = Path((step(Rank.TENANT, limits),))
    held(quota.reserve(path, Need(requests=60, total_tokens=600), 0.0, NOON))
    binding = denied(quota.reserve(path, Need(requests=1, total_tokens=50), 0.0, NOON)).binding
    assert (binding.scope, binding.limiter) == (Scope(Rank.TENANT, "acme"), (Rank.TENANT, Dimension.TOKENS_PER_MINUTE))
    assert (binding.rule.limit, binding.remaining, binding.needed, binding.wait) == (600, 0, 50, 5.0)
    assert quota.statistics().denials == {(Rank.TENANT, Dimension.TOKENS_PER_MINUTE): 1}


def test_a_call_given_back_whole_was_never_there() -> None:
    quota = Quota()
    path = Path((step(Rank.KEY, TIERS["free"]),))
    before = left(quota, path)
    reservation = held(quota.reserve(path, tokens(500), 0.0, NOON))
    assert quota.statistics().held == tokens(500)
    quota.settle(reservation, NOTHING, 0.0)
    assert left(quota, path) == before
    assert (quota.statistics().open, quota.statistics().held) == (0, NOTHING)


def test_settling_twice_is_a_bug_and_says_so() -> None:
    quota = Quota()
    path = Path((step(Rank.KEY, TIERS["free"]),), step(Rank.CHANNEL, TIERS["pro"], "a"))
    reservation = held(quota.reserve(path, tokens(500), 0.0, NOON))
    quota.settle(reservation, tokens(100), 0.0)
    after = left(quota, path)
    with pytest.raises(AssertionError, match="exactly once"):
        quota.settle(reservation, tokens(100), 0.0)
    with pytest.raises(AssertionError, match="settled reservation"):
        quota.move(reservation, step(Rank.CHANNEL, TIERS["pro"], "b"), tokens(1), now=0.0, wall=NOON)
    assert left(quota, path) == after


def test_failover_moves_the_channels_part_and_leaves_the_tenants_alone() -> None:
    quota = Quota()
    tenant = step(Rank.TENANT, Limits(tokens_per_minute=1_000, requests_per_day=10))
    a, b = (step(Rank.CHANNEL, Limits(tokens_per_minute=1_000, concurrency=1), name) for name in "ab")
    reservation = held(quota.reserve(Path((tenant,), a), tokens(300), 0.0, NOON))
    at_tenant = left(quota, Path((tenant,)))
    assert quota.move(reservation, b, tokens(500), now=0.0, wall=NOON) is None
    assert left(quota, Path((tenant,))) == at_tenant
    assert minutes(quota, Path((), a)) == [1_000]
    assert left(quota, Path((), b)) == {
        (Rank.CHANNEL, Dimension.CONCURRENCY): 0,
        (Rank.CHANNEL, Dimension.TOKENS_PER_MINUTE): 500,
    }
    quota.settle(reservation, tokens(200), 0.0, at_channel=tokens(150))
    assert minutes(quota, Path((tenant,), b)) == [800, 850]
    assert left(quota, Path((tenant,)))[Rank.TENANT, Dimension.REQUESTS_PER_DAY] == 9


def test_a_move_that_is_refused_changes_nothing() -> None:
    quota = Quota()
    a, b = step(Rank.CHANNEL, Limits(tokens_per_minute=1_000), "a"), step(Rank.CHANNEL, Limits(concurrency=0), "b")
    reservation = held(quota.reserve(Path((), a), tokens(300), 0.0, NOON))
    denial = denied(quota.move(reservation, b, tokens(300), now=0.0, wall=NOON))
    assert (denial.binding.scope.name, denial.binding.wait) == ("b", math.inf)
    assert minutes(quota, Path((), a)) == [700]
    quota.settle(reservation, tokens(100), 0.0)
    assert minutes(quota, Path((), a)) == [900]


def test_what_a_failed_attempt_used_stays_at_its_channel_and_is_not_the_tenants() -> None:
    """Providers count failed requests; the tenant is billed the answer alone."""
    quota = Quota()
    tenant = step(Rank.TENANT, Limits(tokens_per_minute=1_000))
    a, b = (step(Rank.CHANNEL, Limits(tokens_per_minute=1_000), name) for name in "ab")
    reservation = held(quota.reserve(Path((tenant,), a), tokens(300), 0.0, NOON))
    quota.leave(reservation, tokens(120), 0.0)
    assert quota.move(reservation, b, tokens(300), now=0.0, wall=NOON) is None
    quota.settle(reservation, tokens(200), 0.0)
    assert [*minutes(quota, Path((tenant,), a)), *minutes(quota, Path((), b))] == [800, 880, 800]


def test_a_call_that_left_its_last_channel_settles_for_the_tenant_alone() -> None:
    quota = Quota()
    path = Path((step(Rank.TENANT, Limits(tokens_per_minute=1_000)),), step(Rank.CHANNEL, Limits(concurrency=1), "a"))
    reservation = held(quota.reserve(path, tokens(300), 0.0, NOON))
    quota.leave(reservation, NOTHING, 0.0)
    quota.leave(reservation, NOTHING, 0.0)
    quota.settle(reservation, NOTHING, 0.0)
    assert set(left(quota, path).values()) == {1_000, 1}


def test_a_channel_may_reserve_by_its_providers_own_rule() -> None:
    quota = Quota()
    path = Path((step(Rank.KEY, Limits(tokens_per_minute=1_000)),), step(Rank.CHANNEL, Limits(tokens_per_minute=1_000)))
    held(quota.reserve(path, tokens(300), 0.0, NOON, at_channel=tokens(900)))
    assert minutes(quota, path) == [700, 100]


def test_parallel_calls_cannot_overspend_a_budget() -> None:
    quota = Quota()
    budget = Limits(micro_usd_per_day=1_000_000, micro_usd_per_month=5_000_000)
    path = Path((step(Rank.TENANT, budget),))
    outcomes = [quota.reserve(path, tokens(1, micro_usd=300_000), 0.0, NOON) for _ in range(5)]
    assert [type(outcome) for outcome in outcomes] == [Reservation] * 3 + [Denial] * 2
    for outcome in outcomes[:3]:
        quota.settle(held(outcome), tokens(1, micro_usd=100_000), 0.0)
    held(quota.reserve(path, tokens(1, micro_usd=700_000), 0.0, NOON))
    binding = denied(quota.reserve(path, tokens(1, micro_usd=1), 0.0, NOON)).binding
    assert (binding.rule.dimension, binding.wait) == (Dimension.MICRO_USD_PER_DAY, DAY / 2)


def test_an_empty_balance_is_never_refilled_and_asks_for_money() -> None:
    quota = Quota()
    path = Path((step(Rank.TENANT, Limits(balance=500)),))
    quota.settle(held(quota.reserve(path, tokens(1, micro_usd=400), 0.0, NOON)), tokens(1, micro_usd=450), 0.0)
    denial = denied(quota.reserve(path, tokens(1, micro_usd=51), 1e6, NOON + 900 * DAY))
    assert denial.out_of_balance
    assert denial.binding.wait == math.inf
    held(quota.reserve(Path((step(Rank.TENANT, Limits(balance=1_500)),)), tokens(1, micro_usd=1_050), 1e6, NOON))
    assert not denied(
        quota.reserve(Path((step(Rank.KEY, Limits(concurrency=0)),)), NOTHING._replace(calls=1), 0.0, NOON)
    ).out_of_balance


def test_what_the_ledger_knows_of_is_charged_without_asking() -> None:
    quota = Quota()
    path = Path((step(Rank.TENANT, Limits(balance=500, tokens_per_day=100, concurrency=1)),))
    quota.charge(path, tokens(70, micro_usd=480), 0.0, NOON)
    assert left(quota, path) == {
        (Rank.TENANT, Dimension.CONCURRENCY): 1,
        (Rank.TENANT, Dimension.TOKENS_PER_DAY): 30,
        (Rank.TENANT, Dimension.BALANCE): 20,
    }


def test_a_limiter_that_observes_lets_pass_reports_and_charges_nothing() -> None:
    quota = Quota()
    watched = Limits(tokens_per_minute=100, requests_per_day=10, observe=frozenset({Dimension.TOKENS_PER_MINUTE}))
    path = Path((step(Rank.KEY, watched),))
    first = held(quota.reserve(path, tokens(80), 0.0, NOON))
    second = held(quota.reserve(path, tokens(80), 0.0, NOON))
    assert (first.observed, [objection.wait for objection in second.observed]) == ([], [36.0])
    assert left(quota, path) == {
        (Rank.KEY, Dimension.TOKENS_PER_MINUTE): 20,
        (Rank.KEY, Dimension.REQUESTS_PER_DAY): 8,
    }
    quota.settle(second, tokens(500), 0.0)
    assert minutes(quota, path) == [20]
    assert quota.statistics().observed == {(Rank.KEY, Dimension.TOKENS_PER_MINUTE): 1}
    assert quota.statistics().denials == {}


def test_a_denial_names_what_only_observed_and_is_bound_by_what_is_in_force() -> None:
    quota = Quota()
    watched = Limits(tokens_per_minute=0, concurrency=0, observe=frozenset({Dimension.TOKENS_PER_MINUTE}))
    denial = denied(quota.reserve(Path((step(Rank.KEY, watched),)), tokens(1), 0.0, NOON))
    assert denial.binding.rule.dimension is Dimension.CONCURRENCY
    assert [objection.rule.dimension for objection in denial.observed] == [Dimension.TOKENS_PER_MINUTE]


def test_a_move_past_an_observing_limiter_is_told_too() -> None:
    quota = Quota()
    watched = Limits(concurrency=0, observe=frozenset({Dimension.CONCURRENCY}))
    reservation = held(quota.reserve(Path(()), tokens(1), 0.0, NOON))
    assert quota.move(reservation, step(Rank.CHANNEL, watched, "b"), tokens(1), now=0.0, wall=NOON) is None
    assert [objection.scope.name for objection in reservation.observed] == ["b"]
    quota.settle(reservation, tokens(1), 0.0)
    assert left(quota, Path((), step(Rank.CHANNEL, watched, "b"))) == {(Rank.CHANNEL, Dimension.CONCURRENCY): 0}


def test_other_limits_keep_the_fill_the_days_use_and_the_calls_under_way() -> None:
    quota = Quota()
    old = Limits(concurrency=2, tokens_per_minute=100, tokens_per_day=1_000)
    new = Limits(concurrency=5, tokens_per_minute=1_000, tokens_per_day=5_000, requests_per_minute=60)
    reservation = held(quota.reserve(Path((step(Rank.KEY, old),)), tokens(50), 0.0, NOON))
    path = Path((step(Rank.KEY, new),))
    assert left(quota, path) == {
        (Rank.KEY, Dimension.CONCURRENCY): 4,
        (Rank.KEY, Dimension.REQUESTS_PER_MINUTE): 60,
        (Rank.KEY, Dimension.TOKENS_PER_MINUTE): 500,
        (Rank.KEY, Dimension.TOKENS_PER_DAY): 4_950,
    }
    quota.settle(reservation, tokens(20), 0.0)
    assert left(quota, path)[Rank.KEY, Dimension.CONCURRENCY] == 5
    assert left(quota, path)[Rank.KEY, Dimension.TOKENS_PER_DAY] == 4_980


def test_a_limiter_that_was_removed_while_held_is_settled_and_forgotten() -> None:
    quota = Quota()
    reservation = held(quota.reserve(Path((step(Rank.KEY, Limits(tokens_per_minute=100)),)), tokens(50), 0.0, NOON))
    path = Path((step(Rank.KEY, Limits(concurrency=1)),))
    assert left(quota, path) == {(Rank.KEY, Dimension.CONCURRENCY): 1}
    quota.settle(reservation, tokens(90), 0.0)
    assert left(quota, path) == {(Rank.KEY, Dimension.CONCURRENCY): 1}


def swept(quota: Quota, now: float, wall: float) -> tuple[int, int]:
    quota.sweep(now, wall)
    quota.sweep(now, wall)
    statistics = quota.statistics()
    return statistics.accounts, statistics.limiters


def test_a_tenant_at_rest_keeps_what_it_used_today_and_nothing_else() -> None:
    quota = Quota()
    path = Path((step(Rank.KEY, TIERS["free"]),))
    quota.settle(held(quota.reserve(path, tokens(500), 0.0, NOON)), tokens(500), 0.0)
    assert swept(quota, 0.5, NOON) == (1, 3)
    assert swept(quota, 60.0, NOON + 60) == (1, 1)
    assert left(quota, path, 60.0, NOON + 60)[Rank.KEY, Dimension.REQUESTS_PER_DAY] == 999
    assert swept(quota, 60.0, NOON + 2 * DAY) == (0, 0)
    assert left(quota, path, 60.0, NOON + 2 * DAY)[Rank.KEY, Dimension.REQUESTS_PER_DAY] == 1_000


def test_a_call_under_way_keeps_its_accounts_from_being_swept() -> None:
    """An hour's stream has refilled every bucket; what it overran by must still find them."""
    quota = Quota()
    path = Path((step(Rank.KEY, Limits(tokens_per_minute=100)),))
    reservation = held(quota.reserve(path, tokens(50), 0.0, NOON))
    assert swept(quota, 3_600.0, NOON + 3_600) == (1, 1)
    quota.settle(reservation, tokens(130), 3_600.0)
    assert minutes(quota, path, 3_600.0) == [20]
    assert swept(quota, 3_700.0, NOON + 3_700) == (0, 0)


def test_sweeping_goes_round_in_slices() -> None:
    quota = Quota()
    for number in range(10):
        quota.reserve(Path((step(Rank.KEY, TIERS["free"], f"key {number}"),)), NOTHING, 0.0, NOON)
    for reservation in list(quota._open):
        quota.settle(reservation, NOTHING, 0.0)
    left_over = []
    for _ in range(4):
        quota.sweep(0.0, NOON, count=4)
        left_over.append(len(quota.accounts))
    assert left_over == [10, 6, 2, 0]


def test_the_shortest_stream_of_a_path_is_its_limit() -> None:
    assert Path(()).stream == math.inf
    assert Path((step(Rank.KEY, Limits(stream=600.0)),), step(Rank.CHANNEL, Limits(stream=60.0))).stream == 60.0


@pytest.mark.parametrize(
    "name, expected",
    [
        ("free", {"rpm": 60, "tpm": 10_000, "rpd": 1_000}),
        ("basic", {"rpm": 500, "tpm": 100_000, "rpd": 50_000}),
        ("pro", {"rpm": 2_000, "tpm": 500_000, "rpd": 500_000}),
        ("enterprise", {"rpm": 10_000, "tpm": 2_000_000, "rpd": None}),
    ],
)
def test_the_tiers_are_as_published(name: str, expected: dict[str, int | None]) -> None:
    tier = TIERS[name]
    shown = {"rpm": tier.requests_per_minute, "tpm": tier.tokens_per_minute, "rpd": tier.requests_per_day}
    assert (shown, tier.concurrency, tier.zone) == (expected, 100, "UTC")


def test_the_free_tier_refuses_its_sixty_first_request_for_one_second() -> None:
    quota = Quota()
    path = Path((step(Rank.KEY, TIERS["free"]),))
    for _ in range(60):
        quota.settle(held(quota.reserve(path, tokens(100), 0.0, NOON)), tokens(100), 0.0)
    binding = denied(quota.reserve(path, tokens(100), 0.0, NOON)).binding
    assert (binding.rule.dimension, binding.wait) == (Dimension.REQUESTS_PER_MINUTE, 1.0)
    held(quota.reserve(path, tokens(100), 1.0, NOON + 1.0))


def test_of_each_dimension_the_tightest_limiter_in_force_is_told() -> None:
    quota = Quota()
    watching = Limits(tokens_per_minute=10, observe=frozenset({Dimension.TOKENS_PER_MINUTE}))
    path = Path(
        (
            step(Rank.TENANT, Limits(tokens_per_minute=500, requests_per_day=9)),
            step(Rank.TEAM, Limits(tokens_per_minute=400, requests_per_day=90)),
            step(Rank.KEY, watching),
        )
    )
    held(quota.reserve(path, tokens(100), 0.0, NOON))
    told = [(gauge.scope.rank, gauge.dimension, gauge.remaining) for gauge in quota.tightest(path, 0.0, NOON)]
    assert told == [(Rank.TEAM, Dimension.TOKENS_PER_MINUTE, 300), (Rank.TENANT, Dimension.REQUESTS_PER_DAY, 8)]


def test_readings_are_of_what_calls_have_met() -> None:
    quota = Quota()
    assert quota.readings(0.0, NOON) == []
    path = Path((step(Rank.KEY, TIERS["free"]),))
    reservation = held(quota.reserve(path, tokens(100), 0.0, NOON))
    assert quota.readings(0.0, NOON) == quota.gauges(path, 0.0, NOON)
    quota.settle(reservation, NOTHING, 0.0)
    for _ in range(2):  # a round begins with those that are there
        quota.sweep(0.0, NOON)
    assert quota.readings(0.0, NOON) == []


def test_what_only_observes_counts_once_however_often_a_waiting_call_asks() -> None:
    """A call that waits for a place asks again and again; what it was let past counts when it has one, and once."""
    limits = Limits(requests_per_minute=1, observe=frozenset({Dimension.REQUESTS_PER_MINUTE}))
    path, channel = Path((step(Rank.TENANT, limits, "t"),)), step(Rank.CHANNEL, limits, "c")
    quota = Quota()
    quota.reserve(path, Need(1), 0.0, NOON)
    for _ in range(5):
        asked = quota.ask(path, Need(1), 0.0, NOON)
        assert isinstance(asked, Reservation)
        quota.settle(asked, NOTHING, 0.0)
    assert quota.statistics().observed == {}
    asked = quota.ask(path, Need(1), 0.0, NOON)
    assert isinstance(asked, Reservation)
    quota.admit(asked)
    for _ in range(2):
        assert quota.move(asked, channel, Need(2), now=0.0, wall=NOON) is None
        quota.admit(asked)
    assert quota.statistics().observed == {
        (Rank.TENANT, Dimension.REQUESTS_PER_MINUTE): 1,
        (Rank.CHANNEL, Dimension.REQUESTS_PER_MINUTE): 1,
    }
