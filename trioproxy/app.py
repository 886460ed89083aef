"""The composition root: the objects of one configuration are opened, run in nurseries, and ended by signals.

Only `assembly` and this module construct; everything else receives what it uses. Nothing here decides about a request.
"""

import gc
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import time as wall_clock  # noqa: TID251 - ledgers, dates and provider hints are in the world's time
from typing import BinaryIO, cast

import trio

from trioproxy.assembly import build, performer, prober
from trioproxy.config.model import Config
from trioproxy.config.secrets import DATABASE
from trioproxy.control.orders import Orders
from trioproxy.doors.control import ControlDoor
from trioproxy.doors.data import DataDoor
from trioproxy.gateway import Gateway
from trioproxy.http.wire import Dial, Dialer
from trioproxy.journal import BreakerMoved, ChannelParked, ExchangeEnded, Journal, Subscriber
from trioproxy.memory import Memory
from trioproxy.ops.alerts import alerting
from trioproxy.ops.deferred import Performer
from trioproxy.ops.evidence import evidence
from trioproxy.ops.lag import report
from trioproxy.ops.lines import TOLD
from trioproxy.ops.log import LAST_WORDS, Log
from trioproxy.store.opening import open_store
from trioproxy.store.store import Store

RARELY = (50_000, 20, 50)  # net allocations between two looks of the collector, and how many of those until a wider one


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
    that needs one is skipped. The secrets of alert sinks are in it as well. `dial` opens connections; tests and simulations bring
    their own.
    """
    dial, journal = dial or Dialer(), journal or Journal()
    gateway = build(config, credentials or {}, dial=dial, journal=journal, wall=wall)
    watch = alerting(config.alerts, credentials or {}, dial=dial, journal=journal, wall=wall)
    store = open_store(config, (credentials or {}).get(DATABASE), journal, wall)
    supervisor = gateway.supervisor
    room, traffic = supervisor.quota.state.room, supervisor.traffic.state
    traffic.evidence = evidence(config.rollouts, wall)
    hearing: dict[Subscriber, tuple[type, ...]] = {
        gateway.rejections: (ExchangeEnded,),
        traffic.heard: (ExchangeEnded, BreakerMoved, ChannelParked),
        supervisor.heard: (BreakerMoved,),
    }
    async with trio.open_nursery() as nursery, _told(journal, hearing):
        if watch is not None:
            watch.waiting = watch.waiting if room is None else room.depths
            await nursery.start(watch.run)
        worker = performer(config, gateway, credentials or {}, dial=dial, store=store)
        async with _remembering(gateway, store, config.state.snapshot_every, nursery), _performing(worker):
            nursery.start_soon(supervisor.sweep)
            nursery.start_soon(supervisor.silence.watch)
            if gateway.line.admitter is not None:
                nursery.start_soon(supervisor.sweep_quota, wall)
            if room is not None:
                nursery.start_soon(supervisor.serve_room, room)
            if (probes := prober(config, gateway)) is not None:
                nursery.start_soon(probes.watch)
            if config.rollouts:
                await traffic.review()  # what begins with the process has begun when it serves
                nursery.start_soon(traffic.watch)
            try:
                yield gateway
            finally:
                supervisor.close()
                nursery.cancel_scope.cancel("gateway closed")


@asynccontextmanager
async def _told(journal: Journal, subscribers: Mapping[Subscriber, tuple[type, ...]]) -> AsyncGenerator[None]:
    """These hear what the journal tells of these kinds, for the length of the block."""
    for subscriber, kinds in subscribers.items():
        journal.subscribe(subscriber, *kinds)
    try:
        yield
    finally:
        for subscriber in subscribers:
            journal.unsubscribe(subscriber)


@asynccontextmanager
async def _remembering(
    gateway: Gateway, store: Store | None, every: float, nursery: trio.Nursery
) -> AsyncGenerator[None]:
    """What is remembered is taken up, kept from then on, and once more at the end."""
    if store is None:
        yield
        return
    gateway.store = gateway.line.store = store
    try:
        memory = Memory(store, gateway.supervisor, gateway.line, gateway.line.wall)
        troubles = memory.restore()
        store.start()
        for trouble in troubles:
            store.tell(trouble)
        nursery.start_soon(memory.run, every)
        try:
            yield
        finally:
            memory.keep()
    finally:
        store.close()


@asynccontextmanager
async def _performing(worker: Performer | None) -> AsyncGenerator[None]:
    """Calls that were put off are done, for the length of the block; where it ends, so do they, before the store does."""
    if worker is None:
        yield
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run)
        try:
            yield
        finally:
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
    journal = Journal(log.bug)
    journal.subscribe(log, *TOLD)
    try:
        async with (
            trio.open_nursery() as nursery,
            open_gateway(config, credentials=credentials, journal=journal) as gateway,
        ):
            nursery.start_soon(log.writer.run)
            lag = gateway.supervisor.lag
            nursery.start_soon(lag.watch)
            nursery.start_soon(report, lag, log)
            door = DataDoor(gateway, config.listen, wall_clock, log.bug)
            nursery.start_soon(_signals, door, log)
            if config.control.socket is not None:
                control = ControlDoor(Path(config.control.socket), Orders(gateway).answer, log.bug)
                await nursery.start(control.run)
            async with trio.open_nursery() as doors:
                addresses = await doors.start(door.run)
                # What start-up made lives as long as the process. Left to the collector, its first full pass over it holds some
                # call up for 15 ms (measured).
                gc.collect()
                gc.freeze()
                # No call leaves a cycle, so there is little to find, and looking at what 9,500 open streams hold took nearly half
                # of a core while they came. What bugs and rare errors leave is still found.
                gc.set_threshold(*RARELY)
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
