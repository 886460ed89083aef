"""What must hold between the parts of a configuration: names, references, and who may listen where.

The loader hands over the parts that could be read, each under its path, so that a fault in one channel does not hide the
one between two others.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from urllib.parse import urlsplit

from attrs import field, frozen

from trioproxy.config.deferred import Deferring
from trioproxy.config.limits import Quotas, QuotaSettings, Team, Tenant
from trioproxy.config.lines import Path
from trioproxy.config.model import (
    Alerts,
    Channel,
    ClassPolicy,
    Config,
    Key,
    Link,
    Listen,
    Model,
    Rollout,
    Sink,
    State,
)
from trioproxy.config.rules import Address, is_loopback, shown

Finding = tuple[Path, str]


@frozen
class Parts:
    """The readable parts. `channel_names` has every name in the file, those of unreadable channels too."""

    listen: Listen | None
    channels: Mapping[int, Channel]
    models: Mapping[int, Model]
    keys: Mapping[int, Key]
    channel_names: frozenset[str]
    has_keys: bool
    quota: QuotaSettings
    organization: Quotas
    tenants: Mapping[int, Tenant]
    teams: Mapping[int, Team]
    rollouts: Mapping[int, Rollout]
    classes: Mapping[str, ClassPolicy]
    state: State
    alerts: Alerts = field(factory=Alerts)
    deferred: Deferring = field(factory=Deferring)

    @classmethod
    def of(cls, config: Config) -> "Parts":
        return cls(
            listen=config.listen,
            channels=dict(enumerate(config.channels)),
            models=dict(enumerate(config.models)),
            keys=dict(enumerate(config.keys)),
            channel_names=frozenset(channel.name for channel in config.channels),
            has_keys=bool(config.keys),
            quota=config.quota,
            organization=config.organization,
            tenants=dict(enumerate(config.tenants)),
            teams=dict(enumerate(config.teams)),
            classes={"default": config.defaults, **config.classes},
            state=config.state,
            alerts=config.alerts,
            rollouts=dict(enumerate(config.rollouts)),
            deferred=config.deferred,
        )


def findings(parts: Parts) -> Iterator[Finding]:
    """Everything that does not fit together, as (path, message)."""
    yield from _twice("channels", "name", ((index, channel.name) for index, channel in parts.channels.items()))
    yield from _twice("models", "name", ((index, model.name) for index, model in parts.models.items()))
    yield from _twice("keys", "id", ((index, key.id) for index, key in parts.keys.items()))
    yield from _same_hash(parts.keys)
    for index, channel in parts.channels.items():
        yield from _credential(("channels", index), channel)
    for index, model in parts.models.items():
        yield from _links(("models", index, "channels"), model.channels, model.name, parts.channel_names)
    yield from _rollouts(parts)
    yield from _degraded(parts)
    yield from _twice("tenants", "name", ((index, tenant.name) for index, tenant in parts.tenants.items()))
    yield from _state(parts.state)
    if parts.listen:
        yield from _door(parts.listen, has_keys=parts.has_keys)
    for index, sink in enumerate(parts.alerts.sinks):
        yield from _sink(("alerts", "sinks", index), sink)


def _twice(section: str, field: str, names: Iterable[tuple[int, str]]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, name in names:
        if name in first:
            yield (section, index, field), f"{shown(name)} is already {section}[{first[name]}]: give another name"
        first.setdefault(name, index)


def _same_hash(keys: Mapping[int, Key]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, key in keys.items():
        if key.hash in first:
            yield (
                ("keys", index, "hash"),
                f"the same key as keys[{first[key.hash]}]: make another, `trioproxy keys new`",
            )
        first.setdefault(key.hash, index)


def _credential(path: Path, channel: Channel) -> Iterator[Finding]:
    if channel.api_key or channel.auth == "none" or is_loopback(urlsplit(channel.base_url).hostname or ""):
        return
    yield (*path, "api_key"), 'is missing: give it, such as { env = "OPENAI_API_KEY" }, or say auth = "none"'


def _rollouts(parts: Parts) -> Iterator[Finding]:
    models = {model.name for model in parts.models.values()}
    yield from _twice("rollouts", "model", ((index, each.model) for index, each in parts.rollouts.items()))
    for index, rollout in parts.rollouts.items():
        path = ("rollouts", index)
        if rollout.model not in models:
            near = get_close_matches(rollout.model, models, n=1)
            meant = f"did you mean {shown(near[0])}?" if near else f"known are {', '.join(sorted(models)) or 'none'}"
            yield (*path, "model"), f"{shown(rollout.model)} is no model; {meant}"
        yield from _links((*path, "candidate"), rollout.candidate, rollout.model, parts.channel_names)


def _degraded(parts: Parts) -> Iterator[Finding]:
    """What is delivered where no channel answers, and who is told of it."""
    hooks = dict(enumerate(parts.deferred.webhooks))
    for (_, *rest), message in _twice("deferred.webhooks", "name", ((at, hook.name) for at, hook in hooks.items())):
        yield ("deferred", "webhooks", *rest), message
    known = {hook.name for hook in hooks.values()}
    for index, model in parts.models.items():
        path = ("models", index)
        if model.on_exhausted == "answer" and model.degraded is None:
            yield (
                (*path, "degraded"),
                'is missing: on_exhausted = "answer" needs its words, degraded = { text = "..." }',
            )
        if model.on_exhausted == "defer" and parts.state.path is None:
            yield (
                (*path, "on_exhausted"),
                '"defer" needs a place to keep calls: give [state] path, such as "trioproxy.db"',
            )
        if model.webhook is not None:
            yield from _hook((*path, "webhook"), model.webhook, known)
    for index, key in parts.keys.items():
        if key.webhook is not None:
            yield from _hook(("keys", index, "webhook"), key.webhook, known)


def _hook(path: Path, name: str, known: Collection[str]) -> Iterator[Finding]:
    if name not in known:
        near = get_close_matches(name, known, n=1)
        meant = f"did you mean {shown(near[0])}?" if near else f"known are {', '.join(sorted(known)) or 'none'}"
        yield path, f"{shown(name)} is none of [[deferred.webhooks]]; {meant}"


def _links(path: Path, links: Sequence[Link], model: str, known: frozenset[str]) -> Iterator[Finding]:
    for index, link in enumerate(links):
        where = (*path, index)
        if link.channel not in known:
            near = get_close_matches(link.channel, known, n=1)
            meant = f"did you mean {shown(near[0])}?" if near else f"known are {', '.join(sorted(known)) or 'none'}"
            yield (*where, "channel"), f"{shown(link.channel)} is no channel; {meant}"
        if "*" in link.model and "*" not in model:
            yield (*where, "model"), f'"*" has nothing to stand for: {shown(model)} is no pattern; name the model'


def _door(listen: Listen, *, has_keys: bool) -> Iterator[Finding]:
    if not has_keys and not listen.open and not Address.of(listen.data).loopback:
        told = "can be reached from other machines and there are no [[keys]]"
        yield ("listen", "data"), f"{shown(listen.data)} {told}: add keys (`trioproxy keys new`), or say open = true"


def _state(state: State) -> Iterator[Finding]:
    if state.path is None:
        for name in ("url", "spool"):
            if getattr(state, name) is not None:
                yield (
                    ("state", name),
                    "does nothing without path: give the path of the file, or of what stands beside it",
                )
    elif not state.path:
        yield ("state", "path"), '"" is no path: give one, such as "trioproxy.db", or leave it out to keep nothing'
    elif "://" in state.path:
        yield ("state", "path"), 'is no file: give a database\'s address by url, such as { env = "DATABASE_URL" }'


def _sink(path: Path, sink: Sink) -> Iterator[Finding]:
    if (sink.url is None) == (not sink.command):
        given = "both url and command are" if sink.command else "neither url nor command is"
        yield path, f"{given} given: say once who is told"
    for name in ("secret", "ca_file"):
        if sink.command and getattr(sink, name) is not None:
            yield (*path, name), "is for a url: a command signs nothing"
