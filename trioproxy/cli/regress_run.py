"""What `trioproxy regress` does once its files are read: price it, ask, show, write, and end with one code."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import time as wall_clock  # noqa: TID251 - a reading is dated in the world's time
from typing import Any

import click
import trio
from attrs import define, evolve, field
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trioproxy.assembly import CHAT_COMPLETIONS, build
from trioproxy.cli.regress import FAILED, INTERRUPTED, PASSED, UNREACHABLE, refuse
from trioproxy.cli.regress_table import show
from trioproxy.config.model import Config
from trioproxy.config.promptset import PromptSet
from trioproxy.config.secrets import resolve_all
from trioproxy.http.wire import Dial, Dialer
from trioproxy.journal import Journal
from trioproxy.ops.regression import MOST_CALLS, Plan, Regression, Target, reach
from trioproxy.ops.regression_data import document
from trioproxy.ops.regression_page import money, page
from trioproxy.policy.access import Catalogue

MICRO = 1_000_000


def credentials_of(config: Config, names: tuple[str, ...]) -> dict[str, str]:
    """The keys of the channels that are asked; those of others may be missing here. Raises `ConfigError`."""
    channels = (channel if channel.name in names else evolve(channel, auth="none") for channel in config.channels)
    return resolve_all(evolve(config, channels=tuple(channels)), os.environ)


async def perform(
    prompts: PromptSet, config: Config, keys: Mapping[str, str], options: Mapping[str, Any], *, dial: Dial | None = None
) -> int:
    """The whole run. Returns the exit code; an interrupt ends it with what there is."""
    model = options["model"] or prompts.model
    if model is None:
        return refuse("which model? Put model = NAME into the set, or give --model NAME")
    found = provider_models(config, model, options["channels"], candidate=options["candidate"])
    if isinstance(found, str):
        return refuse(found)
    gateway = build(config, keys, dial=dial or Dialer(), journal=Journal(), wall=wall_clock)
    try:
        states = gateway.supervisor.channels.state
        targets = tuple(Target(states[name], provider_model) for name, provider_model in found.items())
        plan = Plan(prompts, model, targets, CHAT_COMPLETIONS, **_bounds(options, config, keys))
        if plan.calls > MOST_CALLS:
            return refuse(f"that would be {plan.calls} calls, at most {MOST_CALLS} are allowed: lower --repeat")
        if (objection := _unaffordable(plan, options)) is not None:
            return refuse(objection)
        run = Regression(plan, wall_clock)
        interrupted = await _watched(run)
    finally:
        gateway.supervisor.close()
    show(run, Console())
    for key, make in (("html_file", page), ("json_file", _dumped)):
        if options[key] is not None and (failure := _write(options[key], make(run))):
            return refuse(failure)
    return INTERRUPTED if interrupted else code_of(run, options["fail_under"] / 100)


def provider_models(
    config: Config, model: str, channels: tuple[str, ...], *, candidate: bool = False
) -> dict[str, str] | str:
    """What each channel calls the model; or everything that is wrong with the choice, in words.

    A channel that is in the model's chain and in its rollout's is asked as the chain has it, or as the `candidate` does.
    """
    known = [channel.name for channel in config.channels]
    wrong = [f"there is no channel {name!r}: there are {', '.join(known)}" for name in channels if name not in known]
    found = Catalogue.of(config.models).find(model)
    if found is None:
        wrong.append(f"no model answers to {model!r}: there are {', '.join(each.name for each in config.models)}")
        return "; ".join(wrong)
    chosen, captured = found
    rolling = (link for rollout in config.rollouts if rollout.model == chosen.name for link in rollout.candidate)
    own, tried = ({link.channel: link.model for link in links} for links in (chosen.channels, rolling))
    links = own | tried if candidate else tried | own
    wrong += [
        f"channel {name} does not serve {model}: it has {', '.join(links)}"
        for name in channels
        if name in known and name not in links
    ]
    bound = {name: links[name] for name in dict.fromkeys(channels) if name in links}
    return "; ".join(wrong) or {name: link.replace("*", captured or "*") for name, link in bound.items()}


def _bounds(options: Mapping[str, Any], config: Config, keys: Mapping[str, str]) -> dict[str, Any]:
    """The rest of a plan."""
    return {
        "repeat": options["repeat"],
        "concurrency": options["concurrency"],
        "timeout": options["timeout"],
        "max_cost": None if options["max_cost"] is None else round(options["max_cost"] * MICRO),
        "unknown": config.quota.output,
        "secrets": tuple(keys.values()),
    }


def _unaffordable(plan: Plan, options: Mapping[str, Any]) -> str | None:
    """Tell the likely cost, and ask where somebody should decide. Why the run may not begin, or None."""
    costs = {target.name: plan.cost_ahead(target) for target in plan.targets}
    told = ", ".join(
        f"{name} {'unknown (it has no price)' if cost is None else money(cost)}" for name, cost in costs.items()
    )
    click.echo(f"{plan.calls} calls, likely cost: {told}", err=True)
    total = sum(cost or 0 for cost in costs.values())
    unknown = [name for name, cost in costs.items() if cost is None]
    if plan.max_cost is not None and unknown:
        return f"--max-cost cannot bound a channel without a price: give {', '.join(unknown)} one"
    if plan.max_cost is not None and total > plan.max_cost:
        return f"that is likely more than --max-cost ({money(plan.max_cost)})"
    if options["yes"] or (not unknown and total <= options["ask_above"] * MICRO):
        return None
    if not interactive():
        return "nobody is here to agree to the cost: give --yes"
    try:
        return None if click.confirm("Go on?", err=True) else "as you wish, nothing was sent"
    except click.Abort:
        return "as you wish, nothing was sent"


async def _watched(run: Regression) -> bool:
    """Run under a progress bar. Whether it was interrupted; a second Ctrl-C is not caught."""
    columns = (TextColumn("asking"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("asking", total=run.plan.calls)
        async with trio.open_nursery() as nursery:
            interrupt = Interrupt(nursery.cancel_scope)
            await nursery.start(interrupt.run)
            await run.run(partial(progress.advance, bar))
            nursery.cancel_scope.cancel("everything was asked")
    if interrupt.seen:
        run.stopped = "it was interrupted"
    return interrupt.seen


@define(eq=False)
class Interrupt:
    """Ends a scope at Ctrl-C."""

    scope: trio.CancelScope
    seen: bool = field(init=False, default=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until it comes, once."""
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            await anext(aiter(signals))
            self.seen = True
            self.scope.cancel("interrupted")


def code_of(run: Regression, share: float) -> int:
    """The exit code of a run that was not interrupted; `share` is what has to pass, of 1."""
    if lost := reach(run):
        for name, reason in lost.items():
            click.echo(f"channel {name} answered nothing: {reason}", err=True)
        return UNREACHABLE
    readings = [run.reading(target) for target in run.plan.targets]
    good = all(reading.complete and reading.pass_rate >= share for reading in readings)
    return PASSED if good else FAILED


def _dumped(run: Regression) -> str:
    return json.dumps(document(run), indent=2) + "\n"


def _write(path: Path, text: str) -> str:
    """Why it could not be written; empty where it was."""
    try:
        path.write_text(text, "utf-8", errors="backslashreplace")
    except OSError as exc:
        return f"{path} cannot be written: {exc.strerror}"
    click.echo(f"written: {path}", err=True)
    return ""


def interactive() -> bool:
    """Whether somebody is here to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()
