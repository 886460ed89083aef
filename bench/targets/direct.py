"""No gateway: the client talks to the provider. What every other target is compared with."""

from bench.target import Plan, Target
from bench.workload import Endpoint


def endpoint(plan: Plan) -> Endpoint:
    """The provider's own."""
    return Endpoint(plan.upstream)


TARGET = Target("direct", command=lambda _: None, endpoint=endpoint)
