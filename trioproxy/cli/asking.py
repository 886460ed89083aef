"""How commands ask the process that runs: one order over its control socket."""

import json
import socket
from pathlib import Path
from typing import Any

import click

from trioproxy.config.model import Config

PATIENCE = 10.0  # seconds; an answer takes a millisecond


def ask(file: Path, config: Config, order: dict[str, str]) -> Any:
    """The order's result. Leaves with 1 and a sentence where there is none."""
    path = config.control.socket
    if path is None:
        raise _left(
            f'{file}: there is no [control] socket: give one, such as socket = "/run/trioproxy.sock", and restart'
        )
    try:
        told = json.loads(_exchange(path, json.dumps(order).encode() + b"\n"))
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc) or "no answer"
        raise _left(f"nobody answers at {path} ({why}): is `trioproxy serve {file}` running?") from exc
    if "error" in told:
        raise _left(f"{file}: {told['error']}")
    return told["result"]


def _exchange(path: str, order: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(path)
        sock.sendall(order)
        with sock.makefile("rb") as answer:
            return answer.readline()


def _left(why: str) -> click.exceptions.Exit:
    click.echo(why, err=True)
    return click.exceptions.Exit(1)
