"""One configuration becomes objects. Nothing here decides about a request, and nothing is opened or started."""

import random
import ssl
from collections.abc import Callable, Iterable, Mapping

import trio
from attrs import evolve

from trioproxy.call import Endpoint
from trioproxy.channel import ChannelState
from trioproxy.codec.chat_probe import question
from trioproxy.codec.frame import Shape
from trioproxy.codec.openai_chat import CHAT
from trioproxy.config.growth import Growth
from trioproxy.config.limits import Limits as Written
from trioproxy.config.model import Channel, Config, Model, Params, Rollout
from trioproxy.config.scopes import Scopes, baselines, queues, watched
from trioproxy.deferral import Desk
from trioproxy.family import Family
from trioproxy.gateway import Gateway
from trioproxy.http.client import Origin, Upstream
from trioproxy.http.message import Limits, ResponseSource, readers
from trioproxy.http.pool import Pool
from trioproxy.http.silence import SilenceWatch
from trioproxy.http.wire import Dial
from trioproxy.journal import Journal, Usage
from trioproxy.lifecycle import Line
from trioproxy.ops.deferred import Performer
from trioproxy.ops.probes import Prober, Subject
from trioproxy.ops.results import Results, hooks
from trioproxy.phases.admit import Admitter
from trioproxy.phases.authenticate import Keyring
from trioproxy.phases.classify import Classifier
from trioproxy.phases.deferral import Deferral
from trioproxy.phases.expectation import Provider
from trioproxy.phases.route import Route, Router
from trioproxy.policy.access import Catalogue
from trioproxy.policy.breaker import PRESETS, Breaker, BreakerPolicy
from trioproxy.policy.chain import behind, order_links
from trioproxy.policy.charges import charge_of
from trioproxy.policy.governor import Ceiling, Governor
from trioproxy.policy.learned import Learned
from trioproxy.policy.limits import Need
from trioproxy.policy.pace import Pace
from trioproxy.policy.ramp import Ramp, RampPolicy, Thresholds, Warmup
from trioproxy.policy.reservation import Path
from trioproxy.policy.rollout import BASELINE, CANDIDATE, RolloutPolicy
from trioproxy.policy.rollout import Rollout as LiveRollout
from trioproxy.policy.slots import Slots
from trioproxy.policy.switchback import Returning
from trioproxy.policy.switching import Switching
from trioproxy.store.deferred import Bounds
from trioproxy.store.store import Store
from trioproxy.supervisor import QuotaState, Supervisor
from trioproxy.traffic import ModelTraffic, Traffic
from trioproxy.waiting_room import WaitingRoom

CHAT_COMPLETIONS = Endpoint("chat.completions", "/v1/chat/completions", "/chat/completions", CHAT)
PACED = ("requests_per_minute", "tokens_per_minute", "input_tokens_per_minute", "output_tokens_per_minute")
SHORTEST_SECRET = 8  # characters; what is shorter is a placeholder for a server that asks for no key
ENDPOINTS = {endpoint.path: endpoint for endpoint in (CHAT_COMPLETIONS,)}


def build(
    config: Config, credentials: Mapping[str, str], *, dial: Dial, journal: Journal, wall: Callable[[], float]
) -> Gateway:
    """The objects of one configuration. Opens nothing."""
    config = watched(config) if config.quota.observe else config
    silence = SilenceWatch()
    states = {
        channel.name: _channel(
            evolve(channel, limits=Written()) if config.quota.observe else channel,  # the quota has its own copy
            config.breaker,
            credentials.get(channel.name),
            upstream=_upstream(channel, dial, silence, readers(config.listen.http)[1]),
            journal=journal,
        )
        for channel in config.channels
    }
    channels = Family(states)
    routes = _routes(config, journal)
    classifier = Classifier(config.defaults, config.classes, config.listen.max_body, _request_id)
    scopes = Scopes.of(config)
    room = _room(config) if scopes is not None else None
    quota = Family(QuotaState(learned=Learned(config.quota.output), room=room))
    supervisor = Supervisor(channels, silence, quota, traffic=Family(_traffic(routes, config.rollouts, journal)))
    line = Line(
        Keyring.of(config.keys),
        classifier,
        Router(Catalogue.of(routes), channels),
        journal,
        wall,
        None if scopes is None else Admitter(quota, scopes, _providers(config, scopes), wall, journal, states),
    )
    return Gateway(line, supervisor, ENDPOINTS, CHAT)


def _room(config: Config) -> WaitingRoom | None:
    """None where no class waits."""
    classes = queues(config)
    others = {"default", *config.classes} - set(classes)
    return WaitingRoom(classes, baselines(config), sorted(others)) if classes else None


def _routes(config: Config, journal: Journal) -> tuple[Route, ...]:
    """The models' candidates in order, those of a rollout too, each model with its live state."""
    prices = {channel.name: channel.price for channel in config.channels}
    rollouts = {rollout.model: rollout for rollout in config.rollouts}
    routes = []
    for model in config.models:
        candidates = order_links(model.channels, prices, model.order)
        live = ModelTraffic(
            model.name,
            journal,
            Switching(model.name, candidates[0].channel),
            Returning(model.name, model.switch_back or config.switch_back),
        )
        rollout = rollouts.get(model.name)
        if rollout is None:
            routes.append(Route(model.name, model, candidates, live))
            continue
        live = _rolling(live, model, rollout)
        candidate = behind(order_links(rollout.candidate, prices, "listed"), candidates)
        routes.append(Route(model.name, model, candidates, live, candidate))
    return tuple(routes)


def _rolling(live: ModelTraffic, model: Model, rollout: Rollout) -> ModelTraffic:
    """The same with a rollout."""
    policy = RolloutPolicy(rollout.name or rollout.model, rollout.steps, rollout.hold, rollout.tolerance)
    own = {BASELINE: model.channels, CANDIDATE: rollout.candidate}
    return evolve(live, rollout=LiveRollout(policy), key=rollout.key, own=own)


def _traffic(routes: tuple[Route, ...], rollouts: Iterable[Rollout], journal: Journal) -> Traffic:
    channels = {route.name: [each.channel for each in (*route.candidates, *route.candidate)] for route in routes}
    traffic = Traffic.of((route.traffic for route in routes), channels, journal)
    traffic.eager = frozenset(rollout.model for rollout in rollouts if rollout.started)
    return traffic


def prober(config: Config, gateway: Gateway) -> Prober | None:
    """The health checks of a gateway; None where there are none."""
    if config.probes is None:
        return None
    states, subjects = gateway.supervisor.channels, {}
    for channel in config.channels:
        model = channel.probed_model(config.models)
        if channel.probe.enabled and model is not None:
            state = states.state[channel.name]
            body = question(model, state.shape, channel.probe.limit, channel.probe.tokens)
            request = state.request(CHAT_COMPLETIONS.suffix, b"", body)
            subjects[channel.name] = Subject(state, model, request, _charge(gateway, channel.name))
    return Prober(subjects, config.probes, states, gateway.journal, gateway.line.wall, random.random)


def performer(
    config: Config, gateway: Gateway, credentials: Mapping[str, str], *, dial: Dial, store: Store | None
) -> Performer | None:
    """Who does the calls that were put off, with the places where they are put and asked for; None where none ever are."""
    if store is None or not any(model.on_exhausted == "defer" for model in config.models):
        return None
    settings, wall = config.deferred, gateway.line.wall
    results = Results(store, hooks(settings.webhooks, credentials, dial, wall), wall)
    made = Performer(gateway, store, settings, wall, results)
    bounds = Bounds(settings.max_calls, settings.max_bytes, settings.tenant_calls, settings.tenant_bytes)
    told = {key.id: key.webhook for key in config.keys if key.webhook is not None}
    gateway.line.deferral = Deferral(store, bounds, gateway.line.router, told, wall, made.stirred)
    gateway.desk = Desk(store, gateway.line.keyring, wall)
    return made


def _charge(gateway: Gateway, channel: str) -> Callable[[Usage], None]:
    """Count what was used against the channel's own limits."""
    admitter, quota = gateway.line.admitter, gateway.supervisor.quota
    provider = None if admitter is None else admitter.providers[channel]
    if provider is None or provider.step is None:
        return lambda _usage: None
    path, charge, wall = Path((), provider.step), provider.charge, gateway.line.wall

    def count(usage: Usage) -> None:
        quota.post(quota.state.quota.charge, path, charge.used(usage), trio.current_time(), wall())

    return count


def _providers(config: Config, scopes: Scopes) -> dict[str, Provider]:
    return {
        channel.name: Provider(
            channel.provider_name,
            charge_of(channel.provider),
            channel.tariff(),
            scopes.channels.get(channel.name),
        )
        for channel in config.channels
    }


def _request_id() -> str:
    """Unique, not secret; `secrets` would ask the kernel at every call."""
    return f"req_{random.getrandbits(96):024x}"


def _upstream(
    channel: Channel, dial: Dial, silence: SilenceWatch, reader: Callable[[Limits], ResponseSource]
) -> Upstream:
    origin = Origin.from_url(channel.base_url)
    return Upstream(
        origin,
        dial,
        Pool(channel.keepalive),
        _tls(channel, origin),
        channel.connect_timeout,
        max_answer=channel.max_answer,
        reader=reader,
        silence=silence,
    )


def _channel(
    channel: Channel, breaker: str | BreakerPolicy, credential: str | None, *, upstream: Upstream, journal: Journal
) -> ChannelState:
    chosen = channel.breaker or breaker
    return ChannelState(
        channel.name,
        upstream,
        CHAT,
        _shape(channel.params),
        Breaker(PRESETS[chosen] if isinstance(chosen, str) else chosen),
        Slots(channel.max_concurrency),
        channel.slot_timeout,
        channel.max_answer,
        journal,
        request_lines=_request_lines(channel, upstream.origin, credential),
        secrets=_secrets(credential, upstream.origin),
        tariff=channel.tariff(),
        provider=channel.provider_name,
        disabled="it has no credential" if channel.auth != "none" and channel.api_key and credential is None else None,
        pace=Pace(channel.provider, _paced(channel.limits), _governor(channel.ramp)),
        charge=charge_of(channel.provider),
    )


def _paced(written: Written) -> dict[str, float]:
    """The limits that a provider's headers and refusals can be set against; one that only observes bounds nothing."""
    enforced = () if "*" in written.observe else [name for name in PACED if name not in written.observe]
    return {name: float(limit) for name in enforced if (limit := getattr(written, name)) is not None}


def _governor(growth: Growth | None) -> Governor | None:
    if growth is None:
        return None
    floors = {"requests": growth.requests_per_minute, "total_tokens": growth.tokens_per_minute}
    ceilings = tuple(
        Ceiling(
            "requests_per_minute" if unit == "requests" else "tokens_per_minute",
            Need._fields.index(unit),
            Ramp(RampPolicy(floor, growth.growth, growth.period)),
        )
        for unit, floor in floors.items()
        if floor is not None
    )
    thresholds = Thresholds(
        growth.max_rate_limited, growth.max_fallbacks, growth.max_waiting, growth.max_p95, growth.least_calls
    )
    return Governor(ceilings, Warmup(growth.warmup, growth.least) if growth.warmup else None, thresholds)


def _secrets(credential: str | None, origin: Origin) -> tuple[str, ...]:
    """What is taken out of a provider's words. A host called `model` or a key called `none` is a word like any other."""
    key = (credential,) if credential is not None and len(credential) >= SHORTEST_SECRET else ()
    return (*key, origin.host) if "." in origin.host or ":" in origin.host else key


def _tls(channel: Channel, origin: Origin) -> ssl.SSLContext | None:
    """Always verified; `ca_file` adds a private authority."""
    return ssl.create_default_context(cafile=channel.ca_file) if origin.tls else None


def _shape(params: Params) -> Shape:
    allow = None if params.allow is None else frozenset(params.allow)
    return Shape(params.rename, allow, params.null_content, params.include_usage)


def _request_lines(channel: Channel, origin: Origin, credential: str | None) -> bytes:
    """The part of a request's head that is the same for every call."""
    lines = {
        "host": origin.authority,
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",  # a compressed stream arrives in lumps
        "user-agent": "trioproxy",
        **{name.lower(): value for name, value in channel.headers.items()},
    }
    if credential is not None and channel.auth == "bearer":
        lines["authorization"] = f"Bearer {credential}"
    elif credential is not None and channel.auth == "api-key":
        lines["api-key"] = credential
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode("latin-1")
