"""The operators' door: whose it is, how it speaks, and that nobody at it can hurt anybody."""

import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from trioproxy.doors.control import MAX_ORDER, MOST, PATIENCE, ControlDoor


@define(eq=False)
class Bench:
    path: Path
    bugs: list[Exception] = field(factory=list)
    streams: list[trio.SocketStream] = field(factory=list)

    async def connect(self) -> trio.SocketStream:
        self.streams.append(await trio.open_unix_socket(str(self.path)))
        return self.streams[-1]

    async def answer(self, line: bytes) -> bytes:
        if line == b"bug":
            raise RuntimeError(line)
        return b"<" + line + b">"


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[Bench]:
    bench = Bench(folder / "control.sock")
    async with trio.open_nursery() as nursery:
        await nursery.start(ControlDoor(bench.path, bench.answer, bench.bugs.append).run)
        try:
            yield bench
        finally:
            for stream in bench.streams:
                stream.socket.close()
        nursery.cancel_scope.cancel("done")
    assert not bench.path.exists()


async def line(stream: trio.SocketStream) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = await stream.receive_some()
        if not more:
            break
        data += more
    return data


async def test_it_is_its_owner_s_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        assert stat.S_IMODE(bench.path.stat().st_mode) == 0o600


async def test_an_order_a_line_however_the_bytes_come(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        stream = await bench.connect()
        for piece in (b"on", b"e\ntw", b"o\n"):
            await stream.send_all(piece)
        answers = await line(stream)
        while answers.count(b"\n") < 2:
            answers += await line(stream)
        assert answers == b"<one>\n<two>\n"


async def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        stream = await bench.connect()
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"x" * 100 * MAX_ORDER)


async def test_a_fault_of_ours_ends_one_connection_and_is_reported(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        stream = await bench.connect()
        await stream.send_all(b"bug\n")
        assert await line(stream) == b""
        assert [str(each) for each in bench.bugs] == ["b'bug'"]
        another = await bench.connect()
        await another.send_all(b"well\n")
        assert await line(another) == b"<well>\n"


async def test_who_says_nothing_makes_room_in_time(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with opened(tmp_path) as bench:
        silent = [await bench.connect() for _ in range(MOST)]
        for stream in silent:  # each has a place, and then says no more
            await stream.send_all(b"well\n")
            assert await line(stream) == b"<well>\n"
        late = await bench.connect()
        await late.send_all(b"well\n")
        assert await line(late) == b"<well>\n"
        assert trio.current_time() >= PATIENCE
        assert await line(silent[0]) == b""


async def test_what_a_dead_process_left_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        door = ControlDoor(bench.path, bench.answer, bench.bugs.append)
        with pytest.raises(OSError, match=r"control\.sock"):
            await door.run()
