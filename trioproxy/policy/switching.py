"""Switches made visible: whom a model's calls go to first, and what changed for them when that changed.

After a switch the first hundreds of calls miss the new provider's prompt cache: latency and unit cost step up, and nobody
should take that for a dearer provider. So each channel's cached share, time to first content and unit cost are read over the last
minutes, and compared across a switch once enough calls have followed it.
"""

from collections import deque

from attrs import define, field

from trioproxy.journal import Reading, SwitchWeighed, Usage

BIN = 60.0  # seconds; a reading is exact to one of them
KEPT = 5  # bins: what a reading looks back over
WEIGHED_AFTER = 300.0  # seconds after a switch, or as soon as
WEIGHED_CALLS = 200  # calls have followed it
LIMITED = 10  # calls in a row that a limit turned away from the first choice, until that is a switch; and back


@define(eq=False)
class Totals:
    """The sums behind a reading."""

    began: float
    calls: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: int = 0
    priced: int = 0  # tokens of the calls whose cost is known
    seconds: float = 0.0

    def note(self, usage: Usage, cost: int | None, seconds: float) -> None:
        self.calls += 1
        self.seconds += seconds
        self.input += usage.input
        self.cached += usage.cached
        self.output += usage.output
        if cost is not None:
            self.cost += cost
            self.priced += usage.input + usage.cached + usage.output

    def add(self, other: "Totals") -> None:
        for name in ("calls", "input", "cached", "output", "cost", "priced", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def reading(self) -> Reading:
        prompt = self.input + self.cached
        return Reading(
            self.calls,
            self.cached / prompt if prompt else None,
            self.seconds / self.calls if self.calls else None,
            self.cost * 1000 / self.priced if self.priced else None,
        )


@define(eq=False)
class Switching:
    """One model's first choice, and its channels' readings. `first` is by state alone, `told` what was last announced."""

    model: str
    first: str
    told: str = field(init=False)
    changed: float = field(init=False, default=-1.0)  # when `told` last did
    _bins: dict[str, deque[Totals]] = field(init=False, factory=dict)
    _limited: int = field(init=False, default=0)  # in a row: above 0 turned away, below 0 asked again
    _before: tuple[str, Reading] | None = field(init=False, default=None)
    _after: Totals = field(init=False, factory=lambda: Totals(0.0))

    def __attrs_post_init__(self) -> None:
        self.told = self.first

    def move(self, channel: str, now: float) -> SwitchWeighed | None:
        """Calls go to `channel` first from now on. What the switch before had changed, where that was not weighed yet."""
        weighed = self.weigh(now)
        self._before = (self.told, self.reading(self.told, now))
        self._after = Totals(now)
        self.told, self.changed, self._limited = channel, now, 0
        return weighed

    def answered(
        self, channel: str, began: float, seconds: float, spent: tuple[Usage, int | None]
    ) -> SwitchWeighed | None:
        """An attempt that began at `began` was answered after `seconds`. What a switch has changed, once that is known."""
        now = began + seconds
        bins = self._bins.get(channel)
        if bins is None:
            bins = self._bins[channel] = deque(maxlen=KEPT)
        if not bins or now >= bins[-1].began + BIN:
            bins.append(Totals(now // BIN * BIN))
        bins[-1].note(*spent, seconds)
        if self._before is None or channel != self.told or began < self.changed:
            return None
        self._after.note(*spent, seconds)
        enough = self._after.calls >= WEIGHED_CALLS or now >= self._after.began + WEIGHED_AFTER
        return self.weigh(now) if enough else None

    def weigh(self, now: float) -> SwitchWeighed | None:
        """What the last switch has changed so far; None where nothing followed it, or it was weighed already."""
        before, self._before = self._before, None
        if before is None or not self._after.calls:
            return None
        return SwitchWeighed(self.model, before[0], self.told, before[1], self._after.reading(), now)

    def settled(self, channel: str) -> bool:
        """Whether a call that asked `channel` first says nothing new."""
        return channel == self.first == self.told and self._limited <= 0

    def asked(self, *, limited: bool) -> bool:
        """A call asked the first choice, or was turned away from it by a limit. Whether that is a switch by now."""
        self._limited = max(self._limited, 0) + 1 if limited else min(self._limited, 0) - 1
        turned = self.told != self.first
        return (self._limited >= LIMITED and not turned) or (self._limited <= -LIMITED and turned)

    def reading(self, channel: str, now: float) -> Reading:
        """The channel over the last minutes."""
        totals = Totals(now)
        for each in self._bins.get(channel, ()):
            if each.began > now - KEPT * BIN:
                totals.add(each)
        return totals.reading()

    def readings(self, now: float) -> dict[str, Reading]:
        return {channel: self.reading(channel, now) for channel in self._bins}
