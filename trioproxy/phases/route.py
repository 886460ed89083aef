"""Where to: the model's chain, minus the channels that may not be asked now.

The order was fixed at start, so every caller gets the same; only who is left out changes. Two things come between, each sticky by
the caller: during a rollout some have the candidate's chain, and a channel that has been out comes back to some before others.
Looking at a breaker costs nothing and changes nothing: the permit is taken when an attempt begins.
"""

from collections.abc import Iterable

from attrs import define, frozen

from trioproxy.call import Call, Caller
from trioproxy.channel import ChannelState
from trioproxy.config.model import Model
from trioproxy.errors import Blame, ChainExhausted, Fault, FaultKind, Refusal, RefusalKind
from trioproxy.family import Family
from trioproxy.policy.access import Catalogue, allows
from trioproxy.policy.chain import Candidate, Chain, bind, build, resort
from trioproxy.policy.rollout import BASELINE, CANDIDATE
from trioproxy.traffic import ModelTraffic

NOBODY = "anonymous"  # the id of callers without a key


@frozen
class Route:
    """One public model and its candidates in order; `candidate` is its rollout's chain, the baseline's behind it."""

    name: str
    model: Model
    candidates: tuple[Candidate, ...]
    traffic: ModelTraffic
    candidate: tuple[Candidate, ...] = ()


@define(eq=False)
class Router:
    """The models of one configuration, over the live state of its channels."""

    catalogue: Catalogue[Route]
    channels: Family[dict[str, ChannelState]]

    async def chain(self, call: Call, now: float, name: str = "") -> tuple[Route, Chain]:
        """The chain for a call, or for another model in place of its own.

        A model that the caller may not use looks like one that does not exist.
        """
        name = name or call.facts.model
        found = self.catalogue.find(name) if allows(call.caller.models, name) else None
        if found is None:
            message = (
                f"the model {name!r} does not exist or this API key has no access to it; GET /v1/models lists yours"
            )
            raise Refusal(RefusalKind.MODEL_NOT_FOUND, message, param="model")
        route, captured = found
        return route, await self.channels.decide(self._build, route, captured, call, now)

    def now(self, name: str, call: Call, now: float) -> Chain:
        """The chain of a model that was found before, as it is by now. Whom it passes over was counted when it was found."""
        found = self.catalogue.find(name)
        assert found is not None, "a model is there as long as its configuration"
        return self._build(*found, call, now, counted=True)

    def _build(self, route: Route, captured: str | None, call: Call, now: float, *, counted: bool = False) -> Chain:
        state, traffic = self.channels.state, route.traffic
        arm = "" if traffic.rollout is None else traffic.rollout.arm(sticky_key(call, traffic.key))
        candidates = bind(route.candidate if arm == CANDIDATE else route.candidates, captured)

        def objection(candidate: Candidate) -> str | None:
            channel = state[candidate.channel]
            return channel.objection(candidate.model, now) if counted else channel.passed_over(candidate.model, now)

        if traffic.returning.channels:
            chain, first = self._switching_back(route, build(candidates, objection, len(candidates), arm), call, now)
        else:
            chain = build(candidates, objection, route.model.chain_max, arm)
            first = chain.steps[0].channel if chain.steps else ""
        if first != traffic.switching.first and arm != CANDIDATE:
            self._switched(route, chain, now)
        return chain if chain.steps else self._resort(route, chain, now)

    def _resort(self, route: Route, chain: Chain, now: float) -> Chain:
        """The chain where nobody may be asked: with the one who may be asked all the same, if there is one."""
        state = self.channels.state
        breakers = route.model.when_out == "last-resort"
        guesses = len({candidate.channel for candidate in route.candidates}) > 1
        return resort(
            chain,
            lambda candidate: state[candidate.channel].resort_in(
                candidate.model, now, breakers=breakers, guesses=guesses
            ),
        )

    def _switching_back(self, route: Route, chain: Chain, call: Call, now: float) -> tuple[Chain, str]:
        """The chain with who is on the way back put last, where this caller does not have it back yet.

        And whom it would ask first if nobody were on the way back.
        """
        returning = route.traffic.returning
        first = chain.steps[0].channel if chain.steps else ""
        tried = ""
        for step in chain.steps:
            channel = self.channels.state[step.channel]
            trial = channel.on_trial
            if not channel.probing and returning.begin(step.channel, now) and trial:
                tried = tried or step.channel  # somebody has to find out whether it is back
        ordered = chain if tried else returning.order(chain, sticky_key(call, "session"), now)
        return returning.cut(ordered, route.model.chain_max), first

    def _switched(self, route: Route, chain: Chain, now: float) -> None:
        """Tell the journal, where another channel really is the first choice and not only tried."""
        state, traffic = self.channels.state, route.traffic
        there = {step.channel for step in chain.steps}
        names = [each.channel for each in route.candidates if each.channel in there]
        first = next((name for name in names if not state[name].on_trial), traffic.switching.first if names else "")
        was = traffic.switching.first
        if first == was:
            return
        traffic.switching.first = first
        model = next((each.model for each in route.candidates if each.channel == was), "")
        cause = state[was].trouble(model, now) if was else ""
        if not cause:
            cause = "ramp" if first in traffic.returning.channels else "recovered"
        traffic.switched(first, cause, now)

    def preview(self, name: str, session: tuple[str, str] | None, now: float) -> dict[str, Chain]:
        """What a call for this model would be given now, by arm; "" where there is no rollout. Changes nothing.

        Where a `session` is given, as (tenant, session), only its own arm, in its own order; else nobody is taken for one who
        has a channel back. Raises `KeyError` where no model answers to the name.
        """
        found = self.catalogue.find(name)
        if found is None:
            raise KeyError(name)
        route, captured = found
        traffic, state = route.traffic, self.channels.state
        key = "" if session is None else _session_key(*session)
        arms = {"" if traffic.rollout is None else BASELINE: route.candidates}
        if route.candidate:
            arms[CANDIDATE] = route.candidate
        if session is not None and traffic.rollout is not None:
            own = (traffic.rollout.arm(key) or BASELINE) if traffic.key == "session" else BASELINE
            arms = {own: arms[own]}
        chains = {}
        for arm, candidates in arms.items():
            bound = bind(candidates, captured)
            chain = build(bound, lambda each: state[each.channel].objection(each.model, now), len(bound), arm)
            chains[arm] = traffic.returning.cut(traffic.returning.order(chain, key, now), route.model.chain_max)
        return chains

    def visible(self, caller: Caller) -> tuple[str, ...]:
        """The models that a caller may list."""
        return self.catalogue.visible(caller.models)

    def knows(self, caller: Caller, name: str) -> bool:
        """Whether a caller may ask for this name, listed or covered by a pattern."""
        return allows(caller.models, name) and self.catalogue.find(name) is not None

    def exhausted(self, chain: Chain, faults: Iterable[Fault], now: float, *, deadline: bool) -> ChainExhausted:
        """Why nobody answered, and when it is worth asking again.

        Where every channel is skipped for one and the same reason, that is the answer, as it was when they were asked: the
        provider wants to be left in peace, or does not know the model.
        """
        waits = [self._back_in(candidate, now) for candidate in (*chain.steps, *chain.left_out)]
        known = [wait for wait in waits if wait]
        told = tuple(faults)
        if not told and chain.left_out and not chain.steps:
            told = self._in_common(chain.left_out, now)
        return ChainExhausted(told, retry_after=min(known) if known else None, deadline=deadline)

    def _in_common(self, skipped: tuple[Candidate, ...], now: float) -> tuple[Fault, ...]:
        state = self.channels.state
        if all(state[candidate.channel].standing.cooling(now) for candidate in skipped):
            return (Fault(FaultKind.RATE_LIMITED, Blame.RATE, "every channel of this model is cooling down", 429),)
        if all(state[candidate.channel].lacks(candidate.model, now) for candidate in skipped):
            return (Fault(FaultKind.MODEL_NOT_FOUND, Blame.KEY, "no channel has this model", 404),)
        return ()

    def _back_in(self, candidate: Candidate, now: float) -> float | None:
        return self.channels.state[candidate.channel].back_in(candidate.model, now)


def sticky_key(call: Call, by: str) -> str:
    """What keeps a caller in its place. `by` "session": the session that it names, else its end user, else its key.

    "user" begins with the end user, "tenant" is the tenant. Who names nothing and has no key is somebody else at every call.
    """
    caller = call.caller
    if by == "tenant" and caller.key_id != NOBODY:
        return f"tenant {caller.tenant}"
    if by == "session" and call.session:
        return _session_key(caller.tenant, call.session)
    if by != "tenant" and call.facts.user:
        return f"user {caller.tenant} {call.facts.user}"
    return f"request {call.request_id}" if caller.key_id == NOBODY else f"key {caller.key_id}"


def _session_key(tenant: str, session: str) -> str:
    return f"session {tenant} {session}"
