"""A regression run as one HTML page: no script, no font, no picture from elsewhere, so that it can be mailed and opened anywhere.

Whatever a model said is escaped, shown in a box of its own direction, and without control characters; the page's policy forbids
everything but its own style, should an escape ever be missed.
"""

import html
import unicodedata
from datetime import UTC, datetime

from trioproxy.config.promptset import Prompt
from trioproxy.ops.regression import Regression, Target
from trioproxy.policy.outcome import Outcome, Summary, differences

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #667085; --line: #e3e7ee; --page: #f6f7f9; --card: #fff;
  --good: #13795b; --good-soft: #e3f5ee; --bad: #b42318; --bad-soft: #fdeceb; --mark: #3538cd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #2b3240; --page: #12161d; --card: #1a202b;
  --good: #4ccb9d; --good-soft: #12352a; --bad: #ff8d84; --bad-soft: #40201e; --mark: #a4a7fb; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 17px; margin: 0; }
.soft { color: var(--soft); font-size: 13px; margin: 0; }
.warn { background: var(--bad-soft); color: var(--bad); border-radius: 8px; padding: 10px 14px; margin: 16px 0 0; }
.grid { display: grid; gap: 14px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px; min-width: 0; }
.summary { margin: 24px 0 32px; }
.rate { font-size: 36px; font-weight: 650; letter-spacing: -.02em; }
.bar { height: 6px; border-radius: 3px; background: var(--bad-soft); overflow: hidden; margin: 4px 0 14px; }
.bar i { display: block; height: 100%; background: var(--good); }
dl { display: grid; grid-template-columns: auto 1fr; gap: 2px 14px; margin: 0; font-size: 13px; }
dt { color: var(--soft); } dd { margin: 0; font-variant-numeric: tabular-nums; text-align: right; }
section { margin: 0 0 28px; } section > header { margin: 0 0 8px; }
.chip { display: inline-block; border-radius: 999px; padding: 1px 10px; font-size: 12px; font-weight: 600; }
.good { background: var(--good-soft); color: var(--good); } .bad { background: var(--bad-soft); color: var(--bad); }
.diff { color: var(--mark); border: 1px solid; }
.top { display: flex; flex-wrap: wrap; gap: 8px; align-items: baseline; margin: 0 0 8px; }
.top .soft { margin-left: auto; font-variant-numeric: tabular-nums; }
pre { margin: 0 0 10px; white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; max-height: 420px; overflow: auto;
  font: 13px/1.55 ui-monospace, monospace; background: var(--page); border-radius: 8px; padding: 10px 12px; }
ul { list-style: none; margin: 0; padding: 0; font-size: 13px; } li { overflow-wrap: anywhere; }
li::before { content: "✓ "; color: var(--good); font-weight: 700; } li.no::before { content: "✗ "; color: var(--bad); }
li span { color: var(--soft); }
details { margin: 0 0 8px; } summary { cursor: pointer; color: var(--soft); font-size: 13px; }
hr { border: 0; border-top: 1px solid var(--line); margin: 14px 0; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(run: Regression) -> str:
    """The whole page."""
    plan = run.plan
    title = shown(plan.prompts.name or "Regression set")
    at = datetime.fromtimestamp(run.wall(), UTC)
    often = "" if plan.repeat == 1 else f", {plan.repeat} times each"
    asked = f"model {shown(plan.model)} · {len(plan.prompts.prompts)} prompts{often}"
    about = f"{asked} · set {plan.prompts.hash} · {at:%Y-%m-%d %H:%M} UTC"
    warning = f'<p class="warn">Not everything was asked: {shown(run.stopped)}.</p>' if run.stopped else ""
    cards = "".join(_card(run, target) for target in plan.targets)
    sections = "".join(_section(run, number, prompt) for number, prompt in enumerate(plan.prompts.prompts))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>"
        f'<h1 dir="auto">{title}</h1><p class="soft">{about}</p>{warning}'
        f'<div class="grid summary">{cards}</div>{sections}</main></body></html>\n'
    )


def shown(text: str) -> str:
    """Text for the page: escaped, and with a mark in the place of characters that control rather than say something."""
    return html.escape(visible(text))


def visible(text: str) -> str:
    """The same with � for control characters and lone surrogates; line ends and tabs stay, and so do joiners of scripts."""
    return "".join("�" if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" else c for c in text)


def money(micro: int | None) -> str:
    """Micro-USD as dollars, to the last of them."""
    return "unknown" if micro is None else f"${micro / 1_000_000:.6f}"


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def spent(summary: Summary) -> str:
    """What a channel cost, with what is not known said."""
    if summary.unpriced and summary.unpriced == summary.answered:
        return "unknown"
    return money(summary.cost) + (f" + {summary.unpriced} unknown" if summary.unpriced else "")


def _card(run: Regression, target: Target) -> str:
    summary = run.summary(target.name)
    rows = {
        "passed": f"{summary.passed} of {summary.runs}",
        "answered": f"{summary.answered} of {summary.runs}",
        "latency p50 / p95": f"{seconds(summary.p50)} / {seconds(summary.p95)}",
        "tokens in / out": f"{summary.input_tokens:,} / {summary.output_tokens:,}",
        "cost": spent(summary),
    }
    figures = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows.items())
    share = summary.pass_rate * 100
    return (
        f'<div class="card"><h2>{shown(target.name)}</h2><p class="soft">{shown(target.provider_model)}</p>'
        f'<div class="rate">{share:.0f} %</div><div class="bar"><i style="width:{share:.1f}%"></i></div>'
        f"<dl>{figures}</dl></div>"
    )


def _section(run: Regression, number: int, prompt: Prompt) -> str:
    listed = [run.outcomes.get((number, target.name), []) for target in run.plan.targets]
    told = differences(listed[0][0], listed[1][0]) if len(listed) == 2 and all(listed) else ()
    chips = "".join(f'<span class="chip diff">{shown(each)}</span>' for each in told)
    asked = "\n\n".join(f"{message.get('role')}: {_words(message.get('content'))}" for message in prompt.conversation())
    columns = "".join(
        f'<div class="card">{_column(target, outcomes)}</div>'
        for target, outcomes in zip(run.plan.targets, listed, strict=True)
    )
    return (
        f'<section><header><div class="top"><h2 dir="auto">{shown(prompt.name)}</h2>{chips}</div>'
        f'<details><summary>what was asked</summary><pre dir="auto">{shown(asked)}</pre></details></header>'
        f'<div class="grid">{columns}</div></section>'
    )


def _words(content: object) -> str:
    return content if isinstance(content, str) else repr(content)


def _column(target: Target, outcomes: list[Outcome]) -> str:
    if not outcomes:
        return f'<div class="top"><b>{shown(target.name)}</b><span class="soft">not asked</span></div>'
    return "<hr>".join(_outcome(target, outcome) for outcome in outcomes)


def _outcome(target: Target, outcome: Outcome) -> str:
    mark = '<span class="chip good">passes</span>' if outcome.passed else '<span class="chip bad">fails</span>'
    usage = outcome.usage
    cost = "" if outcome.said is None else f" · {money(outcome.cost)}"
    tokens = "" if usage is None else f" · {usage.input + usage.cached} / {usage.output} tokens"
    figures = f"{seconds(outcome.seconds)}{tokens}{cost}"
    top = f'<div class="top"><b>{shown(target.name)}</b>{mark}<span class="soft">{figures}</span></div>'
    if outcome.said is None:
        return f'{top}<pre dir="auto">{shown(outcome.failure)}</pre>'
    checks = "".join(
        f"<li{'' if check.met else ' class=no'}>{shown(check.wanted)} <span>{shown(check.found)}</span></li>"
        for check in outcome.checks
    )
    return f'{top}<pre dir="auto">{shown(spoken(outcome)) or "(nothing)"}</pre><ul>{checks}</ul>'


def spoken(outcome: Outcome) -> str:
    """What the model said, tool calls and refusal included, as a person reads it."""
    said = outcome.said
    if said is None:
        return outcome.failure
    calls = [f"→ {call.name}({call.arguments})" for call in said.calls]
    refused = [f"refusal: {said.refusal}"] if said.refusal else []
    ended = [f"[{said.finish}]"] if said.finish in ("length", "content_filter") else []
    return "\n".join(part for part in (said.text, *refused, *calls, *ended) if part)
