"""The raw Trio relay: `bench.relay`."""

import sys

from bench.process import Command
from bench.target import Plan, Target


def command(plan: Plan) -> Command:
    """`bench relay`."""
    return Command(
        (sys.executable, "-m", "bench", "relay", "--port", str(plan.port), "--upstream", str(plan.upstream)), plan.port
    )


TARGET = Target("relay", command=command)
