"""Ferro Labs AI Gateway (Go), one target, its per-address rate limit off."""

from pathlib import Path

from bench.process import Command
from bench.target import Plan, Target, install_python, plain
from bench.workload import Endpoint

MODEL = "gpt-4o-mini"  # it routes by the names it knows
CONFIG = """\
strategy:
  mode: single
targets:
  - virtual_key: openai
"""


def install(where: Path) -> None:
    """The wheel carries the program."""
    install_python(where, "ferrogw")


def command(plan: Plan) -> Command:
    """`ferrogw serve`."""
    config = plan.where / "config.yaml"
    config.write_text(CONFIG)
    env = {
        "GATEWAY_CONFIG": str(config),
        "HOST": "127.0.0.1",
        "PORT": str(plan.port),
        "OPENAI_API_KEY": "sk-none",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{plan.upstream}/v1",
        "RATE_LIMIT_RPS": "0",
        "ALLOW_UNAUTHENTICATED_PROXY": "true",
        "MASTER_KEY": "fgw_00000000000000000000000000000000",
    }
    return Command((str(plan.where / "venv/bin/ferrogw"), "serve"), plan.port, env)


def endpoint(plan: Plan) -> Endpoint:
    """It takes its master key as a caller's."""
    found = plain(plan)
    return Endpoint(found.port, model=MODEL, key="fgw_00000000000000000000000000000000")


TARGET = Target("ferrogw", command=command, install=install, endpoint=endpoint)
