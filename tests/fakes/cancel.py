"""Cancel at every checkpoint: rerun a scenario, cut one step later each time, until it ends uncut.

What survives this holds nothing past its end, wherever a client may leave. A step is what one task does between two trips
to the scheduler; only tasks of the scenario count, so that peers outside it do not blur the sweep.
"""

from collections.abc import Awaitable, Callable

import trio
from attrs import define, field


@define(eq=False)
class Scalpel(trio.abc.Instrument):
    """Cancels `scope` at the `at`-th step of `root` and its descendants; nurseries that `root` had open before are not its own."""

    root: trio.lowlevel.Task
    scope: trio.CancelScope
    at: int
    steps: int = field(init=False, default=0)
    _outside: set[trio.Nursery] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._outside = set(self.root.child_nurseries)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._inside(task):
            self.steps += 1
            if self.steps == self.at:
                self.scope.cancel(f"cut at step {self.at}")

    def _inside(self, task: trio.lowlevel.Task) -> bool:
        while task is not self.root:
            nursery = task.parent_nursery
            if nursery is None or nursery in self._outside:
                return False
            task = nursery.parent_task
        return True


async def cancel_everywhere(
    scenario: Callable[[], Awaitable[None]], check: Callable[[], None], *, most: int = 5000
) -> int:
    """Run `scenario` cut at step 1, 2, … until one run ends uncut; `check` after each. Returns how many were cut.

    The scenario builds what it needs anew and takes the same steps every time. `check` asserts that nothing is held; what
    it or the scenario raises carries the step as a note.
    """
    for at in range(1, most + 1):
        with trio.CancelScope() as scope:
            scalpel = Scalpel(trio.lowlevel.current_task(), scope, at)
            trio.lowlevel.add_instrument(scalpel)
            try:
                await scenario()
            except Exception as exc:
                exc.add_note(f"cut at step {at}")
                raise
            finally:
                trio.lowlevel.remove_instrument(scalpel)
        try:
            check()
        except Exception as exc:
            exc.add_note(f"cut at step {at}")
            raise
        if scalpel.steps < at:
            return at - 1
    raise AssertionError(f"the scenario still has steps after {most}")
