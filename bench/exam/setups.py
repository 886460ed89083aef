"""What it takes to sit the exam: a target with two channels for one model, and trioproxy's own setup; the peers' are in `peers`.

Deadlines are set to the exam's where the target has them. What it cannot be told is said in `lacks`, and shown in the table.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen

from bench.exam.asking import Outcome
from bench.exam.rulings import FIRST_CONTENT, HEADERS, IDLE, OPEN_FOR
from bench.exam.speech import Who
from bench.process import Command
from bench.workload import Endpoint


@frozen
class Place:
    """What a setup is given: its own directory, where the peer is installed, ports, the time scale, and the cases by name."""

    where: Path
    installed: Path
    port: int
    a: int
    b: int
    scale: float
    names: tuple[str, ...]

    def base(self, who: Who, name: str) -> str:
        """The base URL of a side for a case."""
        return f"http://127.0.0.1:{self.a if who == 'a' else self.b}/{name}/v1"

    def milliseconds(self, seconds: float) -> int:
        """Scaled."""
        return round(seconds * self.scale * 1000)


@frozen
class Setup:
    """How to start a target for some cases and how to ask it for one. `together`: one process serves all cases, because its
    state is by model; otherwise each case has a process of its own.
    """

    command: Callable[[Place], Command]
    endpoint: Callable[[Place, str], Endpoint]
    together: bool = True
    manners: tuple[str, ...] = ("patient",)  # beyond plain: assured, quick and patient where it can be told so
    classes: Mapping[str, str] = field(factory=dict)  # a manner's header value, for targets with classes
    says: Callable[[Outcome], Who | None] | None = None
    scaled: str = ""
    lacks: str = ""


def version(name: str, installed: Path) -> str:
    """Which version of a peer pip or npm has installed; empty where neither has."""
    for wheel in installed.glob(f"venv/lib/python*/site-packages/{name}-*.dist-info"):
        return wheel.name.removesuffix(".dist-info").partition("-")[2]
    for manifest in installed.glob("node_modules/*/gateway/package.json"):
        return str(json.loads(manifest.read_text())["version"])
    return ""


def who_ends(header: str, ends: Mapping[str, Who]) -> Callable[[Outcome], Who | None]:
    """Reads who answered from how a header ends."""

    def says(outcome: Outcome) -> Who | None:
        value = outcome.headers.get(header, "")
        return next((who for end, who in ends.items() if value.endswith(end)), None)

    return says


def by_model(place: Place, name: str) -> Endpoint:
    """The case is the model."""
    return Endpoint(place.port, model=name)


TRIOPROXY = """\
[listen]
data = "127.0.0.1:{port}"

[defaults]
headers_timeout = {headers}
idle_timeout = {idle}
breaker = {{ preset = "four-layer", window = {window}, open_for = {open} }}

[classes.quick]
gate_timeout = {first}
on_gate_timeout = "failover"

[classes.patient]
gate_timeout = {gate}

[classes.assured]
mode = "assured"
"""
TRIOPROXY_CASE = """
[[channels]]
name = "{name}-a"
base_url = "{a}"
auth = "none"

[[channels]]
name = "{name}-b"
base_url = "{b}"
auth = "none"

[[models]]
name = "{name}"
order = "listed"
channels = [{{ channel = "{name}-a", model = "m" }}, {{ channel = "{name}-b", model = "m" }}]
"""


def trioproxy(place: Place) -> Command:
    """`trioproxy serve`, with a class for each manner."""
    s = place.scale
    times = {"headers": HEADERS * s, "idle": IDLE * s, "first": FIRST_CONTENT * s, "gate": 30 * s}
    parts = [TRIOPROXY.format(port=place.port, window=300 * s, open=OPEN_FOR * s, **times)]
    parts += [TRIOPROXY_CASE.format(name=n, a=place.base("a", n), b=place.base("b", n)) for n in place.names]
    config = place.where / "trioproxy.toml"
    config.write_text("".join(parts))
    return Command((sys.executable, "-m", "trioproxy", "serve", str(config)), place.port)


SETUP = Setup(
    trioproxy,
    by_model,
    manners=("quick", "patient", "assured"),
    classes={name: name for name in ("quick", "patient", "assured")},
    says=who_ends("x-trioproxy-channel", {"-a": "a", "-b": "b"}),
    scaled="headers, first content, idle and gate deadlines; the breaker's window and cooldown",
    lacks="nothing",
)
