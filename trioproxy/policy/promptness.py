"""How fast a channel answers: what counts as slow, and what as silence.

Slow: more of the recent first contents came late than the quantile allows. Of 20 calls one late one is no p95, so one is
always forgiven. Only what shows how long a model thinks before it speaks is asked: streams. How long a whole answer takes
is a matter of its length.

Silence: an attempt that got not one byte although the caller waited long, and left. A caller's deadline is no evidence, but
a channel that keeps quiet longer than it ever does, while nobody else hears from it either, is. So three things must hold:
it waited at least `silence` seconds, and at least twice what 99 of 100 answers in the same form took; and no call has
heard from the channel since this one was asked. What is whole answers' usual time has to be learned before less than
`UNLEARNED` times `silence` means anything.
"""

import math

from attrs import define, field

from trioproxy.policy.learned import ENOUGH, Quantile

MEMORY = 300.0  # seconds after which a call weighs 1/e in the rule for slow ones
FORGIVEN = 1.0  # late calls
PATIENCE = 2.0
UNLEARNED = 3.0


@define(eq=False)
class Slowness:
    """How many of the recent calls were late. Weights fade with time; all three are plain numbers."""

    late: float = 0.0
    seen: float = 0.0
    at: float = 0.0

    def observe(self, *, late: bool, now: float) -> None:
        """One more call."""
        faded = math.exp((self.at - now) / MEMORY)
        self.late = self.late * faded + late
        self.seen = self.seen * faded + 1.0
        self.at = now

    def beyond(self, quantile: float, minimum: int) -> bool:
        """Whether the quantile of the recent ones is late, if they are enough to tell."""
        return self.seen >= minimum and self.late > FORGIVEN + (1.0 - quantile) * self.seen

    def forget(self) -> None:
        self.late = self.seen = 0.0


@define(eq=False)
class Promptness:
    """One channel's times. `silence` is seconds; 0: an attempt that nobody waited for to the end is never evidence."""

    silence: float = 0.0
    heard: float = -math.inf  # when anybody last heard from the channel
    streamed: Quantile = field(init=False, factory=Quantile)  # milliseconds to the first content of streams
    whole: Quantile = field(init=False, factory=Quantile)  # milliseconds of whole answers

    def answered(self, seconds: float, now: float, *, streamed: bool) -> None:
        """A stream has content, or a whole answer is there, so long after it was asked for."""
        self.heard = now
        (self.streamed if streamed else self.whole).observe(seconds * 1000.0)

    def patience(self, *, streamed: bool) -> float:
        """How long silence must last to be evidence, in seconds."""
        if not self.silence:
            return math.inf
        known = self.streamed if streamed else self.whole
        if known.count >= ENOUGH:
            return max(self.silence, PATIENCE * known.at(0.99) / 1000.0)
        return self.silence if streamed else UNLEARNED * self.silence

    def p95(self, *, streamed: bool) -> float | None:
        """Seconds; None before anything was seen."""
        known = self.streamed if streamed else self.whole
        return known.at() / 1000.0 if known.count else None

    def swallowed(self, asked: float, now: float, *, streamed: bool) -> bool:
        """Whether an attempt without one byte since `asked`, given up now, speaks against the channel."""
        return self.heard < asked and now - asked >= self.patience(streamed=streamed)


@define(eq=False)
class Tally:
    """What a channel's breaker has seen since the start. `rejected`: how often a call had to pass the channel over for it."""

    successes: int = 0
    failures: int = 0
    rejected: int = 0

    @property
    def success_rate(self) -> float | None:
        """A share of 1; None before anything was seen."""
        total = self.successes + self.failures
        return self.successes / total if total else None
