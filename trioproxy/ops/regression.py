"""A regression set asked of channels: each exactly as it is configured, past every chain, breaker and limit.

The channels are objects of this run's own, with their own connections: what is learned here touches no gateway, and nothing
is retried: a failure is a result. Each channel has as many workers as it may have calls in flight; a call is begun only while the
spending so far, with what is under way, leaves room for it.

Cancelled at any point, `outcomes` has every call that had ended.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import trio
from attrs import define, evolve, field, frozen

from trioproxy.call import Endpoint
from trioproxy.channel import ChannelState
from trioproxy.codec import jsonread
from trioproxy.codec.chat_said import Said, ToolCall, said_in
from trioproxy.codec.frame import Facts
from trioproxy.codec.scrub import GONE
from trioproxy.config.promptset import Prompt, PromptSet
from trioproxy.errors import AttemptError, Blame, Fault, FaultKind, Refusal
from trioproxy.http.client import Exchange
from trioproxy.journal import Usage
from trioproxy.policy.expect import judge
from trioproxy.policy.forecast import forecast
from trioproxy.policy.outcome import Outcome, Summary
from trioproxy.policy.reading import Reading

MAX_ERROR_BODY = 65_536
ERROR_BODY_TIMEOUT = 5.0
KEPT = 65_536  # characters of one text
KEPT_CALLS = 128  # as many as OpenAI allows tools
MOST_CALLS = 100_000  # of one run: all of their answers are held until its end
TOO_LONG = Fault(FaultKind.TOO_LONG, Blame.PROVIDER, "the answer is longer than the channel's max_answer")


@frozen
class Target:
    """One channel under test, and what it calls the model."""

    channel: ChannelState = field(repr=False)
    provider_model: str

    @property
    def name(self) -> str:
        return self.channel.name


@frozen
class Plan:
    """What is asked of whom, and within what bounds. `timeout` is seconds a call, `max_cost` micro-USD in all.

    `unknown` is the tokens an answer is taken for that no cap bounds; `secrets` must not appear in what is kept of any answer.
    """

    prompts: PromptSet
    model: str
    targets: tuple[Target, ...]
    endpoint: Endpoint
    repeat: int = 1
    concurrency: int = 4
    timeout: float = 120.0
    max_cost: int | None = None
    unknown: int = 1024
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def calls(self) -> int:
        return len(self.prompts.prompts) * len(self.targets) * self.repeat

    def forecasts(self, target: Target) -> list[Usage]:
        """What each prompt will likely use at this channel, asked once."""
        return [self.expected(prompt, target) for prompt in self.prompts.prompts]

    def expected(self, prompt: Prompt, target: Target) -> Usage:
        body, facts = self.request(prompt)
        return forecast(body, facts, target.provider_model, self.unknown)

    def cost_ahead(self, target: Target) -> int | None:
        """Micro-USD that the whole run will likely cost at this channel; None where it has no price."""
        tariff = target.channel.tariff
        return None if tariff is None else self.repeat * sum(map(tariff.cost, self.forecasts(target)))

    def request(self, prompt: Prompt) -> tuple[bytes, Facts]:
        body = self.prompts.body(prompt, self.model)
        return body, self.endpoint.dialect.facts(body)


@define(eq=False)
class Regression:
    """One run. `outcomes` is by prompt's number and channel, in the order in which calls ended; `wall` gives Unix seconds."""

    plan: Plan
    wall: Callable[[], float]
    outcomes: dict[tuple[int, str], list[Outcome]] = field(init=False, factory=dict)
    ended: dict[str, float] = field(init=False, factory=dict)  # by channel, Unix seconds of its last outcome
    stopped: str = field(init=False, default="")  # why the run did not ask everything
    _committed: int = field(init=False, default=0)  # micro-USD spent and under way

    async def run(self, told: Callable[[], None] = lambda: None) -> None:
        """Ask everything. `told` is called after each outcome. Cancelled, it leaves what there is."""
        plan = self.plan
        async with trio.open_nursery() as nursery:
            for target in plan.targets:
                jobs = self._jobs()
                workers = min(plan.concurrency, target.channel.slots.limit, len(plan.prompts.prompts) * plan.repeat)
                for _ in range(workers):
                    nursery.start_soon(self._work, target, jobs, told)

    def _jobs(self) -> Iterator[tuple[int, Prompt]]:
        """Every prompt once, then every prompt again: a run that is ended early has asked broadly."""
        for _ in range(self.plan.repeat):
            yield from enumerate(self.plan.prompts.prompts)

    async def _work(self, target: Target, jobs: Iterator[tuple[int, Prompt]], told: Callable[[], None]) -> None:
        tariff = target.channel.tariff
        for number, prompt in jobs:
            ahead = 0 if tariff is None else tariff.cost(self.plan.expected(prompt, target))
            if self.plan.max_cost is not None and self._committed + ahead > self.plan.max_cost:
                self.stopped = "the next call might cost more than is left"
                return
            self._committed += ahead
            outcome = await self._ask(target, prompt)
            self._committed += _bill(outcome, ahead) - ahead
            self.outcomes.setdefault((number, target.name), []).append(outcome)
            self.ended[target.name] = self.wall()
            told()

    async def _ask(self, target: Target, prompt: Prompt) -> Outcome:
        started = trio.current_time()
        asking = Asking(target, self.plan, self.wall)
        with trio.move_on_after(self.plan.timeout) as scope:
            outcome = await asking.ask(prompt)
        seconds = trio.current_time() - started
        if scope.cancelled_caught:
            return Outcome(seconds, failure=f"timeout: no whole answer within {self.plan.timeout:g} s")
        return evolve(outcome, seconds=seconds)

    # Afterwards

    def of(self, channel: str) -> list[Outcome]:
        """Every outcome of one channel."""
        return [outcome for (_, name), outcomes in self.outcomes.items() if name == channel for outcome in outcomes]

    def summary(self, channel: str) -> Summary:
        return Summary.of(self.of(channel))

    def reading(self, target: Target) -> Reading:
        """The channel's result as a rollout may require it."""
        summary, plan = self.summary(target.name), self.plan
        return Reading(
            set_hash=plan.prompts.hash,
            channel=target.name,
            model=plan.model,
            provider_model=target.provider_model,
            passed=summary.passed,
            runs=summary.runs,
            pass_rate=summary.pass_rate,
            complete=summary.runs == len(plan.prompts.prompts) * plan.repeat,
            at=self.ended.get(target.name, self.wall()),
        )


@define(eq=False)
class Asking:
    """One call to one channel: the request in the channel's shape, its answer judged."""

    target: Target
    plan: Plan
    wall: Callable[[], float]

    async def ask(self, prompt: Prompt) -> Outcome:
        """The outcome, its time not yet filled in. Cancelled, the connection is closed."""
        channel = self.target.channel
        exchange = Exchange(channel.upstream)
        try:
            status, body, headers = await self._exchange(exchange, prompt)
        except Refusal as exc:
            return Outcome(0, failure=f"parameter: {exc.message}")
        except AttemptError as exc:
            return _failed(channel.shown(exc.fault))
        finally:
            exchange.close(trio.current_time())
        dialect, usage = channel.dialect, None
        if 200 <= status < 300:
            if jsonread.form_of(body) == "sse":
                body = dialect.answer_from_stream(body) or body
            fault, usage = dialect.read_answer(body, status, self.wall())
        else:
            fault = dialect.fault_of(status, headers, body, self.wall())
        if fault is not None and fault.kind is not FaultKind.CONTENT_FILTER:
            return _failed(channel.shown(fault))
        said = Said(finish="content_filter") if fault is not None else hidden(said_in(body), self.plan.secrets)
        checks = judge(prompt.expect, said, None if usage is None else usage.output, self.plan.prompts.refusal_phrases)
        cost = None if channel.tariff is None or usage is None else channel.tariff.cost(usage)
        return Outcome(0, clipped(said), checks, usage, cost, status=status)

    async def _exchange(self, exchange: Exchange, prompt: Prompt) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        channel = self.target.channel
        body, facts = self.plan.request(prompt)
        shaped = channel.dialect.request(body, facts, channel.shape, self.target.provider_model)
        head = await exchange.open(channel.request(self.plan.endpoint.suffix, b"", shaped))
        if 200 <= head.status < 300:
            return head.status, await _body(exchange, channel.max_answer), list(head.headers)
        with (
            trio.move_on_after(ERROR_BODY_TIMEOUT),
            contextlib.suppress(AttemptError),
        ):  # the status is worth something alone
            return head.status, await _body(exchange, MAX_ERROR_BODY), list(head.headers)
        return head.status, b"", list(head.headers)


async def _body(exchange: Exchange, longest: int) -> bytes:
    """The whole body. Raises `AttemptError`, for one that is too long, too."""
    parts, size = [], 0
    while data := await exchange.receive():
        parts.append(data)
        size += len(data)
        if size > longest:
            raise AttemptError(TOO_LONG)
    return b"".join(parts)


def hidden(said: Said, secrets: tuple[str, ...]) -> Said:
    """The same without our credentials, should a server repeat one. Nothing else is touched: it is what is judged."""

    def clean(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, GONE)
        return text

    calls = tuple(ToolCall(clean(call.name), clean(call.arguments)) for call in said.calls)
    return Said(clean(said.text), clean(said.refusal), clean(said.finish), calls)


def clipped(said: Said) -> Said:
    """The same, no longer than a report can bear; an answer is judged before."""

    def clip(text: str) -> str:
        return text if len(text) <= KEPT else f"{text[:KEPT]}… ({len(text) - KEPT} more characters)"

    calls = tuple(ToolCall(clip(call.name), clip(call.arguments)) for call in said.calls[:KEPT_CALLS])
    return Said(clip(said.text), clip(said.refusal), clip(said.finish), calls)


def _failed(fault: Fault) -> Outcome:
    status = f"{fault.status} " if fault.status else ""
    return Outcome(0, failure=f"{fault.kind.value}: {status}{fault.message}", status=fault.status)


def _bill(outcome: Outcome, ahead: int) -> int:
    """What to hold against the budget: where an answer or its loss has no known cost, what was expected; errors are free."""
    if outcome.cost is not None:
        return outcome.cost
    return 0 if outcome.status >= 400 else ahead


def reach(regression: Regression) -> Mapping[str, str]:
    """The channels of which no call was answered at all, each with one reason."""
    lost: dict[str, str] = {}
    for target in regression.plan.targets:
        outcomes = regression.of(target.name)
        if outcomes and all(outcome.said is None for outcome in outcomes):
            lost[target.name] = outcomes[0].failure
    return lost
