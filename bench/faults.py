"""What goes wrong, when and for whom: a script of faults that the fake provider plays.

One fault is a line of words: an optional span in seconds since the start (`10-20`, `30-`), what happens, and for whom.

    10-20 status=503 share=0.5      half of the calls between second 10 and 20 are answered 503
    stall model=a                   model a takes the request and never answers
    cut=3                           the connection ends after three content frames; `reset=3` with a TCP reset
    error=2                         an error frame after two content frames, then the end
    tpm=60000 key=sk-a              key sk-a gets 429 once its tokens in one minute exceed 60,000
    0-60 slow=2.0                   waits grow from 0 to 2 seconds over the span

The first fault that applies to a call wins; shares are of the calls that got that far. Pure: time and chance are given.
"""

from typing import Literal, get_args

from attrs import field, frozen

Kind = Literal["status", "stall", "cut", "reset", "error", "tpm", "slow"]
MINUTE = 60.0


@frozen
class Fault:
    """One line of the script. `amount` is a status, a number of frames, tokens a minute or seconds, by kind."""

    kind: Kind
    amount: float = 0.0
    start: float = 0.0
    end: float = float("inf")
    share: float = 1.0
    model: str | None = None
    key: str | None = None

    def concerns(self, now: float, key: str, model: str) -> bool:
        """Whether the fault is active for this caller at `now` seconds since the start."""
        wanted = self.model in (None, model) and self.key in (None, key)
        return wanted and self.start <= now < self.end


@frozen
class Effect:
    """What happens to one call: a fault's kind and amount, as it applies now."""

    kind: Kind
    amount: float


def parse(line: str) -> Fault:
    """The fault that a line describes. Raises `ValueError` naming the word that is not understood."""
    values: dict[str, object] = {}
    for word in line.split():
        name, _, value = word.partition("=")
        if name in get_args(Kind):
            values |= {"kind": name, "amount": float(value or 0)}
        elif name in ("model", "key") and value:
            values[name] = value
        elif name == "share":
            values["share"] = float(value)
        elif "-" in name and not value:
            first, last = name.split("-")
            values |= {"start": float(first or 0), "end": float(last or "inf")}
        else:
            raise ValueError(f"{word!r} in fault {line!r}: a span, {', '.join(get_args(Kind))}, share=, model= or key=")
    if "kind" not in values:
        raise ValueError(f"fault {line!r} names nothing that happens: {', '.join(get_args(Kind))}")
    return Fault(**values)  # type: ignore[arg-type]  # the words above are the fields


@frozen
class Script:
    """Faults in order, and the token windows that they keep."""

    faults: tuple[Fault, ...] = ()
    windows: dict[Fault, tuple[float, float]] = field(factory=dict, init=False)

    def effect(self, now: float, caller: tuple[str, str], tokens: int, chance: float) -> Effect | None:
        """What happens to a call of (key, model) that costs `tokens`; `chance` is uniform in [0, 1)."""
        for fault in self.faults:
            if not fault.concerns(now, *caller):
                continue
            if chance >= fault.share:
                # Given that it was missed, this is uniform again: one number decides every share.
                chance = (chance - fault.share) / (1 - fault.share)
                continue
            effect = self.apply(fault, now, tokens)
            if effect:
                return effect
        return None

    def apply(self, fault: Fault, now: float, tokens: int) -> Effect | None:
        """How a fault that concerns this call shows; None when its limit is not reached."""
        if fault.kind == "slow":
            grown = (now - fault.start) / (fault.end - fault.start) if fault.end != float("inf") else 1.0
            return Effect("slow", fault.amount * grown)
        if fault.kind != "tpm":
            return Effect(fault.kind, fault.amount)
        began, used = self.windows.get(fault, (now, 0.0))
        if now - began >= MINUTE:
            began, used = now, 0.0
        if used + tokens > fault.amount:
            return Effect("tpm", began + MINUTE - now)
        self.windows[fault] = (began, used + tokens)
        return None
