"""One limit of a provider as we know it: what is configured, what its headers say, and what was found by trying.

The provider's word counts from the moment it was given: what was sent since is taken off, what refills since is added, and it
is never believed for longer than `TRUST` (the next answer says it anew). A header that lies keeps a channel from its calls for
that long, and then one call asks again. Invariants: the allowance is never above what is configured or announced, and
what is left never below 0.
"""

import math
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from trioproxy.policy.aimd import Aimd, AimdPolicy, shortfall
from trioproxy.policy.meter import MINUTE, Meter
from trioproxy.policy.refill import refill

TRUST = 60.0  # seconds that an observation is believed without another one
TRIAL = 5.0  # seconds that others wait for the call that asks after that
FLOOR = 0.1  # of the ceiling: a refusal on a channel that was hardly used says little about its limit
MEMORY = 120.0  # seconds: as long as the sawtooth of a limit that stands, which is met once in them
ALL_BUT = 0.1  # what is larger than the whole limit passes when no more than this share of it is in use


@define(eq=False)
class Lane:
    """Times are seconds on the caller's monotonic clock, amounts in the dimension's own unit. Never blocks."""

    name: str
    configured: float | None = None
    window: float = MINUTE
    announced: float | None = field(init=False, default=None)
    seen: float = field(init=False, default=-math.inf)  # when the provider's word was given
    meter: Meter = field(init=False, factory=Meter)
    aimd: Aimd | None = field(init=False, default=None)  # while a refusal is remembered
    taken: int = field(init=False, default=0)  # all that was ever sent
    _left: float | None = field(init=False, default=None)  # by its word, less what was sent since
    _from: float = field(init=False, default=0.0)  # since when that refills
    _rate: float = field(init=False, default=0.0)
    _full: float = field(init=False, default=math.inf)
    _until: float = field(init=False, default=0.0)
    _heard: int = field(init=False, default=-1)  # how much had been sent when the call that told began
    told: float | None = field(init=False, default=None)  # the allowance, the last time that it was

    @property
    def ceiling(self) -> float | None:
        """The most that is ever allowed; None where nobody has said."""
        if self.announced is None or self.configured is None:
            return self.configured if self.announced is None else self.announced
        return min(self.configured, self.announced)

    @property
    def allowance(self) -> float | None:
        """What is allowed per window now."""
        return self.ceiling if self.aimd is None else self.aimd.limit

    def left(self, now: float) -> float | None:
        """What remains by the provider's word; None where it is too old or was never given."""
        return self._believed(now) if now < self._until else None

    @property
    def plenty(self) -> bool:
        """Whether at least half of it was left by the last word, or nothing was said of that."""
        return self._left is None or self.announced is None or 2 * self._left >= self.announced

    def wait(self, now: float, amount: int) -> float:
        """Seconds after which `amount` would fit, 0 where it does now."""
        if self.aimd is None and (self._left is None or self._left >= amount):  # nearly always
            return 0.0
        return max(self._word(now, amount), self._tried(now, amount))

    def take(self, now: float, amount: int) -> None:
        """`amount` is sent."""
        self.taken += amount
        self.meter.add(now, amount)
        left = self._believed(now)
        if left is None:
            return
        if now < self._until:
            self._left, self._from = max(0.0, left - amount), now
        elif left >= amount:
            self._left = None
        else:  # too old to believe, and it was a no: this call asks again
            self._until = now + TRIAL

    def give_back(self, now: float, amount: int) -> None:
        """`amount` was not sent after all."""
        self.meter.add(now, -amount)
        if self._left is not None:
            self._left += amount

    def observe(self, now: float, mark: int, told: tuple[int | None, int | None, float | None]) -> None:
        """Take up limit, remaining and seconds to reset as an answer told them; None for what it did not tell.

        `mark` is what `taken` was when its call had been sent. An answer to an older call than the last one that told is stale
        and changes nothing, nor does what cannot be.
        """
        limit, remaining, reset = told
        if mark < self._heard or limit == 0:
            return
        self._heard = mark
        if limit is not None and limit != self.announced:
            self._announce(float(limit))
        if remaining is None or (self.announced is None and reset is None):
            return
        left = remaining if self.announced is None else min(remaining, self.announced)
        self.seen = self._from = now
        rate, full = refill(self.announced, left, reset, self.window)
        self._rate, self._full = rate, now + full
        self._until = now + TRUST
        left -= self.taken - mark  # its word does not know what is on its way
        self._left = left if left > 0 else 0.0

    def refused(self, now: float, amount: int, quiet: float) -> bool:
        """The provider refused `amount` with a 429 or 529; whether that lowered the allowance."""
        ceiling = self.ceiling
        if ceiling is None or self.window != MINUTE:
            return False
        if self.aimd is None:
            self.aimd = Aimd(_policy(ceiling))
        remaining = self.left(now)
        spare = remaining if remaining is not None and remaining >= amount else None
        used = self.meter.reading(now) - amount
        return self.aimd.refused(now, used, quiet=quiet, remaining=spare)

    def answered(self, now: float) -> None:
        """A success. What has climbed back to its ceiling is as if it had never been refused."""
        aimd, ceiling = self.aimd, self.ceiling
        if aimd is None or ceiling is None:
            return
        aimd.answered(now, self.meter.reading(now) / aimd.limit)
        if aimd.limit >= ceiling:
            self.aimd = None

    def snapshot(self, now: float) -> dict[str, Any] | None:
        """What was learned, as plain values with their ages; None where nothing was."""
        if self.announced is None and self._left is None and self.aimd is None:
            return None
        word = None
        if self._left is not None:
            full = None if self._full == math.inf else now - self._full
            word = [self._left, self._rate, now - self._from, now - self.seen, now - self._until, full]
        tried = None if self.aimd is None else self.aimd.snapshot(now)
        return {"announced": self.announced, "used": self.meter.reading(now), "word": word, "tried": tried}

    def restore(self, kept: Mapping[str, Any], now: float, age: float) -> None:
        """Take up what `snapshot` gave `age` seconds ago. Raises `KeyError`, `TypeError` or `ValueError` for what is none."""
        then, word = now - age, kept["word"]
        if word is not None:
            self._left, self._rate = map(float, word[:2])
            self._from, self.seen, self._until = (then - float(ago) for ago in word[2:5])
            self._full = math.inf if word[5] is None else then - float(word[5])
        self.announced = None if kept["announced"] is None else float(kept["announced"])
        self.meter.add(now, float(kept["used"]) * math.exp(-age / MINUTE))
        ceiling = self.ceiling
        if kept["tried"] is not None and ceiling is not None:
            self.aimd = Aimd(_policy(ceiling))
            self.aimd.restore(kept["tried"], then)
        self.told = self.allowance

    def _word(self, now: float, amount: int) -> float:
        left = self.left(now)
        if left is None or left >= amount:
            return 0.0
        # What is larger than the whole passes when all of it is there, as it does with limits of our own.
        need = amount if self.announced is None else min(amount, self.announced)
        return min(shortfall(need, left, 0.0, self._rate * MINUTE), self._full - now, self._until - now)

    def _tried(self, now: float, amount: int) -> float:
        limit = math.inf if self.aimd is None else self.aimd.limit
        return self.meter.wait(now, max(limit - amount, limit * ALL_BUT))

    def _believed(self, now: float) -> float | None:
        if self._left is not None and now >= self._full:
            self._renew()
        if self._left is None:
            return None
        whole = math.inf if self.announced is None else self.announced
        return min(whole, self._left + (now - self._from) * self._rate)

    def _announce(self, limit: float) -> None:
        self.announced = limit
        aimd, ceiling = self.aimd, self.ceiling
        if aimd is not None and ceiling is not None:
            if ceiling > aimd.policy.configured:
                aimd.policy = _policy(ceiling)
            aimd.announced(limit)

    def _renew(self) -> None:
        """Its reset has come: all of it is there, where we know how much that is."""
        if self.announced is None:
            self._left = None
            return
        self._left, self._from, self._rate = self.announced, self._full, self.announced / self.window
        self._full = math.inf


def _policy(ceiling: float) -> AimdPolicy:
    return AimdPolicy(configured=ceiling, floor=ceiling * FLOOR, memory=MEMORY)
