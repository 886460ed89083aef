"""What must hold between classes, tenants and models: what is kept for whom, how long a call may wait, who stands in for whom."""

from collections.abc import Iterator, Mapping

from trioproxy.config.consistency import Finding, Parts
from trioproxy.config.lines import Path
from trioproxy.config.model import ClassPolicy, Model
from trioproxy.config.rules import shown
from trioproxy.policy.access import Catalogue, matches


def findings(parts: Parts) -> Iterator[Finding]:
    """Everything that does not fit together, as (path, message)."""
    for name, policy in parts.classes.items():
        yield from _waits(("defaults",) if name == "default" else ("classes", name), policy)
    yield from _baselines(parts)
    yield from _sums(parts)
    yield from _fallbacks(parts)


def _waits(path: Path, policy: ClassPolicy) -> Iterator[Finding]:
    queue, total = policy.queue, policy.total_timeout
    if queue is not None and queue.max_wait > total:
        told = f"{queue.max_wait:g} s can never pass before total_timeout = {total:g} s does: lower it, or raise that"
        yield (*path, "queue", "max_wait"), told


def _baselines(parts: Parts) -> Iterator[Finding]:
    """A baseline is a part of a class's pool, and of what its tenant may use at all."""
    for index, tenant in parts.tenants.items():
        for name, rate in tenant.baseline.items():
            path = "tenants", index, "baseline", name
            policy = parts.classes.get(name)
            if policy is None:
                yield path, f"{shown(name)} is no class; known are {', '.join(sorted(parts.classes))}"
            elif policy.queue is None or not policy.queue.tokens_per_minute:
                yield path, f"{shown(name)} has no pool to keep it in: give its queue tokens_per_minute"
            limit = tenant.limits.tokens_per_minute
            if limit is not None and rate > limit:
                yield path, f"{rate} is more than its own limits let it use: tokens_per_minute is {limit}"


def _sums(parts: Parts) -> Iterator[Finding]:
    total: dict[str, int] = {}
    for tenant in parts.tenants.values():
        for name, rate in tenant.baseline.items():
            total[name] = total.get(name, 0) + rate
    for name, rate in total.items():
        queue = parts.classes[name].queue if name in parts.classes else None
        pool = queue.tokens_per_minute if queue is not None else None
        if pool is not None and rate > pool:
            table: Path = ("defaults",) if name == "default" else ("classes", name)
            told = f"the tenants' baselines add up to {rate}, and the pool has {pool}: lower them, or raise it"
            yield (*table, "queue", "tokens_per_minute"), told
    limit = parts.organization.limits.tokens_per_minute
    if limit is not None and sum(total.values()) > limit:
        told = f"the tenants' baselines add up to {sum(total.values())}, and all of them together may use {limit}"
        yield ("organization", "limits", "tokens_per_minute"), told


def _fallbacks(parts: Parts) -> Iterator[Finding]:
    catalogue = Catalogue.of(parts.models.values())
    leads: dict[str, set[str]] = {}
    for index, model in parts.models.items():
        for place, fallback in enumerate(model.fallback):
            path = "models", index, "fallback", place
            found = catalogue.find(fallback.model) if "*" not in fallback.model else None
            if found is None:
                yield (*path, "model"), f"{shown(fallback.model)} is no model that there is: give the name of one"
            else:
                leads.setdefault(model.name, set()).add(found[0].name)
            yield from _patterns((*path, "classes"), fallback.classes, sorted(parts.classes))
    yield from _rounds(parts.models, leads)


def _patterns(path: Path, patterns: tuple[str, ...], known: list[str]) -> Iterator[Finding]:
    for index, pattern in enumerate(patterns):
        if not any(matches(pattern, name) for name in known):
            yield (*path, index), f"{shown(pattern)} is no class; known are {', '.join(known)}"


def _rounds(models: Mapping[int, Model], leads: Mapping[str, set[str]]) -> Iterator[Finding]:
    """Models that stand in for each other hand an overload round."""
    for index, model in models.items():
        reached: set[str] = set()
        ahead = set(leads.get(model.name, ()))
        while ahead:
            reached |= ahead
            ahead = {name for each in ahead for name in leads.get(each, ())} - reached
        if model.name in reached:
            told = f"it leads back to {shown(model.name)}, so that an overload would go round: take one of them out"
            yield ("models", index, "fallback"), told
