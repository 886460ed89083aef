"""LiteLLM's proxy, one worker, no database, nothing logged."""

from pathlib import Path

from bench.process import Command
from bench.target import Plan, Target, install_python

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
    return Command(argv, plan.port, {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}, patience=120.0)


TARGET = Target("litellm", command=command, install=install)
