"""Two arms of a rollout compared: is the candidate worse than it may be, as good as it must be, or is it too soon to say?

Rates (refusals, errors) are compared by the interval of Agresti and Caffo for a difference of two proportions (The American
Statistician 54(4), 2000): one success and one failure are added to each arm, which keeps it honest at 0 of n. The candidate is
worse where the whole interval is above what is tolerated. The verdict is looked at after every call, so the interval is a
wide one. p95 and mean cost are compared as ratios. Below `sample` calls in either arm nothing is said at all.
"""

import enum
import math
from collections.abc import Mapping
from typing import NamedTuple

from attrs import define, evolve, field, frozen, validators

Z = 3.0  # one false alarm in 700 at a single look; 1.64 would be one in 20
STEPS = 8  # buckets of latency per doubling: 9 % wide


class Outcome(NamedTuple):
    """One call of an arm. `seconds` until the answer began, `cost` micro-USD; None where there is no such figure."""

    refused: bool = False
    failed: bool = False
    seconds: float | None = None
    cost: int | None = None


class Verdict(enum.Enum):
    TOO_FEW = "not enough data"
    WELL = "well"
    UNSURE = "unsure"  # seems worse, but that may be chance
    WORSE = "worse"  # must go back
    DEARER = "slower or dearer"  # somebody must look


def _at_least_0(_tolerance: "Tolerance", _attribute: object, value: float | None) -> None:
    if value is not None and not value >= 0:
        raise ValueError(f"{value} is too little: give at least 0, or leave it out")


@frozen
class Tolerance:
    """How much worse a candidate may be. Rates are shares of 1 above the baseline's, the others factors; None asks nothing."""

    refusals: float | None = field(default=0.02, validator=_at_least_0)
    errors: float | None = field(default=0.02, validator=_at_least_0)
    latency: float | None = field(default=1.5, validator=_at_least_0)
    cost: float | None = field(default=None, validator=_at_least_0)
    sample: int = field(default=100, validator=validators.ge(1))


@define(eq=False)
class Arm:
    """What was seen of one arm since its step began."""

    calls: int = 0
    refused: int = 0
    failed: int = 0
    priced: int = 0
    cost: int = 0  # micro-USD
    buckets: dict[int, int] = field(factory=dict)

    def note(self, outcome: Outcome) -> None:
        self.calls += 1
        self.refused += outcome.refused
        self.failed += outcome.failed
        if outcome.cost is not None:
            self.priced += 1
            self.cost += outcome.cost
        if outcome.seconds is not None:
            bucket = math.floor(STEPS * math.log2(max(outcome.seconds, 0.001)))
            self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    @property
    def p95(self) -> float | None:
        """Seconds: the upper end of the bucket that 95 % of the calls are in or below."""
        left = 0.95 * sum(self.buckets.values())
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                return float(2.0 ** ((bucket + 1) / STEPS))
        return None

    @property
    def mean_cost(self) -> float | None:
        """Micro-USD per call."""
        return self.cost / self.priced if self.priced else None

    def snapshot(self) -> dict[str, object]:
        buckets = {str(bucket): count for bucket, count in self.buckets.items()}
        counts = {name: getattr(self, name) for name in ("calls", "refused", "failed", "priced", "cost")}
        return {**counts, "buckets": buckets}

    @classmethod
    def restore(cls, told: Mapping[str, object]) -> "Arm":
        """Raises `ValueError` or `TypeError` for what is no snapshot."""
        counts = {name: _count(told[name]) for name in ("calls", "refused", "failed", "priced", "cost")}
        buckets = told["buckets"]
        if not isinstance(buckets, Mapping):
            raise TypeError(buckets)
        return cls(**counts, buckets={int(bucket): _count(count) for bucket, count in buckets.items()})


def _count(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(value)
    return value


def excess(candidate: tuple[int, int], baseline: tuple[int, int]) -> tuple[float, float]:
    """(low, high) of how much more of the candidate's calls were hit; each arm is (hit, calls)."""
    (hit, calls), (hit2, calls2) = candidate, baseline
    share, share2 = (hit + 1) / (calls + 2), (hit2 + 1) / (calls2 + 2)
    error = math.sqrt(share * (1 - share) / (calls + 2) + share2 * (1 - share2) / (calls2 + 2))
    return share - share2 - Z * error, share - share2 + Z * error


def compare(candidate: Arm, baseline: Arm, tolerance: Tolerance) -> tuple[Verdict, str]:
    """The verdict, and why in a sentence with the figures."""
    if min(candidate.calls, baseline.calls) < tolerance.sample:
        told = f"{candidate.calls} calls of the candidate and {baseline.calls} of the baseline"
        return Verdict.TOO_FEW, f"not enough data: {told}, of {tolerance.sample} each"
    rates = (
        ("refused", candidate.refused, baseline.refused, tolerance.refusals),
        ("failed", candidate.failed, baseline.failed, tolerance.errors),
    )
    unsure = ""
    for what, hit, hit2, most in rates:
        if most is None:
            continue
        told = f"{hit} of {candidate.calls} calls {what}, {hit2} of {baseline.calls} at the baseline"
        if excess((hit, candidate.calls), (hit2, baseline.calls))[0] > most:
            return Verdict.WORSE, told
        if hit / candidate.calls - hit2 / baseline.calls > most:
            unsure = unsure or f"{told}: that may be chance"
    dearer = _dearer(candidate, baseline, tolerance)
    if dearer:
        return Verdict.DEARER, dearer
    return (Verdict.UNSURE, unsure) if unsure else (Verdict.WELL, "")


def worse(candidate: Arm, baseline: Arm, tolerance: Tolerance) -> str:
    """Only what must be known after every call: why the candidate has to go back at once, or ""."""
    verdict, why = compare(candidate, baseline, evolve(tolerance, latency=None, cost=None))
    return why if verdict is Verdict.WORSE else ""


def _dearer(candidate: Arm, baseline: Arm, tolerance: Tolerance) -> str:
    figures = (
        ("p95 latency is", "s", candidate.p95, baseline.p95, tolerance.latency),
        ("a call costs", "micro-USD", candidate.mean_cost, baseline.mean_cost, tolerance.cost),
    )
    for what, unit, figure, figure2, most in figures:
        if most is not None and figure is not None and figure2 and figure > most * figure2:
            return f"{what} {figure:.3g} {unit}, {figure / figure2:.2f} times the baseline's"
    return ""
