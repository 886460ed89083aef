"""Where to: the model's chain, minus the channels that may not be asked now.

The order was fixed at start, so every caller gets the same; only who is left out changes. Looking at a breaker costs nothing
and changes nothing: the permit is taken when an attempt begins.
"""

from collections.abc import Iterable

from attrs import define, frozen

from trioproxy.call import Call, Caller
from trioproxy.channel import ChannelState
from trioproxy.config.model import Channel, Model
from trioproxy.errors import Blame, ChainExhausted, Fault, FaultKind, Refusal, RefusalKind
from trioproxy.family import Family
from trioproxy.policy.access import Catalogue, allows
from trioproxy.policy.chain import Candidate, Chain, bind, build, order_links, resort


@frozen
class Route:
    """One public model and its candidates in order."""

    name: str
    model: Model
    candidates: tuple[Candidate, ...]


@define(eq=False)
class Router:
    """The models of one configuration, over the live state of its channels."""

    catalogue: Catalogue[Route]
    channels: Family[dict[str, ChannelState]]

    @classmethod
    def of(
        cls, models: Iterable[Model], configured: Iterable[Channel], channels: Family[dict[str, ChannelState]]
    ) -> "Router":
        prices = {channel.name: channel.price for channel in configured}
        routes = (Route(m.name, m, order_links(m.channels, prices, m.order)) for m in models)
        return cls(Catalogue.of(routes), channels)

    async def chain(self, call: Call, now: float) -> tuple[Route, Chain]:
        """The chain for a call. A model that the caller may not use looks like one that does not exist."""
        name = call.facts.model
        found = self.catalogue.find(name) if allows(call.caller.models, name) else None
        if found is None:
            message = (
                f"the model {name!r} does not exist or this API key has no access to it; GET /v1/models lists yours"
            )
            raise Refusal(RefusalKind.MODEL_NOT_FOUND, message, param="model")
        route, captured = found
        return route, await self.channels.decide(self._build, route, captured, now)

    def _build(self, route: Route, captured: str | None, now: float) -> Chain:
        state = self.channels.state
        chain = build(
            bind(route.candidates, captured),
            lambda candidate: state[candidate.channel].passed_over(candidate.model, now),
            route.model.chain_max,
        )
        if chain.steps:
            return chain
        breakers = route.model.when_out == "last-resort"
        guesses = len({candidate.channel for candidate in route.candidates}) > 1
        return resort(
            chain,
            lambda candidate: state[candidate.channel].resort_in(
                candidate.model, now, breakers=breakers, guesses=guesses
            ),
        )

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
