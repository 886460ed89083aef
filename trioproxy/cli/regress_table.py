"""A regression run in the terminal: a row a prompt, a column a channel, and a summary below."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trioproxy.config.promptset import Prompt
from trioproxy.ops.regression import Regression, Target
from trioproxy.ops.regression_page import money, seconds, spent, visible
from trioproxy.policy.outcome import Outcome, differences

MOST_REASONS = 3


def show(run: Regression, console: Console) -> None:
    """Print it. What a model said cannot move the cursor or set a colour: control characters are marked, markup is none."""
    plan = run.plan
    table = Table(
        title=plain(plan.prompts.name) if plan.prompts.name else None,
        title_justify="left",
        show_lines=True,
        title_style="bold",
    )
    table.add_column("prompt", overflow="fold")
    for target in plan.targets:
        table.add_column(plain(target.name), overflow="fold")
    if len(plan.targets) == 2:
        table.add_column("differences", overflow="fold")
    for number, prompt in enumerate(plan.prompts.prompts):
        table.add_row(*_row(run, number, prompt))
    console.print(table)
    console.print(_summary(run))
    if run.stopped:
        console.print(Text(f"Not everything was asked: {run.stopped}.", style="bold red"))


def plain(text: str) -> Text:
    """Text for a terminal, as it is."""
    return Text(visible(text).replace("\n", " ").replace("\t", " "))


def _row(run: Regression, number: int, prompt: Prompt) -> list[Text]:
    listed = [run.outcomes.get((number, target.name), []) for target in run.plan.targets]
    cells = [plain(prompt.name), *map(_cell, listed)]
    if len(listed) == 2:
        told = differences(listed[0][0], listed[1][0]) if all(listed) else ()
        cells.append(plain("; ".join(told)))
    return cells


def _cell(outcomes: list[Outcome]) -> Text:
    """Verdict, figures of the last call, and the first reasons why one failed."""
    if not outcomes:
        return Text("not asked", style="dim")
    passed, last = sum(outcome.passed for outcome in outcomes), outcomes[-1]
    good = passed == len(outcomes)
    verdict = ("passes" if good else "fails") if len(outcomes) == 1 else f"{passed}/{len(outcomes)} pass"
    tokens = "" if last.usage is None else f", {last.usage.output} tokens"
    cost = "" if last.said is None else f", {money(last.cost)}"
    cell = Text(verdict, style="green" if good else "red")
    cell.append(f"  {seconds(last.seconds)}{tokens}{cost}", style="dim")
    reasons = list(dict.fromkeys(reason for outcome in outcomes for reason in _reasons(outcome)))
    for reason in reasons[:MOST_REASONS]:
        cell.append("\n")
        cell.append_text(plain(f"✗ {reason}"))
    if len(reasons) > MOST_REASONS:
        cell.append(f"\n  and {len(reasons) - MOST_REASONS} more", style="dim")
    return cell


def _reasons(outcome: Outcome) -> list[str]:
    if outcome.said is None:
        return [outcome.failure]
    return [f"{check.wanted}: {check.found}" for check in outcome.checks if not check.met]


def _summary(run: Regression) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 1))
    for heading in ("channel", "model", "passed", "p50", "p95", "tokens in/out", "cost"):
        table.add_column(heading, overflow="fold")
    for target in run.plan.targets:
        table.add_row(*map(plain, _figures(run, target)))
    return table


def _figures(run: Regression, target: Target) -> tuple[str, ...]:
    summary = run.summary(target.name)
    return (
        target.name,
        target.provider_model,
        f"{summary.passed}/{summary.runs} ({summary.pass_rate:.0%})",
        seconds(summary.p50),
        seconds(summary.p95),
        f"{summary.input_tokens}/{summary.output_tokens}",
        spent(summary),
    )
