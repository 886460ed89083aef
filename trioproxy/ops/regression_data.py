"""A regression run for programs: the readings first, which a rollout may require, then every answer with its checks."""

from typing import Any

from attrs import asdict
from msgspec import to_builtins

from trioproxy.config.promptset import Prompt
from trioproxy.ops.regression import Regression, Target
from trioproxy.policy.outcome import Outcome, differences


def document(run: Regression) -> dict[str, Any]:
    """The whole run as JSON has it. Costs are micro-USD, null where they are not known; times are seconds."""
    plan = run.plan
    return {
        "readings": [run.reading(target).plain() for target in plan.targets],
        "set": {"name": plan.prompts.name, "hash": plan.prompts.hash, "prompts": len(plan.prompts.prompts)},
        "model": plan.model,
        "repeat": plan.repeat,
        "stopped": run.stopped or None,
        "channels": {target.name: _channel(run, target) for target in plan.targets},
        "prompts": [_prompt(run, number, prompt) for number, prompt in enumerate(plan.prompts.prompts)],
    }


def _channel(run: Regression, target: Target) -> dict[str, Any]:
    summary = run.summary(target.name)
    return {"provider_model": target.provider_model, **asdict(summary), "pass_rate": summary.pass_rate}


def _prompt(run: Regression, number: int, prompt: Prompt) -> dict[str, Any]:
    listed = {target.name: run.outcomes.get((number, target.name), []) for target in run.plan.targets}
    one, *others = listed.values()
    return {
        "name": prompt.name,
        "messages": prompt.conversation(),
        "answers": {name: [_outcome(outcome) for outcome in outcomes] for name, outcomes in listed.items()},
        "differences": differences(one[0], others[0][0]) if one and others and others[0] else (),
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {"passed": outcome.passed, **to_builtins(outcome)}
