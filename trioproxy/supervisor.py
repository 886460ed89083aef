"""The live state of one process: what is shared between exchanges, in families behind locks.

There are three families. `channels`: each channel's breaker, standing, slots and pool. `quota`: the limiters of every scope, what
past calls taught about the next, and the room where calls wait. `traffic`: the rollouts, and which channels are on their way back.
"""

from collections.abc import Callable

import trio
from attrs import define, field

from trioproxy.channel import ChannelState, ChannelStatistics
from trioproxy.family import Family
from trioproxy.http.silence import SilenceWatch
from trioproxy.journal import BreakerMoved, Event, Journal
from trioproxy.lag import LoopLag
from trioproxy.policy.access import Catalogue
from trioproxy.policy.hierarchy import Quota
from trioproxy.policy.learned import Learned
from trioproxy.policy.nearing import Nearing
from trioproxy.traffic import Traffic
from trioproxy.waiting_room import WaitingRoom


@define(eq=False)
class QuotaState:
    """Who has used how much of what, how much the next call is likely to use, and who waits."""

    quota: Quota = field(factory=Quota)
    learned: Learned = field(factory=Learned)
    nearing: Nearing = field(factory=Nearing)
    room: WaitingRoom | None = None  # None where no call ever waits


@define(eq=False)
class Supervisor:
    """All live state of one process."""

    channels: Family[dict[str, ChannelState]]
    silence: SilenceWatch = field(factory=SilenceWatch)
    quota: Family[QuotaState] = field(factory=lambda: Family(QuotaState()))
    lag: LoopLag = field(factory=LoopLag)
    traffic: Family[Traffic] = field(factory=lambda: Family(Traffic(Catalogue.of(()), {}, Journal())))

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

    async def serve_room(self, room: WaitingRoom) -> None:
        """Ask for those who wait when only time has passed, until cancelled."""
        while True:
            await room.due()
            self.pump()

    def pump(self) -> None:
        """Something may fit now that did not."""
        room = self.quota.state.room
        if room is not None:
            self.quota.post(room.pump, trio.current_time())

    def heard(self, event: Event) -> None:
        """A channel that is back may serve those who wait."""
        if isinstance(event, BreakerMoved):
            self.pump()

    def close(self) -> None:
        for state in self.channels.state.values():
            state.upstream.pool.close()
