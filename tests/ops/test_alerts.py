"""Alerts of a whole gateway: when they arrive, what they look like, and that nothing waits for who takes them."""

import base64
import hashlib
import hmac
import io
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import steps
from tests.fakes.upstream import Exchange, FakeUpstream, Step
from tests.scene import Scene, scene
from trioproxy.config.model import Logging
from trioproxy.journal import AlertCause, AlertLost, AlertTold, BreakerMoved, ChannelParked, ExchangeEnded, Journal
from trioproxy.ops.alerts import Alerting
from trioproxy.ops.log import Log
from trioproxy.policy.watching import NOBODY, Watch

SECRET = "whsec_" + base64.b64encode(b"a key of the receiver's").decode()
SINK = '[alerts]\nsource = "gw"\n[[alerts.sinks]]\nurl = "http://hook.test/in/T0KEN/?x=1"\nsecret = { env = "S" }\n'
KEYS = {"a": "sk-secret-a", "b": "sk-secret-b", "alerts.sinks[0]": SECRET}
BREAKER = 'breaker = { preset = "consecutive", failures = 2, open_for = 60 }'


async def taken(x: Exchange) -> None:
    await x.reply(204)


def hook(s: Scene, *script: Step) -> FakeUpstream:
    """A receiver of webhooks at hook.test."""
    return FakeUpstream("hook").script(*(script or (taken,))).listen(s.network)


def told(s: Scene) -> list[AlertTold]:
    return [event for event in s.events if isinstance(event, AlertTold)]


def lost(s: Scene) -> list[AlertLost]:
    return [event for event in s.events if isinstance(event, AlertLost)]


def park(s: Scene, *channels: str) -> None:
    """A cause for each of these names, without a call."""
    for name in channels:
        s.gateway.journal.emit(ChannelParked(name, "auth", "sk-wrong", 300.0, trio.current_time()))


def verified(headers: dict[str, str], body: bytes) -> bool:
    """The signature as a receiver checks it, by the text of Standard Webhooks."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body.decode()}".encode()
    key = base64.b64decode(SECRET.partition("_")[2])
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return headers["webhook-signature"] == f"v1,{wanted}"


async def test_an_open_breaker_is_told_within_a_second_and_its_end_after_a_calm_minute(
    autojump_clock: MockClock,
) -> None:
    async with scene("a", "b", toml=SINK, channel=BREAKER, credentials=KEYS) as s:
        receiver = hook(s)
        s.a.script(steps.error(500), steps.error(500), steps.chat("well again"))
        s.b.script(steps.chat("hello"))
        await s.post()
        await s.post()
        await s.rest(70)
        await s.post()
        await s.rest(70)
        moved = {event.state: event.now for event in s.events if isinstance(event, BreakerMoved)}
        raised, over = receiver.requests
        assert 0 <= raised.arrived - moved["open"] <= 1
        assert 60 <= over.arrived - moved["closed"] <= 61
        assert [(each.json["type"], each.json["data"]["state"]) for each in (raised, over)] == [
            ("alert.raised", "raised"),
            ("alert.recovered", "recovered"),
        ]


async def test_what_is_posted_is_signed_and_whole(autojump_clock: MockClock) -> None:
    async with scene(toml=SINK, credentials=KEYS) as s:
        receiver = hook(s)
        park(s, "a")
        await receiver.wait_hits(1)
        await s.rest(0)
        (request,) = receiver.requests
        assert (request.method, request.target) == ("POST", "/in/T0KEN/?x=1")
        assert verified(request.headers, request.body)
        assert int(request.headers["webhook-timestamp"]) == int(s.wall) + 1
        assert request.headers["webhook-id"].startswith("msg_")
        body: Any = request.json
        assert (body["timestamp"], body["data"].pop("since")) == (
            "2025-11-24T16:00:01.000Z",
            "2025-11-24T16:00:00.000Z",
        )
        assert body["text"] == "[critical] gw: channel a is parked for 300 s: auth"
        assert body["data"] == {
            "source": "gw",
            "cause": "channel_parked",
            "subject": "a",
            "severity": "critical",
            "state": "raised",
            "message": "channel a is parked for 300 s: auth",
            "count": 1,
        }
        assert b"sk-" not in request.body


async def test_a_spike_of_429s_is_told_within_seconds(autojump_clock: MockClock) -> None:
    async with scene("a", "b", credentials=KEYS, toml="[alerts.thresholds]\nleast = 10") as s:
        s.a.script(steps.error(429, headers=[("retry-after", "0")]))
        s.b.script(steps.chat("hello"))
        began = trio.current_time()
        for _ in range(20):
            assert (await s.post()).status == 200
            await trio.sleep(1.1)
        (alert,) = [each for each in told(s) if each.cause is AlertCause.RATE_LIMITED]
        assert alert.subject == "a"
        attempts = [record for event in s.ended for record in event.attempts if record.channel == "a"]
        assert len(attempts) >= 10
        assert alert.now - began <= 10 * 1.1 * 2 + 6


async def test_one_alert_a_cause_and_period_however_often_it_happens(autojump_clock: MockClock) -> None:
    async with scene(toml=SINK + "[alerts.rhythm]\nevery = 100\nremind = 100", credentials=KEYS) as s:
        receiver = hook(s)
        for _ in range(50):
            park(s, "a", "b")
            await s.rest(10)
        arrived: dict[str, list[float]] = {}
        for request in receiver.requests:
            arrived.setdefault(request.json["data"]["subject"], []).append(request.arrived)
        assert sorted(arrived) == ["a", "b"]
        for times in arrived.values():
            assert len(times) == 5
            assert all(later - earlier >= 100 for earlier, later in pairwise(times))
        assert [request.json["data"]["count"] for request in receiver.requests[:4]] == [1, 1, 10, 10]


async def test_a_receiver_that_fails_is_tried_again_with_growing_waits_and_the_same_id(
    autojump_clock: MockClock,
) -> None:
    async with scene(toml=SINK, credentials=KEYS) as s:
        receiver = hook(s, steps.error(500), steps.hang_up(), steps.error(404), steps.error(302), taken)
        park(s, "a")
        await s.rest(40)
        requests = receiver.requests
        assert len(requests) == 5
        assert len({request.headers["webhook-id"] for request in requests}) == 1
        assert all(verified(request.headers, request.body) for request in requests)
        stamps = [int(request.headers["webhook-timestamp"]) - int(s.wall) for request in requests]
        waits = [later.arrived - earlier.arrived for earlier, later in pairwise(requests)]
        assert all(base / 2 <= wait <= base for base, wait in zip((1, 2, 4, 8), waits, strict=True)), waits
        assert stamps == sorted(stamps)
        assert stamps[-1] > stamps[0], "the time is that of the try"
        assert lost(s) == []


async def test_tries_are_bounded_and_what_is_lost_is_said(autojump_clock: MockClock) -> None:
    async with scene(toml=SINK + "tries = 3\n", credentials=KEYS) as s:
        receiver = hook(s, steps.error(503), steps.error(503), steps.error(503), taken)
        park(s, "a")
        await s.rest(30)
        park(s, "b")
        await s.rest(30)
        assert [request.json["data"]["subject"] for request in receiver.requests] == ["a", "a", "a", "b"]
        (gone,) = lost(s)
        assert (gone.sink, gone.cause, gone.why, gone.lost) == (
            "alerts.sinks[0] (hook.test)",
            AlertCause.CHANNEL_PARKED,
            "it answered 503",
            1,
        )


async def test_a_receiver_that_is_gone_is_asked_no_more(autojump_clock: MockClock) -> None:
    async with scene(toml=SINK, credentials=KEYS) as s:
        receiver = hook(s, steps.error(410))
        park(s, "a", "b")
        await s.rest(60)
        park(s, "c")
        await s.rest(60)
        assert receiver.hits == 1
        assert [event.why for event in lost(s)] == ["it answered 410"] * 3


async def test_a_redirect_is_not_followed(autojump_clock: MockClock) -> None:
    async with scene(toml=SINK + "tries = 1\n", credentials=KEYS) as s:
        hook(s, steps.error(307, headers=[("location", "http://b.test/")]))
        park(s, "a")
        await s.rest(60)
        assert s.b.hits == 0
        assert [event.why for event in lost(s)] == ["it answered 307"]


async def test_the_queue_is_bounded_and_the_newest_are_kept(autojump_clock: MockClock) -> None:
    async with scene(toml=SINK + "queue = 3\n", credentials=KEYS) as s:
        receiver = hook(s, steps.after(5, taken))
        park(s, *(f"c{number}" for number in range(10)))
        await s.rest(60)
        assert [request.json["data"]["subject"] for request in receiver.requests] == ["c7", "c8", "c9"]
        assert {event.why for event in lost(s)} == {"more than 3 are waiting"}
        assert [event.lost for event in lost(s)] == list(range(1, 8))


DEAD: dict[str, Step] = {
    "fails": steps.error(500),
    "hangs": steps.silence(),
    "closes": steps.hang_up(),
    "resets": steps.hang_up("reset"),
    "talks nonsense": steps.raw(b"SSH-2.0-OpenSSH\r\n"),
    "never ends its head": steps.raw(b"HTTP/1.1 200 OK\r\nx-", end="hang"),
}


@pytest.mark.parametrize("dead", [*DEAD, "refuses", "swallows"])
async def test_a_dead_receiver_holds_nobody_up(dead: str, autojump_clock: MockClock) -> None:
    """Calls take the same time to the microsecond, and nothing piles up."""
    async with scene("a", "b", toml=SINK + "queue = 5\n[alerts.rhythm]\nevery = 5\nremind = 5", credentials=KEYS) as s:
        if dead in DEAD:
            hook(s, DEAD[dead])
        elif dead == "refuses":
            s.network.refuse("hook.test", 80)
        else:
            s.network.swallow("hook.test", 80)
        s.a.script(steps.after(0.25, steps.chat("hello")))
        took = []
        for number in range(200):
            park(s, f"c{number % 20}")
            began = trio.current_time()
            assert (await s.post()).status == 200
            took.append(round(trio.current_time() - began, 6))
            await trio.sleep(3)
        assert set(took) == {0.25}
        assert len(lost(s)) > 100
        assert s.held() == {}
        assert s.gateway.journal.broken == 0


async def test_a_receiver_that_answers_late_is_given_up_on_time(autojump_clock: MockClock) -> None:
    async with scene(toml=SINK + "tries = 1\ntimeout = 2.5\n", credentials=KEYS) as s:
        receiver = hook(s, steps.after(60, taken))
        park(s, "a")
        await s.rest(30)
        (request,) = receiver.requests
        assert receiver.closed_at == [request.arrived + 2.5]
        assert [event.why for event in lost(s)] == ["nothing within 2.5 s"]


async def test_a_sink_is_told_of_what_it_asks_for(autojump_clock: MockClock) -> None:
    toml = '[[alerts.sinks]]\nurl = "http://hook.test/"\n'
    for rest, wanted in (
        ('least = "critical"', ["channel_parked"]),
        ('causes = ["breaker_open"]', ["breaker_open"]),
        ('causes = ["store_trouble"]', []),
        ("", ["channel_parked", "breaker_open"]),
    ):
        async with scene(toml=toml + rest) as s:
            receiver = hook(s)
            park(s, "a")
            s.gateway.journal.emit(BreakerMoved("a", "closed", "open", trio.current_time()))
            await s.rest(5)
            assert [request.json["data"]["cause"] for request in receiver.requests] == wanted
            assert all("webhook-signature" not in request.headers for request in receiver.requests)


async def test_a_sink_whose_secret_was_not_given_posts_nothing(autojump_clock: MockClock) -> None:
    async with scene(toml=SINK, credentials={}) as s:
        receiver = hook(s)
        park(s, "a")
        await s.rest(60)
        assert receiver.hits == 0
        assert [event.why for event in lost(s)] == ["its secret was not given"]


def watched(journal: Journal) -> bool:
    return any(isinstance(getattr(each, "__self__", None), Watch) for each in journal.subscribers)


async def test_without_causes_nobody_watches(autojump_clock: MockClock) -> None:
    async with scene(toml="[alerts]\ncauses = []") as s:
        park(s, "a")
        await s.rest(10)
        assert told(s) == []
        assert not watched(s.gateway.journal)


async def test_the_watch_ends_with_its_gateway(autojump_clock: MockClock) -> None:
    async with scene() as s:
        journal = s.gateway.journal
        assert watched(journal)
    assert not watched(journal)
    assert len(journal.subscribers) == 1, "the scene's own"


async def test_the_log_says_alerts_and_says_nothing_twice(autojump_clock: MockClock) -> None:
    sink = io.BytesIO()
    log = Log.to(sink, Logging("json"), lambda: 0.0)
    async with scene("a", toml=SINK + "tries = 1\n", channel=BREAKER, credentials=KEYS) as s:
        s.gateway.journal.subscribe(log)
        hook(s, steps.error(500))
        s.a.script(steps.error(500))
        for _ in range(3):
            await s.post()
        await s.rest(2)
    log.writer.flush()
    said = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert [line["event"] for line in said if line["event"] not in {"exchange", "switch"}] == [
        "breaker",
        "alert",
        "alert_lost",
        "alert_lost",
    ]
    (alert,) = [line for line in said if line["event"] == "alert"]
    assert (alert["cause"], alert["level"], alert["subject"]) == ("chain_exhausted", "error", "m")
    assert SECRET.encode() not in sink.getvalue()
    assert b"T0KEN" not in sink.getvalue()


async def test_what_nobody_can_serve_is_told_and_that_somebody_can_again(autojump_clock: MockClock) -> None:
    async with scene("a", channel=BREAKER) as s:
        s.a.script(steps.error(500), steps.error(500), steps.chat("hello"))
        for _ in range(3):
            await s.post()
        await s.rest(65)
        assert (await s.post()).status == 200
        await s.rest(70)
        ends = [event for event in s.events if isinstance(event, ExchangeEnded)]
        assert [len(event.attempts) for event in ends] == [1, 1, 0, 1]
        assert [(alert.cause.value, alert.state) for alert in told(s)] == [
            ("breaker_open", "raised"),
            ("chain_exhausted", "raised"),
            ("breaker_open", "recovered"),
            ("chain_exhausted", "recovered"),
        ]


async def test_a_moment_s_rest_is_no_outage(autojump_clock: MockClock) -> None:
    """A model whose only channel is throttled for a second is refused with 429, and nobody is woken for that."""
    async with scene("a") as s:
        s.a.script(steps.error(429, headers=[("retry-after", "1")]), steps.chat("hello"))
        assert [(await s.post()).status for _ in range(3)] == [429, 429, 429]
        assert [len(event.attempts) for event in s.ended] == [1, 0, 0]
        await s.rest(10)
        assert told(s) == []


class Puzzled(Watch):
    """A watch with a bug."""

    def tick(self, now: float, waiting: Mapping[str, int] = NOBODY) -> list[AlertTold]:
        raise ZeroDivisionError


async def test_a_bug_in_the_watch_costs_alerts_and_nothing_else(autojump_clock: MockClock) -> None:
    watch = Alerting(Journal(), Puzzled())
    with trio.move_on_after(120.5):
        await watch.run()
    assert watch.broken == 2


async def test_where_nothing_happens_a_look_a_minute_is_enough_and_an_event_ends_that(
    autojump_clock: MockClock,
) -> None:
    looks: list[float] = []
    journal = Journal()

    def waiting() -> Mapping[str, int]:
        looks.append(trio.current_time())
        return NOBODY

    async with trio.open_nursery() as nursery:
        await nursery.start(Alerting(journal, Watch(), waiting=waiting).run)
        await trio.sleep(90)
        assert looks == [60.0]
        journal.emit(BreakerMoved("a", "closed", "open", 90.0))
        await trio.sleep(30)
        assert looks == [60.0, 91.0], "it is told, and lasts"
        journal.emit(BreakerMoved("a", "open", "closed", 120.0))
        await trio.sleep(5.5)
        assert looks == [60.0, 91.0, *(120.0 + second for second in range(1, 6))]
        nursery.cancel_scope.cancel()
