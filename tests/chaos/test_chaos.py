"""Whole gateways with everything at once, by chance: whatever meets, the laws hold. A seed makes the same run again.

python -m tests.chaos.test_chaos FIRST LAST     tries these seeds, and says what each of them broke
"""

import random
import sys
import tempfile
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.chaos.grammar import Grammar
from tests.chaos.laws import broken
from tests.chaos.life import Lives


def lived(seed: int, folder: Path) -> Lives:
    """Everything that this seed leads to."""
    random.seed(seed)  # request ids, jitter
    lives = Lives(Grammar(random.Random(seed)).setup(), folder)
    trio.run(lives.run, clock=MockClock(autojump_threshold=0))
    return lives


@pytest.mark.parametrize("batch", range(20))
def test_the_laws_hold(batch: int, tmp_path: Path) -> None:
    """No call is lost, nothing stays held, nothing is told that must not be, whatever features meet."""
    for seed in range(batch * 3, batch * 3 + 3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert broken(lived(seed, folder)) == [], f"seed {seed}"


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        with tempfile.TemporaryDirectory() as made:
            try:
                said = broken(lived(number, Path(made)))
            except BaseException as exc:
                if isinstance(exc, KeyboardInterrupt):
                    raise
                said = [f"{type(exc).__name__}: {exc}"]
                if len(sys.argv) > 3:
                    raise
        for each in said:
            print(number, each[:700], flush=True)  # noqa: T201
