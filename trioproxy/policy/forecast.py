"""What a request will likely use, before it is sent: measured input, and as much output as it allows.

For telling a bill ahead. Without a cap of its own an answer is taken for `unknown` tokens, as admission takes it.
"""

from trioproxy.codec.frame import Facts
from trioproxy.journal import Usage
from trioproxy.policy.estimate import Estimator
from trioproxy.policy.profile import profile_of


def forecast(body: bytes, facts: Facts, model: str, unknown: int) -> Usage:
    """The usage to expect, an estimate. `model` is the provider's name, which decides how it counts."""
    profile = profile_of(model)
    tokens = Estimator(profile.vocabulary).measure(body, facts.members).tokens(profile)
    output = unknown if facts.output_cap is None else facts.output_cap
    return Usage(input=tokens, output=output * facts.choices, estimated=True)
