"""What is checked before a change is done: `nox` for all of it, `nox -s tests` for one session.

Sessions run in the environment that nox itself is installed in, so that one `pip install -e '.[test]'` is enough.
"""

import logging
import shutil
import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "contracts", "tests"]

BIN = Path(sys.executable).parent
CODE = [folder for folder in ("trioproxy", "tests", "bench") if any(Path(folder).rglob("*.py"))]


def python(session: nox.Session, *args: str) -> None:
    session.run(sys.executable, "-m", *args, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Format, ruff, and flake8-async on its own: ruff knows only part of its rules."""
    python(session, "ruff", "format", "--check")
    python(session, "ruff", "check")
    shipped = [str(path) for path in sorted(Path("trioproxy").rglob("*.py"))]
    # Off by default and wanted here; a prefix such as ASYNC9 would silently enable none. 910 and 911 are for libraries.
    options = ["--enable=ASYNC,ASYNC900,ASYNC912,ASYNC913", "--startable-in-context-manager=run"]
    session.run(str(BIN / "flake8-async"), *options, *shipped, external=True)


@nox.session
def types(session: nox.Session) -> None:
    """Strict, tests and bench included."""
    python(session, "mypy", "--strict", *CODE)


@nox.session
def contracts(session: nox.Session) -> None:
    """Imports go down only."""
    session.run(str(BIN / "lint-imports"), external=True)


def postgresql(session: nox.Session) -> None:
    """PostgreSQL's programs, which the store's tests start servers of their own with."""
    if any(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or shutil.which("initdb"):
        return
    session.run("apt-get", "update", "-qq", external=True)
    # Without its own cluster: nothing but the tests' servers is to run.
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "postgresql"]
    session.run(*install, external=True, env={"DEBIAN_FRONTEND": "noninteractive"})


@nox.session
def tests(session: nox.Session) -> None:
    """The whole suite; arguments after `--` go to pytest. Installs PostgreSQL where it is missing and can be."""
    postgresql(session)
    logging.getLogger("nox").setLevel(logging.ERROR)  # pytest's closing line is the run's last, unless a session failed
    python(session, "pytest", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """The suite with branch coverage and the lines it misses."""
    postgresql(session)
    python(session, "coverage", "run", "-m", "pytest", "-q", *session.posargs)
    python(session, "coverage", "report")


@nox.session
def bench(session: nox.Session) -> None:
    """A short comparison with the baselines; arguments after `--` go to the harness."""
    python(session, "bench", *(session.posargs or ["compare", "--rounds", "1"]))


@nox.session
def soak(session: nox.Session) -> None:
    """Half a minute of mixed traffic with faults and hang-ups; `-- --minutes 30` for the whole."""
    python(session, "bench", "soak", *(session.posargs or ["--minutes", "0.5"]))
