"""Conservation: whatever is reserved, moved, settled, reloaded or swept, nothing is lost and nothing appears.

The machine keeps its own books: a plain sum of what is held and spent per scope. Time stands still in the first machine,
so that free + held + spent is exactly the limit at every level; in the second it runs, and the bounds must hold.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from trioproxy.policy.hierarchy import Quota
from trioproxy.policy.limits import NOTHING, Dimension, Limits, Need
from trioproxy.policy.reservation import Denial, Path, Rank, Reservation, Scope, Step

WALL = 1_777_896_000.0  # 4 May 2026, 12:00 UTC
DAY = 86_400.0


def limits(tokens: int) -> Limits:
    return Limits(
        concurrency=4, tokens_per_minute=tokens, requests_per_minute=12, tokens_per_day=2 * tokens, balance=9 * tokens
    )


ORGANIZATION = Step(Scope(Rank.ORGANIZATION, "org"), limits(1_000))
TENANTS = [Step(Scope(Rank.TENANT, name), limits(500)) for name in ("blue", "red")]
CHANNELS = [Step(Scope(Rank.CHANNEL, name), limits(800)) for name in ("a", "b")]
EVERY = [ORGANIZATION, *TENANTS, *CHANNELS]

amounts = st.integers(0, 250)


def need(tokens: int) -> Need:
    return Need(requests=1, total_tokens=tokens, micro_usd=3 * tokens)


def remaining(quota: Quota, step: Step, now: float, wall: float) -> dict[Dimension, int]:
    return {gauge.dimension: gauge.remaining for gauge in quota.gauges(Path((step,)), now, wall)}


class Books(RuleBasedStateMachine):
    """Time stands still."""

    reservations = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.quota = Quota()
        self.held: dict[Reservation, list[tuple[Scope, Need]]] = {}
        self.spent: dict[Scope, Need] = dict.fromkeys((step.scope for step in EVERY), NOTHING)

    def snapshot(self) -> dict[Scope, dict[Dimension, int]]:
        return {step.scope: remaining(self.quota, step, 0.0, WALL) for step in EVERY}

    def spend(self, scope: Scope, used: Need) -> None:
        self.spent[scope] = Need(*map(sum, zip(self.spent[scope], used._replace(calls=0), strict=True)))

    @rule(
        target=reservations, tenant=st.sampled_from(TENANTS), channel=st.sampled_from([None, *CHANNELS]), size=amounts
    )
    def reserve(self, tenant: Step, channel: Step | None, size: int) -> object:
        before = self.snapshot()
        outcome = self.quota.reserve(Path((ORGANIZATION, tenant), channel), need(size), 0.0, WALL)
        if isinstance(outcome, Denial):
            assert self.snapshot() == before, "a refusal left something behind"
            assert outcome.binding.wait > 0.0
            return multiple()
        scopes = [ORGANIZATION.scope, tenant.scope, *([channel.scope] if channel else [])]
        self.held[outcome] = [(scope, need(size)) for scope in scopes]
        return outcome

    @rule(reservation=reservations, channel=st.sampled_from(CHANNELS), size=amounts)
    def move(self, reservation: Reservation, channel: Step, size: int) -> None:
        before = self.snapshot()
        denial = self.quota.move(reservation, channel, need(size), now=0.0, wall=WALL)
        after = self.snapshot()
        for step in (ORGANIZATION, *TENANTS):
            assert after[step.scope] == before[step.scope], "a failover touched a caller's quota"
        if denial is not None:
            assert after == before
            return
        self.held[reservation] = [*self.held[reservation][:2], (channel.scope, need(size))]

    @rule(reservation=reservations, size=amounts)
    def leave(self, reservation: Reservation, size: int) -> None:
        """A failed attempt never used more than it reserved; an overrun has its own rule below."""
        for scope, reserved in self.held[reservation][2:]:
            self.spend(scope, need(min(size, reserved.total_tokens)))
            self.quota.leave(reservation, need(min(size, reserved.total_tokens)), 0.0)
        del self.held[reservation][2:]

    @rule(reservation=consumes(reservations), share=st.sampled_from([0.0, 0.3, 1.0, 1.1]))
    def settle(self, reservation: Reservation, share: float) -> None:
        used = need(round(reservation.callers.need.total_tokens * share)) if share else NOTHING
        self.quota.settle(reservation, used, 0.0)
        for scope, _ in self.held.pop(reservation):
            self.spend(scope, used)
        try:
            self.quota.settle(reservation, used, 0.0)
        except AssertionError:
            return
        raise RuntimeError("settled twice")

    @rule()
    def sweep(self) -> None:
        self.quota.sweep(0.0, WALL, count=3)

    @invariant()
    def free_and_held_and_spent_add_up_at_every_scope(self) -> None:
        held: dict[Scope, Counter[str]] = {step.scope: Counter() for step in EVERY}
        for parts in self.held.values():
            for scope, reserved in parts:
                held[scope].update(reserved._asdict())
        for step in EVERY:
            gone = {key: held[step.scope][key] + value for key, value in self.spent[step.scope]._asdict().items()}
            expected = {
                Dimension.CONCURRENCY: 4 - gone["calls"],
                Dimension.REQUESTS_PER_MINUTE: 12 - gone["requests"],
                Dimension.TOKENS_PER_MINUTE: step.limits.tokens_per_minute - gone["total_tokens"],
                Dimension.TOKENS_PER_DAY: step.limits.tokens_per_day - gone["total_tokens"],
                Dimension.BALANCE: step.limits.balance - gone["micro_usd"],
            }
            shown = remaining(self.quota, step, 0.0, WALL)
            assert shown == {dimension: max(0, free) for dimension, free in expected.items()}

    @invariant()
    def what_is_held_is_what_is_open(self) -> None:
        statistics = self.quota.statistics()
        sizes = [reservation.callers.need.total_tokens for reservation in self.held]
        assert (statistics.open, statistics.held.total_tokens) == (len(sizes), sum(sizes))

    def teardown(self) -> None:
        """With everything given back and a quiet week, every limiter is as new and nothing is kept but the balances."""
        for reservation in list(self.held):
            self.quota.settle(reservation, NOTHING, 0.0)
        later = WALL + 7 * DAY
        assert all(account.calls == 0 for account in self.quota.accounts)
        for step in EVERY:
            shown = remaining(self.quota, step, 7 * DAY, later)
            whole = {each.dimension: each.limit for each in step.limits.rules if each.dimension != Dimension.BALANCE}
            assert whole.items() <= shown.items()


class Running(RuleBasedStateMachine):
    """Time runs, limits change under calls, debts are made. What is shown stays between nothing and the limit."""

    reservations = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.quota = Quota()
        self.now = 0.0
        self.tokens = 600

    @property
    def path(self) -> Path:
        return Path((ORGANIZATION, Step(TENANTS[0].scope, limits(self.tokens))), CHANNELS[0])

    @rule(target=reservations, size=st.integers(0, 2_000))
    def reserve(self, size: int) -> object:
        outcome = self.quota.reserve(self.path, need(size), self.now, WALL + self.now)
        return multiple() if isinstance(outcome, Denial) else outcome

    @rule(reservation=consumes(reservations), size=st.integers(0, 5_000))
    def settle(self, reservation: Reservation, size: int) -> None:
        self.quota.settle(reservation, need(size), self.now)

    @rule(seconds=st.sampled_from([0.001, 0.7, 10.0, 61.0, 40_000.0, 2 * DAY]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(tokens=st.sampled_from([0, 60, 600, 6_000]))
    def reload(self, tokens: int) -> None:
        self.tokens = tokens

    @rule()
    def sweep(self) -> None:
        """Seen or unseen, dropping what is idle shows nowhere."""
        before = self.quota.gauges(self.path, self.now, WALL + self.now)
        self.quota.sweep(self.now, WALL + self.now)
        self.quota.sweep(self.now, WALL + self.now)
        assert self.quota.gauges(self.path, self.now, WALL + self.now) == before

    @invariant()
    def what_is_shown_lies_between_nothing_and_the_limit(self) -> None:
        for gauge in self.quota.gauges(self.path, self.now, WALL + self.now):
            assert 0 <= gauge.remaining <= gauge.limit
            assert gauge.reset_after >= 0.0

    @invariant()
    def debt_is_paid_off_in_a_minute_and_the_bucket_full_in_another(self) -> None:
        """Requests alone: tokens may be owed for longer where one admitted call was larger than the bucket."""
        for account in self.quota.accounts:
            for limiter in account.limiters:
                if limiter.rule.dimension is Dimension.REQUESTS_PER_MINUTE:
                    assert limiter.reset_after(self.now, WALL + self.now) <= 120.0 + 1e-6


TestBooks = Books.TestCase
TestRunning = Running.TestCase
TestBooks.settings = TestRunning.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
