"""Callers with limits, and what is left of them: the vocabulary of the quota's cases."""

import hashlib

from tests.fakes.upstream import Headers
from tests.scene import Scene
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank


def key(name: str = "k", rest: str = "") -> str:
    """A `[[keys]]` table; `rest` is what else stands in it."""
    return f'[[keys]]\nid = "{name}"\nhash = "sha256:{hashlib.sha256(name.encode()).hexdigest()}"\n{rest}\n'


def tenant(rest: str, name: str = "acme") -> str:
    return f'[[tenants]]\nname = "{name}"\n{rest}\n'


def bearer(name: str = "k") -> Headers:
    return [("authorization", f"Bearer {name}")]


def left(s: Scene, rank: Rank, dimension: Dimension, name: str | None = None) -> int:
    """What remains at the one limiter of this kind that calls have met."""
    (found,) = [
        gauge
        for gauge in s.gateway.limits()
        if (gauge.scope.rank, gauge.dimension) == (rank, dimension) and name in (None, gauge.scope.name)
    ]
    return found.remaining
