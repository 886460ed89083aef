"""A client hangs up at every step of its call, the queue of its class included: through the door nothing stays either."""

from collections.abc import Callable

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.acceptance.queued import line
from tests.acceptance.test_queue_cancel import MOST, SCENES, asked
from tests.fakes import steps
from tests.fakes.client import Client
from tests.scene import CHAT, PROMPT, scene
from trioproxy.journal import EndReason


@define(eq=False)
class Departure(trio.abc.Instrument):
    """Has `client` hang up after the `at`-th step of any task."""

    client: Client
    leave: Callable[[Client], None]
    at: int
    steps: int = field(init=False, default=0)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps == self.at:
            self.leave(self.client)


@pytest.mark.parametrize("leave", [Client.close, Client.reset], ids=["fin", "reset"])
@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
@pytest.mark.parametrize("what", SCENES)
async def test_whenever_a_waiting_client_hangs_up_nothing_stays(
    what: str, streamed: bool, leave: Callable[[Client], None], autojump_clock: MockClock
) -> None:
    """One is under way, one waits and hangs up, and one behind it still gets its turn."""
    toml, channel, model = SCENES[what]
    fallback = "fallback" in what
    left = 0
    async with scene(*("a", "b")[: 1 + fallback], toml=toml, channel=channel, model=model) as s:
        for at in range(1, MOST):
            s.events.clear()
            s.a.script(steps.chat_answer("before", delay=1), steps.chat("hello"))
            if fallback:
                s.b.script(steps.chat("hello"))
            statuses: list[int] = []

            async def ask(statuses: list[int] = statuses) -> None:
                statuses.append(await asked(s))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await wait_all_tasks_blocked()
                departure = Departure(client := await s.client(), leave, at)
                trio.lowlevel.add_instrument(departure)
                await client.wire.send(client.request("POST", CHAT, {**PROMPT, "stream": streamed}))
                nursery.start_soon(ask)
            await s.rest()
            trio.lowlevel.remove_instrument(departure)
            client.close()
            assert statuses == [200, 200], f"hung up at step {at}"
            await wait_all_tasks_blocked()
            assert s.held() == {}, f"hung up at step {at}"
            assert line(s, "default").waiting == 0
            assert {ended.reason for ended in s.ended} <= {EndReason.ANSWERED, EndReason.CLIENT_LEFT}
            gone = [ended for ended in s.ended if ended.reason is EndReason.CLIENT_LEFT]
            assert all((ended.model, ended.traffic_class) == ("m", "default") for ended in gone)
            left += len(gone)
            if departure.steps < at:
                assert left
                return
    raise AssertionError(f"still steps after {MOST}")
