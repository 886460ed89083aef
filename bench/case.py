"""The standing workloads of a comparison, by name."""

from attrs import frozen

from bench.workload import Shape


@frozen
class Case:
    """A closed-loop workload. Seconds."""

    name: str
    shape: Shape
    concurrency: int
    seconds: float = 3.0
    warmup: float = 0.5
    spread: float = 0.0  # callers start evenly over this time
    per: str = "call"  # what CPU time is divided by: call or chunk


CASES = {
    case.name: case
    for case in (
        Case("unary-c32", Shape("unary"), concurrency=32),
        Case("unary-c1", Shape("unary"), concurrency=1),
        Case("burst", Shape("burst", stream=True, chunks=200, burst=True), concurrency=16),
        # Streams of 5 s that start evenly over 1 s; a window of one stream's length has as many beginnings as ends.
        Case(
            "paced",
            Shape("paced", stream=True, chunks=100, every=0.05),
            concurrency=200,
            seconds=5.0,
            warmup=1.5,
            spread=1.0,
            per="chunk",
        ),
    )
}
