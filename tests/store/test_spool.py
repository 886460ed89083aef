"""The spool: records come out as they went in, over any number of laps and lives, and what is torn is none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.store.spool import HEADER, LEAST, PAGE, Spool, SpoolError


def fresh(path: Path) -> Spool:
    spool = Spool.open(path, LEAST)
    spool.live(spool.tail)
    return spool


@given(st.lists(st.tuples(st.integers(0, 9000), st.booleans()), max_size=60))
def test_what_fits_comes_out_in_order_and_what_does_not_changes_nothing(steps: list[tuple[int, bool]]) -> None:
    spool = Spool.in_memory(LEAST)
    waiting: list[tuple[int, bytes]] = []
    position = 0
    for number, (length, take) in enumerate(steps):
        payload = number.to_bytes(2, "big") * (length // 2)
        before = spool.head
        at = spool.append(payload)
        if at is None:
            assert spool.head == before
            assert spool.room < HEADER.size + len(payload) + LEAST - before % LEAST
        else:
            waiting.append((at, payload))
        if take:
            found, position = spool.read(position, 3, spool.head)
            assert found == waiting[:3]
            del waiting[:3]
            spool.release(position)
    found, _ = spool.read(position, 1000, spool.head)
    assert found == waiting
    assert spool.read(position, 1000)[0] == waiting  # as after a crash, when nobody knows the end


def test_a_life_finds_what_the_last_one_left(tmp_path: Path) -> None:
    first = fresh(tmp_path / "spool")
    payloads = [bytes([number]) * 1000 for number in range(20)]
    for payload in payloads:
        first.append(payload)
    first.close()
    second = Spool.open(tmp_path / "spool", LEAST)
    found, _ = second.read(second.tail, 100)
    assert [payload for _, payload in found] == payloads
    assert second.identity == first.identity
    second.close()


@pytest.mark.parametrize("at", [0, 9, 13, 16, 500])
def test_a_torn_record_ends_it(at: int, tmp_path: Path) -> None:
    spool = fresh(tmp_path / "spool")
    spool.append(b"a" * 1000)
    last = spool.append(b"b" * 1000)
    assert last is not None
    spool.close()
    data = bytearray((tmp_path / "spool").read_bytes())
    data[PAGE + last + at] ^= 0xFF
    (tmp_path / "spool").write_bytes(data)
    again = Spool.open(tmp_path / "spool", LEAST)
    assert [payload for _, payload in again.read(again.tail, 10)[0]] == [b"a" * 1000]
    again.close()


def test_what_an_earlier_life_wrote_is_nothing_in_a_later_one(tmp_path: Path) -> None:
    spool = fresh(tmp_path / "spool")
    for _ in range(10):
        spool.append(b"old" * 100)
    spool.live(spool.tail)  # the same place again
    assert spool.append(b"new" * 100) == spool.tail
    assert [payload for _, payload in spool.read(spool.tail, 10)[0]] == [b"new" * 100]
    spool.close()


def test_serials_are_unique_over_lives(tmp_path: Path) -> None:
    spool = fresh(tmp_path / "spool")
    serials = [spool.serial() for _ in range(3)]
    spool.close()
    again = fresh(tmp_path / "spool")
    assert len({*serials, again.serial(), again.serial()}) == 5
    again.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    spool = fresh(tmp_path / "spool")
    with pytest.raises(SpoolError, match=r"another process \(pid \d+\) is using .*spool: end it, or give each"):
        Spool.open(tmp_path / "spool", LEAST)
    spool.close()
    Spool.open(tmp_path / "spool", LEAST).close()


@pytest.mark.parametrize("content", [b"x" * 100_000, b"trioprxy\x09" + bytes(PAGE + LEAST)])
def test_another_file_is_left_alone(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "spool").write_bytes(content)
    with pytest.raises(SpoolError, match=r"move it away|another version"):
        Spool.open(tmp_path / "spool", LEAST)
    assert (tmp_path / "spool").read_bytes() == content


def test_another_size_takes_effect_in_the_next_life(tmp_path: Path) -> None:
    spool = fresh(tmp_path / "spool")
    spool.append(b"kept")
    spool.close()
    again = Spool.open(tmp_path / "spool", 2 * LEAST)
    ((_, payload),), behind = again.read(again.tail, 10)
    assert payload == b"kept"
    again.live(behind, 2 * LEAST)
    assert again.room == 2 * LEAST
    for number in range(100):
        again.append(bytes([number]) * 1200)
    assert len(again.read(behind, 1000)[0]) == 100
    again.close()
