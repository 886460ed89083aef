"""What is allowed but cannot act, or not as it reads: a chain of one, a deadline that another one always beats.

`load` refuses what is wrong; a warning here leaves the gateway free to start. None of them ever shows a credential.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

from trioproxy.config.growth import Growth
from trioproxy.config.limits import LIMITABLE, Budget, Limits
from trioproxy.config.lines import Path
from trioproxy.config.load import dotted
from trioproxy.config.model import Alerts, Channel, ClassPolicy, Config, Key, Model
from trioproxy.config.rules import CAUSES, holds_credential, is_loopback, moment, shown, told
from trioproxy.errors import ConfigFault
from trioproxy.policy.access import allows, matches, overlap

Finding = tuple[Path, str]


def warnings(config: Config, *, today: datetime | None = None) -> list[ConfigFault]:
    """Everything worth a second look, by section. `today` is for expiry dates, which are wall-clock by nature."""
    return [ConfigFault(dotted(path), message) for path, message in _findings(config, today or datetime.now(UTC))]


def _findings(config: Config, today: datetime) -> Iterator[Finding]:
    used = {link.channel for model in config.models for link in model.channels}
    used |= {link.channel for rollout in config.rollouts for link in rollout.candidate}
    for index, channel in enumerate(config.channels):
        yield from _channel(("channels", index), channel, used)
        if config.probes is not None and channel.probe.enabled and channel.name in used:
            yield from _probe(("channels", index), channel, config)
    for index, model in enumerate(config.models):
        yield from _model(("models", index), model, config)
        yield from _fallbacks(("models", index), model, config)
        yield from _degraded(("models", index), model, config)
    for index, key in enumerate(config.keys):
        yield from _key(("keys", index), key, config, today)
    yield from _rollouts(config)
    yield from _quotas(config)
    yield from _alerts(config.alerts)
    inherited = list(_policy(("defaults",), config.defaults))
    yield from inherited
    for name, policy in config.classes.items():
        told = {(field[-1], what) for field, what in inherited}
        yield from (found for found in _policy(("classes", name), policy) if (found[0][-1], found[1]) not in told)


def _ramp(path: Path, channel: Channel) -> Iterator[Finding]:
    ramp = channel.ramp
    for name in ("requests_per_minute", "tokens_per_minute"):
        begins, limit = getattr(ramp, name), getattr(channel.limits, name)
        if begins is not None and limit is not None and begins >= limit:
            yield (*path, name), f"growth begins at {begins}, where limits.{name} = {limit} ends it: nothing ever grows"
    if ramp == Growth():
        yield path, "it has no ceiling and no warmup: nothing is held back, growth is only watched"


def _channel(path: Path, channel: Channel, used: set[str]) -> Iterator[Finding]:
    if channel.name not in used:
        yield path, f"no model uses {shown(channel.name)}: it is never asked"
    if channel.api_key and channel.api_key.value is not None:
        yield (*path, "api_key"), "the key itself stands in the file: move it into an environment variable or a file"
    if channel.api_key and channel.auth == "none":
        yield (*path, "api_key"), 'it is never sent, because auth = "none"'
    url = urlsplit(channel.base_url)
    if url.scheme == "http" and not is_loopback(url.hostname or ""):
        clear = "the key and all prompts" if channel.api_key else "all prompts"
        yield (*path, "base_url"), f"http:// carries {clear} in the clear to {url.hostname}: use https://"
    if urlsplit(channel.base_url).path.rstrip("/").endswith("/chat/completions"):
        yield (*path, "base_url"), "/chat/completions is appended to it: leave that out here"
    if channel.ca_file and url.scheme == "http":
        yield (*path, "ca_file"), "it is never used, because base_url is http://"
    if channel.ramp is not None:
        yield from _ramp((*path, "ramp"), channel)
    for name in channel.headers:
        if holds_credential(name):
            yield (*path, "headers", name), "a credential in the file, by its name: give it by api_key and auth"


def _probe(path: Path, channel: Channel, config: Config) -> Iterator[Finding]:
    if channel.probed_model(config.models) is None:
        yield (
            (*path, "probe"),
            "only patterns lead here, so it is never checked: give probe = { model = ... }, or say enabled = false",
        )
    limit, allow = channel.probe.limit, channel.params.allow
    if allow is not None and not {limit, channel.params.rename.get(limit, limit)} & set(allow):
        yield (*path, "probe"), f"params.allow takes {limit} away, so each check may cost a whole answer: allow it"


def _model(path: Path, model: Model, config: Config) -> Iterator[Finding]:
    channels = len({link.channel for link in model.channels})
    if channels == 1:
        yield (*path, "channels"), f"{shown(model.name)} has one channel: when it fails there is nowhere to go"
    if len(model.channels) > model.chain_max:
        left = len(model.channels) - model.chain_max
        yield (
            (*path, "channels"),
            f"{len(model.channels)} channels and chain_max = {model.chain_max}: {left} are only tried while others are out",
        )
    seen: set[tuple[str, str]] = set()
    for index, link in enumerate(model.channels):
        if (link.channel, link.model) in seen:
            yield (*path, "channels", index), f"{shown(link.channel)} with {shown(link.model)} is listed twice"
        seen.add((link.channel, link.model))
    if model.order == "cost" and channels > 1:
        priceless = {channel.name for channel in config.channels if channel.price is None}
        for index, link in enumerate(model.channels):
            if link.channel in priceless:
                yield (
                    (*path, "channels", index),
                    f"{shown(link.channel)} has no price and the order is by cost: it comes last",
                )


def _fallbacks(path: Path, model: Model, config: Config) -> Iterator[Finding]:
    queues = {"default": config.defaults.queue, **{name: policy.queue for name, policy in config.classes.items()}}
    for index, fallback in enumerate(model.fallback):
        served = [queue for name, queue in queues.items() if queue is not None and allows(fallback.classes, name)]
        if fallback.on == ("queue",) and not any(queue.otherwise == "fallback" for queue in served):
            yield (
                (*path, "fallback", index),
                'it never happens: no class of these has a queue with otherwise = "fallback"',
            )


def _degraded(path: Path, model: Model, config: Config) -> Iterator[Finding]:
    if model.degraded is not None and model.on_exhausted != "answer":
        yield (*path, "degraded"), f'it is never said: on_exhausted is {shown(model.on_exhausted)}, not "answer"'
    if model.on_exhausted != "defer":
        if model.webhook is not None:
            yield (*path, "webhook"), f'it is never told: on_exhausted is {shown(model.on_exhausted)}, not "defer"'
        return
    if config.state.path == ":memory:":
        yield (*path, "on_exhausted"), 'what is put off ends with the process: [state] path is ":memory:"'
    policies = {"default": config.defaults, **config.classes}
    for name in (name for name, policy in policies.items() if policy.keepalive_after):
        yield (
            (*path, "on_exhausted"),
            f"streams of class {shown(name)} that were begun by keepalive_after cannot be put off any more",
        )


def _key(path: Path, key: Key, config: Config, today: datetime) -> Iterator[Finding]:
    if not any(overlap(pattern, model.name) for pattern in key.models for model in config.models):
        yield (*path, "models"), f"{shown(key.id)} may use no model that there is"
    known = ("default", *config.classes)
    for index, pattern in enumerate(key.classes):
        if not any(matches(pattern, name) for name in known):
            yield (*path, "classes", index), f"{shown(pattern)} is no class; known are {', '.join(known)}"
    if key.expires and moment(key.expires) <= today:
        yield (*path, "expires"), f"{shown(key.id)} expired at {key.expires}: it is refused"


def _rollouts(config: Config) -> Iterator[Finding]:
    chains = {model.name: model.channels for model in config.models}
    for index, rollout in enumerate(config.rollouts):
        path = ("rollouts", index)
        if rollout.candidate == chains.get(rollout.model):
            yield (*path, "candidate"), "the candidate is the model's own chain: there is nothing to compare"
        if not rollout.started and config.control.socket is None:
            yield path, "nothing can start it: give [control] socket for `trioproxy rollout start`, or started = true"
        if rollout.tolerance.refusals is None and rollout.tolerance.errors is None:
            yield (*path, "tolerance"), "nothing rolls it back by itself: give refusals or errors"


def _quotas(config: Config) -> Iterator[Finding]:
    """Limits that another one always beats, and budgets that count for nothing what has no price."""
    tenants = {tenant.name: tenant.limits for tenant in config.tenants}
    for index, tenant in enumerate(config.tenants):
        yield from _above(("tenants", index), tenant.limits, config.organization.limits, "the organization's")
    for index, team in enumerate(config.teams):
        yield from _above(("teams", index), team.limits, tenants.get(team.tenant, Limits()), "the tenant's")
    for index, key in enumerate(config.keys):
        yield from _above(("keys", index), key.limits, tenants.get(key.tenant, Limits()), "the tenant's")
    budgets = [config.organization.budget, *(each.budget for each in config.teams)]
    budgets += [each.budget for each in config.keys]
    budgets += [budget for each in config.tenants for budget in (each.budget, each.end_user.budget)]
    spending = any(each != Budget() for each in budgets) or any(each.balance for each in config.tenants)
    for index, channel in enumerate(config.channels):
        if spending and channel.price is None:
            yield (
                ("channels", index),
                f"{shown(channel.name)} has no price: what it does counts in no budget or balance",
            )


def _alerts(alerts: Alerts) -> Iterator[Finding]:
    for name in ("rate_limited", "refused"):
        if getattr(alerts.thresholds, name) >= 1:
            yield ("alerts", "thresholds", name), "a share of 1 is never passed: give less, or 0 to ask nothing"
    if 0 < alerts.thresholds.drift <= 1:
        yield ("alerts", "thresholds", "drift"), "no estimate is that good: give more than 1, or 0 to ask nothing"
    if alerts.rhythm.remind < alerts.rhythm.every:
        yield ("alerts", "rhythm", "remind"), f"nothing is told oftener than every = {alerts.rhythm.every:g} s"
    for index, sink in enumerate(alerts.sinks):
        path = "alerts", "sinks", index
        url = urlsplit(sink.url or "")
        if url.scheme == "http" and not is_loopback(url.hostname or ""):
            yield (*path, "url"), f"http:// carries alerts in the clear to {url.hostname}: use https://"
        if sink.ca_file and url.scheme == "http":
            yield (*path, "ca_file"), "it is never used, because url is http://"
        if sink.secret and sink.secret.value is not None:
            yield (*path, "secret"), "the secret itself stands in the file: move it into a variable or a file"
        if not any(told(cause, alerts.causes) and told(cause, sink.causes) for cause in CAUSES):
            yield (*path, "causes"), "nothing is ever told here: [alerts] causes has none of them"


def _above(path: Path, own: Limits, parent: Limits, whose: str) -> Iterator[Finding]:
    for name in LIMITABLE:
        limit, above = getattr(own, name), getattr(parent, name)
        if limit is not None and above is not None and limit > above:
            yield (*path, "limits", name), f"{limit} is never reached: {whose} is {above}"


def _policy(path: Path, policy: ClassPolicy) -> Iterator[Finding]:
    total = policy.total_timeout
    for name in ("headers_timeout", "gate_timeout", "idle_timeout"):
        if getattr(policy, name) >= total:
            yield (*path, name), f"{getattr(policy, name):g} s can never pass before total_timeout = {total:g} s does"
    if policy.min_attempt >= total:
        yield (*path, "min_attempt"), f"no attempt is ever begun: total_timeout is {total:g} s"
    if policy.queue is not None and policy.queue.max_wait >= total:
        told = f"a call that waits {policy.queue.max_wait:g} s has no time left for an answer: raise total_timeout, which is {total:g} s, or wait less"
        yield (*path, "queue", "max_wait"), told
    if policy.keepalive_after and policy.mode == "assured":
        yield (
            (*path, "keepalive_after"),
            "a byte sent early gives away what mode assured holds back: set one of the two",
        )
