"""A family of live state and its lock: synchronous objects that are shared between exchanges.

The objects inside decide alone, so a decision waits for nobody but a holder that must await inside (a snapshot, a change of
configuration). No lock is ever held across an upstream call. What must not be cancelled (a result, a returned slot) is
`post`ed: done at once, or by the present holder when it leaves.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Generic, ParamSpec, TypeVar

import trio
from attrs import define, field

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


@define(eq=False)
class Family(Generic[T]):
    """One family of live state and its lock."""

    state: T
    _lock: trio.Lock = field(init=False, factory=trio.Lock)
    _posted: deque[Callable[[], None]] = field(init=False, factory=deque)

    @property
    def busy(self) -> bool:
        """Whether somebody is inside."""
        return self._lock.locked()

    async def decide(self, decision: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a synchronous decision with the family locked. Cancelled only before it began.

        Where nobody is inside, the decision is made without taking the lock: nothing can come between its steps anyway.
        """
        if not self._lock.locked():
            return decision(*args, **kwargs)
        async with self.held():
            return decision(*args, **kwargs)

    def post(self, change: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Make a change that nothing may cancel: now, or when the present holder leaves."""
        if self._lock.locked():
            self._posted.append(partial(change, *args, **kwargs))
        else:
            change(*args, **kwargs)

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[T]:
        """The family, locked, for a section that must await. Never across an upstream call."""
        await self._lock.acquire()
        try:
            yield self.state
        finally:
            self._release()

    def _release(self) -> None:
        try:
            while self._posted:
                self._posted.popleft()()
        finally:  # a bug in one change keeps neither the others nor the lock
            if self._posted:
                self._release()
            else:
                self._lock.release()
