"""What must hold between the quotas of a configuration: who belongs to whom, and that some call can fit every limit."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from trioproxy.config.consistency import Finding, Parts
from trioproxy.config.limits import Limits
from trioproxy.config.lines import Path
from trioproxy.config.rules import shown

DEFAULT_TENANT = "default"


def findings(parts: Parts) -> Iterator[Finding]:
    """Everything that does not fit together, as (path, message)."""
    tenants = {tenant.name for tenant in parts.tenants.values()}
    teams: dict[tuple[str, str], int] = {}
    for index, team in parts.teams.items():
        yield from _tenant(("teams", index), team.tenant, tenants)
        first = teams.setdefault((team.tenant, team.name), index)
        if first != index:
            told = f"{shown(team.name)} of {shown(team.tenant)} is already teams[{first}]: give another name"
            yield ("teams", index, "name"), told
    for index, key in parts.keys.items():
        yield from _tenant(("keys", index), key.tenant, tenants)
        if key.team is not None and (key.tenant, key.team) not in teams:
            known = [name for tenant, name in teams if tenant == key.tenant]
            yield ("keys", index, "team"), _unknown(key.team, f"team of {shown(key.tenant)}", known)
    for path, limits in _all(parts):
        if limits.tokens_per_day is not None and limits.tokens_per_day < parts.quota.output:
            told = (
                f"{limits.tokens_per_day} is too little for any call without max_tokens, whose answer is taken for "
                f"{parts.quota.output} tokens at first: give more, or lower [quota] output"
            )
            yield (*path, "limits", "tokens_per_day"), told


def _all(parts: Parts) -> Iterator[tuple[Path, Limits]]:
    """The limits of every scope, by the path of what has them."""
    yield ("organization",), parts.organization.limits
    for index, tenant in parts.tenants.items():
        yield ("tenants", index), tenant.limits
        yield ("tenants", index, "end_user"), tenant.end_user.limits
    yield from ((("teams", index), team.limits) for index, team in parts.teams.items())
    yield from ((("keys", index), key.limits) for index, key in parts.keys.items())
    yield from ((("models", index), model.limits) for index, model in parts.models.items())
    yield from ((("channels", index), channel.limits) for index, channel in parts.channels.items())


def _tenant(path: Path, name: str, known: set[str]) -> Iterator[Finding]:
    """Where tenants are listed, all of them are; `default` is everybody who says nothing."""
    if known and name not in known and name != DEFAULT_TENANT:
        yield (*path, "tenant"), _unknown(name, "tenant", known)


def _unknown(name: str, what: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    meant = f"did you mean {shown(near[0])}?" if near else f"known are {', '.join(names) or 'none'}"
    return f"{shown(name)} is no {what}; {meant}"
