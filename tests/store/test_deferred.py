"""Deferred calls in the database: of two steps that compete one happens, and whatever happens there is one result at most."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.ledgers import Books, postgres, sqlite
from trioproxy.store import deferred, schema
from trioproxy.store.database import Database, transaction
from trioproxy.store.deferred import Bounds, Deferred, Put, Work
from trioproxy.store.opening import _postgres
from trioproxy.store.sqlite import Sqlite

BOUNDS = Bounds(calls=100, bytes=10_000, tenant_calls=100, tenant_bytes=10_000)
PUT = Put(
    id="dfr_1",
    tenant="acme",
    key_id="k",
    idempotency="",
    digest="d",
    model="m",
    endpoint="/v1/chat/completions",
    traffic_class="batch",
    priority=2,
    request_id="req_1",
    headers={"x-trioproxy-class": "batch"},
    body=b"{}",
    accepted=10.0,
    expires=100.0,
    hook="h",
)


def opened(path: str = ":memory:") -> Database:
    database = Sqlite.open(path)
    schema.migrate(database)
    return database


def accepted(database: Database, put: Put = PUT, bounds: Bounds = BOUNDS) -> Deferred:
    with transaction(database):
        found = deferred.accept(database, 1, put, bounds)
    assert isinstance(found, Deferred)
    return found


def claimed(database: Database, now: float = 20.0) -> Work:
    with transaction(database):
        work = deferred.claim(database, 1, ["m"], now)
    assert work is not None
    return work


@pytest.mark.parametrize("kind", [sqlite, postgres])
def test_the_whole_way_in_either_database(
    kind: Callable[[Path], AbstractContextManager[Books]], tmp_path: Path
) -> None:
    with kind(tmp_path) as books:
        database = Sqlite.open(str(books.path)) if books.url is None else _postgres(books.url)
        schema.migrate(database)
        put = evolve(PUT, idempotency="once")
        assert accepted(database, put).status == "pending"
        assert accepted(database, evolve(put, id="dfr_2")).id == "dfr_1"
        accepted(database, evolve(PUT, id="dfr_3", priority=1, accepted=11.0))
        accepted(database, evolve(PUT, id="dfr_4", model="other"))
        assert sorted(deferred.models(database, 1, 20.0)) == ["m", "other"]
        assert deferred.models(database, 2, 20.0) == []
        first = claimed(database)
        assert (first.id, first.runs, first.headers, first.body) == ("dfr_3", 1, PUT.headers, b"{}")
        deferred.put_back(database, first, 50.0)
        second = claimed(database)
        assert second.id == "dfr_1"
        deferred.finish(database, second, status=200, result=b'{"a": 1}', now=30.0)
        assert deferred.claim(database, 1, ["m"], 40.0) is None
        assert deferred.claim(database, 1, ["m"], 40.0, eager=True) is not None
        deferred.resume(database, 1)
        assert claimed(database).runs == 3
        (owed,) = deferred.owed(database, 1, 30.0, 9)
        assert (owed.id, owed.result, deferred.next_owed(database, 1)) == ("dfr_1", b'{"a": 1}', 30.0)
        deferred.untold(database, "dfr_1", 60.0)
        assert deferred.owed(database, 1, 59.0, 9) == []
        assert deferred.tidy(database, 1, 500.0, 100.0) == 1
        deferred.told(database, "dfr_1")
        deferred.tidy(database, 1, 500.0, 100.0)
        assert {each.id: each.status for each in deferred.listed(database)} == {"dfr_3": "running", "dfr_4": "expired"}
        assert deferred.find(database, "dfr_4", "rival") is None
        database.close()


def test_a_result_is_told_with_its_body_and_others_without() -> None:
    database = opened()
    accepted(database)
    assert "result" not in accepted(database, evolve(PUT, id="dfr_2")).told()
    work = claimed(database)
    deferred.finish(database, work, status=200, result=b"{}", now=30.0)
    found = deferred.find(database, work.id)
    assert found is not None
    assert found.told()["result"]["status"] == 200
    assert deferred.cancel(database, work.id, "acme", 40.0) == found
    database.close()


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["claim", "finish", "finish late", "put back", "cancel", "tidy", "resume", "told", "accept again"]
            ),
            st.floats(0.0, 30.0),
        ),
        max_size=40,
    )
)
def test_whatever_happens_in_whatever_order_a_call_has_one_end_and_keeps_it(steps: list[tuple[str, float]]) -> None:
    """A run that ended in an earlier life, or twice, changes nothing."""
    database, now, runs = opened(), 10.0, list[Work]()
    ends: list[dict[str, Any]] = []
    accepted(database, evolve(PUT, idempotency="once"))
    for number, (step, seconds) in enumerate(steps):
        now += seconds
        match step:
            case "claim":
                work = deferred.claim(database, 1, ["m"], now)
                runs += [] if work is None else [work]
            case "finish" if runs:
                deferred.finish(database, runs[-1], status=200, result=b'"%d"' % number, now=now)
            case "finish late" if runs:
                deferred.finish(database, runs[0], status=200, result=b'"%d"' % number, now=now)
            case "put back" if runs:
                deferred.put_back(database, runs[-1], now + 5)
            case "cancel":
                deferred.cancel(database, PUT.id, "acme", now)
            case "tidy":
                deferred.tidy(database, 1, now, 1e9)
            case "resume":
                deferred.resume(database, 1)
            case "told":
                deferred.told(database, PUT.id)
            case "accept again":
                assert accepted(database, evolve(PUT, id="dfr_2", idempotency="once")).id == PUT.id
        (found,) = deferred.listed(database)
        if found.status in deferred.OVER:
            ends.append(found.told())
    database.close()
    assert all(end == ends[0] for end in ends)
    assert [work.runs for work in runs] == list(range(1, len(runs) + 1))
