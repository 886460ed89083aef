"""The result of a regression set, small enough to be required: which set, which channel, how well, when.

A rollout that wants one asks `meets`. A reading counts only for the very same questions (`set_hash`), when every one of them
was asked, and as long as it is not too old: what a channel said last month is no evidence.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import asdict, fields, frozen


@frozen
class Reading:
    """One channel's result. `pass_rate` is a share of 1; `at` is Unix seconds, when the last answer was there.

    `complete` says that every prompt was asked as often as planned.
    """

    set_hash: str
    channel: str
    model: str
    provider_model: str
    passed: int
    runs: int
    pass_rate: float
    complete: bool
    at: float

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@frozen
class Required:
    """What a step asks for. `max_age` is seconds; None: however old. `set_hash` None: of whatever set."""

    channel: str
    pass_rate: float = 1.0
    set_hash: str | None = None
    model: str | None = None
    provider_model: str | None = None
    max_age: float | None = 86_400.0  # a day: providers change models without a word


def meets(reading: Reading, required: Required, now: float) -> bool:
    """Whether the reading is what is required. `now` is Unix seconds."""
    return objection(reading, required, now) is None


def objection(reading: Reading, required: Required, now: float) -> str | None:
    """Why the reading is not what is required, in words; None where it is. `now` is Unix seconds."""
    if reading.channel != required.channel:
        return f"it is of channel {reading.channel}, not {required.channel}"
    if required.model is not None and reading.model != required.model:
        return f"it is of model {reading.model}, not {required.model}"
    if required.provider_model is not None and reading.provider_model != required.provider_model:
        return f"it is of {reading.provider_model} there, not {required.provider_model}"
    if required.set_hash is not None and reading.set_hash != required.set_hash:
        return f"it is of another set ({reading.set_hash}, not {required.set_hash})"
    if not reading.complete or reading.runs == 0:
        return "it is not complete: not every prompt was asked"
    if required.max_age is not None and now - reading.at > required.max_age:
        return f"it is {now - reading.at:.0f} s old, at most {required.max_age:.0f} are allowed"
    if reading.pass_rate < required.pass_rate:
        return f"{reading.pass_rate:.1%} passed, {required.pass_rate:.1%} are required"
    return None


def missing(readings: Iterable[Reading], required: Iterable[Required], now: float) -> str | None:
    """What of that is required no reading shows, in words; None where all of it is shown. `now` is Unix seconds."""
    known = sorted(readings, key=lambda reading: reading.at, reverse=True)
    for each in required:
        of_it = [reading for reading in known if reading.channel == each.channel]
        whys = [objection(reading, each, now) for reading in of_it]
        if not whys:
            return f"there is no reading of channel {each.channel}"
        if None not in whys:
            return f"the reading of channel {each.channel} is not what is required: {whys[0]}"
    return None


def readings_in(report: object) -> tuple[Reading, ...]:
    """The readings of a report that `trioproxy regress --json` wrote. Raises `ValueError` where it is none."""
    listed = report.get("readings") if isinstance(report, Mapping) else None
    if not isinstance(listed, list):
        raise ValueError("this is no report of trioproxy regress: it has no list of readings")  # noqa: TRY004 - of a file
    return tuple(map(_reading, listed))


def _reading(raw: object) -> Reading:
    if not isinstance(raw, Mapping):
        raise ValueError("a reading must be an object")  # noqa: TRY004 - of a file
    given: dict[str, Any] = {}
    for field in fields(Reading):
        value = raw.get(field.name)
        wanted = (int, float) if field.type is float else field.type
        assert wanted is not None
        if not isinstance(value, wanted) or (isinstance(value, bool) and field.type is not bool):
            raise ValueError(f"a reading's {field.name} is missing or of another type")
        given[field.name] = value
    return Reading(**given)
