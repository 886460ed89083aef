"""The configured limits as the steps of a call's path, made once: organization → tenant → team → key → end user → model.

A scope without limits is no step, and a configuration without any has no scopes at all, so that what nobody limits costs
nothing. Limits are one object per scope for as long as the configuration stands; the quota knows a change by that. A name inside
a tenant is told behind the tenant's, with spaces between that no name has, so that no two scopes are one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import evolve, frozen

from trioproxy.config.limits import LIMITABLE, PERIODS, Budget, QuotaSettings, Tier
from trioproxy.config.limits import Limits as Written
from trioproxy.config.model import ClassPolicy, Config
from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.limits import Dimension, Limits
from trioproxy.policy.reservation import Rank, Scope, Step
from trioproxy.policy.tiers import TIERS

MICRO = 1_000_000
NO_BUDGET = Budget()


@frozen
class Scopes:
    """The steps by name. `keys` has what stands above a key's model, for every key, and `tenants` for callers without one."""

    keys: Mapping[str, tuple[Step, ...]]
    tenants: Mapping[str, tuple[Step, ...]]
    above: tuple[Step, ...]  # of everybody: the organization
    end_users: Mapping[str, Limits]  # by tenant
    models: Mapping[str, tuple[Step, ...]]  # one step, or none
    channels: Mapping[str, Step]
    weights: Mapping[str, float]  # by tenant, where it is not 1

    @classmethod
    def of(cls, config: Config) -> "Scopes | None":
        """None where nothing is limited, and no class has a pool."""
        quota = config.quota
        above = _step(Rank.ORGANIZATION, "", limits(quota, config.organization.limits, config.organization.budget))
        own = {
            each.name: _step(
                Rank.TENANT, each.name, limits(quota, each.limits, each.budget, tier=each.tier, balance=each.balance)
            )
            for each in config.tenants
        }
        tenants = {name: (*above, *steps) for name, steps in own.items()}
        teams = {
            (each.tenant, each.name): _step(
                Rank.TEAM, f"{each.tenant} / {each.name}", limits(quota, each.limits, each.budget)
            )
            for each in config.teams
        }
        keys = {
            key.id: (
                *tenants.get(key.tenant, above),
                *teams.get((key.tenant, key.team or ""), ()),
                *_step(Rank.KEY, key.id, limits(quota, key.limits, key.budget, tier=key.tier)),
            )
            for key in config.keys
        }
        end_users = {each.name: limits(quota, each.end_user.limits, each.end_user.budget) for each in config.tenants}
        scopes = cls(
            keys=keys,
            tenants=tenants,
            above=above,
            end_users={name: each for name, each in end_users.items() if _limits_anything(each)},
            models={each.name: _step(Rank.MODEL, each.name, limits(quota, each.limits)) for each in config.models},
            channels={
                each.name: step
                for each in config.channels
                for step in _step(Rank.CHANNEL, each.name, limits(quota, each.limits))
            },
            weights={each.name: each.weight for each in config.tenants if each.weight != 1.0},
        )
        pooled = any(queue.tokens_per_minute for queue in queues(config).values())
        return scopes if scopes.any or pooled else None

    @property
    def any(self) -> bool:
        """Whether anything is limited."""
        callers: Iterable[tuple[Step, ...]] = (*self.keys.values(), *self.tenants.values(), *self.models.values())
        return bool(self.above or self.end_users or self.channels or any(callers))

    def callers(self, key_id: str, tenant: str) -> tuple[Step, ...]:
        """What stands above the model for a caller."""
        steps = self.keys.get(key_id)
        return self.tenants.get(tenant, self.above) if steps is None else steps


def queues(config: Config) -> dict[str, QueuePolicy]:
    """The classes whose calls wait, and how."""
    classes = {"default": config.defaults, **config.classes}
    return {name: policy.queue for name, policy in classes.items() if policy.queue is not None}


def baselines(config: Config) -> dict[str, dict[str, float]]:
    """By class what its tenants are assured of, in tokens a second."""
    assured: dict[str, dict[str, float]] = {}
    for tenant in config.tenants:
        for name, rate in tenant.baseline.items():
            assured.setdefault(name, {})[tenant.name] = rate / 60
    return assured


def watched(config: Config) -> Config:
    """The same without pools of classes, where limits only observe: a pool refuses, or lets nobody through."""

    def unpooled(policy: ClassPolicy) -> ClassPolicy:
        queue = policy.queue
        return policy if queue is None else evolve(policy, queue=evolve(queue, tokens_per_minute=None))

    return evolve(
        config,
        defaults=unpooled(config.defaults),
        classes={name: unpooled(policy) for name, policy in config.classes.items()},
        tenants=tuple(evolve(tenant, baseline={}) for tenant in config.tenants),
    )


def limits(
    quota: QuotaSettings,
    written: Written,
    budget: Budget = NO_BUDGET,
    *,
    tier: Tier | None = None,
    balance: float | None = None,
) -> Limits:
    """One scope's limits as the policy wants them: the tier's, overridden by what the scope says itself."""
    amounts: dict[str, Any] = {} if tier is None else {name: getattr(TIERS[tier], name) for name in LIMITABLE}
    amounts |= {name: limit for name in LIMITABLE if (limit := getattr(written, name)) is not None}
    amounts |= {
        f"micro_usd_per_{period}": round(usd * MICRO)
        for period in PERIODS
        if (usd := getattr(budget, period)) is not None
    }
    if balance is not None:
        amounts["balance"] = round(balance * MICRO)
    observe = frozenset(Dimension) if quota.observe else frozenset(_observed(written, budget))
    stream = math.inf if written.stream is None else written.stream
    return Limits(
        **amounts, stream=stream, burst=written.burst, zone=quota.zone, observe=observe, alert_at=budget.alert_at
    )


def _observed(written: Written, budget: Budget) -> Iterator[Dimension]:
    names = LIMITABLE if "*" in written.observe else written.observe
    yield from (Dimension(name) for name in names)
    if budget.observe:
        yield from (Dimension(f"micro_usd_per_{period}") for period in PERIODS)


def _limits_anything(each: Limits) -> bool:
    return bool(each.rules) or each.stream < math.inf


def _step(rank: Rank, name: str, each: Limits) -> tuple[Step, ...]:
    return (Step(Scope(rank, name), each),) if _limits_anything(each) else ()
