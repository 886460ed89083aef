"""trioproxy, everything on by default: two channels to the provider, one model, one key."""

import sys

from bench.process import Command
from bench.target import Plan, Target

CONFIG = """\
[listen]
data = "127.0.0.1:{port}"

[[channels]]
name = "a"
base_url = "http://127.0.0.1:{upstream}/v1"
auth = "none"
max_concurrency = 20000

[[channels]]
name = "b"
base_url = "http://127.0.0.1:{upstream}/v1"
auth = "none"
max_concurrency = 20000

[[models]]
name = "m"
order = "listed"
channels = [{{ channel = "a", model = "m" }}, {{ channel = "b", model = "m" }}]
"""


def command(plan: Plan) -> Command:
    """`trioproxy serve`. Its log lines go where its output goes: to a file."""
    config = plan.where / "trioproxy.toml"
    config.write_text(CONFIG.format(port=plan.port, upstream=plan.upstream))
    return Command((sys.executable, "-m", "trioproxy", "serve", str(config)), plan.port)


TARGET = Target("trioproxy", command=command)
