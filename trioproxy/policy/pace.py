"""The pace: how much one channel is sent, beyond what is configured for it: what was learned of its provider, and how fast it may grow.

It makes nothing before there is something to know: a channel without a ramp whose answers tell of no limit and whose provider
refuses nobody is `free`, which costs a call one look. What was learned is kept by the provider's name of a model, for limits
are counted by model; the channel's own limit bounds each of them and, in the quota, all of them together.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field, frozen

from trioproxy.codec.ratelimits import observations
from trioproxy.policy.governor import Governor
from trioproxy.policy.limits import Need
from trioproxy.policy.throttle import Change, Marks, Reading, Short, Throttle

Headers = Sequence[tuple[bytes, bytes]]
MOST = 256  # models of one channel that are remembered; the one that was made first goes first


@define(eq=False)
class Sent:
    """What one call took, and when."""

    at: float
    need: Need
    marks: Marks = ()


@frozen
class PaceStatistics:
    """A reading of one channel's. `share` is what it takes of its calls while it warms up; `paused` is why growth is."""

    passed_over: int
    rejected: int
    share: float
    paused: str
    ceilings: dict[str, float]
    lanes: tuple[Reading, ...]


@define(eq=False)
class Pace:
    """One channel's. `configured` is its own limits by dimension, per minute; `family` is whose headers it answers with."""

    family: str = "other"
    configured: Mapping[str, float] = field(factory=dict)
    governor: Governor | None = None
    passed_over: int = field(init=False, default=0)  # calls that were not sent here, and would have been refused
    rejected: int = field(init=False, default=0)  # calls that the provider refused although we let them pass
    _throttles: dict[str, Throttle] = field(init=False, factory=dict)

    @property
    def free(self) -> bool:
        """Whether nothing is known that could hold a call back."""
        return self.governor is None and not self._throttles and not self.configured

    def enter(self, model: str, need: Need, now: float, *, alone: bool) -> Short | Sent:
        """Why a call is not to be sent now; else it is taken to be sent, and what is returned goes with all that its answer tells.

        `alone`: no other channel could be asked in its place. In one step, for calls come at once.
        """
        short = self._objection(model, need, now, alone=alone)
        if short is not None:
            self.passed_over += 1
            return short
        if self.governor is not None:
            self.governor.took(need, now)
        throttle = self._throttle(model) if self.configured else self._throttles.get(model)
        return Sent(now, need, () if throttle is None else throttle.take(need, now))

    def give_back(self, model: str, sent: Sent, now: float) -> None:
        """It never went out."""
        if self.governor is not None:
            self.governor.took(Need(*[-amount for amount in sent.need]), now)
        throttle = self._throttles.get(model)
        if throttle is not None:
            throttle.give_back(sent.need, now)

    def _objection(self, model: str, need: Need, now: float, *, alone: bool) -> Short | None:
        throttle, governor = self._throttles.get(model), self.governor
        short = None if throttle is None else throttle.objection(need, now)
        if short is None and governor is not None:
            short = _grown(governor, need, now)
            if short is None and not alone and governor.passes_over(now):
                share = governor.share(now)
                return Short("warmup", "", 0.0, f"it is warming up and takes {share:.0%} of its calls")
        return short

    def calm(self, model: str, now: float) -> bool:
        """Whether the headers of an answer that is no refusal need not be read."""
        throttle = self._throttles.get(model)
        return throttle is not None and now < throttle.calm_until

    def heard(self, model: str, sent: Sent | None, told: Headers, *, now: float, wall: float) -> Iterable[Change]:
        """The headers of an answer that tell of limits are here. `wall` is Unix seconds."""
        marks = () if sent is None else sent.marks
        return self._throttle(model).observe(observations(self.family, told, wall), marks, now)

    def refused(self, model: str, sent: Sent | None, now: float, retry_after: float | None) -> Iterable[Change]:
        """The provider said 429 or 529."""
        self.rejected += 1
        if self.governor is not None:
            self.governor.ended(now, limited=True, failed=False)
        throttle = self._throttles.get(model)
        if throttle is None:
            return ()
        if sent is None:  # the first call, and all that is known came with its refusal
            sent = Sent(now, Need(1))
        return throttle.refused(sent.need, now, max(now - sent.at, retry_after or 0.0))

    def ended(self, model: str, now: float, *, failed: bool) -> Iterable[Change]:
        """The call ended otherwise: it was answered, or it `failed`."""
        if self.governor is not None:
            self.governor.ended(now, limited=False, failed=failed)
        throttle = self._throttles.get(model)
        return () if throttle is None or failed else throttle.answered(now)

    def statistics(self, now: float) -> PaceStatistics:
        governor = self.governor
        return PaceStatistics(
            self.passed_over,
            self.rejected,
            1.0 if governor is None else governor.share(now),
            "" if governor is None else governor.paused,
            {} if governor is None else {each.name: each.limit for each in governor.ceilings},
            tuple(reading for throttle in self._throttles.values() for reading in throttle.readings(now)),
        )

    def _throttle(self, model: str) -> Throttle:
        known = self._throttles.get(model)
        if known is None:
            if len(self._throttles) >= MOST:
                del self._throttles[next(iter(self._throttles))]
            known = self._throttles[model] = Throttle(model, self.configured)
        return known


def _grown(governor: Governor, need: Need, now: float) -> Short | None:
    wait, ceiling = governor.wait(need, now)
    if ceiling is None:
        return None
    held = f"; growth is paused: {governor.paused}" if governor.paused else ""
    said = f"it may not grow beyond {ceiling.limit:.0f} {ceiling.name} yet{held}; wait {wait:.1f} s"
    return Short("ramp", ceiling.name, wait, said)
