"""What a restart remembers: breakers, standings, paces, rollouts and ways back, what was used of every limit, and what past calls taught.

Kept every few seconds and at the end, with the spool's position at that moment. A restart
takes it up with its age, and charges what the ledger has behind that position: so no call is counted twice, and none is
forgotten. What calls held when the process ended is free again, but for those whose answer had begun: the ledger has them
as interrupted, at their estimate, behind that position like any other.

The accounts of the quota may be many (6 µs each), so between the snapshots that are taken while it runs they are told of some at a
time, each part with its own position.

A snapshot is for what there is: scopes and channels that are not configured any more are passed over, new ones are new. A park
is taken up only where the channel still has the same address and key.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
import trio
from attrs import define, field

from trioproxy.channel import ChannelState
from trioproxy.journal import BreakerMoved, ChannelParked, Event, RolloutMoved, Usage
from trioproxy.lifecycle import Line
from trioproxy.phases.admit import SENT, Admitter
from trioproxy.phases.expectation import Provider
from trioproxy.phases.walk import UNSENT
from trioproxy.policy.account import Account, Accounts
from trioproxy.policy.breaker import State
from trioproxy.policy.limits import Need
from trioproxy.policy.reservation import Path, Rank, Scope, Step
from trioproxy.policy.standing import Standing
from trioproxy.store.store import Store
from trioproxy.supervisor import Supervisor

VERSION = 2
PART = 250  # accounts that are told of in one step: 1.5 ms
TOGETHER = 10  # parts in one row: 0.7 MB, and no thread holds Python's lock for longer than a few milliseconds
_MOVES = (BreakerMoved, ChannelParked, RolloutMoved)  # what is kept at once
_UNSENT = {kind.value for kind in UNSENT}
PIECE = "quota from part "
LEISURE = 3e-4  # seconds between two snapshots for every account: they take no more than 2 % of a processor
_BROKEN = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    msgspec.DecodeError,
)  # what reading a snapshot that is none may raise
Kept = tuple[float, int, bytes]  # when (Unix seconds), at which position, and what, as JSON
_READ = (
    "position",
    "started",
    "ended",
    "key_id",
    "tenant",
    "end_user",
    "model",
    "fallback",
    "channel",
    "input",
    "cached",
    "output",
    "cost",
)


@define(eq=False)
class Memory:
    """The live state of one gateway and the store that keeps it. `wall` is Unix seconds."""

    store: Store
    supervisor: Supervisor
    line: Line
    wall: Callable[[], float]
    _moved: trio.Event = field(init=False, factory=trio.Event)
    _last: dict[str, Any] = field(init=False, factory=dict)  # what was kept of the quota
    _since: int = field(init=False, default=0)  # what the ledger has behind that is not in the snapshot,
    _positions: dict[tuple[str, str], int] = field(
        init=False, factory=dict
    )  # but for these scopes: those are told of later

    async def run(self, every: float) -> None:
        """Keep the state every so many seconds, and a channel that goes out or comes back at once; until cancelled."""
        self.line.journal.subscribe(self._hear, *_MOVES)
        try:
            while True:
                pause = max(every, LEISURE * len(self.supervisor.quota.state.quota.accounts))
                until = trio.current_time() + pause
                while trio.current_time() < until:
                    with trio.move_on_at(until):
                        await self._moved.wait()
                        self._moved = trio.Event()
                        await trio.lowlevel.checkpoint()  # what moved together is kept together
                        self._keep(await self.supervisor.channels.decide(self._channels))
                await self.look()
        finally:
            self.line.journal.unsubscribe(self._hear)

    def _hear(self, _event: Event) -> None:
        self._moved.set()

    async def look(self) -> None:
        """Keep the state as it is now, a part at a time. Cancelled, what was kept before stays."""
        quota = self.supervisor.quota
        await self._settled()
        since, accounts = self.store.position, list(quota.state.quota.accounts)
        parts = []
        for start in range(0, len(accounts), PART):
            await self._settled()
            parts.append(self._part(accounts[start : start + PART]))
        channels = await self.supervisor.channels.decide(self._channels)
        self._keep(channels, self._quota(since, parts))

    async def _settled(self) -> None:
        """Whoever was inside has left, and what was posted meanwhile is done: all that has ended is settled, until the next pause."""
        await trio.lowlevel.checkpoint()
        while self.supervisor.quota.busy:  # not taken without need: what ends meanwhile would have to wait for a step
            async with self.supervisor.quota.held():
                pass

    def keep(self) -> None:
        """Keep the state now: at the end, when nobody is inside any more."""
        position, accounts = self.store.position, self.supervisor.quota.state.quota.accounts
        self._keep(self._channels(), self._quota(position, [self._part(accounts)]))

    def _keep(self, channels: dict[str, Any], quota: dict[str, Any] | None = None) -> None:
        """`quota` is as before where none is given: the ledger has what came behind it."""
        traffic = {"version": VERSION, **self.supervisor.traffic.state.snapshot(trio.current_time())}
        self._last = self._last if quota is None else quota
        self.store.keep({"channels": channels, "traffic": traffic, **self._last})

    def _quota(self, since: int, parts: list[msgspec.Raw]) -> dict[str, Any]:
        state = self.supervisor.quota.state
        return {
            "quota": {"version": VERSION, "since": since, "told": state.nearing.snapshot()},
            "learned": {"version": VERSION, **state.learned.snapshot()},
            **{f"{PIECE}{start}": parts[start : start + TOGETHER] for start in range(0, len(parts), TOGETHER)},
        }

    def _part(self, accounts: Iterable[Account]) -> msgspec.Raw:
        """Some accounts, with the moment that they are told of; in few bytes rather than in many objects."""
        wall = self.wall()
        limiters = self.supervisor.quota.state.quota.snapshot(trio.current_time(), wall, accounts)
        return msgspec.Raw(msgspec.json.encode([self.store.position, wall, limiters]))

    def _channels(self) -> dict[str, Any]:
        now = trio.current_time()
        states = self.supervisor.channels.state
        return {"version": VERSION, "channels": {name: _kept(state, now) for name, state in states.items()}}

    def restore(self) -> list[str]:
        """Take up what was kept, before anything is served; what could not be read is told, and begins anew."""
        kept = self.store.recalled()
        troubles = []
        taken: dict[str, Callable[[Mapping[str, Any], float], None]] = {
            "channels": self._take_channels,
            "traffic": self._take_traffic,
            "quota": partial(self._take_quota, kept),
            "learned": self._take_learned,
        }
        for family, take in taken.items():
            if family not in kept:
                continue
            at, _, text = kept[family]
            try:
                body = msgspec.json.decode(text)
                if body["version"] > VERSION:
                    raise ValueError(f"a newer version wrote it ({body['version']})")
                take(body, max(0.0, self.wall() - at))
            except _BROKEN as exc:
                troubles.append(f"what was kept of {family} cannot be read and begins anew: {exc!r}")
        self._charge()
        self.keep()
        return troubles

    def _take_channels(self, body: Mapping[str, Any], age: float) -> None:
        now = trio.current_time()
        for name, state in self.supervisor.channels.state.items():
            if name in body["channels"]:
                _taken(state, body["channels"][name], now, age)
                if state.breaker.state is not State.CLOSED:
                    self._tell(state, now)

    def _tell(self, state: ChannelState, now: float) -> None:
        """A process begins with closed breakers, so that this one is not is news: to the log, to alerts, to the way back."""
        until = state.breaker.until if state.breaker.state is State.OPEN else None
        moved = BreakerMoved(state.name, State.CLOSED.value, state.breaker.state.value, now, until)
        self.line.journal.emit(moved)

    def _take_traffic(self, body: Mapping[str, Any], age: float) -> None:
        unread = self.supervisor.traffic.state.restore(body, trio.current_time())
        if unread:
            raise ValueError(f"of the models {', '.join(unread)}")

    def _take_learned(self, body: Mapping[str, Any], age: float) -> None:
        self.supervisor.quota.state.learned.restore(body)

    def _take_quota(self, kept: Mapping[str, Kept], body: Mapping[str, Any], age: float) -> None:
        """Where it cannot be read, the ledger tells what was used, all of it."""
        admitter, state = self.line.admitter, self.supervisor.quota.state
        if admitter is None:
            return
        accounts, now, wall = Accounts(), trio.current_time(), self.wall()
        parts = [
            part for name, piece in kept.items() if name.startswith(PIECE) for part in msgspec.json.decode(piece[2])
        ]
        positions = {(rank, name): int(at) for at, _, limiters in parts for rank, name, *_ in limiters}
        steps = _steps(admitter, positions)
        for _, at, limiters in parts:
            accounts.restore(limiters, steps, now, wall=wall, age=max(0.0, wall - at))
        self._since, self._positions = int(body["since"]), positions
        state.quota.accounts = accounts
        state.nearing.restore(body["told"])

    def _charge(self) -> None:
        """Count what was answered behind the snapshot, each call at its own time, and at each scope behind its own part."""
        admitter = self.line.admitter
        if admitter is None:
            return
        quota, now, wall = self.supervisor.quota.state.quota, trio.current_time(), self.wall()
        for (
            position,
            began,
            ended,
            key_id,
            tenant,
            user,
            model,
            stand_in,
            channel,
            *tokens,
            cost,
        ) in self.store.calls_since(self._since, _READ):
            usage = Usage(*tokens)
            whole = usage.input + usage.cached
            need = Need(1, whole, usage.output, whole + usage.output, cost or 0, 0)
            at = now - max(0.0, wall - ended)
            steps = self._callers(admitter, (key_id, tenant, user), stand_in or model)
            quota.charge(self._behind(position, steps), need, at, began)
            provider: Provider | None = admitter.providers.get(channel)
            if provider is not None and provider.step is not None:
                quota.charge(self._behind(position, (provider.step,)), provider.charge.used(usage), at, began)

        for position, began, ended, channel, fault in self.store.failures_since(self._since):
            provider = admitter.providers.get(channel)
            if provider is not None and provider.step is not None and fault not in _UNSENT:
                at = now - max(0.0, wall - ended)
                quota.charge(self._behind(position, (provider.step,)), SENT, at, began)

    def _behind(self, position: int, steps: tuple[Step, ...]) -> Path:
        """Those of the scopes that were told of before what stands at this position."""
        known = self._positions
        told = (known.get((step.scope.rank.value, step.scope.name), self._since) for step in steps)
        return Path(tuple(step for step, since in zip(steps, told, strict=True) if position >= since))

    def _callers(self, admitter: Admitter, caller: tuple[str, str, str], model: str) -> tuple[Step, ...]:
        key_id, tenant, user = caller
        scopes = admitter.scopes
        steps = scopes.callers(key_id, tenant)
        limits = scopes.end_users.get(tenant)
        if user and limits is not None:
            steps = (*steps, Step(Scope(Rank.END_USER, f"{tenant} / {user}"), limits))
        found = self.line.router.catalogue.find(model)
        return steps if found is None else (*steps, *scopes.models[found[0].model.name])


def _steps(admitter: Admitter, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Step]:
    """The configured steps by rank and name; of end users, who are in no configuration, those that are asked for."""
    scopes = admitter.scopes
    known = [*scopes.above]
    for steps in (*scopes.keys.values(), *scopes.tenants.values(), *scopes.models.values()):
        known += steps
    known += scopes.channels.values()
    found = {(step.scope.rank.value, step.scope.name): step for step in known}
    for rank, name in names:
        limits = scopes.end_users.get(name.partition(" / ")[0])
        if rank == Rank.END_USER.value and limits is not None:
            found[rank, name] = Step(Scope(Rank.END_USER, name), limits)
    return found


def _kept(state: ChannelState, now: float) -> dict[str, Any]:
    models = {name: standing.snapshot(now) for name, standing in state.models.items()}
    return {
        "account": _account(state),
        "breaker": state.breaker.snapshot(now),
        "pace": state.pace.snapshot(now),
        "standing": state.standing.snapshot(now),
        "models": {name: kept for name, kept in models.items() if kept is not None},
    }


def _taken(state: ChannelState, kept: Mapping[str, Any], now: float, age: float) -> None:
    state.breaker.restore(kept["breaker"], now, age)
    if kept["account"] != _account(state):  # somebody has given it another key or address: it deserves a try
        return
    if kept["standing"] is not None:
        state.standing.restore_from(kept["standing"], now, age)
    state.pace.restore(kept["pace"], now, age)  # limits are an account's
    for name, standing in kept["models"].items():
        state.models.setdefault(name, Standing()).restore_from(standing, now, age)


def _account(state: ChannelState) -> str:
    """Whether it is still the same account, without saying which."""
    return hashlib.blake2b(state.request_lines, digest_size=8, person=b"channel account"[:16]).hexdigest()
