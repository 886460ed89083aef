"""A provider with a limit of requests per minute: a bucket that refuses with 429, and tells about itself if it wants to.

Capacity is a minute's worth. `limit` may be set at any moment; `quirk` refuses whatever is left.
"""

import trio
from attrs import define, field

from tests.fakes import steps
from tests.fakes.upstream import Exchange, Headers


@define(eq=False)
class Metered:
    """A step for an upstream's script. `answered` and `refused` are when, on Trio's clock."""

    limit: int
    tells: bool = False
    retry_after: str | None = None
    quirk: bool = field(default=False)
    answered: list[float] = field(init=False, factory=list)
    refused: list[float] = field(init=False, factory=list)
    _level: float = field(init=False)
    _at: float = field(init=False, default=0.0)

    def __attrs_post_init__(self) -> None:
        self._level = self.limit

    async def __call__(self, x: Exchange) -> None:
        now = trio.current_time()
        self._level = min(self.limit, self._level + (now - self._at) * self.limit / 60)
        self._at = now
        if self.quirk or self._level < 1 - 1e-9:
            self.refused.append(now)
            asked = [] if self.retry_after is None else [("retry-after", self.retry_after)]
            await steps.error(429, headers=[*self._headers(), *asked])(x)
            return
        self._level -= 1
        self.answered.append(now)
        await steps.chat_answer("hello", headers=self._headers())(x)

    def _headers(self) -> Headers:
        if not self.tells:
            return []
        return [
            ("x-ratelimit-limit-requests", str(self.limit)),
            ("x-ratelimit-remaining-requests", str(int(self._level))),
            ("x-ratelimit-reset-requests", f"{(self.limit - self._level) * 60 / self.limit:.3f}s"),
        ]
