"""Machines notice, not people: what the journal tells is watched, and what comes of it is told to the journal and the sinks.

The rules are `policy.watching`; here are the clock and the ways out. Every alert is an `AlertTold` event, which is how the log and
an embedder hear of it. A fault in here costs alerts and nothing else.
"""

import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec
import trio
from attrs import define, field

from trioproxy.config.model import Alerts
from trioproxy.config.rules import told
from trioproxy.http.wire import Dial
from trioproxy.journal import AlertCause, AlertLost, AlertTold, Event, Journal
from trioproxy.ops.carriers import carriers
from trioproxy.ops.couriers import Courier
from trioproxy.policy.watching import ALL, NOBODY, Watch

EVERY = 1.0  # seconds between two looks: an alert is at most so late
IDLE = 60.0  # seconds between two looks where nothing happens at all; an event ends it


@define(eq=False)
class Wrapper:
    """Makes the body of an alert, as the Standard Webhooks have it. `wall` is Unix seconds."""

    source: str
    wall: Callable[[], float]

    def __call__(self, alert: AlertTold) -> bytes:
        now = self.wall()
        data = {
            "source": self.source,
            "cause": alert.cause.value,
            "subject": alert.subject,
            "severity": alert.severity,
            "state": alert.state,
            "message": alert.message,
            "count": alert.count,
            "since": _stamp(now - (alert.now - alert.since)),
        }
        over = "over: " if alert.state == "recovered" else ""
        # `text` is what chat services show of a message that they do not know.
        text = f"[{alert.severity}] {self.source}: {over}{alert.message}"
        body = {"type": f"alert.{alert.state}", "timestamp": _stamp(now), "text": text, "data": data}
        return msgspec.json.encode(body)


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@define(eq=False)
class Alerting:
    """The watch at work. `waiting` reads how many calls each class's queue holds."""

    journal: Journal
    watch: Watch
    couriers: tuple[Courier, ...] = ()
    waiting: Callable[[], Mapping[str, int]] = lambda: NOBODY
    broken: int = field(init=False, default=0)  # looks that ended in a fault of ours

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled. Whatever is emitted after it has started is seen."""
        for kind, hears in self.watch.hears.items():  # each straight to its own: an exchange is counted at every call
            self.journal.subscribe(hears, kind)
        try:
            async with trio.open_nursery() as nursery:
                for courier in self.couriers:
                    nursery.start_soon(courier.run)
                task_status.started()
                while True:
                    if self.watch.idle:
                        await self._rest()
                    await trio.sleep(EVERY)
                    self.look(trio.current_time())
        finally:
            for hears in self.watch.hears.values():
                self.journal.unsubscribe(hears)

    async def _rest(self) -> None:
        happens = trio.Event()

        def wake(_event: Event) -> None:
            happens.set()

        self.journal.subscribe(wake, *self.watch.hears)
        try:
            with trio.move_on_after(IDLE - EVERY):
                await happens.wait()
        finally:
            self.journal.unsubscribe(wake)

    def look(self, now: float) -> None:
        """Tell what is to be told now."""
        try:
            alerts = self.watch.tick(now, self.waiting())
            for alert in alerts:
                self.journal.emit(alert)
                for courier in self.couriers:
                    courier.offer(alert)
        except Exception:  # noqa: BLE001 - a fault of the watch ends no gateway
            self.broken += 1


def alerting(
    settings: Alerts, secrets: Mapping[str, str], *, dial: Dial, journal: Journal, wall: Callable[[], float]
) -> Alerting | None:
    """What a configuration wants watched; None where it wants nothing. `secrets` are by `config.secrets.sink_name`."""
    causes = frozenset(cause for cause in ALL if told(cause.value, settings.causes))
    if not causes:
        return None

    def lose(sink: str, alert: AlertTold, why: str, lost: int) -> None:
        journal.emit(AlertLost(sink, alert.cause, why, lost, trio.current_time()))

    wrap = wrapper(settings, wall)
    couriers = (Courier(way, sink, wrap, lose) for sink, way in carriers(settings, secrets, dial, wall))
    return Alerting(journal, Watch(settings.rhythm, settings.thresholds, causes), tuple(couriers))


def wrapper(settings: Alerts, wall: Callable[[], float]) -> Wrapper:
    return Wrapper(settings.source or socket.gethostname(), wall)


def trial(now: float) -> AlertTold:
    """An alert that says nothing but that alerts arrive."""
    message = "this is a test: alerts of this gateway arrive here"
    return AlertTold(AlertCause.TEST, "test", "info", "raised", message, 1, now, now)
