"""A stream that was begun before it was decided, for clients behind proxies that cut a silent connection.

A class asks for it with `keepalive_after`. The price is the status: a 200 has gone out, so a chain that fails afterwards can
only say so inside the stream. Until then comments keep the connection warm; every SDK's decoder passes over them. They are
sent between frames only, since not one frame has come yet.
"""

from collections.abc import Callable

import trio
from attrs import define, field

from trioproxy.call import Call
from trioproxy.codec.problem import problem_of
from trioproxy.errors import AttemptError
from trioproxy.phases.problems import degraded, problem
from trioproxy.phases.relay import DRAINED
from trioproxy.phases.walk import Walk

COMMENT = b": keepalive\n\n"


@define(eq=False)
class Keepalive:
    """The body of such a stream. `receive` behaves as `Relay.receive`."""

    walk: Walk
    call: Call
    began: Callable[[], None] | None = field(init=False, default=None)  # told once, when an answer begins behind it
    ended: bool = field(init=False, default=False)
    down: bool = field(init=False, default=False)  # the gateway went down before anything was decided
    _patience: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    _begun: bool = field(init=False, default=False)

    @property
    def ready(self) -> bool:
        return not self._begun

    def interrupt(self) -> None:
        """As `Source.interrupt`."""
        attempt = self.walk.committed
        if attempt is not None and attempt.relay is not None:
            attempt.relay.interrupt()
        elif not self.walk.decided.is_set():
            self.down = True
            self._patience.cancel("the gateway goes down")

    async def receive(self) -> bytes:
        if self.ended:
            return b""  # an embedder reads until there is nothing more
        if not self._begun:
            self._begun = True
            return COMMENT
        if not self.down:
            with trio.move_on_after(self.call.policy.keepalive_after) as self._patience:
                await self.walk.decided.wait()
        if self.down:
            self.ended = True
            return self.call.endpoint.dialect.error_frame(problem_of(AttemptError(DRAINED)))
        if not self.walk.decided.is_set():
            return COMMENT
        attempt = self.walk.committed
        if attempt is not None and attempt.relay is not None:
            if self.began is not None:
                self.began()
                self.began = None
            data = await attempt.relay.receive()
            self.ended = attempt.relay.ended
            return data
        self.ended = True
        assert self.walk.error is not None
        told = problem(self.call, self.walk, self.walk.error)
        said = degraded(self.call, self.walk, told, self.walk.error)
        return self.call.endpoint.dialect.error_frame(told) if said is None else said
