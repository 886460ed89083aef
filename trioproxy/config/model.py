"""The configuration as frozen classes: what an operator may say, with every default and its reason.

Loading is `config.load`; judging what cannot act is `config.lint`. Durations are seconds, sizes bytes, prices USD per
million tokens. A `Secret` names where a credential is found and never holds one in its `repr`.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from attrs import field, frozen, validators

from trioproxy.config import rules
from trioproxy.config.deferred import Deferring, Degraded
from trioproxy.config.growth import Growth
from trioproxy.config.limits import Budget, Limits, Quotas, QuotaSettings, Team, Tenant, Tier
from trioproxy.config.probes import Probe, Probes
from trioproxy.config.secret import Secret as Secret  # noqa: PLC0414 - what a file says is found in this module
from trioproxy.policy.alerting import Rhythm
from trioproxy.policy.breaker import BreakerPolicy
from trioproxy.policy.classes import QueuePolicy
from trioproxy.policy.comparison import Tolerance
from trioproxy.policy.pricing import Tariff
from trioproxy.policy.spikes import Thresholds
from trioproxy.policy.switchback import SwitchBackPolicy

MiB = 1024 * 1024
Provider = Literal[
    "openai",
    "azure",
    "anthropic",
    "gemini",
    "groq",
    "bedrock",
    "deepseek",
    "mistral",
    "cerebras",
    "openrouter",
    "other",
]


@frozen
class Listen:
    """The data door: where it listens and what it bears from one connection."""

    # host:port, [v6]:port, or unix:/path; port 0 lets the system choose
    data: str = field(default="127.0.0.1:8787", validator=rules.address)
    open: bool = False  # allow a non-loopback address without any [[keys]]
    # llhttp has no bound of its own; nginx allows 32 KiB, node 16 KiB
    max_head: int = field(default=65_536, validator=rules.at_least(1024))
    max_headers: int = field(default=100, validator=rules.at_least(1))  # Apache's LimitRequestFields
    max_body: int = field(default=32 * MiB, validator=rules.at_least(1))  # Anthropic's own bound for a request
    head_timeout: float = field(default=15.0, validator=rules.positive)
    body_timeout: float = field(default=60.0, validator=rules.positive)
    # nginx keepalive_timeout; longer than most load balancers' 60
    idle_timeout: float = field(default=75.0, validator=rules.positive)
    # a client that reads nothing for this long is gone
    write_timeout: float = field(default=30.0, validator=rules.positive)
    drain_timeout: float = field(default=30.0, validator=rules.at_least(0))  # SIGTERM: how long open answers may go on
    max_connections: int = field(default=10_000, validator=rules.at_least(1))
    http: Literal["httptools", "h11"] = "httptools"  # h11 is pure Python and takes ten times as long


@frozen
class Price:
    """USD per million tokens. `cached_input` None: cached tokens cost as much as others."""

    input: float = field(validator=rules.at_least(0))
    output: float = field(validator=rules.at_least(0))
    cached_input: float | None = field(default=None, validator=validators.optional(rules.at_least(0)))

    def tariff(self) -> Tariff:
        """What calls are charged by."""
        return Tariff(self.input, self.input if self.cached_input is None else self.cached_input, self.output)


@frozen
class Scope:
    """The provider's own names for where a channel lives; shown when a denial is explained, never used to route."""

    region: str | None = None
    project: str | None = None
    deployment: str | None = None
    workspace: str | None = None
    tier: str | None = None


@frozen
class Params:
    """How a channel wants its request bodies; see `codec.frame.Shape`."""

    rename: Mapping[str, str] = field(factory=dict)
    allow: tuple[str, ...] | None = None
    null_content: Literal["keep", "empty", "drop"] = "keep"
    include_usage: bool = True  # False for providers that refuse `stream_options`


@frozen
class Channel:
    """One upstream deployment."""

    name: str = field(validator=rules.name)
    # as the provider's SDK takes it: "/chat/completions" is appended to its path
    base_url: str = field(validator=rules.base_url)
    dialect: Literal["openai"] = "openai"
    api_key: Secret | None = field(default=None, validator=rules.one_source)
    auth: Literal["bearer", "api-key", "none"] = "bearer"  # "api-key": Azure's header
    headers: Mapping[str, str] = field(factory=dict, validator=rules.headers, repr=rules.names_only)
    # whose way of counting a call against its limits, and of telling about them; never guessed from a name or an address
    provider: Provider = "other"
    price: Price | None = None
    scope: Scope = field(factory=Scope)
    params: Params = field(factory=Params)
    max_concurrency: int = field(default=1000, validator=rules.at_least(1))
    # bounded wait for a slot; then the next channel
    slot_timeout: float = field(default=1.0, validator=rules.at_least(0))
    connect_timeout: float = field(default=5.0, validator=rules.positive)  # the OpenAI SDK's own
    # providers' load balancers commonly close idle connections at 60-75 s
    keepalive: float = field(default=60.0, validator=rules.at_least(0))
    max_answer: int = field(default=64 * MiB, validator=rules.at_least(1))
    ca_file: str | None = None
    breaker: str | BreakerPolicy | None = field(default=None, validator=rules.preset)
    limits: Limits = field(factory=Limits)
    probe: Probe = field(factory=Probe)
    ramp: Growth | None = None

    @property
    def provider_name(self) -> str:
        """Whose channel it is, as a caller is told."""
        return self.name if self.provider == "other" else self.provider

    def tariff(self) -> Tariff | None:
        """None where prices are unknown."""
        return None if self.price is None else self.price.tariff()

    def probed_model(self, models: "Iterable[Model]") -> str | None:
        """The provider's name of the model that health checks ask; None where only patterns lead here."""
        links = (link for model in models for link in model.channels if link.channel == self.name)
        return self.probe.model or next((link.model for link in links if "*" not in link.model), None)


@frozen
class Link:
    """A channel in a model's chain, with the provider's name for the model. "*" takes what a wildcard matched."""

    channel: str
    model: str = field(validator=rules.model_name)


@frozen
class Fallback:
    """Another model that may answer in place of one, for whom and when: a decision about quality, so it is never taken unasked."""

    model: str = field(validator=rules.model_name)
    classes: tuple[str, ...] = field(default=("*",), validator=[rules.not_empty, rules.each(rules.pattern)])
    # "queue": the class would have it rather than refuse (`otherwise`); "exhausted": no channel answered
    on: tuple[Literal["queue", "exhausted"], ...] = field(default=("queue", "exhausted"), validator=rules.not_empty)


@frozen
class Model:
    """A public name and the channels that serve it. A name with "*" is a pattern; exact names win over patterns."""

    name: str = field(validator=rules.model_name)
    channels: tuple[Link, ...] = field(validator=rules.not_empty)
    order: Literal["cost", "listed"] = "cost"
    # a caller who has waited for three will not wait for a fourth
    chain_max: int = field(default=3, validator=rules.between(1, 10))
    rewrite_model: bool = False  # answer with the public name instead of the provider's own word
    # no current model answers more, so no more is ever reserved, whatever a caller asks for
    max_output: int = field(default=131_072, validator=rules.at_least(1))
    limits: Limits = field(factory=Limits)
    fallback: tuple[Fallback, ...] = ()  # tried in this order; none: nobody else ever answers
    # a sure refusal at once, or one call at a time at a channel that its breaker would leave alone
    when_out: Literal["skip", "last-resort"] = "skip"
    switch_back: SwitchBackPolicy | None = None  # None: as `[defaults]` says
    # an error is the one thing that no caller mistakes for a model's word
    on_exhausted: Literal["error", "answer", "defer"] = "error"
    degraded: Degraded | None = None  # what "answer" says
    defer_ttl: float = field(default=86_400.0, validator=rules.positive)  # an answer of yesterday is seldom wanted
    webhook: str | None = None  # who is told of results


@frozen
class Requirement:
    """What must be shown of the candidate's channels before more callers get it: a report of `trioproxy regress --json`."""

    file: str = field(validator=rules.printable)
    set: str | None = None  # the set's file; without one a reading of any set will do
    pass_rate: float = field(default=1.0, validator=rules.share)
    max_age: float = field(default=86_400.0, validator=rules.positive)  # providers change models without a word


@frozen
class Rollout:
    """A candidate chain for a model, given to a growing share of its callers."""

    model: str = field(validator=rules.model_name)
    candidate: tuple[Link, ...] = field(validator=rules.not_empty)
    # salts who is among the first; "" is the model's name
    name: str = field(default="", validator=rules.printable)
    steps: tuple[int, ...] = field(default=(10, 50, 100), validator=rules.growing_percentages)
    hold: float = field(default=600.0, validator=rules.at_least(0))  # long enough for a provider's bad minute to show
    key: Literal["session", "user", "tenant"] = "session"
    started: bool = False  # begin with the process, not by `trioproxy rollout start`
    tolerance: Tolerance = field(factory=Tolerance)
    require: Requirement | None = None


@frozen
class Key:
    """A caller: the hash of its key, and what it may use. Patterns take "*"."""

    id: str = field(validator=rules.name)
    hash: str = field(repr=False, validator=rules.key_hash)
    tenant: str = field(default="default", validator=rules.name)
    models: tuple[str, ...] = field(default=("*",), validator=rules.each(rules.pattern))
    classes: tuple[str, ...] = field(default=("*",), validator=rules.each(rules.pattern))
    endpoints: tuple[str, ...] = field(default=("*",), validator=rules.each(rules.pattern))
    expires: str | None = field(default=None, validator=rules.expiry)  # RFC 3339
    team: str | None = field(default=None, validator=validators.optional(rules.name))
    tier: Tier | None = None
    limits: Limits = field(factory=Limits)
    budget: Budget = field(factory=Budget)
    webhook: str | None = None  # who is told of its deferred calls' results, in place of the model's


@frozen
class ClassPolicy:
    """How one traffic class wants to be treated. `[defaults]` has the same fields; a class overrides some of them."""

    headers_timeout: float = field(default=240.0, validator=rules.positive)  # image and video calls may take minutes
    # a slow model is not an error; counted from the headers
    gate_timeout: float = field(default=30.0, validator=rules.positive)
    on_gate_timeout: Literal["commit", "failover"] = "commit"
    mode: Literal["plain", "assured"] = "plain"
    total_timeout: float = field(default=600.0, validator=rules.positive)  # the official SDKs' own
    idle_timeout: float = field(default=60.0, validator=rules.positive)
    on_disconnect: Literal["cancel", "drain"] = "cancel"
    drain_timeout: float = field(default=30.0, validator=rules.at_least(0))  # bound of "drain"
    keepalive_after: float = field(default=0.0, validator=rules.at_least(0))  # 0 = never a byte before commit
    # no attempt is begun with less time left than this
    min_attempt: float = field(default=0.01, validator=rules.at_least(0))
    # how it waits for capacity; none: what does not fit is refused at once. Never inherited
    queue: QueuePolicy | None = None


@frozen
class Control:
    """Where the command line reaches the running process: a Unix socket that its owner alone may use. None: nowhere."""

    socket: str | None = field(default=None, validator=validators.optional(rules.socket_path))


@frozen
class Logging:
    """`format` "auto": human on a terminal, JSON elsewhere."""

    format: Literal["auto", "json", "human"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


@frozen
class State:
    """What is remembered beyond the process. Without a `path` nothing is, and it costs nothing."""

    path: str | None = None  # of the SQLite file; ":memory:" for one that ends with the process
    url: Secret | None = field(default=None, validator=rules.one_source)  # postgresql://: in place of the file
    spool: str | None = None  # None: `path` and ".spool"
    # what a busy gateway writes in half a minute, so that a database may be away for so long
    spool_size: int = field(default=16 * MiB, validator=rules.at_least(1 * MiB))
    retention_days: float = field(default=90.0, validator=rules.at_least(0))  # a quarter's bill can be looked at
    max_size: int = field(default=0, validator=rules.at_least(0))
    snapshot_every: float = field(default=5.0, validator=rules.positive)


@frozen
class Sink:
    """Who is told of alerts: an address to post to, or a command to run. Exactly one of `url` and `command`."""

    url: str | None = field(default=None, validator=rules.webhook, repr=False)
    secret: Secret | None = field(default=None, validator=rules.one_source)  # signs what is posted
    ca_file: str | None = None
    command: tuple[str, ...] = ()  # program and arguments; no shell
    causes: tuple[str, ...] = field(default=("*",), validator=rules.each(rules.cause))
    least: Literal["info", "warning", "critical"] = "info"
    # for one try; a receiver that needs longer has queued nothing
    timeout: float = field(default=10.0, validator=rules.positive)
    tries: int = field(default=10, validator=rules.between(1, 20))  # 1, 2, 4 ... 256 s apart: a receiver's restart
    # alerts that wait for it; the oldest goes where it is full, since the newest says how things are
    queue: int = field(default=100, validator=rules.at_least(1))


@frozen
class Alerts:
    """What is told, how often, and to whom beside the log."""

    causes: tuple[str, ...] = field(default=("*",), validator=rules.each(rules.cause))  # none: nobody watches
    source: str = ""  # what alerts call this gateway; "": the machine's name
    rhythm: Rhythm = field(factory=Rhythm)
    thresholds: Thresholds = field(factory=Thresholds)
    sinks: tuple[Sink, ...] = ()


@frozen
class Config:
    """Everything one gateway needs. `classes` are complete: what a class left out was filled from the defaults."""

    channels: tuple[Channel, ...]
    models: tuple[Model, ...]
    listen: Listen = field(factory=Listen)
    defaults: ClassPolicy = field(factory=ClassPolicy)
    breaker: str | BreakerPolicy = field(default="four-layer", validator=rules.preset)  # `[defaults] breaker`
    keys: tuple[Key, ...] = ()
    classes: Mapping[str, ClassPolicy] = field(factory=dict)
    switch_back: SwitchBackPolicy = field(factory=SwitchBackPolicy)  # `[defaults] switch_back`
    rollouts: tuple[Rollout, ...] = ()
    control: Control = field(factory=Control)
    log: Logging = field(factory=Logging)
    quota: QuotaSettings = field(factory=QuotaSettings)
    organization: Quotas = field(factory=Quotas)
    tenants: tuple[Tenant, ...] = ()
    teams: tuple[Team, ...] = ()
    state: State = field(factory=State)
    alerts: Alerts = field(factory=Alerts)
    probes: Probes | None = None  # None: no health checks
    deferred: Deferring = field(factory=Deferring)
