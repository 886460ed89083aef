"""Portkey's gateway (Node), told where to go by its own headers."""

from pathlib import Path

from bench.process import Command
from bench.target import Plan, Target, install_node
from bench.workload import Endpoint

# With newer versions of the server package every stream is answered 500.
MANIFEST = """\
{ "private": true, "dependencies": { "@portkey-ai/gateway": "*" }, "overrides": { "@hono/node-server": "1.13.8" } }
"""
START = "node_modules/@portkey-ai/gateway/build/start-server.js"


def install(where: Path) -> None:
    """From the npm registry."""
    install_node(where, MANIFEST)


def command(plan: Plan) -> Command:
    """Without its console."""
    return Command(
        ("node", str(plan.where / START), "--headless", f"--port={plan.port}"), plan.port, {"NODE_ENV": "production"}
    )


def endpoint(plan: Plan) -> Endpoint:
    """Provider and address come with every call."""
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://127.0.0.1:{plan.upstream}/v1"}
    return Endpoint(plan.port, headers=headers)


TARGET = Target("portkey", command=command, install=install, endpoint=endpoint)
