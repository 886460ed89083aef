"""The chain: which channels may answer a request, in which order, and why.

Ordering is static and done once per model: `order_links` ranks a model's links, cheapest first or as listed, the same for
every caller. Per request `bind` fills in what a wildcard matched and `build` leaves out the channels that may not be asked
now, then cuts: a skipped channel does not use up a place. Whoever reads a chain reads each step's reason with it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from attrs import evolve, frozen

# Input to output tokens 3:1, the mix at which price comparisons of models are usually blended.
INPUT_SHARE = 0.75
OUTPUT_SHARE = 0.25


class LinkLike(Protocol):
    """A channel in a model's chain, and the provider's name for the model."""

    @property
    def channel(self) -> str: ...
    @property
    def model(self) -> str: ...


class PriceLike(Protocol):
    """USD per million tokens."""

    @property
    def input(self) -> float: ...
    @property
    def output(self) -> float: ...


@frozen
class Candidate:
    """One link in its place. `model` may still hold the "*" of a wildcard; `price` is blended, None if unknown.

    `bound`: the model's name has a part in it that the caller chose. `resort`: it is asked although it is out, because everybody is.
    """

    channel: str
    model: str
    reason: str
    price: float | None = None
    bound: bool = False
    resort: bool = False


@frozen
class Chain:
    """The steps in the order they are tried; who was skipped and why; who came too late for a place."""

    steps: tuple[Candidate, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    beyond: tuple[Candidate, ...] = ()
    left_out: tuple[Candidate, ...] = ()  # the skipped ones, in the same order


def blended(price: PriceLike) -> float:
    """One figure to compare by: USD per million tokens of the usual mix."""
    return INPUT_SHARE * price.input + OUTPUT_SHARE * price.output


def order_links(links: Sequence[LinkLike], prices: Mapping[str, PriceLike | None], order: str) -> tuple[Candidate, ...]:
    """The links as candidates. `order` is "cost" or "listed"; `prices` is by channel, and a missing one is unknown.

    By cost, equal prices and unknown ones stay as listed, the unknown ones last: nobody is preferred for not telling.
    """
    if order != "cost":
        return tuple(_candidate(link, prices, f"listed {_ordinal(place)}") for place, link in enumerate(links, 1))
    ranked = sorted(links, key=lambda link: _rank(prices.get(link.channel)))
    return tuple(
        _candidate(link, prices, _why(prices.get(link.channel), place)) for place, link in enumerate(ranked, 1)
    )


def bind(candidates: tuple[Candidate, ...], captured: str | None) -> tuple[Candidate, ...]:
    """The candidates with "*" replaced by what the wildcard matched."""
    if captured is None:
        return candidates
    return tuple(
        evolve(candidate, model=candidate.model.replace("*", captured), bound="*" in candidate.model)
        for candidate in candidates
    )


def build(candidates: Iterable[Candidate], skip: Callable[[Candidate], str | None], limit: int) -> Chain:
    """At most `limit` steps. `skip` says why a candidate may not be asked now, or None; it is asked once per candidate."""
    steps: list[Candidate] = []
    skipped: list[tuple[str, str]] = []
    beyond: list[Candidate] = []
    left_out: list[Candidate] = []
    for candidate in candidates:
        if len(steps) >= limit:
            beyond.append(candidate)
            continue
        why = skip(candidate)
        if why is None:
            steps.append(candidate)
        else:
            skipped.append((candidate.channel, why))
            left_out.append(candidate)
    return Chain(tuple(steps), tuple(skipped), tuple(beyond), tuple(left_out))


def resort(chain: Chain, wait: Callable[[Candidate], float | None]) -> Chain:
    """The same chain with the one of the left out that is back soonest in it. `wait` is None for who may not be asked at all."""
    waits = [(seconds, place) for place, each in enumerate(chain.left_out) if (seconds := wait(each)) is not None]
    if not waits:
        return chain
    _, chosen = min(waits)
    rest = [place for place in range(len(chain.left_out)) if place != chosen]
    return Chain(
        (evolve(chain.left_out[chosen], resort=True),),
        tuple(chain.skipped[place] for place in rest),
        chain.beyond,
        tuple(chain.left_out[place] for place in rest),
    )


def _candidate(link: LinkLike, prices: Mapping[str, PriceLike | None], reason: str) -> Candidate:
    price = prices.get(link.channel)
    return Candidate(link.channel, link.model, reason, None if price is None else blended(price))


def _rank(price: PriceLike | None) -> tuple[bool, float]:
    return (True, 0.0) if price is None else (False, blended(price))


def _why(price: PriceLike | None, place: int) -> str:
    if price is None:
        return "price unknown: last"
    rank = "cheapest" if place == 1 else f"{_ordinal(place)} by cost"
    return f"{rank}: {price.input:.2f} in / {price.output:.2f} out USD per Mtok"


def _ordinal(place: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(place, f"{place}th")
