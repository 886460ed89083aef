"""B24 to B28: an account without money, odd statuses, a refused key, nobody left, and one call that stays one call."""

import io
import json

import pytest
import trio
from trio.testing import MockClock

from tests.acceptance.asking import ask
from tests.fakes import steps
from tests.fakes.upstream import Step
from tests.scene import Scene, scene
from trioproxy.config.model import Logging
from trioproxy.errors import Blame, FaultKind
from trioproxy.journal import ChannelCooled, ChannelParked, EndReason
from trioproxy.ops.log import Log

forms = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])


def error(message: str, type_: str | None = None, code: str | None = None) -> dict[str, object]:
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


OUT_OF_MONEY = error("You exceeded your current quota.", "insufficient_quota", "insufficient_quota")
THROTTLES = {
    "rate limit": error("Rate limit reached for requests", "requests", "rate_limit_exceeded"),
    "dressed as quota": error("Allocated quota exceeded", "insufficient_quota", "Throttling.AllocationQuota"),
    "dressed as quota, rate": error("Requests rate limit exceeded", "insufficient_quota", "Throttling.RateQuota"),
    "in the message": error("Throttling.User: slow down", "insufficient_quota", None),
}


def seconds(s: Scene, kind: type[ChannelCooled | ChannelParked]) -> list[float]:
    return [event.seconds for event in s.events if isinstance(event, kind)]


@forms
async def test_b24_an_account_without_money_is_left_alone_for_an_hour_and_doubling_to_a_day(
    streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(429, OUT_OF_MONEY))
        s.b.script(steps.chat("from b"))
        parks = [3600.0, 7200.0, 14400.0, 28800.0, 57600.0, 86400.0, 86400.0]
        for number, park in enumerate(parks, 1):
            assert (await ask(s, streamed=streamed)).text == "from b"
            assert (s.a.hits, seconds(s, ChannelParked)) == (number, parks[:number])
            await trio.sleep(park - 1)
            assert (await ask(s, streamed=streamed)).text == "from b"
            assert s.a.hits == number
            await trio.sleep(1)
        s.a.script(steps.chat("from a"))
        assert (await ask(s, streamed=streamed)).text == "from a"
        assert seconds(s, ChannelCooled) == []
        assert (s.failures(), s.held()) == (0, {})
        s.a.script(steps.error(429, OUT_OF_MONEY))  # money came and went again: an hour, as at first
        await ask(s, streamed=streamed)
        assert seconds(s, ChannelParked)[-1] == 3600.0


@forms
@pytest.mark.parametrize("body", THROTTLES.values(), ids=THROTTLES.keys())
async def test_b24_a_throttle_is_a_short_cooldown_however_it_is_dressed(
    body: object, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(429, body), steps.chat("from a"))
        s.b.script(steps.chat("from b"))
        assert (await ask(s, streamed=streamed)).text == "from b"
        assert (seconds(s, ChannelCooled), seconds(s, ChannelParked)) == ([1.0], [])
        await trio.sleep(0.9)
        assert (await ask(s, streamed=streamed)).text == "from b"
        await trio.sleep(0.1)
        assert (await ask(s, streamed=streamed)).text == "from a"
        assert (s.hits(), s.failures(), s.held()) == ("a=2 b=2", 0, {})


@forms
@pytest.mark.parametrize("status", [402, 429])
async def test_b24_without_another_channel_our_bill_is_not_the_clients_business(
    status: int, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(status, OUT_OF_MONEY))
        first = await ask(s, streamed=streamed)
        assert (first.status, first.error["code"]) == (502, "upstream_unavailable")
        assert "quota" not in first.error["message"]
        second = await ask(s, streamed=streamed)
        assert (second.status, second.took, s.hits()) == (503, 0.0, "a=1")
        assert second.headers["retry-after"] == "3600"


@forms
@pytest.mark.parametrize("status", [*range(520, 527), 529, 530, 598, 302, 500, 501, 505])
async def test_b25_an_odd_status_is_the_channels_failure(
    status: int, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(status, b"error code: %d" % status, [("content-type", "text/plain")]))
        s.b.script(steps.chat("from b"))
        for number in (1, 2, 3):
            said = await ask(s, streamed=streamed)
            assert (said.status, said.text, said.took) == (200, "from b", 0.0)
            assert s.gateway.statistics()["a"].failures == number
        assert (s.breaker(), s.hits(), s.held()) == ("open", "a=3 b=3", {})


@forms
@pytest.mark.parametrize("status", [*range(520, 527), 529, 530])
async def test_b25_without_another_channel_overload_stays_tellable(
    status: int, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(status, error("busy", "overloaded_error") if status == 529 else b"error code"))
        said = await ask(s, streamed=streamed)
        shown = (said.status, said.error["code"])
        assert shown == ((529, "server_is_overloaded") if status == 529 else (502, "upstream_unavailable"))
        assert (s.failures(), s.ended[0].reason) == (1, EndReason.CHAIN_EXHAUSTED)
        (record,) = s.ended[0].attempts
        assert record.fault is not None
        assert record.fault.status == status


@pytest.mark.parametrize("status", [200, 500, 503, 529])
async def test_b25_overload_is_known_by_its_word_whatever_the_status(status: int, autojump_clock: MockClock) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(status, error("Overloaded", "overloaded_error")))
        said = await ask(s, streamed=False)
        assert (said.status in (503, 529), said.error["code"]) == (True, "server_is_overloaded")
        assert s.failures() == 1


SECRET = "sk-proj-abcDEF0123456789"
ECHOES = {
    "openai": (401, error(f"Incorrect API key provided: {SECRET}. See https://a.test/keys.", code="invalid_api_key")),
    "masked": (401, error("Incorrect API key provided: sk-proj-abc***********************XyZ9.")),
    "ours": (401, error("the key sk-secret-a is not valid at http://a.test:80/v1/chat/completions")),
    "text": (401, f"Authorization failed for Bearer {SECRET} at a.test".encode()),
    "page": (401, f"<html><h1>401</h1>{SECRET} http://a.test/v1</html>".encode()),
    "400": (400, error(f"API key not valid: {SECRET}. Please pass a valid API key.")),
    "402": (402, error(f"Insufficient balance for {SECRET} at http://a.test/billing")),
    "403": (403, error(f"Project of key sk-secret-a ({SECRET}) has no access to https://a.test/v1")),
    "client's": (400, error(f"bad value near sk-secret-a and {SECRET}; see http://a.test/docs", code="invalid_value")),
    "server's": (500, error(f"panic while calling http://a.test/v1 with {SECRET} sk-secret-a")),
}
echoes = pytest.mark.parametrize("status, body", ECHOES.values(), ids=ECHOES.keys())
KEY_FAULTS = [name for name in ECHOES if name not in ("client's", "server's")]
key_faults = pytest.mark.parametrize("status, body", [ECHOES[name] for name in KEY_FAULTS], ids=KEY_FAULTS)


@forms
@key_faults
async def test_b26_a_refused_key_takes_its_channel_out_and_the_client_never_notices(
    status: int, body: object, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(status, body))
        s.b.script(steps.chat("from b"))
        for _ in range(3):
            said = await ask(s, streamed=streamed)
            assert (said.status, said.text, said.headers["x-trioproxy-channel"]) == (200, "from b", "b")
        assert s.hits() == "a=1 b=3"
        (park,) = seconds(s, ChannelParked)
        assert park >= 300
        assert "parked" in (s.gateway.statistics()["a"].objection or "")
        assert (s.breaker(), s.failures(), s.held()) == ("closed", 0, {})
        (fault,) = [record.fault for record in s.ended[0].attempts if record.fault]
        assert fault.blame is Blame.KEY


@forms
@key_faults
async def test_b26_without_another_channel_the_client_is_not_told_that_it_is_unauthorised(
    status: int, body: object, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a") as s:
        s.a.script(steps.error(status, body, [("www-authenticate", "Bearer realm=a.test"), ("x-echo", SECRET)]))
        first = await ask(s, streamed=streamed)
        assert (first.status, first.error["code"]) == (502, "upstream_unavailable")
        assert "www-authenticate" not in first.headers
        second = await ask(s, streamed=streamed)
        assert (second.status, s.hits()) == (503, "a=1")
        assert s.held() == {}


@forms
@echoes
async def test_b26_neither_key_nor_address_is_in_any_body_header_or_log_line(
    status: int, body: object, streamed: bool, autojump_clock: MockClock
) -> None:
    sink = io.BytesIO()
    async with scene("a") as s:
        log = Log.to(sink, Logging(format="json", level="debug"), lambda: s.wall)
        s.gateway.journal.subscribe(log)
        s.a.script(steps.error(status, body, [("x-echo", SECRET), ("location", "http://a.test/v1")]))
        told = [await ask(s, streamed=streamed) for _ in range(3)]
        log.writer.flush()
        places = [sink.getvalue().decode(), repr(s.events), repr(s.gateway.statistics())]
        places += [repr(said.headers) + said.body.decode() for said in told]
        assert len(sink.getvalue().splitlines()) >= 3
        for place in places:
            assert "sk-proj" not in place
            assert "sk-secret" not in place
            assert "//a.test" not in place


@forms
@pytest.mark.parametrize("where", [200, "frame"])
async def test_b26_a_refused_key_inside_a_200_is_no_different(
    where: object, streamed: bool, autojump_clock: MockClock
) -> None:
    body = error(f"Incorrect API key provided: {SECRET}", code="invalid_api_key")
    async with scene("a") as s:
        s.a.script(steps.error(200, body) if where == 200 else steps.sse([steps.frame(body), steps.DONE]))
        said = await ask(s, streamed=streamed)
        assert (said.status, said.error["code"]) == (502, "upstream_unavailable")
        assert SECRET not in said.body.decode() + repr(s.events)
        assert seconds(s, ChannelParked)


LIMITED = steps.error(429, error("slow down", code="rate_limit_exceeded"), [("retry-after", "20")])


@forms
@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c")], ids=len)
async def test_b27_with_no_candidate_left_the_client_is_told_at_once_when_to_come_back(
    names: tuple[str, ...], streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene(*names) as s:
        for upstream in s.upstreams.values():
            upstream.script(LIMITED)
        first = await ask(s, streamed=streamed)
        assert (first.status, first.headers["retry-after"]) == (429, "20")
        asked = s.hits()
        assert asked == " ".join(f"{name}=1" for name in names)
        await trio.sleep(1)
        for _ in range(5):
            said = await ask(s, streamed=streamed)
            assert (said.status, said.took, said.headers["retry-after"]) == (429, 0.0, "19")
            assert said.headers["x-should-retry"] == "true"
            assert said.error["message"]
        assert s.hits() == asked
        assert len(s.ended[-1].skipped) == len(names)
        assert s.ended[-1].reason is EndReason.CHAIN_EXHAUSTED
        await trio.sleep(18.5)
        assert (await ask(s, streamed=streamed)).headers["retry-after"] == "1"
        s.a.script(steps.chat("from a"))
        await trio.sleep(0.5)  # t = 20: refusing calls has not made the cooldown longer
        assert (await ask(s, streamed=streamed)).text == "from a"
        assert seconds(s, ChannelCooled) == [20.0] * len(names)
        assert (s.failures(), s.held()) == (0, {})


async def test_b27_the_first_channel_that_is_back_decides_the_wait(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(LIMITED)
        s.b.script(steps.error(429, headers=[("retry-after", "5")]))
        assert (await ask(s, streamed=False)).headers["retry-after"] == "5"
        await trio.sleep(1)
        assert (await ask(s, streamed=False)).headers["retry-after"] == "4"


async def test_b27_open_breakers_are_no_candidates_either(autojump_clock: MockClock) -> None:
    async with scene("a", "b") as s:
        s.a.script(steps.error(500))
        s.b.script(steps.error(500))
        for _ in range(3):
            await s.post()
        assert (s.breaker("a"), s.breaker("b"), s.hits()) == ("open", "open", "a=3 b=3")
        await trio.sleep(1)
        said = await ask(s, streamed=False)
        assert (said.status, said.took, said.headers["retry-after"], s.hits()) == (503, 0.0, "59", "a=3 b=3")
        assert said.error["code"] == "all_channels_exhausted"


@forms
@pytest.mark.parametrize("broken", [steps.error(500), steps.hang_up(), steps.error(200, b""), LIMITED])
async def test_b28_one_request_is_at_most_one_attempt_at_each_channel(
    broken: Step, streamed: bool, autojump_clock: MockClock
) -> None:
    async with scene("a", "b") as s:
        s.a.script(broken)
        s.b.script(broken)
        said = await ask(s, streamed=streamed)
        await s.rest(30)
        assert s.hits() == "a=1 b=1"
        assert said.status in (429, 500, 502)
        assert said.complete
        assert json.loads(said.body).keys() == {"error"}
        assert said.headers["x-trioproxy-attempts"] == "2"
        assert said.headers["x-should-retry"] == ("true" if said.status == 429 else "false")
        (ended,) = s.ended
        assert [(record.channel, record.fault is not None) for record in ended.attempts] == [("a", True), ("b", True)]
        assert ended.reason is EndReason.CHAIN_EXHAUSTED
        assert s.held() == {}


async def test_b28_a_chain_is_cut_at_three_channels(autojump_clock: MockClock) -> None:
    async with scene("a", "b", "c", "d", "e") as s:
        for upstream in s.upstreams.values():
            upstream.script(steps.error(500))
        said = await ask(s, streamed=False)
        assert (said.status, s.hits()) == (500, "a=1 b=1 c=1 d=0 e=0")
        assert [record.fault.kind for record in s.ended[0].attempts if record.fault] == [FaultKind.SERVER_ERROR] * 3
