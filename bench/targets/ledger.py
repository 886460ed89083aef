"""trioproxy as in `trioproxy`, with a ledger on the disk of this machine: what keeping every call costs."""

from bench.process import Command
from bench.target import Plan, Target
from bench.targets import trioproxy


def command(plan: Plan) -> Command:
    """`trioproxy serve` with a `[state]`."""
    plain = trioproxy.command(plan)
    config = plan.where / "trioproxy.toml"
    kept = plan.where / "ledger.toml"
    kept.write_text(f'[state]\npath = "{plan.where / "ledger.db"}"\n' + config.read_text())
    return Command((*plain.argv[:-1], str(kept)), plan.port)


TARGET = Target("ledger", command=command)
