"""What an exam says, for people (Markdown) and for machines (JSON)."""

import json
from collections.abc import Sequence
from pathlib import Path

from bench.exam.course import Course, Result
from bench.exam.judging import Grade, Verdict, worst
from bench.exam.peers import SETUPS
from bench.report import table

LEGEND = (
    "pass: everything the case asks for; partial: answered, but a clause is missed; safe: an honest error, in time; "
    "fail: wrong, dishonest or hanging. `whole` is asked without a stream, `stream` with one. Cost is not looked at."
)


def variant(result: Result) -> str:
    """Which of a case's variants it is, where it has several."""
    case = result.sitting.case
    return "" if case.always else case.manner or case.variant


def cells(results: Sequence[Result]) -> dict[str, dict[str, Verdict]]:
    """Case to form to verdict, the worst of the case's variants."""
    found: dict[str, dict[str, list[Verdict]]] = {}
    for result in sorted(results, key=lambda one: one.sitting.case.id):
        case, verdict = result.sitting.case, result.verdict
        which = variant(result)
        named = Verdict(verdict.grade, f"{which}: {verdict.reason}" if which and verdict.reason else verdict.reason)
        form = "stream" if result.sitting.streamed else "whole"
        found.setdefault(case.id, {}).setdefault(form, []).append(named)
    return {case: {form: worst(verdicts) for form, verdicts in forms.items()} for case, forms in found.items()}


def said(verdict: Verdict | None) -> str:
    """A table's cell."""
    if verdict is None:
        return "-"
    return verdict.grade.word + (f": {verdict.reason}" if verdict.reason else "")


def summary(results: Sequence[Result]) -> list[str]:
    """How many of each grade, and passes by form."""
    verdicts = cells(results)
    every = [verdict for forms in verdicts.values() for verdict in forms.values()]
    counts = [str(sum(verdict.grade is grade for verdict in every)) for grade in reversed(Grade)]
    forms = [[forms[form] for forms in verdicts.values() if form in forms] for form in ("whole", "stream")]
    passed = [f"{sum(one.grade is Grade.PASS for one in column)}/{len(column)}" for column in forms]
    return [*passed, *counts]


def markdown(course: Course) -> str:
    """The whole report."""
    head = ["target", "pass, whole", "pass, stream", *(grade.word for grade in reversed(Grade))]
    parts = [
        f"## Failover exam, seconds times {course.scale:g} (Retry-After is never scaled)\n\n{LEGEND}\n",
        table(head, [[name, *summary(results)] for name, results in course.found.items()]),
    ]
    for name, results in course.found.items():
        setup = SETUPS[name]
        does = {one.sitting.case.id: one.sitting.case.does for one in reversed(results)}
        rows = [
            [f"{case} {does[case]}", said(f.get("whole")), said(f.get("stream"))] for case, f in cells(results).items()
        ]
        about = f"\n### {name} {course.versions[name]}\n\nScaled with the case: {setup.scaled}. Has not, or cannot be told: {setup.lacks}.\n"
        parts += [about, table(["case: A does", "whole", "stream"], rows)]
    parts += [f"\n{name} is absent: {why}" for name, why in course.absent.items()]
    return "\n".join(parts)


def write(course: Course, about: dict[str, str], where: Path) -> None:
    """`exam.md` and `exam.json` in the directory, which is made."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "exam.md").write_text(markdown(course) + "\n")
    raw = {
        name: [
            {
                "case": one.sitting.case.id,
                "does": one.sitting.case.does,
                "variant": one.sitting.case.manner or one.sitting.case.variant or "plain",
                "form": "stream" if one.sitting.streamed else "whole",
                "verdict": one.verdict.grade.word,
                "reason": one.verdict.reason,
                "asked": {"a": one.hits[0], "b": one.hits[1]},
            }
            for one in results
        ]
        for name, results in course.found.items()
    }
    said_raw = {
        "scale": course.scale,
        "machine": about,
        "versions": course.versions,
        "targets": raw,
        "absent": course.absent,
    }
    (where / "exam.json").write_text(json.dumps(said_raw, indent=1) + "\n")
