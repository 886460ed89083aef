"""An upstream's 404: whose name was it?"""

import pytest
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import Scene, scene
from trioproxy.journal import ChannelParked

NOT_FOUND = {"error": {"message": "no such model", "type": "invalid_request_error", "code": "model_not_found"}}
WILDCARD = '[[models]]\nname = "open/*"\nchannels = [ { channel = "a", model = "*" }, { channel = "b", model = "*" } ]'


def missing_at_a(s: Scene) -> None:
    s.a.script(steps.error(404, NOT_FOUND))
    s.b.script(steps.chat("hello"))


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_name_of_ours_moves_on_and_parks_that_model_for_ten_minutes(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        missing_at_a(s)
        for _ in range(3):
            status, text, _ = await s.ask(streamed=streamed)
            assert (status, text) == (200, "hello")
        assert s.hits() == "a=1 b=3"
        assert [event.seconds for event in s.events if isinstance(event, ChannelParked)] == [600.0]
        assert (s.failures("a"), s.breaker("a")) == (0, "closed")
        await s.rest(600)
        await s.ask(streamed=streamed)
        assert s.hits() == "a=2 b=4"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_name_of_the_callers_is_answered_once(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml=WILDCARD) as s:
        missing_at_a(s)
        for number in range(3):
            status, _, headers = await s.ask(streamed=streamed, model=f"open/model-{number}")
            assert status == 404
            assert headers["x-should-retry"] == "false"
        await s.rest()
        assert s.hits() == "a=3 b=0"
        assert {event.reason.value for event in s.ended} == {"rejected_upstream"}
        assert not any(isinstance(event, ChannelParked) for event in s.events)
        assert s.gateway.supervisor.channels.state["a"].models == {}, "callers cannot fill our memory with names"


async def test_a_name_that_no_channel_has_is_a_404_at_last(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(404, NOT_FOUND))
        s.b.script(steps.error(404, NOT_FOUND))
        reply = await s.post()
        assert reply.status == 404
        assert reply.json["error"]["code"] == "model_not_found"
        assert s.hits() == "a=1 b=1"
