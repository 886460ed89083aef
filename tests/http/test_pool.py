"""The pool: what is kept, for how long, which one is taken first, and that whatever is not kept is closed."""

import pytest

from tests.fakes.network import MemoryWire, wire_pair
from trioproxy.http.message import ResponseReader
from trioproxy.http.pool import Connection, Pool


def connected() -> tuple[Connection, MemoryWire, MemoryWire]:
    """A connection, its own end of the wire and the provider's."""
    near, far = wire_pair()
    return Connection(near, ResponseReader()), near, far


def is_closed(wire: MemoryWire) -> bool:
    return wire._closed


def test_an_empty_pool_has_nothing_to_give() -> None:
    assert Pool(60.0).take(0.0) is None


def test_what_was_given_back_is_given_out_once() -> None:
    pool = Pool(60.0)
    connection, near, _ = connected()
    pool.give_back(connection, 0.0)
    assert len(pool) == 1
    assert pool.take(1.0) is connection
    assert pool.take(1.0) is None
    assert not is_closed(near)


def test_the_most_recently_used_comes_first() -> None:
    """So that the others grow old and go, and a burst's connections do not live for ever."""
    pool = Pool(60.0)
    first, second = connected()[0], connected()[0]
    pool.give_back(first, 0.0)
    pool.give_back(second, 1.0)
    assert pool.take(2.0) is second
    assert pool.take(2.0) is first


def test_one_that_lay_idle_for_its_time_is_closed_and_not_given_out() -> None:
    pool = Pool(60.0)
    connection, near, _ = connected()
    pool.give_back(connection, 10.0)
    assert pool.take(70.0) is None
    assert is_closed(near)
    assert len(pool) == 0


def test_a_moment_earlier_it_is_still_good() -> None:
    pool = Pool(60.0)
    connection, _, _ = connected()
    pool.give_back(connection, 10.0)
    assert pool.take(69.999) is connection


@pytest.mark.parametrize("how", ["fin", "reset", "unasked"])
def test_one_that_the_provider_closed_or_spoke_on_is_closed_and_passed_over(how: str) -> None:
    pool = Pool(60.0)
    good, good_wire, _ = connected()
    bad, bad_wire, far = connected()
    pool.give_back(good, 0.0)
    pool.give_back(bad, 0.0)
    if how == "unasked":
        far.send_now(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    else:
        far.reset() if how == "reset" else far.close()
    assert pool.take(1.0) is good
    assert is_closed(bad_wire)
    assert not is_closed(good_wire)


def test_a_keepalive_of_nothing_keeps_nothing() -> None:
    pool = Pool(0.0)
    connection, near, _ = connected()
    pool.give_back(connection, 5.0)
    assert pool.take(5.0) is None
    assert is_closed(near)


def test_no_more_than_the_limit_are_kept() -> None:
    pool = Pool(60.0, limit=2)
    made = [connected() for _ in range(3)]
    for connection, _, _ in made:
        pool.give_back(connection, 0.0)
    assert len(pool) == 2
    assert [is_closed(near) for _, near, _ in made] == [False, False, True]


def test_sweeping_closes_the_old_and_the_dead_and_keeps_the_rest() -> None:
    pool = Pool(60.0)
    old, dead, good = connected(), connected(), connected()
    pool.give_back(old[0], 0.0)
    pool.give_back(dead[0], 50.0)
    pool.give_back(good[0], 50.0)
    dead[2].close()
    pool.sweep(60.0)
    assert [is_closed(near) for _, near, _ in (old, dead, good)] == [True, True, False]
    assert len(pool) == 1
    assert pool.take(60.0) is good[0]


def test_closing_closes_all_and_what_comes_back_later_too() -> None:
    """An answer that ends during shutdown gives its connection back to a pool that is gone."""
    pool = Pool(60.0)
    idle, late = connected(), connected()
    pool.give_back(idle[0], 0.0)
    pool.close()
    pool.give_back(late[0], 1.0)
    assert (is_closed(idle[1]), is_closed(late[1])) == (True, True)
    assert len(pool) == 0
    assert pool.take(1.0) is None
