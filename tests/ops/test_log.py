"""The log: every field of every line, its levels and forms, and that neither a slow stream nor a secret gets through it."""

import io
import json
import subprocess
import sys
import threading
from typing import Any

import pytest
import trio
from attrs import evolve
from msgspec.structs import replace
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import scene
from trioproxy.config.model import Logging
from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.journal import (
    AttemptRecord,
    ChannelParked,
    EndReason,
    Event,
    ExchangeEnded,
    Usage,
)
from trioproxy.ops.log import MAX_WAITING, LineWriter, Log

WALL = 1_764_000_000.25  # 2025-11-24T16:00:00.250Z
FAULT = Fault(FaultKind.SERVER_ERROR, Blame.PROVIDER, "scripted 503", status=503)
PLAIN = ExchangeEnded("req_1", EndReason.ANSWERED, 200, "/v1/chat/completions")
FULL = ExchangeEnded(
    "req_2",
    EndReason.CUT_AFTER_COMMIT,
    200,
    "/v1/chat/completions",
    model="m",
    stream=True,
    key_id="team-a",
    tenant="acme",
    traffic_class="batch",
    attempts=(
        AttemptRecord("a", "a-model", 0.0, 0.25, FAULT),
        AttemptRecord("b", "b-model", 0.25, 1.5, None, reused=True, first_content=0.125),
    ),
    skipped=(("c", "breaker open for another 12 s"),),
    usage=Usage(input=9, cached=4, output=3, estimated=True),
    cost=21,
    started=0.0,
    duration=1.75,
    overhead=0.0015,
    bytes_out=1234,
    note="a note",
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)


class Sink(io.BytesIO):
    """A stream that remembers each write; while `gate` is closed it takes nothing, and with an `error` it breaks.

    `written` waits for writes that another thread makes, without polling. Made inside a Trio run if that is needed.
    """

    def __init__(self, *, tty: bool = False, error: OSError | None = None) -> None:
        super().__init__()
        self.tty = tty
        self.error = error
        self.gate = threading.Event()
        self.gate.set()
        self.writes: list[bytes] = []
        self.flushes = 0
        self.waiting = False
        self._more = trio.Event()
        self._token = trio.lowlevel.current_trio_token() if trio.lowlevel.in_trio_run() else None

    async def written(self, count: int) -> None:
        while len(self.writes) < count:
            await self._more.wait()

    async def stuck(self) -> None:
        """Wait until somebody waits at the gate."""
        while not self.waiting:
            await self._more.wait()

    def _told(self) -> None:
        if self._token is not None:
            self._token.run_sync_soon(self._tell)

    def _tell(self) -> None:
        self._more.set()
        self._more = trio.Event()

    def write(self, data: Any) -> int:
        self.waiting = True
        self._told()
        assert self.gate.wait(10), "the test never opened the gate"
        self.writes.append(bytes(data))
        self._told()
        if self.error is not None:
            raise self.error
        return len(data)

    def flush(self) -> None:
        self.flushes += 1

    def isatty(self) -> bool:
        return self.tty


def logged(*events: Event, form: Any = "json", level: Any = "info", tty: bool = False, wall: float = WALL) -> list[str]:
    """The lines that these events make."""
    sink = Sink(tty=tty)
    log = Log.to(sink, Logging(form, level), lambda: wall)
    for event in events:
        log(event)
    log.writer.flush()
    text = b"".join(sink.writes).decode()
    assert text == "" or text.endswith("\n")
    return text.splitlines()


def line_of(event: Event) -> dict[str, Any]:
    (line,) = logged(event, level="debug")
    return dict(json.loads(line))


def told(line: dict[str, Any]) -> tuple[str, ...]:
    """The upstreams' words in a line."""
    return (line.get("message", ""), *(attempt.get("why", "") for attempt in line.get("attempts", ())))


# What a line says.


def test_the_line_of_an_exchange_has_every_field() -> None:
    assert line_of(FULL) == {
        "event": "exchange",
        "level": "warning",
        "timestamp": "2025-11-24T16:00:00.250Z",
        "request_id": "req_2",
        "reason": "cut_after_commit",
        "status": 200,
        "endpoint": "/v1/chat/completions",
        "model": "m",
        "stream": True,
        "key": "team-a",
        "tenant": "acme",
        "class": "batch",
        "ms": 1750.0,
        "overhead_ms": 1.5,
        "input": 9,
        "cached": 4,
        "output": 3,
        "estimated": True,
        "usd": 0.000021,
        "bytes_out": 1234,
        "skipped": {"c": "breaker open for another 12 s"},
        "note": "a note",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "attempts": [
            {
                "channel": "a",
                "model": "a-model",
                "ms": 250.0,
                "fault": "server_error",
                "blame": "provider",
                "upstream_status": 503,
                "why": "scripted 503",
            },
            {"channel": "b", "model": "b-model", "ms": 1500.0, "first_ms": 125.0},
        ],
    }


def test_what_does_not_apply_is_left_out() -> None:
    assert not {"estimated", "skipped", "note", "traceparent"} & set(line_of(PLAIN))


def test_an_unknown_price_is_null_and_not_nothing() -> None:
    assert line_of(PLAIN)["usd"] == 0.0
    assert line_of(replace(PLAIN, cost=None))["usd"] is None


def test_a_bug_is_told_with_its_traceback_in_one_line() -> None:
    sink = Sink()
    log = Log.to(sink, Logging("json"), lambda: WALL)
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // 0
    log.bug(caught.value)
    log.writer.flush()
    (line,) = b"".join(sink.writes).splitlines()
    said = json.loads(line)
    assert (said["event"], said["level"]) == ("bug", "error")
    assert "Traceback" in said["exception"]
    assert "ZeroDivisionError: integer division" in said["exception"]


def test_people_read_a_traceback_line_by_line() -> None:
    sink = Sink()
    log = Log.to(sink, Logging("human"), lambda: WALL)
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // 0
    log.bug(caught.value)
    log.writer.flush()
    assert b"\nZeroDivisionError: integer division" in sink.writes[0]


def test_the_shell_can_say_something_too() -> None:
    sink = Sink()
    log = Log.to(sink, Logging("json"), lambda: WALL)
    log.say("listening", addresses=["127.0.0.1:8787"])
    log.writer.flush()
    said = json.loads(sink.writes[0])
    assert (said["event"], said["level"], said["addresses"]) == ("listening", "info", ["127.0.0.1:8787"])


@pytest.mark.parametrize(
    ("wall", "stamp"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (WALL, "2025-11-24T16:00:00.250Z"),
        (1_764_000_000.9999, "2025-11-24T16:00:00.999Z"),  # never into the next second
    ],
)
def test_the_time_is_utc_to_the_millisecond(wall: float, stamp: str) -> None:
    (line,) = logged(PLAIN, wall=wall)
    assert json.loads(line)["timestamp"] == stamp


def test_the_time_moves_with_the_clock_within_and_across_seconds() -> None:
    times = iter([10.0, 10.5, 11.0, 9.0])
    sink = Sink()
    log = Log.to(sink, Logging("json"), lambda: next(times))
    for _ in range(4):
        log(PLAIN)
    log.writer.flush()
    stamps = [json.loads(line)["timestamp"][17:] for line in sink.writes[0].splitlines()]
    assert stamps == ["10.000Z", "10.500Z", "11.000Z", "09.000Z"]


# How loud it is.


@pytest.mark.parametrize("reason", EndReason)
def test_only_what_an_operator_must_know_is_loud(reason: EndReason) -> None:
    loud = {"bug": "error", "chain_exhausted": "error", "cut_after_commit": "warning", "deadline": "warning"}
    loud |= {"degraded": "warning", "deferred": "warning"}
    assert line_of(replace(PLAIN, reason=reason))["level"] == loud.get(reason.value, "info")


@pytest.mark.parametrize(("level", "count"), [("debug", 3), ("info", 3), ("warning", 2), ("error", 1)])
def test_what_is_less_loud_than_asked_for_is_left_out(level: str, count: int) -> None:
    events = [replace(PLAIN, reason=reason) for reason in (EndReason.ANSWERED, EndReason.DEADLINE, EndReason.BUG)]
    assert len(logged(*events, level=level)) == count


# Its forms.


@pytest.mark.parametrize(
    ("form", "tty", "human"),
    [("auto", True, True), ("auto", False, False), ("human", False, True), ("json", True, False)],
)
def test_people_at_a_terminal_get_words_and_machines_get_json(form: str, tty: bool, human: bool) -> None:
    (line,) = logged(FULL, form=form, tty=tty)
    assert line.startswith("{") != human


def test_the_human_form_tells_an_exchange_in_a_line() -> None:
    (line,) = logged(FULL, form="human")
    story = (
        "cut_after_commit 200 m: a ✗ server_error 503 → b 1500 ms | about 13 (4 cached) → 3 tokens, $0.000021 | 1750 ms"
    )
    for word in ("16:00:00", "warning", story, "request_id=req_2", "tenant=acme", "key=team-a", "note='a note'"):
        assert word in line
    (line,) = logged(replace(PLAIN, cost=None, usage=Usage(input=9, output=3)), form="human")
    assert "answered 200 /v1/chat/completions | 9 → 3 tokens, price unknown | 0 ms" in line
    assert "tenant" not in line
    assert "\x1b" not in line  # no colours but on a terminal


@pytest.mark.parametrize("form", ["json", "human"])
@pytest.mark.parametrize("words", ["two\nlines", "\x1b[2Jcleared", 'a "quote"', "\x00\r", "half an emoji \ud83d", "ü€"])
def test_an_upstreams_words_cannot_break_a_line_or_a_terminal(words: str, form: str) -> None:
    fault = evolve(FAULT, message=words)
    record = AttemptRecord("a", "a-model", 0.0, 0.25, fault)
    for event in (replace(FULL, attempts=(record,)), ChannelParked("a", "auth", words, 1.0, 0.0)):
        (line,) = logged(event, form=form)
        assert line.isprintable()
        assert form == "human" or words in told(json.loads(line))


# The writer.


async def test_lines_are_written_behind_the_scenes_in_batches(autojump_clock: MockClock) -> None:
    sink = Sink()
    writer = LineWriter(sink)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        for number in range(3):
            writer.write(f"{number}")
        writer.write(b"bytes")
        await sink.written(1)
        assert sink.writes == [b"0\n1\n2\nbytes\n"]
        writer.write("later")
        await sink.written(2)
        assert sink.flushes >= 1
        assert sink.writes[1:] == [b"later\n"]
        nursery.cancel_scope.cancel("the test is over")


async def test_what_waits_at_the_end_is_flushed(autojump_clock: MockClock) -> None:
    sink = Sink()
    writer = LineWriter(sink)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        writer.write("first")
        await sink.written(1)
        writer.write("last")
        nursery.cancel_scope.cancel("the process ends")
    assert sink.writes == [b"first\n"]
    writer.flush()
    writer.flush()
    assert sink.writes == [b"first\n", b"last\n"]


def test_past_its_bound_lines_are_dropped_and_counted() -> None:
    sink = Sink()
    writer = LineWriter(sink)
    for number in range(MAX_WAITING + 7):
        writer.write(str(number))
    assert writer.dropped == 7
    writer.flush()
    assert sink.writes[0].splitlines()[-1] == str(MAX_WAITING - 1).encode()
    writer.write("there is room again")
    writer.flush()
    assert (sink.writes[1], writer.dropped) == (b"there is room again\n", 7)


async def test_a_stream_that_takes_nothing_holds_nobody_up() -> None:
    """A full pipe: the loop goes on, what is past the bound is dropped, and what is not is written once it can be."""
    sink = Sink()
    sink.gate.clear()
    writer = LineWriter(sink)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        writer.write("stuck")
        await sink.stuck()
        for number in range(MAX_WAITING + 5):
            writer.write(str(number))
            if number % 1000 == 0:
                await trio.lowlevel.checkpoint()
        assert sink.writes == []
        assert writer.dropped == 5
        sink.gate.set()
        await sink.written(2)
        nursery.cancel_scope.cancel("the test is over")
    assert sink.writes[0] == b"stuck\n"
    assert len(sink.writes[1].splitlines()) == MAX_WAITING


@pytest.mark.parametrize("error", [BrokenPipeError(32, "nobody reads"), OSError(28, "no space left")])
async def test_a_stream_that_breaks_costs_lines_and_nothing_else(error: OSError, autojump_clock: MockClock) -> None:
    sink = Sink(error=error)
    writer = LineWriter(sink)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        writer.write("one")
        writer.write("two")
        await sink.written(1)
        writer.write("three")
        await sink.written(2)
        nursery.cancel_scope.cancel("the test is over")
    assert writer.dropped == 3
    writer.write("four")
    writer.flush()
    assert writer.dropped == 4


async def test_no_line_is_lost_between_the_loop_and_the_writing_thread(autojump_clock: MockClock) -> None:
    """Lines that are added while a batch is being written go with the next one, also where the writer is cancelled."""
    sink = Sink()
    writer = LineWriter(sink)
    count = 0
    for _ in range(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            for _ in range(20):
                for _ in range(20):  # 8,000 in all: a thread that is never given a turn has room for them
                    writer.write(str(count))
                    count += 1
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel("the test is over")
        assert writer.dropped == 0
    await writer.close()
    assert b"".join(sink.writes).split() == [str(number).encode() for number in range(count)]


# What never gets in.


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("form", ["json", "human"])
async def test_neither_prompts_nor_answers_nor_keys_are_in_any_line(
    form: Any, streamed: bool, autojump_clock: MockClock
) -> None:
    sink = Sink()
    echo = {"error": {"message": "Incorrect API key provided: sk-secret-a. See http://a.test/keys", "code": "x"}}
    async with scene("a", "b") as s:
        log = Log.to(sink, Logging(form, "debug"), lambda: WALL)
        s.gateway.journal.subscribe(log)
        s.a.script(steps.error(401, echo))
        s.b.script(steps.chat("the spoken answer"))
        prompt = [{"role": "user", "content": "the private question"}]
        headers = [("authorization", "Bearer caller-secret"), ("cookie", "session=biscuit")]
        status, said, _ = await s.ask(streamed=streamed, headers=headers, messages=prompt, user="end-user-7")
        assert (status, said) == (200, "the spoken answer")
        s.a.script(steps.error(400, echo))
        await s.ask(streamed=streamed, headers=headers, messages=prompt, model="nobody-has-this")
        await s.rest()
        log.writer.flush()
    text = b"".join(sink.writes).decode()
    assert text.count("req_") == 2
    assert "parked" in text
    for secret in (
        "sk-secret",
        "caller-secret",
        "biscuit",
        "private question",
        "spoken answer",
        "end-user-7",
        "a.test",
    ):
        assert secret not in text


def test_lines_that_were_lost_are_told_of_once() -> None:
    sink = Sink()
    log = Log.to(sink, Logging("json"), lambda: WALL)
    log.account()
    log.writer.dropped = 7
    log.account()
    log.account()
    log.writer.flush()
    (line,) = b"".join(sink.writes).splitlines()
    assert json.loads(line)["lines"] == 7


def test_what_only_people_need_is_not_loaded_for_machines() -> None:
    """rich and structlog take a fifth of the time to start and six of 45 MiB."""
    program = "import sys, trioproxy.app; print(sorted({'rich', 'structlog', 'click'} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)  # noqa: S603 - our own
    assert found.stdout.strip() == "[]"
