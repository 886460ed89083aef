"""The raw Trio relay with a nursery, a deadline and a JSON decode for each request: `bench relay --structured`."""

from attrs import evolve

from bench.process import Command
from bench.target import Plan, Target
from bench.targets import relay


def command(plan: Plan) -> Command:
    """`bench relay --structured`."""
    plain = relay.command(plan)
    return evolve(plain, argv=(*plain.argv, "--structured"))


TARGET = Target("structured", command=command)
