"""Who may ask for what: name patterns, the catalogue of public models, and the hash under which a key is known.

A pattern has at most one "*", which stands for any characters, none included. An exact name always wins over a pattern,
and among patterns the most specific one: the most literal characters, then the longest beginning. So what a name means
does not depend on the order of a file.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from attrs import frozen

# SHA-256 and no slow hash: what is hashed has 256 random bits, so there is nothing to guess, and it runs on every call.
HASH_PREFIX = "sha256:"


class Named(Protocol):
    """A model, as far as the catalogue is concerned."""

    @property
    def name(self) -> str: ...


M = TypeVar("M", bound=Named)


def matches(pattern: str, name: str) -> bool:
    return capture(pattern, name) is not None


def capture(pattern: str, name: str) -> str | None:
    """What "*" stands for in the name; "" for an exact match; None where the pattern does not match."""
    before, star, after = pattern.partition("*")
    if not star:
        return "" if pattern == name else None
    if len(name) < len(before) + len(after) or not name.startswith(before) or not name.endswith(after):
        return None
    return name[len(before) : len(name) - len(after)]


def overlap(one: str, other: str) -> bool:
    """Whether some name matches both patterns."""
    if "*" not in one:
        return matches(other, one)
    if "*" not in other:
        return matches(one, other)
    (head, _, tail), (head2, _, tail2) = one.partition("*"), other.partition("*")
    heads = head.startswith(head2) or head2.startswith(head)
    return heads and (tail.endswith(tail2) or tail2.endswith(tail))


def allows(patterns: Iterable[str], name: str) -> bool:
    for pattern in patterns:  # noqa: SIM110 - runs thrice a call, where a generator costs 1 µs more
        if pattern in ("*", name) or capture(pattern, name) is not None:
            return True
    return False


def key_hash(key: str) -> str:
    """How a caller's key is written in the configuration: "sha256:" and 64 hex digits."""
    return HASH_PREFIX + hashlib.sha256(key.encode()).hexdigest()


@frozen
class Catalogue(Generic[M]):
    """The public models, ready for look-up: one dict for names, and patterns in the order in which they win."""

    exact: Mapping[str, M]
    patterns: tuple[M, ...]

    @classmethod
    def of(cls, models: Iterable[M]) -> "Catalogue[M]":
        listed = tuple(models)
        patterns = sorted((model for model in listed if "*" in model.name), key=_rank)
        return cls({model.name: model for model in listed if "*" not in model.name}, tuple(patterns))

    def find(self, name: str) -> tuple[M, str | None] | None:
        """The model that answers for the name, and what its "*" stands for; None as the latter for an exact name."""
        model = self.exact.get(name)
        if model is not None:
            return model, None
        for model in self.patterns:
            captured = capture(model.name, name)
            if captured is not None:
                return model, captured
        return None

    def visible(self, key_patterns: Iterable[str]) -> tuple[str, ...]:
        """The names that a key may ask for, sorted. Patterns stand for names that nobody can list, and are left out."""
        patterns = tuple(key_patterns)
        return tuple(sorted(name for name in self.exact if allows(patterns, name)))


def _rank(model: Named) -> tuple[int, int]:
    return -len(model.name), -model.name.index("*")
