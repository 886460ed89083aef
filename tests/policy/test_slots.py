"""Slots: a channel's attempts never exceed its limit, the others wait in order, and no place is ever lost."""

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from trioproxy.policy.slots import Slots, Ticket


def full(limit: int) -> tuple[Slots, list[Ticket]]:
    slots = Slots(limit)
    tickets = [Ticket() for _ in range(limit)]
    assert all(slots.take(ticket) for ticket in tickets)
    return slots, tickets


def test_a_free_slot_is_taken_at_once() -> None:
    slots, (ticket,) = full(1)
    assert ticket.granted
    assert (slots.held, slots.waiting) == (1, 0)


def test_taking_from_a_full_channel_changes_nothing() -> None:
    slots, _ = full(2)
    ticket = Ticket()
    assert not slots.take(ticket)
    assert not ticket.granted
    assert (slots.held, slots.waiting) == (2, 0)


def test_an_offer_is_granted_at_once_where_there_is_room() -> None:
    slots, ticket = Slots(1), Ticket()
    assert slots.offer(ticket) == [ticket]
    assert ticket.granted


def test_those_who_wait_are_served_in_order() -> None:
    slots, (first, second) = full(2)
    waiting = [Ticket() for _ in range(3)]
    assert [slots.offer(ticket) for ticket in waiting] == [[], [], []]
    assert slots.withdraw(second) == [waiting[0]]
    assert slots.withdraw(first) == [waiting[1]]
    assert (slots.held, slots.waiting) == (2, 1)


def test_withdrawing_serves_a_ticket_in_every_state() -> None:
    slots, (holder,) = full(1)
    waiter, next_one, stranger = Ticket(), Ticket(), Ticket()
    slots.offer(waiter)
    slots.offer(next_one)
    assert slots.withdraw(stranger) == []  # never offered
    assert slots.withdraw(waiter) == []  # waiting: its place is gone, nobody is granted
    assert slots.withdraw(waiter) == []  # gone already
    assert slots.withdraw(holder) == [next_one]  # holding: the next one has it
    assert slots.withdraw(holder) == []  # a second time it gives nothing back that it does not hold
    assert (slots.held, slots.waiting) == (1, 0)
    assert slots.withdraw(next_one) == []
    assert (slots.held, slots.waiting) == (0, 0)


def test_a_ticket_that_was_just_granted_can_be_withdrawn_by_one_who_did_not_know() -> None:
    slots, (holder,) = full(1)
    leaving, next_one = Ticket(), Ticket()
    slots.offer(leaving)
    slots.offer(next_one)
    assert slots.withdraw(holder) == [leaving]
    assert slots.withdraw(leaving) == [next_one]


def test_taking_never_overtakes_one_who_waits() -> None:
    """Also where the limit was raised between: the place is the waiter's."""
    slots, _ = full(1)
    waiter, hasty = Ticket(), Ticket()
    slots.offer(waiter)
    slots.limit = 2
    assert not slots.take(hasty)
    assert slots.offer(hasty) == [waiter]


class Places(RuleBasedStateMachine):
    """Any order of taking, offering and withdrawing, against a list that says who came first."""

    tickets: Bundle[Ticket] = Bundle("tickets")

    @initialize(limit=st.integers(1, 4))
    def begin(self, limit: int) -> None:
        self.slots = Slots(limit)
        self.holding: list[Ticket] = []
        self.queue: list[Ticket] = []

    @rule(target=tickets)
    def take(self) -> Ticket:
        ticket = Ticket()
        taken = self.slots.take(ticket)
        assert taken == (not self.queue and len(self.holding) < self.slots.limit)
        if taken:
            self.holding.append(ticket)
        return ticket

    @rule(target=tickets)
    def offer(self) -> Ticket:
        ticket = Ticket()
        self.queue.append(ticket)
        self._granted(self.slots.offer(ticket))
        return ticket

    @rule(ticket=tickets)
    def withdraw(self, ticket: Ticket) -> None:
        self._withdraw(ticket)

    @rule(ticket=consumes(tickets))
    def withdraw_for_good(self, ticket: Ticket) -> None:
        self._withdraw(ticket)

    def _withdraw(self, ticket: Ticket) -> None:
        for place in (self.holding, self.queue):
            if ticket in place:
                place.remove(ticket)
        self._granted(self.slots.withdraw(ticket))
        assert not ticket.granted

    def _granted(self, granted: list[Ticket]) -> None:
        free = self.slots.limit - len(self.holding)
        expected, self.queue = self.queue[:free], self.queue[free:]
        assert granted == expected  # first come, first served, and as many as there is room for
        self.holding += granted

    @invariant()
    def held_is_what_is_granted_and_within_the_limit(self) -> None:
        assert self.slots.held == len(self.holding) <= self.slots.limit
        assert self.slots.waiting == len(self.queue)
        assert all(ticket.granted for ticket in self.holding)
        assert not any(ticket.granted for ticket in self.queue)

    @invariant()
    def nobody_waits_while_a_slot_is_free(self) -> None:
        assert not self.slots.waiting or self.slots.held == self.slots.limit


TestPlaces = Places.TestCase
