"""The live state: why a channel is skipped and until when, what each end of an attempt teaches it and slots."""

from typing import Any

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.fakes.network import wire_pair
from trioproxy.channel import ChannelState, Pass
from trioproxy.codec.frame import Shape
from trioproxy.codec.openai_chat import CHAT
from trioproxy.errors import AttemptError, Blame, Fault, FaultKind
from trioproxy.family import Family
from trioproxy.http.client import Origin, Upstream
from trioproxy.http.message import ResponseReader
from trioproxy.http.pool import Connection, Pool
from trioproxy.http.wire import Wire
from trioproxy.journal import BreakerMoved, ChannelCooled, ChannelParked, Event, Journal
from trioproxy.policy.breaker import PRESETS, Breaker, BreakerPolicy
from trioproxy.policy.slots import Slots, Ticket
from trioproxy.supervisor import Supervisor

PROBING = BreakerPolicy(failures=1, window=0.0, open_for=60.0, probes=1)
BROKEN = Fault(FaultKind.SERVER_ERROR, Blame.PROVIDER, "503", retry=True, counts=True)
THROTTLED = Fault(FaultKind.RATE_LIMITED, Blame.RATE, "slow down", retry=True, cooldown=7.0)
REFUSED = Fault(FaultKind.AUTH, Blame.KEY, "our key was refused", retry=True, park=300.0)
UNKNOWN = Fault(FaultKind.MODEL_NOT_FOUND, Blame.ADAPTER, "no such model", retry=True, park=600.0)
BAD = Fault(FaultKind.BAD_REQUEST, Blame.CLIENT, "bad request")
ADAPTER = Fault(FaultKind.PARAMETER, Blame.ADAPTER, "we sent what it does not take", retry=True)


async def no_dial(_host: str, _port: int, _tls: object) -> Wire:
    raise AssertionError("nothing is dialled here")


def channel(
    policy: BreakerPolicy = PRESETS["four-layer"], url: str = "https://a.test/v1", **fields: Any
) -> ChannelState:
    given: dict[str, Any] = {
        "name": "a",
        "upstream": Upstream(Origin.from_url(url), no_dial, Pool(60.0)),
        "dialect": CHAT,
        "shape": Shape(),
        "breaker": Breaker(policy),
        "slots": Slots(2),
        "slot_timeout": 1.0,
        "max_answer": 1 << 20,
        "journal": Journal(),
        "request_lines": b"host: a.test\r\nauthorization: Bearer sk-secret-a\r\n",
        "secrets": ("sk-secret-a",),
    }
    return ChannelState(**{**given, **fields})


def entered(state: ChannelState, now: float, model: str = "m") -> Pass:
    leave = state.try_enter(model, now)
    assert leave is not None
    return leave


def ended(state: ChannelState, fault: Fault | None, now: float, model: str = "m") -> None:
    """One attempt that ends at once."""
    state.settle(entered(state, now, model), fault, now)


def told(state: ChannelState) -> list[Event]:
    events: list[Event] = []
    state.journal.subscribe(events.append)
    return events


# Why a channel is skipped.


def test_a_new_channel_is_not_skipped() -> None:
    state = channel()
    assert state.objection("m", 0.0) is None
    assert state.back_in("m", 0.0) == 0.0


def test_a_channel_that_can_never_be_asked_says_why_and_has_no_date() -> None:
    state = channel(disabled="it has no credential")
    assert state.objection("m", 0.0) == "it has no credential"
    assert state.back_in("m", 0.0) is None
    assert state.try_enter("m", 0.0) is None
    assert state.statistics(0.0).objection == "it has no credential"


def test_an_open_breaker_says_for_how_long() -> None:
    state = channel()
    for _ in range(3):
        ended(state, BROKEN, 10.0)
    assert state.objection("m", 10.0) == "breaker open for another 60 s"
    assert state.objection("m", 58.0) == "breaker open for another 12 s"
    assert state.back_in("m", 58.0) == 12.0
    assert state.try_enter("m", 58.0) is None
    assert state.objection("m", 70.0) is None
    assert state.back_in("m", 80.0) == 0.0


def test_a_half_open_breaker_whose_probe_is_out_says_so() -> None:
    state = channel(PROBING)
    ended(state, BROKEN, 0.0)
    probe = entered(state, 60.0)
    assert state.objection("m", 60.0) == "breaker half-open: its probes are out"
    assert state.try_enter("m", 60.0) is None
    state.abandon(probe, 61.0)
    assert state.objection("m", 61.0) is None


def test_a_cooling_channel_and_a_parked_one_say_for_how_long() -> None:
    state = channel()
    ended(state, THROTTLED, 0.0)
    assert state.objection("m", 2.0) == "cooling down for another 5 s: slow down"
    assert state.back_in("m", 2.0) == 5.0
    ended(state, REFUSED, 7.0)
    assert state.objection("m", 7.0) == "parked for another 300 s: our key was refused"
    assert state.back_in("m", 7.0) == 300.0


def test_a_model_that_the_provider_does_not_have_is_skipped_there_and_the_others_are_not() -> None:
    state = channel()
    events = told(state)
    ended(state, UNKNOWN, 0.0, "gone")
    assert state.objection("gone", 0.0) == "parked for another 600 s: no such model"
    assert state.back_in("gone", 0.0) == 600.0
    assert state.objection("here", 0.0) is None
    assert state.back_in("here", 0.0) == 0.0
    assert all(not isinstance(event, BreakerMoved) for event in events)


def test_only_what_the_provider_said_of_a_model_is_a_lack_of_it() -> None:
    state = channel()
    ended(state, UNKNOWN, 0.0, "gone")
    ended(state, THROTTLED, 0.0)
    assert [state.lacks("gone", 0.0), state.lacks("m", 0.0), state.lacks("gone", 600.0)] == [True, False, False]


def test_the_longest_rest_counts() -> None:
    state = channel(PROBING)
    leaves = [entered(state, 0.0) for _ in range(3)]
    for leave, fault in zip(leaves, (evolve(UNKNOWN, park=30.0), THROTTLED, BROKEN), strict=True):
        state.settle(leave, fault, 0.0)
    assert state.back_in("m", 0.0) == 60.0
    assert state.back_in("m", 55.0) == 5.0


# What an attempt teaches.


def test_failures_open_the_breaker_and_that_is_told_once() -> None:
    state = channel()
    events = told(state)
    for _ in range(3):
        ended(state, BROKEN, 5.0)
    assert events == [BreakerMoved("a", "closed", "open", 5.0, 65.0)]
    ended(state, None, 65.0)
    assert events[1:] == [BreakerMoved("a", "open", "closed", 65.0)]


def test_a_probe_that_has_content_closes_the_breaker_before_its_answer_ends() -> None:
    state = channel(PROBING)
    ended(state, BROKEN, 0.0)
    events = told(state)
    probe = entered(state, 60.0)
    state.commit(probe, 61.0)
    assert [(event.was, event.state) for event in events if isinstance(event, BreakerMoved)] == [
        ("open", "half_open"),
        ("half_open", "closed"),
    ]
    assert state.objection("m", 61.0) is None
    state.settle(probe, None, 70.0)
    assert state.statistics(70.0).failures == 0


def test_a_probe_that_committed_and_was_cut_counts_against_the_closed_breaker() -> None:
    state = channel(evolve(PROBING, failures=2))
    for _ in range(2):
        ended(state, BROKEN, 0.0)
    probe = entered(state, 60.0)
    state.commit(probe, 61.0)
    state.settle(probe, BROKEN, 62.0)
    assert (state.statistics(62.0).breaker, state.statistics(62.0).failures) == ("closed", 1)


def test_a_probe_that_committed_and_was_cut_opens_a_breaker_that_bears_no_failure() -> None:
    state = channel(PROBING)
    ended(state, BROKEN, 0.0)
    probe = entered(state, 60.0)
    state.commit(probe, 61.0)
    state.settle(probe, BROKEN, 62.0)
    assert state.objection("m", 62.0) == "breaker open for another 60 s"


@pytest.mark.parametrize("fault", [None, BAD])
def test_a_probe_that_committed_and_ended_without_a_mark_against_it_counts_nothing(fault: Fault | None) -> None:
    state = channel(PROBING)
    ended(state, BROKEN, 0.0)
    probe = entered(state, 60.0)
    state.commit(probe, 61.0)
    state.settle(probe, fault, 62.0)
    assert (state.statistics(62.0).breaker, state.statistics(62.0).failures) == ("closed", 0)


def test_a_probe_that_committed_and_whose_reader_left_counts_nothing() -> None:
    state = channel(PROBING)
    ended(state, BROKEN, 0.0)
    probe = entered(state, 60.0)
    state.commit(probe, 61.0)
    state.abandon(probe, 62.0)
    assert (state.statistics(62.0).breaker, state.breaker.leases) == ("closed", 0)


def test_a_commit_without_a_probe_leaves_the_permit_for_the_end() -> None:
    state = channel()
    leave = entered(state, 0.0)
    state.commit(leave, 1.0)
    state.settle(leave, BROKEN, 2.0)
    assert state.statistics(2.0).failures == 1


@pytest.mark.parametrize("fault", [BAD, THROTTLED, ADAPTER])
def test_what_says_nothing_about_its_health_leaves_the_breaker_alone(fault: Fault) -> None:
    state = channel(PROBING)
    ended(state, fault, 0.0)
    assert (state.statistics(0.0).breaker, state.statistics(0.0).failures) == ("closed", 0)


def test_a_half_open_probe_that_is_throttled_gives_its_lease_back() -> None:
    state = channel(PROBING)
    ended(state, BROKEN, 0.0)
    ended(state, THROTTLED, 60.0)
    assert (state.statistics(60.0).breaker, state.breaker.leases) == ("half_open", 0)
    assert state.try_enter("m", 67.0) is not None


def test_a_cooldown_and_a_park_are_told() -> None:
    state = channel()
    events = told(state)
    leaves = [entered(state, 5.0) for _ in range(2)]
    state.settle(leaves[0], THROTTLED, 5.0)
    state.settle(leaves[1], REFUSED, 6.0)
    assert events == [
        ChannelCooled("a", "rate_limited", 7.0, 5.0),
        ChannelParked("a", "auth", "our key was refused", 300.0, 6.0),
    ]


def test_a_provider_that_is_failing_and_names_a_time_is_left_alone_for_it() -> None:
    """503 with Retry-After: it counts, and it cools."""
    state = channel()
    ended(state, evolve(BROKEN, cooldown=20.0), 0.0)
    assert state.statistics(0.0).failures == 1
    assert state.objection("m", 0.0) == "cooling down for another 20 s: 503"


@pytest.mark.parametrize("fault", [None, BAD])
def test_an_answer_and_even_a_clients_own_mistake_prove_that_the_key_is_taken(fault: Fault | None) -> None:
    state = channel()
    ended(state, REFUSED, 0.0)
    ended(state, fault, 300.0)
    assert state.objection("m", 300.0) is None
    ended(state, REFUSED, 301.0)
    assert state.back_in("m", 301.0) == 300.0


def test_a_commit_restores_channel_and_model() -> None:
    state = channel()
    leaves = [entered(state, 0.0) for _ in range(2)]
    state.settle(leaves[0], UNKNOWN, 0.0)
    state.settle(leaves[1], THROTTLED, 0.0)
    trial = entered(state, 600.0)
    state.commit(trial, 601.0)
    assert (state.objection("m", 601.0), state.models) == (None, {})


# Trials.


@pytest.mark.parametrize("fault", [THROTTLED, REFUSED])
def test_one_call_tries_a_channel_whose_rest_is_over(fault: Fault) -> None:
    state = channel()
    ended(state, fault, 0.0)
    trial = entered(state, 300.0)
    assert state.objection("m", 300.0) == "on trial: another call is asking whether it is back"
    assert state.try_enter("m", 300.0) is None
    state.abandon(trial, 301.0)
    assert state.objection("m", 301.0) is None


def test_a_model_is_tried_by_one_call_while_others_use_the_channel() -> None:
    state = channel()
    ended(state, UNKNOWN, 0.0, "gone")
    entered(state, 600.0, "gone")
    assert state.try_enter("gone", 600.0) is None
    assert state.try_enter("here", 600.0) is not None


@pytest.mark.parametrize("end", ["abandon", "settle"])
def test_only_the_trial_itself_makes_room_for_another(end: str) -> None:
    """A call from before the cooldown, or of another model, ends without evidence: the trial is still out."""
    state = channel()
    straggler = entered(state, 0.0)
    ended(state, THROTTLED, 0.0)
    entered(state, 7.0)
    if end == "abandon":
        state.abandon(straggler, 8.0)
    else:
        state.settle(straggler, BROKEN, 8.0)
    assert state.try_enter("m", 8.0) is None


def test_a_trial_that_fails_in_another_way_lets_the_next_call_try() -> None:
    state = channel()
    ended(state, THROTTLED, 0.0)
    ended(state, BROKEN, 7.0)
    assert state.try_enter("m", 8.0) is not None


# Slots.


async def test_a_free_slot_is_taken_without_a_wait(autojump_clock: MockClock) -> None:
    state = channel()
    first, second = Ticket(), Ticket()
    await state.slot(first)
    await state.slot(second)
    assert (first.granted, second.granted, trio.current_time()) == (True, True, 0.0)
    assert state.statistics(0.0).in_flight == 2


async def test_the_wait_for_a_slot_is_bounded_to_the_second_and_blames_nobody(autojump_clock: MockClock) -> None:
    state = channel()
    for _ in range(2):
        await state.slot(Ticket())
    late = Ticket()
    with pytest.raises(AttemptError) as caught:
        await state.slot(late)
    fault = caught.value.fault
    assert trio.current_time() == 1.0
    assert (fault.kind, fault.blame, fault.retry, fault.counts) == (FaultKind.SATURATED, Blame.RATE, True, False)
    assert "2 attempts are under way" in fault.message
    state.leave(late)
    assert (state.statistics(1.0).in_flight, state.statistics(1.0).waiting) == (2, 0)


@pytest.mark.parametrize("slot_timeout", [0.0, 5.0])
async def test_a_slot_that_becomes_free_goes_to_the_first_who_waits(
    slot_timeout: float, autojump_clock: MockClock
) -> None:
    state = channel(slots=Slots(1), slot_timeout=slot_timeout)
    holder = Ticket()
    await state.slot(holder)
    order: list[str] = []

    async def wait(name: str) -> None:
        ticket = Ticket()
        try:
            await state.slot(ticket)
            order.append(name)
            await trio.sleep(0.5)
        except AttemptError:
            order.append(f"{name} gave up")
        finally:
            state.leave(ticket)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "one")
        await wait_all_tasks_blocked()
        nursery.start_soon(wait, "two")
        await wait_all_tasks_blocked()
        state.leave(holder)
    assert order == (["one", "two"] if slot_timeout else ["one gave up", "two gave up"])
    assert (state.slots.held, state.slots.waiting, state._waiters) == (0, 0, {})


async def test_a_wait_that_is_cancelled_loses_no_slot(autojump_clock: MockClock) -> None:
    """Also where it is cancelled in the very moment in which it is granted."""
    state = channel(slots=Slots(1))
    holder, ticket = Ticket(), Ticket()
    await state.slot(holder)

    async def wait() -> None:
        try:
            await state.slot(ticket)
        finally:
            state.leave(ticket)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        state.leave(holder)
        assert ticket.granted
        nursery.cancel_scope.cancel("the caller left")
    assert (state.slots.held, state.slots.waiting, state._waiters) == (0, 0, {})


# What is shown and sent.


def test_a_request_is_put_together_from_its_constant_part() -> None:
    state = channel(url="https://a.test/openai/d?api-version=1")
    assert state.request("/chat/completions", b"traceparent: t\r\n", b"{}") == (
        b"POST /openai/d/chat/completions?api-version=1 HTTP/1.1\r\n"
        b"host: a.test\r\nauthorization: Bearer sk-secret-a\r\n"
        b"traceparent: t\r\ncontent-length: 2\r\n\r\n{}"
    )


def test_without_a_query_there_is_no_question_mark() -> None:
    assert channel().request("/x", b"", b"").startswith(b"POST /v1/x HTTP/1.1\r\n")


def test_a_fault_is_shown_without_our_credential() -> None:
    state = channel(secrets=("very-own",))
    shown = state.shown(evolve(BAD, message="key very-own is bad", body=b'{"error":"very-own"}'))
    assert "very-own" not in shown.message
    assert b"very-own" not in shown.body
    silent = evolve(BAD, message="")
    assert state.shown(silent) is silent


def test_the_credential_is_in_no_repr() -> None:
    state = channel()
    supervisor = Supervisor(Family({"a": state}))
    assert "sk-secret" not in repr(state)
    assert "sk-secret" not in repr(supervisor)


def test_statistics_are_a_reading() -> None:
    state = channel()
    for _ in range(3):
        ended(state, BROKEN, 0.0)
    state.slots.take(Ticket())
    state.upstream.pool.give_back(Connection(wire_pair()[0], ResponseReader()), 0.0)
    reading = Supervisor(Family({"a": state})).statistics(20.0)["a"]
    assert (reading.breaker, reading.failures, reading.open_for) == ("open", 3, 40.0)
    assert (reading.in_flight, reading.waiting, reading.idle_connections) == (1, 0, 1)
    assert reading.objection is None
    assert state.statistics(60.0).open_for == 0.0


async def test_idle_connections_are_swept_and_at_the_end_closed(autojump_clock: MockClock) -> None:
    state = channel()
    supervisor = Supervisor(Family({"a": state}))
    near, far = wire_pair()
    state.upstream.pool.give_back(Connection(near, ResponseReader()), 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.sweep)
        await trio.sleep(59.0)
        assert state.statistics(59.0).idle_connections == 1
        await trio.sleep(2.0)
        assert (state.statistics(61.0).idle_connections, far.peer_gone) == (0, True)
        nursery.cancel_scope.cancel("the test is over")
    state.upstream.pool.give_back(Connection(wire_pair()[0], ResponseReader()), 61.0)
    supervisor.close()
    assert state.statistics(61.0).idle_connections == 0
