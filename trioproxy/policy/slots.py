"""Per-channel concurrency: at most `limit` attempts at once, the others wait in order.

Calls that wait on one dead channel never take another's place. A ticket is waiting, holding, or gone; `withdraw` serves all
three, so a cancellation that races the grant is no special case. Invariant: holding ≤ limit, and nobody waits while a
slot is free.
"""

from collections import deque

from attrs import define, field


@define(eq=False)
class Ticket:
    """One attempt's place. `granted` turns true in the call that gives it a slot."""

    granted: bool = False


@define(eq=False)
class Slots:
    """The slots of one channel. `offer` and `withdraw` return the tickets that were granted by them, for the shell to wake."""

    limit: int
    held: int = field(init=False, default=0)
    _waiting: deque[Ticket] = field(init=False, factory=deque)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, ticket: Ticket) -> bool:
        """A free slot at once, where there is one and nobody waits for it."""
        if self._waiting or self.held >= self.limit:
            return False
        ticket.granted = True
        self.held += 1
        return True

    def offer(self, ticket: Ticket) -> list[Ticket]:
        self._waiting.append(ticket)
        return self._grant()

    def withdraw(self, ticket: Ticket) -> list[Ticket]:
        if ticket.granted:
            ticket.granted = False
            self.held -= 1
        elif ticket in self._waiting:
            self._waiting.remove(ticket)
        return self._grant() if self._waiting else []

    def _grant(self) -> list[Ticket]:
        granted = []
        while self._waiting and self.held < self.limit:
            ticket = self._waiting.popleft()
            ticket.granted = True
            self.held += 1
            granted.append(ticket)
        return granted
