"""What is delivered where no channel answers: a text of the operator's, or the call put off until one can.

Whom a result is posted to is named here alone. A caller cannot give an address: one that may be chosen from outside is a way into
the operator's own network.
"""

from attrs import field, frozen

from trioproxy.config import rules
from trioproxy.config.secret import Secret

MiB = 1024 * 1024


@frozen
class Degraded:
    """What is said in the model's place, and as whom."""

    text: str = field(validator=rules.not_blank)
    model: str = field(default="degraded", validator=rules.model_name)  # no caller takes that for a model's word


@frozen
class ResultHook:
    """Where results of deferred calls are posted to, by its name."""

    name: str = field(validator=rules.name)
    url: str = field(validator=rules.webhook, repr=False)
    secret: Secret | None = field(default=None, validator=rules.one_source)  # signs what is posted
    ca_file: str | None = None
    # for one try; a receiver that needs longer has queued nothing
    timeout: float = field(default=10.0, validator=rules.positive)
    tries: int = field(default=15, validator=rules.between(1, 50))  # with waits of up to 5 minutes: half an hour away


@frozen
class Deferring:
    """How calls that were put off are kept and done. The bounds count what is stored, results that wait to be fetched too."""

    concurrency: int = field(default=4, validator=rules.at_least(1))  # a channel that is back gets no stampede
    max_calls: int = field(default=10_000, validator=rules.at_least(1))
    max_bytes: int = field(default=256 * MiB, validator=rules.at_least(1))
    tenant_calls: int = field(default=1_000, validator=rules.at_least(1))
    tenant_bytes: int = field(default=64 * MiB, validator=rules.at_least(1))
    retention: float = field(default=86_400.0, validator=rules.positive)  # after its end; a night and a day to fetch it
    longest_wait: float = field(default=60.0, validator=rules.positive)  # between two runs of one call
    webhooks: tuple[ResultHook, ...] = ()
