"""Calls that ended with 429, by whose word: ours before anything was sent, or a provider's after our limits had let them pass.

The first is protection at work. The second says that a limit of ours is too high, or that a provider has troubles of its
own; it is the figure to bring to nought. The third are calls that came while every channel rested after one of those.
"""

from attrs import define, field

from trioproxy.journal import EndReason, Event, ExchangeEnded

TOO_MANY = 429


@define(eq=False)
class Rejections:
    """A subscriber of the journal. It only counts."""

    rejected_before_dispatch: int = field(init=False, default=0)
    admitted_then_provider_rejected: int = field(init=False, default=0)
    resting: int = field(init=False, default=0)

    def __call__(self, event: Event) -> None:
        if not isinstance(event, ExchangeEnded) or event.status != TOO_MANY:
            return
        if event.reason is EndReason.REFUSED_QUOTA:
            self.rejected_before_dispatch += 1
        elif event.attempts:
            self.admitted_then_provider_rejected += 1
        else:
            self.resting += 1
