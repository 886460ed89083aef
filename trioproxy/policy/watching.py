"""What the journal tells becomes alerts: which event begins a matter, which one ends it.

Every event is heard, and an exchange costs the counting of `policy.spikes` and nothing else; what is to be told comes from `tick`.
Texts are ours: a name, a figure, a closed set of words. A provider's own words may quote a prompt and stay in the log.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import define, field

from trioproxy.errors import FaultKind
from trioproxy.journal import (
    AlertCause,
    AlertTold,
    BreakerMoved,
    BudgetNearing,
    ChannelParked,
    EndReason,
    Event,
    ExchangeEnded,
    GrowthPaused,
    ProbeRan,
    RolloutMoved,
    StoreTroubled,
    Switched,
)
from trioproxy.policy.alerting import Matters, Rhythm
from trioproxy.policy.spikes import RESTING, TOO_MANY, Spikes, Thresholds

MOST = 1024  # models without a channel that are remembered
NOBODY: Mapping[str, int] = {}
UNANSWERED = frozenset({EndReason.CHAIN_EXHAUSTED, EndReason.DEGRADED, EndReason.DEFERRED})
ALL = frozenset(AlertCause) - {AlertCause.TEST}


@define(eq=False)
class Watch:
    """The rules over events and time. `causes` are those that may raise an alert; `now` is monotonic seconds."""

    rhythm: Rhythm = field(factory=Rhythm)
    thresholds: Thresholds = field(factory=Thresholds)
    causes: Collection[AlertCause] = ALL
    _matters: Matters = field(init=False)
    _spikes: Spikes = field(init=False)
    hears: dict[type, Callable[[Any], None]] = field(
        init=False
    )  # by kind of event; none raises, none tells anything yet
    _parked: set[str] = field(init=False, factory=set)  # channels, until they answer
    _dark: set[str] = field(init=False, factory=set)  # models that no channel served, until one does
    _probes: dict[str, int] = field(init=False, factory=dict)  # channel → failures in a row

    def __attrs_post_init__(self) -> None:
        self._matters = Matters(self.rhythm)
        self._spikes = Spikes(self.thresholds)
        self.hears = {
            ExchangeEnded: self._exchange,
            BreakerMoved: self._breaker,
            ChannelParked: self._park,
            ProbeRan: self._probe,
            Switched: self._switch,
            BudgetNearing: self._budget,
            StoreTroubled: self._store,
            RolloutMoved: self._rollout,
            GrowthPaused: self._growth,
        }

    def hear(self, event: Event) -> None:
        """Take note of an event of any kind."""
        hears = self.hears.get(type(event))
        if hears is not None:
            hears(event)

    @property
    def idle(self) -> bool:
        """Whether a look once a minute is enough until the next event."""
        return self._matters.idle and self._spikes.idle

    def tick(self, now: float, waiting: Mapping[str, int] = NOBODY) -> list[AlertTold]:
        """What is to be told now. `waiting` is calls in the queue of each class, where that is known."""
        begun, over = self._spikes.judge(now, waiting)
        for (cause, subject), message in begun.items():
            self._begin(cause, subject, message, now)
        for cause, subject in over:
            self._matters.end(cause, subject, now)
        return self._matters.tick(now)

    def _begin(self, cause: AlertCause, subject: str, message: str, now: float, *, lasting: bool = True) -> None:
        if cause in self.causes:
            self._matters.begin(cause, subject, message, now, lasting=lasting)

    def _exchange(self, event: ExchangeEnded) -> None:
        self._spikes.count(event)
        if event.reason in UNANSWERED:
            # Failing attempts are the breakers' matter, and channels that only rest for a moment are counted as refusing.
            if not event.attempts and event.status != TOO_MANY and event.note != RESTING:
                self._darkened(event.model, event.started + event.duration)
        elif (self._parked or self._dark) and event.reason is EndReason.ANSWERED:
            now = event.started + event.duration
            self._lit(event.model, now)
            for record in event.attempts:
                if record.fault is None:
                    self._answers(record.channel, now)

    def _darkened(self, model: str, now: float) -> None:
        if len(self._dark) < MOST:
            self._dark.add(model)
        self._begin(AlertCause.CHAIN_EXHAUSTED, model, f"no channel of model {model} may be asked", now)

    def _lit(self, model: str, now: float) -> None:
        if model in self._dark:
            self._dark.remove(model)
            self._matters.end(AlertCause.CHAIN_EXHAUSTED, model, now)

    def _answers(self, channel: str, now: float) -> None:
        if channel in self._parked:
            self._parked.remove(channel)
            self._matters.end(AlertCause.CHANNEL_PARKED, channel, now)

    def _breaker(self, event: BreakerMoved) -> None:
        if event.state == "open":
            message = f"the breaker of channel {event.channel} is open"
            self._begin(AlertCause.BREAKER_OPEN, event.channel, message, event.now)
        elif event.state == "closed":
            self._matters.end(AlertCause.BREAKER_OPEN, event.channel, event.now)

    def _park(self, event: ChannelParked) -> None:
        if (
            event.kind == FaultKind.MODEL_NOT_FOUND.value
        ):  # the channel itself is well, and nothing tells when this is over
            subject, lasting = f"{event.channel} (a model)", False
            message = f"channel {event.channel} does not know a model that is configured for it"
        else:
            self._parked.add(event.channel)
            subject, lasting = event.channel, True
            message = f"channel {event.channel} is parked for {event.seconds:.0f} s: {event.kind}"
        self._begin(AlertCause.CHANNEL_PARKED, subject, message, event.now, lasting=lasting)

    def _probe(self, event: ProbeRan) -> None:
        if event.ok:
            self._probes.pop(event.channel, None)
            self._answers(event.channel, event.now)
            self._matters.end(AlertCause.PROBE_FAILING, event.channel, event.now)
            return
        failures = self._probes[event.channel] = self._probes.get(event.channel, 0) + 1
        if failures >= self.thresholds.probes:
            message = f"health checks of channel {event.channel} fail, {failures} in a row"
            self._begin(AlertCause.PROBE_FAILING, event.channel, message, event.now)

    def _switch(self, event: Switched) -> None:
        if event.channel:
            self._lit(event.model, event.now)
        elif event.was and event.cause != "cooling":  # a provider's moment of rest is no outage
            self._darkened(event.model, event.now)

    def _budget(self, event: BudgetNearing) -> None:
        message = f"{event.share:.0%} of {event.limiter} of {event.scope} is used"
        # Every period of the budget is a beginning of its own, and no event tells of its end.
        self._begin(AlertCause.BUDGET_NEARING, f"{event.limiter} {event.scope}", message, event.now, lasting=False)

    def _store(self, event: StoreTroubled) -> None:
        if event.why:
            message = f"the ledger cannot be written, {event.waiting} records wait: {event.why}"
            self._begin(AlertCause.STORE_TROUBLE, "ledger", message, event.now)
        else:
            self._matters.end(AlertCause.STORE_TROUBLE, "ledger", event.now)

    def _rollout(self, event: RolloutMoved) -> None:
        if event.state == "paused":
            message = f"the rollout of model {event.model} is paused at {event.percent} %: {event.why}"
            self._begin(AlertCause.ROLLOUT_PAUSED, event.model, message, event.now)
            return
        back = event.state == "rolled_back"
        self._matters.end(AlertCause.ROLLOUT_PAUSED, event.model, event.now, quietly=back)
        if back:
            message = f"the rollout of model {event.model} was rolled back: {event.why}"
            self._begin(AlertCause.ROLLED_BACK, event.model, message, event.now, lasting=False)

    def _growth(self, event: GrowthPaused) -> None:
        if event.why:
            message = f"growth of {event.subject} is paused: {event.why}"
            self._begin(AlertCause.GROWTH_PAUSED, event.subject, message, event.now)
        else:
            self._matters.end(AlertCause.GROWTH_PAUSED, event.subject, event.now)
