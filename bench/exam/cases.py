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
    does: str
    a: Step
    judge: Callable[[Evidence], Verdict]
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
    late = ("headers at once, first token after 20 s", steps.begins_late(20 * scale))
    cut = ("cut at 40 of 60 tokens", steps.cuts)
    stall = ("30 s stall after content", steps.stalls(30 * scale))
    garbled = ("one malformed chunk", steps.garbles)
    too_long = steps.fails(400, message=steps.TOO_LONG, code="context_length_exceeded")
    filtered = steps.fails(400, message=steps.FILTERED, code="content_filter")
    down = steps.during(60 * scale, broken, steps.healthy("a"))
    return [
        Case("S01", "one 429", steps.once(throttled, steps.healthy("a")), rulings.s01, ask_every(0.25, 8)),
        Case("S02", "429 for ever", throttled, rulings.s02, ask_every(0.25, 20)),
        Case("S03", "one 500", steps.once(steps.fails(500), steps.healthy("a")), rulings.s03),
        Case("S04", "503 for ever, 15 calls", broken, rulings.s04, ask_every(0, 15)),
        Case("S05", "reset before headers", steps.resets, rulings.s05),
        Case("S06", "silence", steps.is_silent, rulings.s06),
        Case("S07", *late, rulings.s07_quick, manner=QUICK),
        Case("S07", *late, rulings.s07_patient, manner=PATIENT),
        Case("S08", *cut, rulings.cut_plain),
        Case("S08", *cut, rulings.replaced, manner=ASSURED),
        Case("S09", *stall, rulings.stalled_plain),
        Case("S09", *stall, rulings.replaced_in_time, manner=ASSURED),
        Case("S10", *garbled, rulings.garbled_plain),
        Case("S10", *garbled, rulings.replaced, manner=ASSURED),
        Case("S11", "no [DONE]", steps.omits_done, rulings.s11, streamed=(True,)),
        Case("S12", "400 context length exceeded", too_long, rulings.s12),
        Case("S13", "content filter", filtered, rulings.s13_refused, variant="refused"),
        Case("S13", "content filter", steps.filters, rulings.s13_finish, variant="finish"),
        Case(
            "S14",
            "cut; B takes no prefill",
            steps.cuts,
            rulings.s14,
            b=steps.wants_no_prefill,
            manner=ASSURED,
            always=True,
        ),
        Case("S15", "down 60 s, then healthy", down, rulings.s15, ask_every(scale, rulings.S15_CALLS)),
        Case("S16", "503: who answered?", broken, rulings.s16),
    ]
