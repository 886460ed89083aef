"""The way back: a channel that was out gets its callers again little by little, each for good.

When a channel has been out (its breaker opened, or it was parked) and may be asked again, it gets a share of a model's callers
that grows from `least` to all of them over `over` seconds. A caller who came back stays back (`policy.sticky`); the
others go on to the channel that stands in, with the returning one last in their chain, so that failover can still use it. Growth
stops while the returning channel fails or throttles more than is tolerated, and begins anew when it goes out again.
"""

from collections import Counter, deque
from collections.abc import Mapping

from attrs import define, evolve, field, frozen, validators

from trioproxy.policy.chain import Candidate, Chain
from trioproxy.policy.ramp import Signals, Thresholds, Warmup
from trioproxy.policy.sticky import place, within

WINDOW = 60.0  # seconds that an attempt speaks for or against growth
MOST = 200  # attempts that are kept; a share of more is no better known


@frozen
class SwitchBackPolicy:
    """`over` 0: all at once. `rate_limited` and `failed` are shares of the attempts at it that stop growth, from `sample` on."""

    over: float = field(default=0.0, validator=validators.ge(0.0))
    least: float = field(default=0.1, validator=[validators.gt(0.0), validators.le(1.0)])
    rate_limited: float = field(default=0.05, validator=[validators.ge(0.0), validators.le(1.0)])
    failed: float = field(default=0.1, validator=[validators.ge(0.0), validators.le(1.0)])
    sample: int = field(default=20, validator=validators.ge(1))


@define(eq=False)
class Return:
    """One channel's way back, of one model."""

    policy: SwitchBackPolicy
    paused: str = field(init=False, default="")  # why growth has stopped
    _since: float | None = field(init=False, default=None)  # growing since then; None: it is still out
    _grown: float = field(init=False, default=0.0)  # seconds of growth before that
    _seen: deque[tuple[float, str]] = field(init=False, factory=deque)
    _counts: Counter[str] = field(init=False, factory=Counter)  # of what was seen
    _warmup: Warmup = field(init=False)
    _limits: Thresholds = field(init=False)

    def __attrs_post_init__(self) -> None:
        policy = self.policy
        self._warmup = Warmup(policy.over, policy.least)
        self._limits = Thresholds(policy.rate_limited, policy.failed, least=policy.sample)

    @property
    def begun(self) -> bool:
        return self._since is not None

    def begin(self, now: float) -> None:
        self._since, self._grown, self.paused = now, 0.0, ""
        self._seen.clear()
        self._counts.clear()

    def share(self, now: float) -> float:
        """The share of callers that it has now, 0 to 1."""
        if self._since is None:
            return 0.0
        return self._warmup.share(self._age(now))

    def note(self, now: float, fault: str) -> str | None:
        """An attempt there ended: "" well, "rate" throttled, "failed". The reason if growth stops now, "" if it goes on."""
        self._seen.append((now, fault))
        self._counts[fault] += 1
        while self._seen and (self._seen[0][0] <= now - WINDOW or len(self._seen) > MOST):
            self._counts[self._seen.popleft()[1]] -= 1
        why = self._limits.breach(Signals(len(self._seen), self._counts["rate"], self._counts["failed"])) or ""
        if bool(why) == bool(self.paused) or self._since is None:
            return None
        self._grown, self._since = self._age(now), now
        self.paused = why
        return why

    def _age(self, now: float) -> float:
        grown = 0.0 if self.paused or self._since is None else now - self._since
        return self._grown + grown


@define(eq=False)
class Returning:
    """The channels of one model that are out or on their way back; empty while all is well, which is what a call looks at."""

    model: str
    policy: SwitchBackPolicy
    channels: dict[str, Return] = field(init=False, factory=dict)

    def left(self, channel: str) -> None:
        """The channel is out: whatever it had got back is given up."""
        if self.policy.over:
            self.channels[channel] = Return(self.policy)

    def share(self, channel: str, now: float) -> float | None:
        """The share that a channel on its way back has; None for one that is not on it."""
        way = self.channels.get(channel)
        return None if way is None or not way.begun else way.share(now)

    def order(self, chain: Chain, key: str, now: float) -> Chain:
        """An uncut chain with the channels last that are on their way back but not for this key yet.

        Where everybody in it is on the way back, nobody stands in for anybody, and the order is as it was.
        """
        shares = {step.channel: self._share(step.channel, now) for step in chain.steps}
        if not min(shares.values(), default=1.0) < 1.0 <= max(shares.values()):
            return chain
        first, later = [], []
        for step in chain.steps:
            share = shares[step.channel]
            if share >= 1.0 or within(place(f"{self.model}\0{step.channel}", key), share):
                first.append(step)
            else:
                later.append(_waiting(step, share))
        return evolve(chain, steps=(*first, *later)) if later else chain

    def cut(self, chain: Chain, limit: int) -> Chain:
        """At most `limit` steps: those that wait for their callers keep their place among them, as the last."""
        if len(chain.steps) <= limit:
            return chain
        waiting = [step for step in chain.steps if step.returning]
        others = [step for step in chain.steps if not step.returning]
        kept = waiting[: max(0, limit - 1)]
        steps = others[: limit - len(kept)]
        rest = others[len(steps) :] + waiting[len(kept) :]
        return evolve(chain, steps=(*steps, *kept), beyond=tuple(rest))

    def begin(self, channel: str, now: float) -> bool:
        """The channel may be asked again. Whether this is the first one to see it."""
        way = self.channels.get(channel)
        if way is None or way.begun:
            return False
        way.begin(now)
        return True

    def snapshot(self, now: float) -> dict[str, float | None]:
        """The share of each channel that is on its way back; None for one that is out."""
        return {name: way.share(now) if way.begun else None for name, way in self.channels.items()}

    def restore(self, told: Mapping[str, float | None], now: float) -> None:
        """Go on from the shares that `snapshot` said; the time in between is no growth."""
        for name, share in told.items():
            self.left(name)
            if (way := self.channels.get(name)) is not None and share is not None:
                way.begin(now - share * self.policy.over)

    def _share(self, channel: str, now: float) -> float:
        way = self.channels.get(channel)
        if way is None:
            return 1.0
        if not way.begun:
            return 1.0  # a trial of its breaker or standing, which lets few calls through
        share = way.share(now)
        if share >= 1.0:
            del self.channels[channel]  # all are back
        return share


def _waiting(step: Candidate, share: float) -> Candidate:
    return evolve(step, returning=True, reason=f"{step.reason}; on its way back, {share:.0%} of the callers have it")
