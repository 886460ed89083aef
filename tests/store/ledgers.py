"""Real databases for tests: a SQLite file, and a PostgreSQL server of the test's own."""

import os
import pwd
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field

from trioproxy.config.secrets import DATABASE


@define(eq=False)
class Books:
    """A store's configuration, and its rows as anybody with the database can read them."""

    toml: str
    path: Path
    url: str | None = None
    credentials: dict[str, str] = field(factory=dict)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        if self.url is not None:
            import psycopg

            with psycopg.connect(self.url) as connection:
                return list(connection.execute(statement.encode()))
        connection_ = sqlite3.connect(self.path)
        try:
            return connection_.execute(statement).fetchall()
        finally:
            connection_.close()


@contextmanager
def sqlite(folder: Path) -> Generator[Books]:
    path = folder / "ledger.db"
    yield Books(f'[state]\npath = "{path}"\nsnapshot_every = 0.1\n', path)


@contextmanager
def postgres(folder: Path) -> Generator[Books]:
    """A server of its own on a free port, without durability that a test does not look at. Needs Debian's postgresql."""
    with server() as running:
        url = running.url
        path = folder / "gateway"
        toml = f'[state]\npath = "{path}"\nurl = {{ value = "{url}" }}\nsnapshot_every = 0.1\n'
        yield Books(toml, path, url, {DATABASE: url})


def programs() -> Path:
    """Where PostgreSQL's programs are: Debian keeps them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    assert on_path, "no PostgreSQL here: apt-get install postgresql (nox -s tests does)"
    return Path(on_path).parent


@define(eq=False)
class Server:
    """A PostgreSQL server that can be away for a while."""

    url: str
    control: list[str]
    options: str

    def start(self) -> None:
        _run([*self.control, "-o", self.options, "start"])

    def stop(self) -> None:
        _run([*self.control, "-m", "immediate", "stop"])


@contextmanager
def server() -> Generator[Server]:
    """A fresh one."""
    folder = Path(tempfile.mkdtemp())
    # It refuses to run as root.
    user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if os.getuid() == 0 else []
    if os.getuid() == 0:
        shutil.chown(folder, user, user)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data, bin_ = folder / "data", programs()
    _run([*as_user, str(bin_ / "initdb"), "-D", str(data), "-U", "gateway", "-A", "trust", "--no-sync"])
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    control = [*as_user, str(bin_ / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log")]
    made = Server(f"postgresql://gateway@127.0.0.1:{port}/postgres", control, options)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=15)  # noqa: S603 - our own command
