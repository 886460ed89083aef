"""What a restart remembers: breakers, standings, rollouts and ways back, what was used of every limit, and what past calls taught.

Kept every few seconds and at the end, in one synchronous step per family, with the spool's position at that moment. A restart
takes it up with its age, and charges what the ledger has behind that position: so no call is counted twice, and none is
forgotten. What calls held when the process ended is free again, but for those whose answer had begun: the ledger has them
as interrupted, at their estimate, behind that position like any other.

A snapshot is for what there is: scopes and channels that are not configured any more are passed over, new ones are new. A park
is taken up only where the channel still has the same address and key.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import trio
from attrs import define

from trioproxy.channel import ChannelState
from trioproxy.journal import BreakerMoved, Usage
from trioproxy.lifecycle import Line
from trioproxy.phases.admit import Admitter
from trioproxy.phases.expectation import Provider
from trioproxy.policy.breaker import State
from trioproxy.policy.limits import Need
from trioproxy.policy.reservation import Path, Rank, Scope, Step
from trioproxy.policy.standing import Standing
from trioproxy.store.store import Store
from trioproxy.supervisor import Supervisor

VERSION = 1
_BROKEN = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    msgspec.DecodeError,
)  # what reading a snapshot that is none may raise
_READ = (
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

    async def run(self, every: float) -> None:
        """Keep the state every so many seconds, until cancelled."""
        while True:
            await trio.sleep(every)
            channels = await self.supervisor.channels.decide(self._channels)
            async with self.supervisor.quota.held():
                pass  # whoever was inside has left, and what was posted meanwhile is done: all that has ended is settled
            # From here on without a pause: the position goes with the quota.
            self.store.keep({"channels": channels, "traffic": self._traffic(), **self._quota()})

    def keep(self) -> None:
        """Keep the state now: at the end, when nobody is inside any more."""
        self.store.keep({"channels": self._channels(), "traffic": self._traffic(), **self._quota()})

    def _channels(self) -> dict[str, Any]:
        now = trio.current_time()
        states = self.supervisor.channels.state
        return {"version": VERSION, "channels": {name: _kept(state, now) for name, state in states.items()}}

    def _traffic(self) -> dict[str, Any]:
        return {"version": VERSION, **self.supervisor.traffic.state.snapshot(trio.current_time())}

    def _quota(self) -> dict[str, Any]:
        state, now = self.supervisor.quota.state, trio.current_time()
        return {
            "quota": {"version": VERSION, "limiters": state.quota.snapshot(now, self.wall())},
            "learned": {"version": VERSION, **state.learned.snapshot()},
        }

    def restore(self) -> list[str]:
        """Take up what was kept, before anything is served; what could not be read is told, and begins anew."""
        kept = self.store.recalled()
        troubles = []
        taken: dict[str, Callable[[Mapping[str, Any], float], None]] = {
            "channels": self._take_channels,
            "traffic": self._take_traffic,
            "quota": self._take_quota,
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
        self._charge(kept["quota"][1] if "quota" in kept else 0)
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

    def _take_quota(self, body: Mapping[str, Any], age: float) -> None:
        admitter = self.line.admitter
        if admitter is None:
            return
        accounts = self.supervisor.quota.state.quota.accounts
        names = {(rank, name) for rank, name, *_ in body["limiters"]}
        steps = _steps(admitter, names)
        accounts.restore(body["limiters"], steps, trio.current_time(), wall=self.wall(), age=age)

    def _charge(self, position: int) -> None:
        """Count what was answered behind the snapshot, each call at its own time."""
        admitter = self.line.admitter
        if admitter is None:
            return
        quota, now, wall = self.supervisor.quota.state.quota, trio.current_time(), self.wall()
        for began, ended, key_id, tenant, user, model, stand_in, channel, *tokens, cost in self.store.calls_since(
            position, _READ
        ):
            usage = Usage(*tokens)
            whole = usage.input + usage.cached
            need = Need(1, whole, usage.output, whole + usage.output, cost or 0, 0)
            at = now - max(0.0, wall - ended)
            path = Path(self._callers(admitter, (key_id, tenant, user), stand_in or model))
            quota.charge(path, need, at, began)
            provider: Provider | None = admitter.providers.get(channel)
            if provider is not None and provider.step is not None:
                quota.charge(Path((provider.step,)), provider.charge.used(usage), at, began)

    def _callers(self, admitter: Admitter, caller: tuple[str, str, str], model: str) -> tuple[Step, ...]:
        key_id, tenant, user = caller
        scopes = admitter.scopes
        steps = scopes.callers(key_id, tenant)
        limits = scopes.end_users.get(tenant)
        if user and limits is not None:
            steps = (*steps, Step(Scope(Rank.END_USER, f"{tenant} / {user}"), limits))
        found = self.line.router.catalogue.find(model)
        return steps if found is None else (*steps, *scopes.models[found[0].model.name])


def _steps(admitter: Admitter, names: set[tuple[str, str]]) -> dict[tuple[str, str], Step]:
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
        "standing": state.standing.snapshot(now),
        "models": {name: kept for name, kept in models.items() if kept is not None},
    }


def _taken(state: ChannelState, kept: Mapping[str, Any], now: float, age: float) -> None:
    state.breaker.restore(kept["breaker"], now, age)
    if kept["account"] != _account(state):  # somebody has given it another key or address: it deserves a try
        return
    if kept["standing"] is not None:
        state.standing.restore_from(kept["standing"], now, age)
    for name, standing in kept["models"].items():
        state.models.setdefault(name, Standing()).restore_from(standing, now, age)


def _account(state: ChannelState) -> str:
    """Whether it is still the same account, without saying which."""
    return hashlib.blake2b(state.request_lines, digest_size=8, person=b"channel account"[:16]).hexdigest()
