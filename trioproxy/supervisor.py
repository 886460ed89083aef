"""The live state of one process: what is shared between exchanges, in families behind locks.

There are two families. `channels`: each channel's breaker, standing, slots and pool. `quota`: the limiters of every scope, and
what past calls taught about the next.
"""

from collections.abc import Callable

import trio
from attrs import define, field

from trioproxy.channel import ChannelState, ChannelStatistics
from trioproxy.family import Family
from trioproxy.http.silence import SilenceWatch
from trioproxy.lag import LoopLag
from trioproxy.policy.hierarchy import Quota
from trioproxy.policy.learned import Learned


@define(eq=False)
class QuotaState:
    """Who has used how much of what, and how much the next call is likely to use."""

    quota: Quota = field(factory=Quota)
    learned: Learned = field(factory=Learned)


@define(eq=False)
class Supervisor:
    """All live state of one process."""

    channels: Family[dict[str, ChannelState]]
    silence: SilenceWatch = field(factory=SilenceWatch)
    quota: Family[QuotaState] = field(factory=lambda: Family(QuotaState()))
    lag: LoopLag = field(factory=LoopLag)

    def statistics(self, now: float) -> dict[str, ChannelStatistics]:
        return {name: state.statistics(now) for name, state in self.channels.state.items()}

    async def sweep(self, every: float = 15.0) -> None:
        """Close idle connections that have been closed or forgotten by their provider, until cancelled."""
        while True:
            await trio.sleep(every)
            for state in self.channels.state.values():
                state.upstream.pool.sweep(trio.current_time())

    async def sweep_quota(self, wall: Callable[[], float], every: float = 1.0) -> None:
        """Forget limiters that are at rest, some at a time, until cancelled. `wall` is Unix seconds."""
        while True:
            await trio.sleep(every)
            self.quota.post(self.quota.state.quota.sweep, trio.current_time(), wall())

    def close(self) -> None:
        for state in self.channels.state.values():
            state.upstream.pool.close()
