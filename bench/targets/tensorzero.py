"""TensorZero's gateway (Rust): the one that its Python package carries, which takes a port of its own choice."""

import sys
from pathlib import Path

from bench.process import Command
from bench.target import Plan, Target, install_python
from bench.workload import Endpoint

CONFIG = """\
[gateway]
observability.enabled = false

[models.m]
routing = ["provider"]

[models.m.providers.provider]
type = "openai"
model_name = "m"
api_base = "http://127.0.0.1:{upstream}/v1/"
api_key_location = "none"
"""
STARTER = """\
import signal, sys, pathlib, urllib.parse
from tensorzero import _start_http_gateway
gateway = _start_http_gateway(config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False)
pathlib.Path(sys.argv[2]).write_text(str(urllib.parse.urlsplit(gateway.base_url).port))
signal.pause()
"""


def install(where: Path) -> None:
    """The package holds the whole gateway."""
    install_python(where, "tensorzero")


def port_file(plan: Plan) -> Path:
    """Where the starter writes the port."""
    return plan.where / "port"


def command(plan: Plan) -> Command:
    """Its gateway as an HTTP server in a Python process that only waits."""
    config = plan.where / "tensorzero.toml"
    config.write_text(CONFIG.format(upstream=plan.upstream))
    port_file(plan).unlink(missing_ok=True)
    python = plan.where / "venv/bin/python"
    argv = (str(python if python.exists() else sys.executable), "-c", STARTER, str(config), str(port_file(plan)))
    return Command(argv, port_file(plan))


def endpoint(plan: Plan) -> Endpoint:
    """Its OpenAI-compatible door."""
    return Endpoint(
        int(port_file(plan).read_text()), path="/openai/v1/chat/completions", model="tensorzero::model_name::m"
    )


TARGET = Target("tensorzero", command=command, install=install, endpoint=endpoint)
