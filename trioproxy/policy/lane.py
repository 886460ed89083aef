"""One limit of a provider as we know it: what is configured, what its headers say, and what was found by trying.

The provider's word counts from the moment it was given: what was sent since is taken off, what refills since is added, and it
is never believed for longer than `TRUST` (the next answer says it anew). A header that lies keeps a channel from its calls for
that long, and then one call asks again. Invariants: the allowance is never above what is configured or announced, and
what is left never below 0.

Two ways of refilling hide behind the same headers. Where the time to the reset is what the limit's rate would take to fill,
it is a bucket, and a part of it is back long before the reset. Where it is shorter, it is a window, which gives nothing
until it ends. Where it is longer, the limit is one of a longer time than its name says, and refills as slowly as that.
"""

import math

from attrs import define, field

from trioproxy.policy.aimd import Aimd, AimdPolicy, shortfall
from trioproxy.policy.meter import MINUTE, Meter

TRUST = 60.0  # seconds that an observation is believed without another one
TRIAL = 5.0  # seconds that others wait for the call that asks after that
FLOOR = 0.1  # of the ceiling: a refusal on a channel that was hardly used says little about its limit
MEMORY = 120.0  # seconds: as long as the sawtooth of a limit that stands, which is met once in them
GAP = 0.1  # by so much of itself, and a second, does a time to reset differ from another one
ALL_BUT = 0.1  # what is larger than the whole limit passes when no more than this share of it is in use
MATERIAL_UP, MATERIAL_DOWN = 1.25, 0.95  # what is told of an allowance that moves in small steps


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
    _told: float | None = field(init=False, default=None)

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
        whole = math.inf if self.announced is None else self.announced
        left = min(remaining, whole)
        self.seen = self._from = now
        self._rate, self._full = self._refill(now, left, reset)
        self._until = now + TRUST
        left -= self.taken - mark  # its word does not know what is on its way
        self._left = left if left > 0 else 0.0

    def refused(self, now: float, amount: int, quiet: float) -> bool:
        """The provider refused `amount` with a 429 or 529; whether that lowered the allowance."""
        ceiling = self.ceiling
        if ceiling is None or self.window != MINUTE:
            return False
        if self.aimd is None:
            self.aimd = Aimd(AimdPolicy(configured=ceiling, floor=ceiling * FLOOR, memory=MEMORY))
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

    def news(self) -> tuple[float, float] | None:
        """The allowance as it was told last (0: never) and as it is, where it has changed by enough to tell."""
        is_now = self.ceiling if self.aimd is None else self.aimd.limit
        told = self.configured if self._told is None else self._told
        if is_now is None or self.window != MINUTE or is_now == told:
            return None
        whole = is_now == self.ceiling
        if told is not None and not whole and told * MATERIAL_DOWN <= is_now < told * MATERIAL_UP:
            return None
        self._told = is_now
        return told or 0.0, is_now

    def _word(self, now: float, amount: int) -> float:
        left = self.left(now)
        if left is None or left >= amount:
            return 0.0
        # What is larger than the whole passes when all of it is there, as it does with limits of our own.
        need = amount if self.announced is None else min(amount, self.announced)
        return min(shortfall(need, left, 0.0, self._rate * MINUTE), self._full - now, self._until - now)

    def _tried(self, now: float, amount: int) -> float:
        if self.aimd is None:
            return 0.0
        limit = self.aimd.limit
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
                aimd.policy = AimdPolicy(configured=ceiling, floor=ceiling * FLOOR, memory=MEMORY)
            aimd.announced(limit)

    def _refill(self, now: float, left: float, reset: float | None) -> tuple[float, float]:
        """Units per second from now on, and when all of it is back."""
        rate = 0.0 if self.announced is None else self.announced / self.window
        if reset is None:
            return rate, math.inf
        missing = 0.0 if self.announced is None else self.announced - left
        likely = missing / rate if rate else math.inf
        if reset < likely * (1 - GAP) - 1:
            return 0.0, now + reset
        if reset > likely * (1 + GAP) + 1:
            return missing / reset, now + reset
        return rate, math.inf

    def _renew(self) -> None:
        """Its reset has come: all of it is there, where we know how much that is."""
        if self.announced is None:
            self._left = None
            return
        self._left, self._from, self._rate = self.announced, self._full, self.announced / self.window
        self._full = math.inf
