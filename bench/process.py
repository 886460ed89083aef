"""Processes that are measured: started, waited for, read through /proc, stopped.

A target's CPU time is that of its whole tree: every process under it, threads included, and those already reaped. The kernel
counts it in ticks of 10 ms, so a window should cost its target a second or more.
"""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Mapping
from pathlib import Path

from attrs import field, frozen

TICK = 1 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat after the command's closing parenthesis (proc_pid_stat(5), field N is index N-3).
PARENT, UTIME, CUTIME_END, RSS = 1, 11, 15, 21
GRACE = 5.0


@frozen
class Command:
    """How to start a target: arguments, extra environment, and where it listens: a port, or a file that will name one."""

    argv: tuple[str, ...]
    port: int | Path
    env: Mapping[str, str] = field(factory=dict)
    patience: float = 20.0  # seconds until it must listen


@frozen
class Reading:
    """A process tree at one moment: CPU seconds so far and resident bytes (shared pages count once per process)."""

    cpu: float
    rss: int


class StartFailed(Exception):
    """The target did not come to listen; the message holds the end of what it printed."""


def stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def tree(root: int) -> list[list[str]]:
    """The stat fields of a process and of everything under it."""
    every = {int(entry.name): stat(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    children: dict[int, list[int]] = {}
    for pid, fields in every.items():
        if fields:
            children.setdefault(int(fields[PARENT]), []).append(pid)
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        fields = every.get(pid)
        if fields:
            found.append(fields)
            waiting += children.get(pid, [])
    return found


def read(pid: int) -> Reading:
    """What the tree under `pid` has used."""
    members = tree(pid)
    cpu = sum(int(value) for fields in members for value in fields[UTIME:CUTIME_END])
    return Reading(cpu * TICK, sum(int(fields[RSS]) for fields in members) * PAGE)


def descriptors(pid: int) -> int:
    """How many files and sockets a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def own_cpu() -> float:
    """CPU seconds of this process, without its children."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def machine_cpu() -> float:
    """CPU seconds that all processes together, the kernel and the host (steal) have taken."""
    # proc_stat(5): user nice system idle iowait irq softirq steal; guest time is in user already.
    ticks = [int(value) for value in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) * TICK


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def raise_descriptors(wanted: int) -> int:
    """Raise the soft limit of open files, for this process and those it starts, as far as it may; the limit now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    return max(soft, allowed)


@contextlib.contextmanager
def running(command: Command, log: Path) -> Generator[int]:
    """The command as a process group that listens; its process id. Ends it on leaving. Raises `StartFailed`."""
    with log.open("wb") as out:
        child = subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(os.environ) | dict(command.env),
            start_new_session=True,
        )
    try:
        wait_listening(child, command, log)
        yield child.pid
    finally:
        end(child)


def wait_listening(child: "subprocess.Popen[bytes]", command: Command, log: Path) -> None:
    """Return when the port takes connections. Raises `StartFailed`."""
    give_up = time.monotonic() + command.patience
    while time.monotonic() < give_up and child.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            port = command.port if isinstance(command.port, int) else int(command.port.read_text())
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        time.sleep(0.02)
    said = log.read_text(errors="replace")[-2000:]
    how = f"does not listen after {command.patience:g} s" if child.poll() is None else "ended before it listened"
    raise StartFailed(f"{' '.join(command.argv[:5])} {how}:\n{said}")


def end(child: "subprocess.Popen[bytes]") -> None:
    """End the process group: politely, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
            return
