"""The composition root: one configuration becomes objects, the objects run in nurseries, signals end them.

Only this module constructs; everything else receives what it uses. Nothing here decides about a request.
"""

import gc
import random
import signal
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from time import time as wall_clock  # noqa: TID251 - ledgers, dates and provider hints are in the world's time
from typing import BinaryIO, cast

import trio

from trioproxy.call import Endpoint
from trioproxy.codec.frame import Shape
from trioproxy.codec.openai_chat import CHAT
from trioproxy.config.model import Channel, Config, Params, Price
from trioproxy.config.scopes import Scopes
from trioproxy.doors.data import DataDoor
from trioproxy.gateway import Gateway
from trioproxy.http.client import Origin, Upstream
from trioproxy.http.message import Limits, ResponseSource, readers
from trioproxy.http.pool import Pool
from trioproxy.http.silence import SilenceWatch
from trioproxy.http.wire import Dial, Dialer
from trioproxy.journal import Journal
from trioproxy.lifecycle import Line
from trioproxy.ops.lag import LoopLag
from trioproxy.ops.log import LAST_WORDS, Log
from trioproxy.phases.admit import Admitter, Provider
from trioproxy.phases.authenticate import Keyring
from trioproxy.phases.classify import Classifier
from trioproxy.phases.route import Router
from trioproxy.policy.breaker import PRESETS, Breaker, BreakerPolicy
from trioproxy.policy.charges import charge_of
from trioproxy.policy.learned import Learned
from trioproxy.policy.pricing import Tariff
from trioproxy.policy.slots import Slots
from trioproxy.supervisor import ChannelState, Family, QuotaState, Supervisor

CHAT_COMPLETIONS = Endpoint("chat.completions", "/v1/chat/completions", "/chat/completions", CHAT)
SHORTEST_SECRET = 8  # characters; what is shorter is a placeholder for a server that asks for no key
ENDPOINTS = {endpoint.path: endpoint for endpoint in (CHAT_COMPLETIONS,)}


@asynccontextmanager
async def open_gateway(
    config: Config,
    *,
    credentials: Mapping[str, str] | None = None,
    dial: Dial | None = None,
    journal: Journal | None = None,
    wall: Callable[[], float] = wall_clock,
) -> AsyncGenerator[Gateway]:
    """A gateway without a door, for the length of the block.

    `credentials` is the provider key of each channel by name, as `config.secrets.resolve_all` gives it; a channel without one
    that needs one is skipped. `dial` opens connections; tests and simulations bring their own.
    """
    gateway = build(config, credentials or {}, dial=dial or Dialer(), journal=journal or Journal(), wall=wall)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateway.supervisor.sweep)
        nursery.start_soon(gateway.supervisor.silence.watch)
        if gateway.line.admitter is not None:
            nursery.start_soon(gateway.supervisor.sweep_quota, wall)
        try:
            yield gateway
        finally:
            gateway.supervisor.close()
            nursery.cancel_scope.cancel("gateway closed")


async def serve(
    config: Config,
    *,
    credentials: Mapping[str, str],
    log: Log | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the gateway behind its data door until SIGTERM (drains) or SIGINT (drains; a second one stops at once).

    Reports the bound addresses once it serves. Raises `OSError` where it cannot bind.
    """
    log = log or Log.to(_stdout(), config.log, wall_clock)
    journal = Journal()
    journal.subscribe(log)
    try:
        async with (
            trio.open_nursery() as nursery,
            open_gateway(config, credentials=credentials, journal=journal) as gateway,
        ):
            nursery.start_soon(log.writer.run)
            lag = LoopLag()
            nursery.start_soon(lag.run)
            nursery.start_soon(lag.report, log)
            door = DataDoor(gateway, config.listen, wall_clock, log.bug)
            nursery.start_soon(_signals, door, log)
            async with trio.open_nursery() as doors:
                addresses = await doors.start(door.run)
                # What start-up made lives as long as the process. Left to the collector, its first full pass over it holds some
                # call up for 15 ms (measured).
                gc.collect()
                gc.freeze()
                log.say("listening", addresses=addresses)
                task_status.started(addresses)
            nursery.cancel_scope.cancel("drained")
    finally:
        with trio.move_on_after(LAST_WORDS, shield=True):
            await log.writer.close()


def _stdout() -> BinaryIO:
    """Standard output without a buffer: a thread that is stuck in a buffer would abort the interpreter at its end."""
    return cast("BinaryIO", open(sys.stdout.fileno(), "wb", buffering=0, closefd=False))


async def _signals(door: DataDoor, log: Log) -> None:
    """The first signal drains, a second one stops at once."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        count = 0
        async for number in received:
            count += 1
            log.say("draining" if count == 1 else "stopping", signal=signal.Signals(number).name)
            if count == 1:
                door.drain()
            else:
                door.stop()


def build(
    config: Config, credentials: Mapping[str, str], *, dial: Dial, journal: Journal, wall: Callable[[], float]
) -> Gateway:
    """The objects of one configuration. Opens nothing."""
    silence = SilenceWatch()
    states = {
        channel.name: _channel(
            channel,
            config.breaker,
            credentials.get(channel.name),
            upstream=_upstream(channel, dial, silence, readers(config.listen.http)[1]),
            journal=journal,
        )
        for channel in config.channels
    }
    channels = Family(states)
    classifier = Classifier(config.defaults, config.classes, config.listen.max_body, _request_id)
    quota = Family(QuotaState(learned=Learned(config.quota.output)))
    scopes = Scopes.of(config)
    line = Line(
        Keyring.of(config.keys),
        classifier,
        Router.of(config.models, config.channels, channels),
        journal,
        wall,
        None if scopes is None else Admitter(quota, scopes, _providers(config, scopes), wall),
    )
    return Gateway(line, Supervisor(channels, silence, quota), ENDPOINTS, CHAT)


def _providers(config: Config, scopes: Scopes) -> dict[str, Provider]:
    return {
        channel.name: Provider(
            _provider(channel),
            charge_of(channel.provider),
            None if channel.price is None else _tariff(channel.price),
            scopes.channels.get(channel.name),
        )
        for channel in config.channels
    }


def _provider(channel: Channel) -> str:
    """Whose channel it is, as a caller is told."""
    return channel.name if channel.provider == "other" else channel.provider


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
        tariff=None if channel.price is None else _tariff(channel.price),
        provider=_provider(channel),
        disabled="it has no credential" if channel.auth != "none" and channel.api_key and credential is None else None,
    )


def _tariff(price: Price) -> Tariff:
    return Tariff(price.input, price.input if price.cached_input is None else price.cached_input, price.output)


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
