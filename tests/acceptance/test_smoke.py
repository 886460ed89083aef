"""The whole line, once each way."""

import pytest
from trio.testing import MockClock

from tests.fakes import steps
from tests.scene import scene
from trioproxy.http.message import DEFAULT_LIMITS


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_goes_through_and_is_accounted_for(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.chat("hello there"))
        status, text, headers = await s.ask(streamed=streamed)
        assert (status, text) == (200, "hello there")
        assert headers["x-trioproxy-channel"] == "a"
        assert s.hits() == "a=1 b=0"
        await s.rest()
        (ended,) = s.ended
        assert ended.reason.value == "answered"
        assert (ended.usage.input, ended.usage.output) == (9, 3)
        assert s.held() == {}


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_failing_channel_is_passed_over(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat("hello there"))
        status, text, headers = await s.ask(streamed=streamed)
        assert (status, text) == (200, "hello there")
        assert headers["x-trioproxy-channel"] == "b"
        assert s.hits() == "a=1 b=1"


@pytest.mark.parametrize("streamed", [False, True])
async def test_either_reader_of_http_serves(streamed: bool, autojump_clock: MockClock) -> None:
    async with scene("a", "b", toml='[listen]\nhttp = "h11"') as s:
        s.a.script(steps.error(503))
        s.b.script(steps.chat("hello there"))
        assert "h11" in type(s.gateway.supervisor.channels.state["a"].upstream.reader(DEFAULT_LIMITS)).__module__
        status, text, headers = await s.ask(streamed=streamed)
        assert (status, text, headers["x-trioproxy-channel"]) == (200, "hello there", "b")
        await s.rest()
        assert s.held() == {}
