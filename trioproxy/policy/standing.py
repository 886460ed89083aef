"""A channel's standing with its provider: in order, cooling down, or parked.

A cooldown is what a provider asks for (429 and its kin): short, obeyed up to a cap, and no evidence for the breaker. A park
is for what waiting a moment does not heal, our key or our money there: long, doubling with every failed trial, alarmed.

When either has run out, one attempt tries the channel and the others go on skipping it until that one's result is known:
a provider that is still refusing is asked once per cooldown, not once per call. A refusal comes at once and an answer takes
its time, so a trial holds the others up for `TRIAL` seconds only: else one 429 could close a channel for minutes.

A rest without a hint is a guess of ours. Where nobody else is left a call may doubt it, once: it is the trial before its time.
An answer ends the rest; another 429 confirms it, and it is longer then and doubted no more.
"""

from collections.abc import Mapping
from typing import Any

from attrs import define, field

# Without a hint: 1 s, doubling to 60 s.
FIRST_COOLDOWN = 1.0
LAST_COOLDOWN = 60.0
LAST_PARK = 86_400.0
TRIAL = 5.0


@define(eq=False)
class Standing:
    """Times are seconds on the caller's monotonic clock. Never blocks."""

    until: float = field(init=False, default=0.0)
    parked: bool = field(init=False, default=False)
    why: str = field(init=False, default="")
    guessed: bool = field(init=False, default=False)  # the present rest is nobody's word but ours
    doubted: bool = field(init=False, default=False)
    _strikes: int = field(init=False, default=0)
    _parks: int = field(init=False, default=0)
    _trial: float | None = field(init=False, default=None)  # since when one is out

    @property
    def on_probation(self) -> bool:
        """Whether the next attempt will be the trial."""
        return bool(self._strikes) and self._trial is None

    def objection(self, now: float) -> str | None:
        """Why the channel is to be skipped now, or None."""
        if not self._strikes:
            return None
        if now < self.until:
            state = "parked" if self.parked else "cooling down"
            return f"{state} for another {self.until - now:.0f} s: {self.why}"
        return "on trial: another call is asking whether it is back" if self._held_up(now) else None

    def cooling(self, now: float) -> bool:
        """Whether the provider has asked for this rest."""
        return now < self.until and not self.parked

    def doubtful(self, now: float) -> bool:
        """Whether this rest may be doubted now."""
        return self.guessed and not self.doubted and now < self.until and not self._held_up(now)

    def doubt(self, now: float) -> None:
        """One attempt tries the channel during its rest."""
        assert self.doubtful(now), "a guess is doubted once"
        self.doubted = True
        self._trial = now

    def wait(self, now: float) -> float:
        """Seconds until it objects no more, if nothing else happens."""
        trial_ends = self.until if self._trial is None else self._trial + TRIAL
        return max(0.0, self.until - now, trial_ends - now)

    def enter(self, now: float) -> bool:
        """Whether an attempt may begin. The first one after a cooldown or park is its trial."""
        if not self._strikes:
            return True
        if now < self.until or self._held_up(now):
            return False
        if self._trial is None:
            self._trial = now
        return True

    def cool(self, now: float, hint: float | None, why: str, *, trial: bool = False) -> float:
        """Leave the channel alone for as long as the provider says, or for our own backoff. Returns the seconds.

        `trial`: it is what the trial was told.
        """
        confirmed = trial and self.doubted and now < self.until
        if confirmed:
            self.until = now
        if hint is None and now < self.until:  # a call that was on its way when another one's answer began the cooldown
            return self.until - now
        backoff = min(LAST_COOLDOWN, FIRST_COOLDOWN * 2.0 ** min(self._strikes, 6))
        seconds = backoff if hint is None else hint
        if self._strike(now, seconds, why, parked=False):
            self.guessed, self.doubted = hint is None, confirmed
        return seconds

    def park(self, now: float, seconds: float, why: str) -> float:
        """Take the channel out; every further park without a success between doubles. Returns the seconds."""
        if self.parked and now < self.until:  # a call that was on its way when another one's fault parked it
            return self.until - now
        doubled = min(LAST_PARK, seconds * 2.0 ** min(self._parks, 16))
        self._parks += 1
        self._strike(now, doubled, why, parked=True)
        self.guessed = self.doubted = False
        return doubled

    def restore(self, now: float, *, trial: bool = False) -> None:
        """The channel answered: in order again. While it rests, only an answer to the trial that doubts it lifts that."""
        if now < self.until:
            if not (trial and self.doubted):
                return
            self.until = now
        self._strikes = self._parks = 0
        self._trial = None
        self.parked = self.guessed = self.doubted = False
        self.why = ""

    def abandon(self) -> None:
        """A trial ended without evidence; the next attempt may try."""
        if self._trial is not None:
            self.doubted = False
        self._trial = None

    def _held_up(self, now: float) -> bool:
        return self._trial is not None and now < self._trial + TRIAL

    def _strike(self, now: float, seconds: float, why: str, *, parked: bool) -> bool:
        if not parked and self.parked and now < self.until:
            return False  # a throttle does not shorten a park
        self._strikes += now >= self.until  # calls that were under way together are one strike
        self.until = max(self.until, now + seconds)
        self.parked = parked
        self.why = why
        self._trial = None
        return True

    def snapshot(self, now: float) -> dict[str, Any] | None:
        """Plain values, for a store; None where all is in order. A trial that is out is not kept."""
        if not self._strikes:
            return None
        told = {"parked": self.parked, "why": self.why, "guessed": self.guessed, "doubted": self.doubted}
        return {"remaining": self.until - now, "strikes": self._strikes, "parks": self._parks, **told}

    def restore_from(self, kept: Mapping[str, Any], now: float, age: float) -> None:
        """Take up what `snapshot` gave `age` seconds ago. Raises `KeyError`, `TypeError` or `ValueError`."""
        until, strikes, parks = now - age + float(kept["remaining"]), int(kept["strikes"]), int(kept["parks"])
        self.parked, self.why = bool(kept["parked"]), str(kept["why"])
        self.guessed, self.doubted = bool(kept["guessed"]), bool(kept["doubted"])
        self.until, self._strikes, self._parks, self._trial = until, strikes, parks, None
