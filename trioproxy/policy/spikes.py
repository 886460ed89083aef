"""What is abnormal about many exchanges: counted as each one ends, judged a few times a minute.

The window is a ring of slices; an exchange is counted into the present one, which costs a few dictionary look-ups and is all that
the hot path pays. What is judged abnormal is a matter until a judgement no longer finds it, silence included. Sums say nothing
below `least` of them. `now` is monotonic seconds.
"""

from collections import deque
from collections.abc import Iterator, Mapping

from attrs import define, field, frozen, validators

from trioproxy.errors import FaultKind
from trioproxy.journal import AlertCause, EndReason, ExchangeEnded

SLICES = 12
TOO_MANY = 429
RESTING = "rate_limit_exceeded"  # what is noted of a call that would have been told 429, and was given something else
MINUTE = 60.0
MOST = 4096  # tenants, models, classes or channels that are told apart
WARM = 5  # minutes of a tenant before its mean says anything
FADE = 0.9  # of the mean stays from one minute to the next: its half-life is 6.6 minutes

THROTTLED = frozenset({FaultKind.RATE_LIMITED, FaultKind.RAMP})

_SHARE = [validators.ge(0.0), validators.le(1.0)]


@frozen
class Thresholds:
    """What is abnormal. Shares are of 1 and must be passed, not met; a threshold of 0 asks nothing."""

    window: float = field(default=60.0, validator=validators.gt(0.0))  # seconds; providers' limits are per minute
    least: int = field(default=20, validator=validators.ge(1))  # attempts or calls; one of three is no rate
    rate_limited: float = field(default=0.05, validator=_SHARE)  # of a channel's attempts; as growth pauses
    refused: float = field(default=0.2, validator=_SHARE)  # of a class's calls; one tenant at its limit is normal
    queued: float = field(default=100.0, validator=validators.ge(0.0))  # calls of a class that wait, on average
    pressure: float = field(default=5.0, validator=validators.ge(0.0))  # times a tenant's own mean of tokens per minute
    # Tokens per minute that are never abnormal.
    pressure_floor: int = field(default=100_000, validator=validators.ge(0))
    probes: int = field(default=2, validator=validators.ge(1))  # failures in a row; one may be the network's
    drift: float = field(default=1.5, validator=validators.ge(0.0))  # estimates leave 1.1 of room by themselves


Subject = tuple[AlertCause, str]
Finding = tuple[Subject, str]  # what is abnormal, and that in words with its figures


@define(eq=False)
class Slice:
    """A part of the window."""

    channels: dict[str, list[int]] = field(factory=dict)  # attempts, throttled
    classes: dict[str, list[float]] = field(factory=dict)  # calls, refused, seconds in the queue
    models: dict[str, list[int]] = field(factory=dict)  # answers, estimated input tokens, real ones


@define(eq=False)
class Spikes:
    """The counts. `count` is for every exchange, `judge` for about once a second."""

    thresholds: Thresholds = field(factory=Thresholds)
    _slice: Slice = field(init=False, factory=Slice)
    _past: deque[Slice] = field(init=False, factory=lambda: deque(maxlen=SLICES))
    _turn_at: float | None = field(init=False, default=None)
    _minute_at: float = field(init=False, default=0.0)
    _tokens: dict[str, int] = field(init=False, factory=dict)
    _high: set[Subject] = field(init=False, factory=set)  # what is abnormal at present
    _means: dict[str, tuple[float, int]] = field(init=False, factory=dict)  # tenant → mean, minutes

    @property
    def idle(self) -> bool:
        """Whether nothing was counted of late and nothing is abnormal."""
        return not (self._high or self._slice.classes or any(part.classes for part in self._past))

    def count(self, event: ExchangeEnded) -> None:
        present = self._slice
        for record in event.attempts:
            counts = present.channels.get(record.channel)
            if counts is None:
                counts = present.channels[record.channel] = [0, 0]
            counts[0] += 1
            if record.fault is not None and record.fault.kind in THROTTLED:
                counts[1] += 1
        of_class = present.classes.get(event.traffic_class)
        if of_class is None:
            of_class = present.classes[event.traffic_class] = [0, 0, 0.0]
        of_class[0] += 1
        of_class[2] += event.queued
        if event.status == TOO_MANY or event.note == RESTING or event.reason is EndReason.REFUSED_QUOTA:
            of_class[1] += 1
        usage = event.usage
        used = usage.input + usage.cached
        tokens = self._tokens
        if used and (event.tenant in tokens or len(tokens) < MOST):
            tokens[event.tenant] = tokens.get(event.tenant, 0) + used + usage.output
        if used and event.estimated_input and not usage.estimated:
            self._estimated(present.models, event.model, event.estimated_input, used)

    @staticmethod
    def _estimated(models: dict[str, list[int]], model: str, estimated: int, real: int) -> None:
        if model in models or len(models) < MOST:
            sums = models.setdefault(model, [0, 0, 0])
            sums[0] += 1
            sums[1] += estimated
            sums[2] += real

    def judge(self, now: float, waiting: Mapping[str, int]) -> tuple[dict[Subject, str], set[Subject]]:
        """What has become abnormal, in words, and what no longer is; nothing between two slices.

        `waiting` is calls in the queue of each class, where that is known.
        """
        length = self.thresholds.window / SLICES
        if self._turn_at is None:
            self._turn_at, self._minute_at = now + length, now + MINUTE
        if now < self._turn_at:
            return {}, set()
        self._past.append(self._slice)
        self._slice, self._turn_at = Slice(), now + length
        found = dict((*self._channels(), *self._classes(waiting), *self._models()))
        if now >= self._minute_at:
            self._minute_at = now + MINUTE
            found |= dict(self._tenants())
        else:
            found |= {subject: "" for subject in self._high if subject[0] is AlertCause.TOKEN_PRESSURE}
        was, self._high = self._high, set(found)
        return {subject: message for subject, message in found.items() if subject not in was}, was - self._high

    def _sums(self, part: str) -> dict[str, list[float]]:
        sums: dict[str, list[float]] = {}
        for each in self._past:
            counted: dict[str, list[float]] = getattr(each, part)
            for name, counts in counted.items():
                sums[name] = [a + b for a, b in zip(sums[name], counts, strict=True)] if name in sums else counts
        return sums

    def _channels(self) -> Iterator[Finding]:
        most = self.thresholds.rate_limited
        for channel, (attempts, throttled) in self._sums("channels").items():
            if most and attempts >= self.thresholds.least and throttled > most * attempts:
                figures = f"throttled {throttled:.0f} of {attempts:.0f} attempts, more than {most:.0%}"
                yield (AlertCause.RATE_LIMITED, channel), f"the provider of channel {channel} {figures}"

    def _classes(self, waiting: Mapping[str, int]) -> Iterator[Finding]:
        limits = self.thresholds
        sums = self._sums("classes")
        for name in sums.keys() | waiting.keys():
            calls, refused, seconds = sums.get(name, (0, 0, 0.0))
            if limits.refused and calls >= limits.least and refused > limits.refused * calls:
                figures = f"refused {refused:.0f} of {calls:.0f} calls of class {name}, more than {limits.refused:.0%}"
                yield (AlertCause.CLASS_REFUSED, name), f"limits {figures}"
            # Little's law: so many waited on average, told by those whose wait is over.
            depth = max(seconds / limits.window, waiting.get(name, 0))
            if limits.queued and depth > limits.queued:
                yield (
                    (AlertCause.QUEUE_GROWTH, name),
                    f"{depth:.0f} calls of class {name} wait, more than {limits.queued:g}",
                )

    def _models(self) -> Iterator[Finding]:
        drift = self.thresholds.drift
        for model, (answers, estimated, real) in self._sums("models").items():
            ratio = estimated / real
            if drift and answers >= self.thresholds.least and not 1 / drift <= ratio <= drift:
                figures = f"estimated at {ratio:.2f} times what it is, over {answers:.0f} answers"
                yield (AlertCause.ESTIMATE_DRIFT, model), f"the input of model {model} is {figures}"

    def _tenants(self) -> Iterator[Finding]:
        limits = self.thresholds
        tokens, self._tokens = self._tokens, {}
        for tenant in self._means.keys() | tokens.keys():
            mean, minutes = self._means.get(tenant, (0.0, 0))
            used = tokens.get(tenant, 0)
            if limits.pressure and minutes >= WARM and used > max(limits.pressure * mean, limits.pressure_floor):
                figures = f"{used:,} tokens in a minute, against {mean:,.0f} of late"
                yield (AlertCause.TOKEN_PRESSURE, tenant), f"tenant {tenant} used {figures}"
            # The first minutes make a plain mean: a fading one would begin far too low.
            mean += (used - mean) * max(1 - FADE, 1 / (minutes + 1))
            if mean < 1:
                self._means.pop(tenant, None)
            else:
                self._means[tenant] = mean, minutes + 1
