"""Where a model's calls go now: its rollout's arms, its channels on their way back, and whom it asks first.

What a call needs of it is read when its chain is made, and changes nothing but the first sight of a channel that is back. It learns
from the journal, like any other observer: what became of each exchange, whose breaker opened, who was parked. Where a model has
neither a rollout nor a channel on its way back, a call costs two looks at empty places.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import trio
from attrs import define, field, frozen

from trioproxy.errors import Blame, FaultKind
from trioproxy.journal import (
    BreakerMoved,
    ChannelParked,
    EndReason,
    Event,
    ExchangeEnded,
    GrowthPaused,
    Journal,
    Reading,
    RolloutMoved,
    Switched,
)
from trioproxy.policy.access import Catalogue, matches
from trioproxy.policy.chain import LinkLike
from trioproxy.policy.comparison import Arm, Outcome
from trioproxy.policy.rollout import CANDIDATE, Move, Rollout, State, Verb
from trioproxy.policy.switchback import Returning
from trioproxy.policy.switching import Switching

_FAILED = {EndReason.CHAIN_EXHAUSTED, EndReason.DEADLINE, EndReason.CUT_AFTER_COMMIT, EndReason.REJECTED_UPSTREAM}
_FAILED |= {EndReason.DEGRADED, EndReason.DEFERRED}
REVIEW = 1.0  # seconds between two looks at the rollouts


@frozen
class ArmStatistics:
    """One arm since its step began. Shares are of 1, `p95` is seconds until the answer began, `mean_cost` micro-USD a call."""

    calls: int
    refused: float | None
    failed: float | None
    p95: float | None
    mean_cost: float | None

    @classmethod
    def of(cls, arm: Arm) -> "ArmStatistics":
        refused, failed = (count / arm.calls if arm.calls else None for count in (arm.refused, arm.failed))
        return cls(arm.calls, refused, failed, arm.p95, arm.mean_cost)


@frozen
class RolloutStatistics:
    """A reading of one rollout. `held` is seconds at this step, of `hold`; `verdict` is how the arms compare now."""

    model: str
    state: str
    percent: int
    steps: tuple[int, ...]
    held: float
    hold: float
    why: str
    verdict: str
    baseline: ArmStatistics
    candidate: ArmStatistics


@define(eq=False)
class ModelTraffic:
    """One model's. `own` has the links of each arm."""

    name: str
    journal: Journal
    switching: Switching
    returning: Returning
    rollout: Rollout | None = None
    key: str = "session"  # what keeps a caller in its arm
    own: Mapping[str, tuple[LinkLike, ...]] = field(factory=dict)

    def switched(self, channel: str, cause: str, now: float) -> None:
        """Its calls go to another channel first, "" for nobody."""
        was, weighed = self.switching.told, self.switching.move(channel, now)
        if weighed is not None:
            self.journal.emit(weighed)
        self.journal.emit(Switched(self.name, was, channel, cause, now))

    def outcome(self, event: ExchangeEnded) -> Outcome | None:
        """What an exchange says of its arm; None where it ended by no doing of the arm's.

        An arm has failed where none of its own links answered, though the caller may have been answered all the same.
        """
        last = event.attempts[-1] if event.attempts else None
        if event.reason in _FAILED:
            filtered = last is not None and last.fault is not None and last.fault.kind is FaultKind.CONTENT_FILTER
            return Outcome(refused=filtered, failed=not filtered)
        if event.reason is not EndReason.ANSWERED or last is None or last.first_content is None:
            return None
        links = self.own[event.arm]
        own = any(link.channel == last.channel and matches(link.model, last.model) for link in links)
        own = own and not event.fallback
        seconds = last.started + last.first_content - event.started
        return Outcome(event.refused and own, not own, seconds, event.cost if own else None)


@define(eq=False)
class Traffic:
    """All models'. Subscribe `heard` to the journal that it emits to."""

    models: Catalogue[ModelTraffic]
    rollouts: dict[str, Rollout]
    journal: Journal
    evidence: Mapping[str, Callable[[], Awaitable[str]]] = field(factory=dict)  # by model; "" where all is shown
    eager: frozenset[str] = frozenset()  # models whose rollout begins by itself
    _by_channel: dict[str, list[Returning]] = field(init=False, factory=dict)
    _channels: Mapping[str, frozenset[str]] = field(init=False, factory=dict)

    @classmethod
    def of(cls, models: Iterable[ModelTraffic], channels: Mapping[str, Iterable[str]], journal: Journal) -> "Traffic":
        """`channels` are those of each model, the candidate's included."""
        listed = tuple(models)
        rollouts = {model.name: model.rollout for model in listed if model.rollout is not None}
        traffic = cls(Catalogue.of(listed), rollouts, journal)
        traffic._channels = {name: frozenset(each) for name, each in channels.items()}
        for model in listed:
            for channel in set(channels[model.name]) if model.returning.policy.over else ():
                traffic._by_channel.setdefault(channel, []).append(model.returning)
        return traffic

    # Rollouts

    async def order(self, model: str, verb: Verb, *, force: bool = False) -> Move:
        """Do what an operator says; `force`: whatever the evidence.

        Raises `KeyError` for a model without a rollout, and `NoSuchMove`. Cancelled, nothing is done.
        """
        rollout = self.rollouts[model]
        asked = verb in {Verb.START, Verb.STEP} and not force
        objection = await self._objection(model) if asked else ""
        why = "by hand, by force" if force else "by hand"
        now = trio.current_time()
        return self._moved(model, rollout.order(verb, now, why, objection), now)

    async def _objection(self, model: str) -> str:
        """What stands against giving the candidate to more callers."""
        evidence = self.evidence.get(model)
        return "" if evidence is None else await evidence()

    async def review(self) -> None:
        """Let every rollout do what is due."""
        for model, rollout in self.rollouts.items():
            if model in self.eager and rollout.state is State.IDLE:
                await self._begin(model, rollout)
                continue
            now, objection = trio.current_time(), ""
            if rollout.due(now):
                objection = await self._objection(model)
            move = rollout.review(now, objection)
            if move is not None:
                self._moved(model, move, now)

    async def _begin(self, model: str, rollout: Rollout) -> None:
        objection = await self._objection(model)
        now = trio.current_time()
        if rollout.state is not State.IDLE:  # somebody was quicker
            return
        move = rollout.wait(objection) if objection else rollout.order(Verb.START, now, why="with the process")
        if move is not None:
            self._moved(model, move, now)

    async def watch(self) -> None:
        """Begin those rollouts that are `eager`, unless a snapshot knew better, and review all; until cancelled."""
        while True:
            await self.review()
            await trio.sleep(REVIEW)

    def snapshot(self, now: float) -> dict[str, dict[str, Any]]:
        """What a restart must not forget, as plain values by model: `rollouts`, `returning`, and who is asked `first`."""
        rollouts = {model: rollout.snapshot(now) for model, rollout in self.rollouts.items()}
        returning = {model.name: told for model in self._all() if (told := model.returning.snapshot(now))}
        first = {model.name: model.switching.first for model in self._all()}
        return {"rollouts": rollouts, "returning": returning, "first": first}

    def restore(self, told: Mapping[str, Mapping[str, Any]], now: float) -> list[str]:
        """Take up a snapshot. The models of which a part could not be read; that part begins anew."""
        unread = []
        for model in self._all():
            first = told.get("first", {}).get(model.name)
            if isinstance(first, str) and (not first or first in self._channels.get(model.name, ())):
                model.switching.first = model.switching.told = first  # that was told already
            parts: dict[str, Callable[[Any, float], None]] = {"returning": model.returning.restore}
            if model.rollout is not None:
                parts["rollouts"] = model.rollout.restore
            for name, restore in parts.items():
                part = told.get(name, {}).get(model.name)
                if part is not None and not _read_back(restore, part, now):
                    unread.append(model.name)
        return unread

    def _all(self) -> tuple[ModelTraffic, ...]:
        return (*self.models.exact.values(), *self.models.patterns)

    def statistics(self, now: float) -> dict[str, RolloutStatistics]:
        return {model: _statistics(model, rollout, now) for model, rollout in self.rollouts.items()}

    # Switches

    def readings(self, now: float) -> dict[str, dict[str, Reading]]:
        """Every channel's last minutes, by model."""
        return {model.name: model.switching.readings(now) for model in self._all()}

    # What is learned

    def heard(self, event: Event) -> None:
        """The journal's subscriber."""
        if isinstance(event, ExchangeEnded):
            if event.attempts or event.arm:
                self._ended(event)
        elif isinstance(event, BreakerMoved):
            if event.state == "open":
                self._left(event.channel)
        elif isinstance(event, ChannelParked) and event.kind != FaultKind.MODEL_NOT_FOUND.value:
            self._left(event.channel)

    def _left(self, channel: str) -> None:
        for returning in self._by_channel.get(channel, ()):
            returning.left(channel)

    def _ended(self, event: ExchangeEnded) -> None:
        found = self.models.find(event.model)
        if found is None:
            return
        model, now = found[0], event.started + event.duration
        if event.arm and model.rollout is not None:
            outcome = model.outcome(event)
            move = None if outcome is None else model.rollout.note(event.arm, outcome)
            if move is not None:
                self._moved(model.name, move, now)
        if model.returning.channels:
            self._noted(model, event, now)
        if event.attempts:
            self._read(model, event, now)

    def _noted(self, model: ModelTraffic, event: ExchangeEnded, now: float) -> None:
        """What attempts say of the channels that are on their way back."""
        for record in event.attempts:
            way = model.returning.channels.get(record.channel)
            fault = record.fault
            if way is None or (fault is not None and not (fault.counts or fault.blame is Blame.RATE)):
                continue
            kind = "" if fault is None else "rate" if fault.blame is Blame.RATE else "failed"
            why = way.note(now, kind)
            if why is not None:
                self.journal.emit(GrowthPaused(f"{record.channel} on its way back to {model.name}", why, now))

    def _read(self, model: ModelTraffic, event: ExchangeEnded, now: float) -> None:
        switching, last = model.switching, event.attempts[-1]
        if event.fallback:
            return  # what another model took tells nothing of this one
        if last.first_content is not None and last.fault is None:
            spent = event.usage, event.cost
            weighed = switching.answered(last.channel, last.started, last.first_content, spent)
            if weighed is not None:
                self.journal.emit(weighed)
        if event.arm == CANDIDATE or event.started < switching.changed:
            return
        first = event.attempts[0].channel
        if switching.settled(first):
            return
        limited = first != switching.first
        if limited and not any(channel == switching.first for channel, _ in event.skipped):
            return  # asked elsewhere for another reason: it is on its way back, but not for this caller yet
        if limited and last.first_content is None:
            return  # nobody answered, and it may have been another model's channel that failed last
        if switching.asked(limited=limited):
            model.switched(first, "limit" if limited else "recovered", now)

    def _moved(self, model: str, move: Move, now: float) -> Move:
        self.journal.emit(RolloutMoved(model, move.percent, move.state.value, move.why, now))
        return move


def _read_back(restore: Callable[[Any, float], None], part: object, now: float) -> bool:
    try:
        restore(part, now)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return True


def _statistics(model: str, rollout: Rollout, now: float) -> RolloutStatistics:
    verdict, why = rollout.verdict()
    return RolloutStatistics(
        model=model,
        state=rollout.state.value,
        percent=rollout.percent,
        steps=rollout.policy.steps,
        held=now - rollout.since if rollout.percent else 0.0,
        hold=rollout.policy.hold,
        why=rollout.why,
        verdict=why or verdict.value,
        baseline=ArmStatistics.of(rollout.baseline),
        candidate=ArmStatistics.of(rollout.candidate),
    )
