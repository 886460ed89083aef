"""The generator against the fake provider, over real sockets in one reactor: what counts, and from when."""

import json
import random

import pytest
from attrs import evolve

from bench import arrivals, distribution, faults
from bench.faults import Script
from bench.load import Limits, Load
from bench.process import free_port
from bench.reactor import Line, listen
from bench.tally import Exchange, Tally
from bench.upstream import Manner, Provider
from bench.verdict import UnaryVerdict
from bench.workload import Endpoint, Mix, Shape, parse


def manner(*lines: str) -> Manner:
    nothing = distribution.parse("0")
    return Manner(nothing, nothing, nothing, distribution.parse("3"), script=Script(tuple(map(faults.parse, lines))))


def load_on(provider: Manner, shapes: tuple[Shape, ...], limits: Limits) -> Load:
    """A load whose provider lives in its own reactor."""
    load = Load(Endpoint(0), Mix((), (), ()), limits, rng=random.Random(5))
    port = listen(load.reactor, "127.0.0.1", 0, Provider(load.reactor, provider).accept)
    load.endpoint = Endpoint(port)
    load.mix = Mix.of(shapes, load.endpoint)
    return load


SHAPES = [
    Shape("unary"),
    Shape("burst", stream=True, chunks=40, burst=True),
    Shape("paced", stream=True, chunks=3, every=0.001),
    Shape("claude", stream=True, chunks=3, dialect="anthropic"),
    Shape("claude unary", dialect="anthropic"),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_answer_of_a_healthy_provider_is_complete(shape: Shape) -> None:
    load = load_on(manner(), (shape,), Limits(10.0, warmup=0.0, calls=20))
    tally = load.run_closed(4)
    assert tally.sent == 20
    assert not tally.failures
    assert tally.groups[shape.name].complete == 20
    assert tally.frames == (20 * shape.chunks if shape.stream else 0)


@pytest.mark.parametrize(
    ("line", "shape", "said"),
    [
        ("status=503", Shape(), "status 503"),
        ("tpm=0", Shape(), "status 429"),
        ("cut=1", Shape(), "closed before an answer"),
        ("cut=2", Shape(stream=True), "closed midway"),
        ("reset=1", Shape(), "ECONNRESET before an answer"),
        ("reset=2", Shape(stream=True), "ECONNRESET midway"),
        ("error=2", Shape(stream=True), "frames missing"),
        ("stall", Shape(), "timeout"),
    ],
)
def test_a_failure_counts_under_its_name_and_never_as_an_answer(line: str, shape: Shape, said: str) -> None:
    patience = 0.2 if said == "timeout" else 10.0  # a busy machine is no reason
    load = load_on(manner(line), (shape,), Limits(10.0, warmup=0.0, calls=1, patience=patience))
    tally = load.run_closed(1)
    assert tally.failures == {said: 1}
    assert tally.complete == 0


def test_latency_counts_from_the_intended_time() -> None:
    """The law behind everything: a call that was sent late because the server held the others up was late."""
    tally = Tally(opened=0.0, closed=10.0)
    tally.since = 0.0
    tally.end(Exchange(Shape(), b"", intended=1.0, verdict=UnaryVerdict(b""), sent=5.0), None, 6.0)
    assert tally.groups["call"].latency.quantile(0.5) == pytest.approx(5.0, rel=0.001)


def test_a_stall_shows_in_the_tail_with_all_the_calls_it_held_up() -> None:
    """One connection, a call each 5 ms, the first answer takes 0.2 s: the 20 calls meant for the first 0.1 s waited at
    least 0.1 s each, though a generator that waits for answers would have seen one slow call."""
    waits = iter([0.2])
    stalling = evolve(manner(), wait=lambda _: next(waits, 0.0))
    load = load_on(stalling, (Shape(),), Limits(0.0, warmup=0.0, connections=1))
    tally = load.run_open(arrivals.parse("200x0.4"), "constant")
    latency = tally.groups["call"].latency
    held = [duration for duration, _ in latency.curve() if duration >= 0.1]
    assert latency.total == 80
    assert sum(latency.counts.values()) == 80
    assert len(held) >= 10
    assert latency.quantile(0.75) >= 0.1


def test_an_open_loop_sends_all_that_was_planned_even_to_a_server_that_never_answers() -> None:
    load = load_on(manner("stall"), (Shape(),), Limits(0.0, warmup=0.0, patience=0.2))
    tally = load.run_open(arrivals.parse("500x0.1"), "constant")
    assert tally.sent == 50
    assert tally.failures == {"timeout": 50}


def test_a_server_that_takes_no_connection_is_a_failure() -> None:
    load = load_on(manner(), (Shape(),), Limits(10.0, warmup=0.0, calls=3))
    load.endpoint = Endpoint(free_port())
    assert load.run_closed(1).failures == {"ECONNREFUSED before an answer": 3}


def test_a_provider_that_answers_nonsense_is_a_failure() -> None:
    load = load_on(manner(), (Shape(),), Limits(10.0, warmup=0.0, calls=1))

    def babble(line: Line) -> None:
        line.on_data = lambda _: line.send(b"hello\r\n\r\n")

    load.endpoint = Endpoint(listen(load.reactor, "127.0.0.1", 0, babble))
    assert load.run_closed(1).failures == {"malformed HTTP": 1}


def test_a_mix_draws_by_weight() -> None:
    shapes = (parse("name=a weight=3"), parse("name=b weight=1 stream chunks=2"))
    mix = Mix.of(shapes, Endpoint(1))
    rng = random.Random(2)
    drawn = [mix.draw(rng)[0].name for _ in range(4000)]
    assert drawn.count("a") / 4000 == pytest.approx(0.75, abs=0.03)


def test_a_shape_says_everything_about_its_request() -> None:
    shape = parse("name=x model=big stream chunks=7 every=0.5 size=400 key=sk-x class=batch")
    head, _, body = shape.request(Endpoint(9, path="/p", headers={"x-more": "1"})).partition(b"\r\n\r\n")
    said = json.loads(body)
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /p HTTP/1.1"
    assert {b"authorization: Bearer sk-x", b"x-trioproxy-class: batch", b"x-more: 1"} <= set(lines)
    assert b"content-length: %d" % len(body) in lines
    assert (said["model"], said["stream"]) == ("big", True)
    assert len(said["messages"][-1]["content"]) == 400


@pytest.mark.parametrize("text", ["colour=red", "chunks=many"])
def test_a_wrong_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"red|many"):
        parse(text)


def test_a_client_that_hangs_up_is_no_failure_and_no_answer() -> None:
    load = load_on(manner("stall"), (Shape(leave=0.01),), Limits(10.0, warmup=0.0, calls=3, patience=5.0))
    tally = load.run_closed(3)
    assert (tally.left, tally.complete, dict(tally.failures)) == (3, 0, {})
