"""The spool: where a record is safe from `kill -9` the moment it is written, without a system call.

A ring in a file that is preallocated and mapped: writing is a copy into memory that belongs to the kernel, and stays there
whatever becomes of the process. (A loss of power is another matter: then the last seconds are gone.) The loop appends, the
writer's thread reads and moves the tail when what it read is in the database; each of them writes its own figures only.

Positions are bytes since the beginning and never come back. A record is its position, length, checksum and payload, the
header last. The checksum is salted by the process's life, so that neither a torn record nor what an earlier life or lap has
left can pass for one.
"""

import fcntl
import mmap
import os
import struct
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from attrs import define, field

HEADER = struct.Struct("<QII")
PREAMBLE = struct.Struct("<8sIIQQQ16s")  # magic, version, salt, size, tail, pid, id
TAIL = struct.Struct("<Q")
TAIL_AT = 24
MAGIC = b"trioprxy"
VERSION = 1
PAGE = 4096  # the preamble has the first one
LEAST = 64 * 1024


class SpoolError(Exception):
    """The file cannot be a spool; the message says why."""


@define(eq=False)
class Spool:
    """One ring. `append` is for the loop alone, `read` and `release` for the writer's thread alone."""

    _map: mmap.mmap
    _file: BinaryIO | None  # None for a ring in memory
    size: int
    salt: int
    identity: str
    head: int = 0
    tail: int = 0
    _serial: int = field(init=False, default=0)

    @classmethod
    def in_memory(cls, size: int) -> "Spool":
        """A ring that ends with the process."""
        return cls(mmap.mmap(-1, PAGE + size), None, size, 1, "memory")

    @classmethod
    def open(cls, path: Path, size: int) -> "Spool":
        """The ring in a file, made where there is none; nobody else has it then.

        Raises `OSError`, such as for a full disk, and `SpoolError` where another process has it or it is something else.
        """
        file = path.open("r+b" if path.exists() else "x+b", buffering=0)
        try:
            _lock(file, path)
            if os.fstat(file.fileno()).st_size < PAGE:
                allocate(file, PAGE + size)
                file.seek(0)
                file.write(PREAMBLE.pack(MAGIC, VERSION, 1, size, 0, os.getpid(), os.urandom(16)))
            return cls._opened(file, path)
        except BaseException:
            file.close()
            raise

    @classmethod
    def _opened(cls, file: BinaryIO, path: Path) -> "Spool":
        file.seek(0)
        magic, version, salt, size, tail, _, identity = PREAMBLE.unpack(file.read(PREAMBLE.size))
        length = os.fstat(file.fileno()).st_size
        if magic != MAGIC or not LEAST <= size <= length - PAGE:
            raise SpoolError(f"{path} is no spool of this program: move it away")
        if version != VERSION:
            raise SpoolError(f"{path} was written by another version ({version}, this one writes {VERSION})")
        return cls(mmap.mmap(file.fileno(), PAGE + size), file, size, salt, identity.hex(), tail, tail)

    def live(self, position: int, size: int | None = None) -> None:
        """Begin a life at `position`: everything before it is in the database. `size` makes the ring another size."""
        if size is not None and size != self.size and self._file is not None:
            self._map.close()
            allocate(self._file, PAGE + size)
            os.ftruncate(self._file.fileno(), PAGE + size)
            self._map = mmap.mmap(self._file.fileno(), PAGE + size)
            self.size = size
        self.salt += 1
        self.head = self.tail = position
        identity = b"" if self._file is None else bytes.fromhex(self.identity)
        PREAMBLE.pack_into(self._map, 0, MAGIC, VERSION, self.salt, self.size, position, os.getpid(), identity)

    @property
    def room(self) -> int:
        """Bytes that are free. Part of it may be lost at the end of the ring, where a record must not be split."""
        return self.size - (self.head - self.tail)

    def serial(self) -> int:
        """A number that no other life of this spool gives."""
        self._serial += 1
        return (self.salt << 32) + self._serial

    def append(self, payload: bytes) -> int | None:
        """Write a record; its position, or None where there is no room. Never blocks."""
        length = len(payload)
        head, size = self.head, self.size
        offset = head % size
        if offset + HEADER.size + length > size:
            head += size - offset
            offset = 0
        end = head + HEADER.size + length
        if end - self.tail > size:
            return None
        start = PAGE + offset + HEADER.size
        self._map[start : start + length] = payload
        HEADER.pack_into(self._map, PAGE + offset, head, length, crc32(payload, (self.salt ^ head) & 0xFFFFFFFF))
        self.head = end
        return head

    def read(self, position: int, most: int, until: int | None = None) -> tuple[list[tuple[int, bytes]], int]:
        """Up to `most` records from `position` on, with theirs, and the position behind them.

        Up to `until`; without it, as after a crash, up to the first thing that is no record.
        """
        found: list[tuple[int, bytes]] = []
        while len(found) < most and (until is None or position < until):
            payload = self._at(position)
            if payload is None:
                position_of_lap = position + self.size - position % self.size
                if (payload := self._at(position_of_lap)) is None:
                    break
                position = position_of_lap
            found.append((position, payload))
            position += HEADER.size + len(payload)
        return found, position

    def _at(self, position: int) -> bytes | None:
        offset = position % self.size
        if offset + HEADER.size > self.size:
            return None
        written, length, checksum = HEADER.unpack_from(self._map, PAGE + offset)
        start = offset + HEADER.size
        if written != position or length > self.size - start:
            return None
        payload = self._map[PAGE + start : PAGE + start + length]
        return payload if crc32(payload, (self.salt ^ position) & 0xFFFFFFFF) == checksum else None

    def release(self, position: int) -> None:
        """What is before `position` is in the database."""
        self.tail = position
        TAIL.pack_into(self._map, TAIL_AT, position)

    def close(self) -> None:
        self._map.close()
        if self._file is not None:
            self._file.close()


def allocate(file: BinaryIO, length: int) -> None:
    """Have the disk set so much aside: a mapping of what it has no room for would kill the process, not fail."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, length)
    else:  # macOS: there it is up to the operator
        os.ftruncate(file.fileno(), length)


def _lock(file: BinaryIO, path: Path) -> None:
    """One process per spool. The lock is the kernel's, and goes when its holder does, however it goes."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        data = file.read(PREAMBLE.size)
        holder = f" (pid {PREAMBLE.unpack(data)[5]})" if len(data) == PREAMBLE.size else ""
        raise SpoolError(
            f"another process{holder} is using {path}: end it, or give each gateway a [state] path of its own"
        ) from None
