"""B23: how long a provider asks to be left alone, in whatever grammar, sign and unit, and never for longer than the cap."""

import math
from datetime import UTC, datetime, timedelta

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.asking import ask
from tests.fakes import steps
from tests.fakes.upstream import Headers
from tests.scene import Scene, scene
from trioproxy.journal import ChannelCooled, EndReason

CAP = 600.0
DEFAULT = 1.0
IMF = "%a, %d %b %Y %H:%M:%S GMT"
RFC_850 = "%A, %d-%b-%y %H:%M:%S GMT"
ASCTIME = "%a %b %e %H:%M:%S %Y"
forms = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])


def at(seconds: float, shape: str = IMF) -> str:
    """An HTTP date, so many seconds after the scene's clock stands at its start."""
    return (datetime.fromtimestamp(1_764_000_000, UTC) + timedelta(seconds=seconds)).strftime(shape)


def after(value: str) -> Headers:
    return [("retry-after", value)]


def after_ms(value: str) -> Headers:
    return [("retry-after-ms", value)]


HINTS: dict[str, tuple[Headers, float]] = {
    "seconds": (after("7"), 7.0),
    "negative": (after("-1"), 0.0),
    "zero": (after("0"), 0.0),
    "fraction": (after("1.5"), 1.5),
    "signed": (after("+7"), 7.0),
    "go duration": (after("1m2.5s"), 62.5),
    "past date": (after(at(-3600)), 0.0),
    "IMF date": (after(at(30)), 30.0),
    "RFC 850 date": (after(at(30, RFC_850)), 30.0),
    "asctime date": (after(at(30, ASCTIME)), 30.0),
    "now": (after(at(0)), 0.0),
    "two hours ahead": (after(at(7200)), CAP),
    "just under the cap": (after(at(599)), 599.0),
    "last century": (after("Sunday, 06-Nov-94 08:49:37 GMT"), 0.0),
    "ms": (after_ms("1500"), 1.5),
    "ms fraction": (after_ms("250.5"), 0.2505),
    "ms negative": (after_ms("-5"), 0.0),
    "ms too many": (after_ms("274579000"), CAP),
    "too many": (after("999999999"), CAP),
    "too many digits": (after("9" * 400), CAP),
    "ms before seconds": ([*after("20"), *after_ms("1500")], 1.5),
    "unreadable ms": ([*after_ms("soon"), *after("7")], 7.0),
    "twice": ([*after("3"), *after("7")], 7.0),
    "twice, one unreadable": ([*after("soon"), *after("7")], 7.0),
    "word": (after("abc"), DEFAULT),
    "empty": (after(""), DEFAULT),
    "nan": (after("nan"), DEFAULT),
    "inf": (after("inf"), DEFAULT),
    "hex": (after("0x10"), DEFAULT),
    "exponent": (after("1e9"), DEFAULT),
    "no such date": (after("Sun, 31 Feb 2027 25:00:00 GMT"), DEFAULT),
    "not ASCII": (after("7 \xe9"), DEFAULT),
    "none": ([], DEFAULT),
}
hints = pytest.mark.parametrize("headers, cooldown", HINTS.values(), ids=HINTS.keys())


def cooled(s: Scene) -> list[float]:
    return [event.seconds for event in s.events if isinstance(event, ChannelCooled)]


@hints
@forms
async def test_b23_with_another_channel_the_answer_comes_at_once_and_the_hint_is_kept_to(
    headers: Headers, cooldown: float, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(429, headers=headers), steps.chat("from a"))
        s.b.script(steps.chat("from b"))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.text, said.took, s.hits()) == (200, "from b", 0.0, "a=1 b=1")
        assert cooled(s) == [pytest.approx(cooldown)]
        if cooldown:
            await trio.sleep(cooldown - 0.001)
            assert ((await ask(s, streamed=streamed)).text, s.hits()) == ("from b", "a=1 b=2")
            await trio.sleep(0.002)
        assert (await ask(s, streamed=streamed)).text == "from a"
        assert s.a.hits == 2
        assert (s.breaker(), s.failures()) == ("closed", 0)
        await s.rest()
        assert s.held() == {}


@hints
@forms
async def test_b23_without_another_channel_the_client_is_told_at_once_how_long(
    headers: Headers, cooldown: float, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(429, headers=headers))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.took, s.hits()) == (429, 0.0, "a=1")
        assert said.error["type"] == "rate_limited"
        assert said.headers["retry-after"] == str(max(1, math.ceil(cooldown)))
        assert said.headers["x-should-retry"] == "true"
        assert s.ended[0].reason is EndReason.CHAIN_EXHAUSTED
        if cooldown:
            again = await ask(s, streamed=streamed)
            assert (again.status, again.took, s.hits()) == (429, 0.0, "a=1")
            assert again.headers["retry-after"] == said.headers["retry-after"]
        assert (s.breaker(), s.failures(), s.held()) == ("closed", 0, {})


@pytest.mark.parametrize("status", [503, 529, 500])
async def test_b23_a_failing_channel_may_ask_for_peace_too(status: int, autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(status, headers=after("7")), steps.chat("from a"))
        s.b.script(steps.chat("from b"))
        await s.post()
        assert (cooled(s), s.failures()) == ([7.0], 1)
        await trio.sleep(6.9)
        assert (await ask(s, streamed=False)).text == "from b"
        await trio.sleep(0.2)
        assert (await ask(s, streamed=False)).text == "from a"


async def test_b23_what_a_client_did_wrong_costs_the_channel_nothing_whatever_the_hint(
    autojump_clock: MockClock,
) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(400, headers=after("100")), steps.chat("from a"))
        assert (await ask(s, streamed=False)).status == 400
        assert cooled(s) == []
        assert (await ask(s, streamed=False)).text == "from a"


async def test_b23_after_a_cooldown_one_call_asks_and_the_others_do_not_wait_for_it(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(429, headers=after("7")), steps.after(1, steps.error(429, headers=after("7"))))
        s.b.script(steps.chat("from b"))
        await s.post()
        await trio.sleep(7)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(s.post)
        assert s.hits() == "a=2 b=21"
        assert {ended.status for ended in s.ended} == {200}
        assert (s.failures(), s.held()) == (0, {})
