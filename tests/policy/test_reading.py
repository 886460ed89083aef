"""A reading counts for the set, channel and model that it is of, when it is complete, good enough and not too old."""

import json
from typing import Any

import pytest
from attrs import evolve

from trioproxy.policy.reading import Reading, Required, meets, missing, objection, readings_in

READING = Reading("hash", "candidate", "m", "vendor/m", 19, 20, 0.95, complete=True, at=1000.0)
REQUIRED = Required("candidate", 0.95, "hash", "m", "vendor/m", max_age=60.0)


def test_the_bounds_themselves_are_good_enough() -> None:
    assert meets(READING, REQUIRED, now=1060.0)
    assert objection(READING, REQUIRED, now=1060.0) is None


@pytest.mark.parametrize(
    ("change", "now", "said"),
    [
        ({"channel": "other"}, 1000, "it is of channel other, not candidate"),
        ({"model": "n"}, 1000, "it is of model n, not m"),
        ({"set_hash": "h2"}, 1000, "it is of another set (h2, not hash)"),
        ({"provider_model": "vendor/n"}, 1000, "it is of vendor/n there, not vendor/m"),
        ({"complete": False}, 1000, "it is not complete: not every prompt was asked"),
        ({"runs": 0}, 1000, "it is not complete: not every prompt was asked"),
        ({}, 1061, "it is 61 s old, at most 60 are allowed"),
        ({"pass_rate": 0.9}, 1000, "90.0% passed, 95.0% are required"),
    ],
)
def test_what_does_not_meet_is_told_why(change: dict[str, Any], now: float, said: str) -> None:
    reading = evolve(READING, **change)
    assert not meets(reading, REQUIRED, now)
    assert objection(reading, REQUIRED, now) == said


def test_what_is_not_required_does_not_matter() -> None:
    required = Required("candidate", 0.5, max_age=None)
    assert meets(evolve(READING, model="n", set_hash="h2"), required, now=1e9)


def test_a_report_gives_back_the_readings_that_it_was_made_of() -> None:
    assert readings_in(json.loads(json.dumps({"readings": [READING.plain()]}))) == (READING,)


@pytest.mark.parametrize(
    "report",
    [None, [], {}, {"readings": {}}, {"readings": [3]}, {"readings": [{}]},
     *({"readings": [READING.plain() | change]} for change in (
         {"pass_rate": "1"}, {"pass_rate": True}, {"complete": 1}, {"runs": True}, {"runs": 1.5}, {"channel": None}))],
    ids=str,
)  # fmt: skip
def test_what_is_no_report_is_refused(report: Any) -> None:
    with pytest.raises(ValueError, match="reading"):
        readings_in(report)


def test_every_channel_that_is_required_has_to_be_shown_and_the_newest_reading_is_told_of() -> None:
    both = [REQUIRED, evolve(REQUIRED, channel="second")]
    assert missing([READING], both, 1000.0) == "there is no reading of channel second"
    second = evolve(READING, channel="second", pass_rate=0.5)
    assert missing([READING, second], both, 1000.0) == (
        "the reading of channel second is not what is required: 50.0% passed, 95.0% are required"
    )
    older = evolve(READING, channel="second", at=990.0)
    assert missing([READING, second, older], both, 1000.0) is None  # asked ten seconds before, and it was well
    worse = evolve(older, at=900.0)
    told = missing([worse, READING, second], both, 1000.0)
    assert told is not None
    assert told.endswith("50.0% passed, 95.0% are required")
    assert missing([], [], 0.0) is None
