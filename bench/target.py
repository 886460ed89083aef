"""A target: something that takes OpenAI chat calls on this machine and passes them to the fake provider.

Each module in `bench.targets` defines one as `TARGET`. Peers install into a throw-away directory and nowhere else.
"""

import importlib
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

import bench.targets
from bench.process import Command, StartFailed
from bench.workload import Endpoint


@frozen
class Plan:
    """What a target is given: a directory of its own, the port to take, the provider's port."""

    where: Path
    port: int
    upstream: int


def nothing(_: Path) -> None:
    """For targets that need no installation."""


def plain(plan: Plan) -> Endpoint:
    """The endpoint of a target that looks like the provider itself."""
    return Endpoint(plan.port)


@frozen
class Target:
    """How to install it into a directory, how to start it (None: it is the provider itself), how to call it."""

    name: str
    command: Callable[[Plan], Command | None]
    install: Callable[[Path], None] = nothing
    endpoint: Callable[[Plan], Endpoint] = plain


def names() -> list[str]:
    """Every target there is an adapter for."""
    return [module.name for module in pkgutil.iter_modules(bench.targets.__path__)]


def load(name: str) -> Target:
    """The target of that name. Raises `ValueError`."""
    if name not in names():
        raise ValueError(f"no target {name!r}: {', '.join(names())}")
    target: Target = importlib.import_module(f"bench.targets.{name}").TARGET
    return target


def run_quietly(*argv: str, cwd: Path | None = None) -> None:
    """Run an installer. Raises `subprocess.CalledProcessError` with what it printed."""
    subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True)


def install_python(where: Path, *packages: str) -> None:
    """A virtual environment `where/venv` with these packages, unless it is there."""
    done = where / "installed"
    if not done.exists():
        run_quietly(sys.executable, "-m", "venv", str(where / "venv"))
        run_quietly(str(where / "venv/bin/pip"), "install", "--quiet", *packages)
        done.touch()


def install_node(where: Path, manifest: str) -> None:
    """What a `package.json` asks for under `where/node_modules`, unless it is there."""
    done = where / "installed"
    if not done.exists():
        (where / "package.json").write_text(manifest)
        run_quietly("npm", "install", "--no-audit", "--no-fund", cwd=where)
        done.touch()


def need_program(name: str) -> str:
    """Where a program of the system is. Raises `StartFailed`: installing it is the machine's business."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise StartFailed(f"{name} is not installed here; the system's packages have it")
    return found
