"""S01 to S16 of the failover exam: what A and B do, how the client asks, and how the outcome is judged.

Seconds are the case's own times `scale`; only Retry-After, which counts whole seconds, is never scaled.
"""

from collections.abc import Awaitable, Callable

import trio
from attrs import frozen

from bench.exam import rulings, steps
from bench.exam.asking import Caller, Outcome
from bench.exam.judging import Evidence, Verdict
from bench.exam.provider import Step

RETRY_AFTER = rulings.RETRY_AFTER
Drive = Callable[[Caller], Awaitable[list[Outcome]]]
B = steps.healthy("b")
ASSURED, PATIENT, QUICK = "assured", "patient", "quick"


async def ask_once(caller: Caller) -> list[Outcome]:
    """One call."""
    return [await caller.ask()]


def ask_every(seconds: float, count: int) -> Drive:
    """So many calls, one after another, each begun so long after the last began."""

    async def drive(caller: Caller) -> list[Outcome]:
        found: list[Outcome] = []
        for _ in range(count):
            due = trio.current_time() + seconds
            found.append(await caller.ask())
            await trio.sleep_until(due)
        return found

    return drive


@frozen
class Case:
    """One case in one variant. `manner` is the class of traffic it asks for, where the target has such: assured, or quick and
    patient about the first content.
    """

    id: str
    a: Step
    judge: Callable[[Evidence], Verdict]
    does: str
    drive: Drive = ask_once
    b: Step = B
    manner: str = ""
    streamed: tuple[bool, ...] = (False, True)
    variant: str = ""
    always: bool = False  # asked of targets without that manner too

    def name(self, streamed: bool) -> str:
        """A word for paths, models and channels."""
        parts = (self.id.lower(), self.manner or self.variant, "stream" if streamed else "whole")
        return "-".join(part for part in parts if part)


def cases(scale: float) -> list[Case]:
    """All of them."""
    throttled = steps.fails(429, b"retry-after: %d" % RETRY_AFTER)
    broken = steps.fails(503)
    cut = {"a": steps.cuts, "does": "cut at 40 of 60 tokens"}
    stall = {"a": steps.stalls(30 * scale), "does": "30 s stall after content"}
    garbled = {"a": steps.garbles, "does": "one malformed chunk"}
    late = {"a": steps.begins_late(20 * scale), "does": "headers at once, first token after 20 s"}
    too_long = steps.fails(400, message=steps.TOO_LONG, code="context_length_exceeded")
    filtered = steps.fails(400, message=steps.FILTERED, code="content_filter")
    down = steps.during(60 * scale, broken, steps.healthy("a"))
    only_streams = (True,)
    return [
        Case("S01", steps.once(throttled, steps.healthy("a")), rulings.s01, "one 429", ask_every(0.25, 8)),
        Case("S02", throttled, rulings.s02, "429 for ever", ask_every(0.25, 20)),
        Case("S03", steps.once(steps.fails(500), steps.healthy("a")), rulings.s03, "one 500"),
        Case("S04", broken, rulings.s04, "503 for ever, 15 calls", ask_every(0, 15)),
        Case("S05", steps.resets, rulings.s05, "reset before headers"),
        Case("S06", steps.is_silent, rulings.s06, "silence"),
        Case("S07", **late, judge=rulings.s07_quick, manner=QUICK),
        Case("S07", **late, judge=rulings.s07_patient, manner=PATIENT),
        Case("S08", **cut, judge=rulings.cut_plain),
        Case("S08", **cut, judge=rulings.replaced, manner=ASSURED),
        Case("S09", **stall, judge=rulings.stalled_plain),
        Case("S09", **stall, judge=rulings.replaced_in_time, manner=ASSURED),
        Case("S10", **garbled, judge=rulings.garbled_plain),
        Case("S10", **garbled, judge=rulings.replaced, manner=ASSURED),
        Case("S11", steps.omits_done, rulings.s11, "no [DONE]", streamed=only_streams),
        Case("S12", too_long, rulings.s12, "400 context length exceeded"),
        Case("S13", filtered, rulings.s13_refused, "content filter", variant="refused"),
        Case("S13", steps.filters, rulings.s13_finish, "content filter", variant="finish"),
        Case("S14", steps.cuts, rulings.s14, "cut; B takes no prefill", b=steps.wants_no_prefill, manner=ASSURED, always=True),
        Case("S15", down, rulings.s15, "down 60 s, then healthy", ask_every(scale, rulings.S15_CALLS)),
        Case("S16", broken, rulings.s16, "503: who answered?"),
    ]
