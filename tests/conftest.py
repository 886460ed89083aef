"""Runs `async def` tests under Trio, on a virtual clock where they ask for one, and lets none hang."""

import functools
import inspect
import os
import signal
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import pytest
import trio
from hypothesis import settings
from trio.testing import MockClock

# No deadline: machines are shared. With CI set every run draws the same examples; elsewhere each run tries new ones.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

GUARD = 20  # seconds of real time, whatever the virtual clock says


@pytest.fixture
def autojump_clock() -> MockClock:
    """A clock that jumps to the next deadline as soon as every task waits: 240 s cost nothing and are exact."""
    return MockClock(autojump_threshold=0)


def under_trio(test: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        if "autojump_clock" in fixtures:
            fixtures["autojump_clock"] = MockClock(autojump_threshold=0)  # a fresh one per Hypothesis example
        trio.run(functools.partial(guarded, test, fixtures), clock=fixtures.get("autojump_clock"))

    return run


async def guarded(test: Callable[..., Any], fixtures: dict[str, Any]) -> None:
    """Run the test; SIGALRM cancels it, and a second one (a loop without checkpoints) breaks it off wherever it is."""
    token, task = trio.lowlevel.current_trio_token(), trio.lowlevel.current_task()
    stuck: list[str] = []

    def cancel() -> None:
        stuck.extend(f"{frame.f_code.co_filename}:{line}" for frame, line in task.iter_await_frames())
        scope.cancel(f"still running after {GUARD} s of real time")

    def on_alarm(_signal: int, _frame: FrameType | None) -> None:
        token.run_sync_soon(cancel)
        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, GUARD / 10)

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        with trio.CancelScope() as scope:
            await test(**fixtures)
    finally:
        signal.signal(signal.SIGALRM, before)
    if stuck:
        pytest.fail(f"still running after {GUARD} s of real time, at\n" + "\n".join(stuck), pytrace=False)


def give_up(_signal: int, _frame: FrameType | None) -> None:
    pytest.fail(f"still running after {GUARD} s of real time")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    given = getattr(pyfuncitem.obj, "hypothesis", None)
    if given is not None and inspect.iscoroutinefunction(given.inner_test):
        given.inner_test = under_trio(given.inner_test)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = under_trio(pyfuncitem.obj)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, GUARD)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
