"""The journal: every subscriber is told, in order, and one that fails harms neither the line nor the others."""

import pytest

from trioproxy.journal import ChannelCooled, EndReason, Event, ExchangeEnded, Journal, Usage

EVENT = ChannelCooled("a", "rate_limited", 1.0, 0.0)


def test_everybody_is_told_in_the_order_in_which_they_subscribed() -> None:
    journal, told = Journal(), []
    journal.subscribe(lambda event: told.append(("first", event)))
    journal.subscribe(lambda event: told.append(("second", event)))
    journal.emit(EVENT)
    assert told == [("first", EVENT), ("second", EVENT)]


def test_nobody_need_listen() -> None:
    journal = Journal()
    journal.emit(EVENT)
    assert journal.broken == 0


def test_one_that_raises_is_counted_and_the_others_are_told_all_the_same() -> None:
    def broken(_event: Event) -> None:
        raise ZeroDivisionError

    told: list[Event] = []
    bugs: list[Exception] = []
    journal = Journal(bugs.append)
    journal.subscribe(broken)
    journal.subscribe(told.append)
    for _ in range(2):
        journal.emit(EVENT)
    assert (told, journal.broken) == ([EVENT, EVENT], 2)
    assert [type(bug) for bug in bugs] == [ZeroDivisionError] * 2


def test_what_ends_the_process_is_not_swallowed() -> None:
    def interrupted(_event: Event) -> None:
        raise KeyboardInterrupt

    journal = Journal()
    journal.subscribe(interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.emit(EVENT)


def test_one_that_unsubscribed_is_told_no_more() -> None:
    journal = Journal()
    told: list[Event] = []
    journal.subscribe(told.append)
    journal.unsubscribe(told.append)
    journal.emit(EVENT)
    assert told == []


def test_one_may_leave_while_it_is_told_and_the_next_is_told_all_the_same() -> None:
    """A subscriber that waits for one event leaves when it has come."""
    journal, told = Journal(), []

    def once(_event: Event) -> None:
        told.append("once")
        journal.unsubscribe(once)

    journal.subscribe(once)
    journal.subscribe(lambda _event: told.append("always"))
    journal.emit(EVENT)
    journal.emit(EVENT)
    assert told == ["once", "always", "always"]


def test_one_that_subscribes_while_another_is_told_hears_of_the_next_event() -> None:
    journal = Journal()
    told: list[str] = []

    def invites(_event: Event) -> None:
        if not told:
            told.append("invited")
            journal.subscribe(lambda _event: told.append("guest"))

    journal.subscribe(invites)
    journal.emit(EVENT)
    assert told == ["invited"]
    journal.emit(EVENT)
    assert told == ["invited", "guest"]


def test_an_exchange_of_which_nothing_is_known_cost_nothing() -> None:
    ended = ExchangeEnded("req_1", EndReason.REFUSED_AUTH, 401, "/v1/models")
    assert (ended.cost, ended.usage, ended.attempts, ended.skipped) == (0, Usage(), (), ())


def test_the_reasons_have_the_words_that_logs_and_metrics_show() -> None:
    assert {reason.value for reason in EndReason} == {
        *("answered", "refused_auth", "refused_request", "refused_quota", "rejected_upstream", "chain_exhausted"),
        *("deadline", "cut_after_commit", "client_left", "drained", "bug", "degraded", "deferred"),
    }
