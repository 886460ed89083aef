"""Sits the exam: starts a target before both upstreams and takes every case in both forms, a few at a time, each in its own corner.

Cases do not see each other: each has its own model, channels and desks, or its own process where a target's state is not by
model. The slow ones begin first, so an exam lasts little longer than its longest case, which is S15: 93 times the scale.
"""

import contextlib
import subprocess
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import trio
from attrs import define, field, frozen

from bench import process, target
from bench.exam.asking import Caller
from bench.exam.cases import Case, cases
from bench.exam.judging import Evidence, Verdict, fail
from bench.exam.peers import SETUPS
from bench.exam.provider import Desk, Provider
from bench.exam.setups import Place, Setup, version
from bench.process import StartFailed, running

PATIENCE = 45.0  # seconds, scaled, until a call is given up: longer than any deadline of the exam
LEAST_PATIENCE = 5.0
AT_ONCE = 6  # two cores are shared by target, upstreams and client; more would measure those
LONGEST = ("S15", "S06", "S09", "S07", "S02")


@frozen
class Sitting:
    """One case in one form."""

    case: Case
    streamed: bool

    @property
    def name(self) -> str:
        """Its corner's name."""
        return self.case.name(self.streamed)


@frozen
class Result:
    """What became of it, and how often A and B were asked."""

    sitting: Sitting
    verdict: Verdict
    hits: tuple[int, int] = (0, 0)


@define(eq=False)
class Course:
    """One exam: the scale of its seconds, and what was found, by target. `only` are case ids; none: all."""

    scale: float
    where: Path  # peers are installed here
    logs: Path  # each target's configuration and output
    progress: Callable[[str], None]
    only: frozenset[str] = frozenset()
    found: dict[str, list[Result]] = field(factory=dict, init=False)
    absent: dict[str, str] = field(factory=dict, init=False)
    versions: dict[str, str] = field(factory=dict, init=False)

    async def run(self, names: Sequence[str]) -> None:
        """Every target, one after another."""
        for name in names:
            self.progress(f"{name}: installing and starting")
            try:
                installed = self.where / name
                installed.mkdir(parents=True, exist_ok=True)
                await trio.to_thread.run_sync(target.load(name).install, installed)
                self.versions[name] = version(name, installed)
                self.found[name] = await self.examine(name, SETUPS[name])
            except (StartFailed, subprocess.CalledProcessError) as error:
                detail = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
                self.absent[name] = f"{error} {detail[-500:]}".strip()

    async def examine(self, name: str, setup: Setup) -> list[Result]:
        """One target. Raises `StartFailed`."""
        sittings = self.sittings(setup)
        results: list[Result] = []
        async with serving(sittings) as sides:
            room = Room(self, name, setup, sides)

            async def take(sitting: Sitting) -> None:
                async with limit:
                    results.append(await room.take(sitting))
                self.progress(f"{name}: {len(results)} of {len(sittings)} done")

            limit = trio.CapacityLimiter(AT_ONCE)
            try:
                trouble = await room.open(sittings)
                if trouble is None:
                    async with trio.open_nursery() as nursery:
                        for sitting in sittings:
                            nursery.start_soon(take, sitting)
            finally:
                room.processes.close()
        if trouble is not None:
            raise trouble
        return results

    def sittings(self, setup: Setup) -> list[Sitting]:
        """What is asked of a target: the variants it can be configured for, the long ones first."""
        chosen = [case for case in cases(self.scale) if not self.only or case.id in self.only]
        chosen = [case for case in chosen if not case.manner or case.manner in setup.manners or case.always]
        chosen.sort(key=lambda case: LONGEST.index(case.id) if case.id in LONGEST else len(LONGEST))
        return [Sitting(case, streamed) for case in chosen for streamed in case.streamed]


@contextlib.asynccontextmanager
async def serving(sittings: Sequence[Sitting]) -> AsyncGenerator[tuple[Provider, Provider]]:
    """Both upstreams listen while the block lasts."""
    a = Provider({one.name: Desk(one.case.a) for one in sittings})
    b = Provider({one.name: Desk(one.case.b) for one in sittings})
    async with trio.open_nursery() as nursery:
        await nursery.start(a.run)
        await nursery.start(b.run)
        yield a, b
        nursery.cancel_scope.cancel()


@define(eq=False)
class Room:
    """One target under examination, between the two upstreams."""

    course: Course
    name: str
    setup: Setup
    sides: tuple[Provider, Provider]
    processes: contextlib.ExitStack = field(factory=contextlib.ExitStack, init=False)
    shared: Place | None = field(default=None, init=False)

    async def open(self, sittings: Sequence[Sitting]) -> StartFailed | None:
        """Start the one process, where one serves all cases. A failure is returned: it must not cross the upstreams' nursery."""
        try:
            if self.setup.together:
                self.shared = await self.start(self.name, tuple(one.name for one in sittings))
        except StartFailed as trouble:
            return trouble
        return None

    async def start(self, corner: str, names: tuple[str, ...]) -> Place:
        """Start a process for these cases. Raises `StartFailed`."""
        home = self.course.logs / corner
        home.mkdir(parents=True, exist_ok=True)
        a, b = self.sides
        ports = (process.free_port(), a.port, b.port)
        place = Place(home, self.course.where / self.name, *ports, self.course.scale, names)
        starting = running(self.setup.command(place), home / "output.log")
        await trio.to_thread.run_sync(self.processes.enter_context, starting)
        return place

    async def take(self, sitting: Sitting) -> Result:
        """One case in one form."""
        try:
            place = self.shared or await self.start(f"{self.name}-{sitting.name}", (sitting.name,))
        except StartFailed as trouble:
            return Result(sitting, fail(f"does not start: {str(trouble)[:80]}"))
        kind = self.setup.classes.get(sitting.case.manner)
        headers = {"x-trioproxy-class": kind} if kind else {}
        patience = max(PATIENCE * self.course.scale, LEAST_PATIENCE)
        caller = Caller(self.setup.endpoint(place, sitting.name), sitting.streamed, patience, headers)
        outcomes = await sitting.case.drive(caller)
        a, b = (tuple(side.desks[sitting.name].hits) for side in self.sides)
        evidence = Evidence(tuple(outcomes), a, b, self.course.scale, self.setup.says)
        return Result(sitting, sitting.case.judge(evidence), (len(a), len(b)))
