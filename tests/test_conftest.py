"""The dozen lines that replace a pytest plugin: coroutine tests really run, on the clock they ask for, Hypothesis included."""

from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

import tests.conftest

pytest_plugins = ["pytester"]


async def test_a_virtual_clock_makes_deadlines_free_and_exact(autojump_clock: MockClock) -> None:
    await trio.sleep(240)
    assert trio.current_time() == 240


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seconds=st.integers(1, 1000))
async def test_each_hypothesis_example_starts_at_zero(autojump_clock: MockClock, seconds: int) -> None:
    await trio.sleep(seconds)
    assert trio.current_time() == seconds


def test_a_failing_coroutine_test_fails_and_a_hanging_one_is_ended(pytester: pytest.Pytester) -> None:
    source = Path(tests.conftest.__file__).read_text().replace("GUARD = 20", "GUARD = 0.3")
    pytester.makeconftest(source)
    pytester.makepyfile(
        """
        import trio
        async def test_false(): assert False
        async def test_true(): assert True
        async def test_hangs(autojump_clock): await trio.sleep_forever()
        async def test_spins():
            while True: pass
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        ["*still running after 0.3 s of real time, at", "*_timeouts.py:*", "*FAILED*test_spins*"]
    )
