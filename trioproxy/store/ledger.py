"""What happened becomes records: a subscriber of the journal that writes into the spool, on the loop, at every call.

It never waits. Where the spool is full, because the database is down, a settlement is kept in memory instead and no new call is
admitted, so what waits there is bounded by the calls that are under way. What costs nobody anything (a refusal, a probe's
result) is dropped then, and counted.
"""

from collections import deque
from collections.abc import Callable

from attrs import define, field

from trioproxy.journal import (
    AnswerBegan,
    AttemptRecord,
    BreakerMoved,
    ChannelParked,
    Event,
    ExchangeEnded,
    ProbeRan,
    RolloutMoved,
    Switched,
)
from trioproxy.store.records import Attempted, Began, Ended, Probe, Record, Rollout, Switch, Transition, encode
from trioproxy.store.spool import Spool

LONGEST = 300  # characters of a message or a name


@define(eq=False)
class Ledger:
    """The loop's side of the store. `wall` is Unix seconds."""

    spool: Spool
    wall: Callable[[], float]
    reserve: int  # bytes of the spool that are for calls under way
    posted: int = field(init=False, default=0)
    dropped: int = field(init=False, default=0)
    _open: dict[str, list[int]] = field(init=False, factory=dict)
    _waiting: deque[bytes] = field(init=False, factory=deque)

    @property
    def admits(self) -> bool:
        """Whether the settlement of one more call is sure to find room."""
        return self.spool.room > self.reserve and not self._waiting

    def __call__(self, event: Event) -> None:
        if type(event) is ExchangeEnded:
            self._ended(event)
        elif type(event) is AnswerBegan:
            self._began(event)
        else:
            record = self._record(event)
            if record is not None:
                self._post_if_room(encode(record))

    def post(self, record: Record) -> int:
        """Write a record that must not be lost; its position, 0 where it has to wait for room. Never blocks."""
        return self._post(encode(record))

    def _post(self, payload: bytes) -> int:
        self.posted += 1
        position = None if self._waiting else self.spool.append(payload)
        if position is None:
            self._waiting.append(payload)
            self.catch_up()
        return position or 0

    def _post_if_room(self, payload: bytes) -> None:
        if self.admits:
            self._post(payload)
        else:
            self.dropped += 1

    def catch_up(self) -> None:
        """There may be room again for what waits."""
        while self._waiting and self.spool.append(self._waiting[0]) is not None:
            self._waiting.popleft()

    def _began(self, event: AnswerBegan) -> None:
        serial = self.spool.serial()
        # A request id may be the caller's own and come twice; which of two is which does not matter then.
        self._open.setdefault(event.request_id, []).append(serial)
        began = Began(
            serial,
            self.wall(),
            event.request_id,
            event.channel,
            event.provider_model,
            event.model,
            event.key_id,
            event.tenant,
            event.traffic_class,
            event.user,
            event.estimated_input,
            event.estimated_output,
        )
        self._post(encode(began))

    def _ended(self, event: ExchangeEnded) -> None:
        attempts = event.attempts
        serial = 0
        if attempts and attempts[-1].first_content is not None:
            serials = self._open.get(event.request_id)
            if serials:
                serial = serials.pop()
                if not serials:
                    del self._open[event.request_id]
        payload = encode(self._row(event, serial))
        if serial or attempts:
            self._post(payload)
        else:
            self._post_if_room(payload)

    def _row(self, event: ExchangeEnded, serial: int) -> Ended:
        usage = event.usage
        wall = self.wall()
        offset = wall - (event.started + event.duration)  # of the world's clock from Trio's
        return Ended(
            serial,
            wall,
            event.request_id,
            event.reason.value,
            event.status,
            event.endpoint,
            event.model,
            event.stream,
            event.key_id,
            event.tenant,
            event.traffic_class,
            event.user,
            usage.input,
            usage.cached,
            usage.output,
            usage.estimated,
            event.cost,
            event.duration,
            event.overhead,
            event.queued,
            event.session[:LONGEST],
            event.arm,
            event.fallback,
            event.preferred_cost,
            event.estimated_input,
            event.estimated_output,
            event.limiter,
            event.scope[:LONGEST],
            event.note[:LONGEST],
            tuple([_attempted(attempt, offset) for attempt in event.attempts]),
        )

    def _record(self, event: Event) -> Record | None:
        wall = self.wall()
        match event:
            case BreakerMoved():
                seconds = None if event.until is None else event.until - event.now
                return Transition(wall, event.channel, event.was, event.state, seconds, "")
            case ChannelParked():
                return Transition(wall, event.channel, "", "parked", event.seconds, event.message[:LONGEST])
            case Switched():
                return Switch(wall, event.model, event.was, event.channel, event.cause[:LONGEST])
            case ProbeRan():
                usage = event.usage
                tokens = usage.input, usage.cached, usage.output
                why = event.why[:LONGEST]
                return Probe(wall, event.channel, event.model, event.ok, why, event.seconds, *tokens, event.cost)
            case RolloutMoved():
                return Rollout(wall, event.model, event.percent, event.state, event.why[:LONGEST])
            case _:
                return None


def _attempted(attempt: AttemptRecord, offset: float) -> Attempted:
    fault = attempt.fault
    if fault is None:
        return Attempted(
            attempt.channel,
            attempt.model,
            attempt.started + offset,
            attempt.duration,
            "",
            "",
            0,
            None,
            "",
            attempt.reused,
            attempt.first_content,
        )
    return Attempted(
        attempt.channel,
        attempt.model,
        attempt.started + offset,
        attempt.duration,
        fault.kind.value,
        fault.blame.value,
        fault.status,
        fault.cooldown,
        fault.message[:LONGEST],
        attempt.reused,
        attempt.first_content,
    )
