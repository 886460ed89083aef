"""What a rollout requires before a step: readings of its candidate's channels, from the file that a regression run wrote.

Both files are read anew, in a thread, whenever a step is due: a new run counts from the moment it is written, and a set that was changed asks
for one. What cannot be read shows nothing.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec
import trio

from trioproxy.config.load import decode
from trioproxy.config.model import Requirement, Rollout
from trioproxy.config.promptset import parse_set
from trioproxy.errors import ConfigError
from trioproxy.policy.reading import Required, missing, readings_in


def evidence(rollouts: Iterable[Rollout], wall: Callable[[], float]) -> dict[str, Callable[[], Awaitable[str]]]:
    """By model: what is not shown yet, "" where all of it is. `wall` is Unix seconds."""
    return {each.model: partial(_objection, each, each.require, wall) for each in rollouts if each.require is not None}


async def _objection(rollout: Rollout, require: Requirement, wall: Callable[[], float]) -> str:
    return await trio.to_thread.run_sync(judge, rollout, require, wall(), abandon_on_cancel=True)


def judge(rollout: Rollout, require: Requirement, now: float) -> str:
    """What is not shown, in words; "" where all of it is. Blocks."""
    try:
        set_hash = None if require.set is None else _set_hash(Path(require.set))
        report = msgspec.json.decode(Path(require.file).read_bytes())
        readings = readings_in(report)
    except OSError as exc:
        return f"{exc.filename} cannot be read: {exc.strerror}"
    except ConfigError as exc:
        return f"{require.set} is no set: {exc.faults[0].message}"
    except (ValueError, RecursionError) as exc:  # a decoder's errors are values' too
        return f"{require.file} has no readings: {exc}"
    model = None if "*" in rollout.model else rollout.model
    required = [
        Required(
            link.channel, require.pass_rate, set_hash, model, None if "*" in link.model else link.model, require.max_age
        )
        for link in rollout.candidate
    ]
    why = missing(readings, required, now)
    return "" if why is None else f"{require.file}: {why}"


def _set_hash(path: Path) -> str:
    return parse_set(decode(path.read_bytes(), str(path)), str(path)).hash
