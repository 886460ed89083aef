"""A log whose other end has gone: lines are lost, and nothing else."""

import errno
import io
import os

from trioproxy.config.model import Logging
from trioproxy.journal import BreakerMoved
from trioproxy.ops.log import Log


class FullDisk(io.BytesIO):
    """Takes nothing until somebody makes room."""

    full = True

    def write(self, data: object, /) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)  # type: ignore[arg-type]


def test_lines_that_cannot_be_written_are_counted_and_later_ones_come() -> None:
    disk = FullDisk()
    log = Log.to(disk, Logging(format="json"), lambda: 1_764_000_000.0)
    log.say("lost")
    log(BreakerMoved("a", "closed", "open", 1.0, 61.0))
    log.writer.flush()
    assert log.writer.dropped == 2
    disk.full = False
    log.say("written")
    log.writer.flush()
    assert b"lost" not in disk.getvalue()
    assert b'"written"' in disk.getvalue()
    assert log.writer.dropped == 2
