"""LiteLLM's proxy, one worker, no database, nothing logged."""

from pathlib import Path

from bench.process import Command
from bench.target import Plan, Target, install_python
from bench.workload import Endpoint

KEY = f"sk-{'0' * 31}1{'0' * 32}"  # it does not start without a key, nor with a short one

CONFIG = """\
model_list:
  - model_name: m
    litellm_params: {{ model: openai/m, api_base: "http://127.0.0.1:{upstream}/v1", api_key: sk-none }}
litellm_settings: {{ set_verbose: false, telemetry: false }}
"""


def install(where: Path) -> None:
    """The proxy's own extra has what its server needs."""
    install_python(where, "litellm[proxy]")


def command(plan: Plan) -> Command:
    """`litellm --config`."""
    config = plan.where / "config.yaml"
    config.write_text(CONFIG.format(upstream=plan.upstream))
    argv = (
        str(plan.where / "venv/bin/litellm"),
        "--config",
        str(config),
        "--host",
        "127.0.0.1",
        "--port",
        str(plan.port),
    )
    # Without the local map it asks a public repository for prices at start.
    env = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY}
    return Command(argv, plan.port, env, patience=120.0)


def endpoint(plan: Plan) -> Endpoint:
    """Its master key is a caller's key too."""
    return Endpoint(plan.port, key=KEY)


TARGET = Target("litellm", command=command, install=install, endpoint=endpoint)
