"""What "answered by" means, every clause of it: one call in either form, and the assertions that all the cases share.

The truth about who answered has to be the same in four places: the headers, `model` in the body, the upstreams' own counts
and the one record in the journal. Prices are the scene's: channel a costs 1 and 4 micro-USD a token, b twice that.
"""

import json
from typing import Any

import pytest
import trio
from attrs import frozen

from tests.fakes import steps
from tests.fakes.upstream import Exchange, Headers, Step
from tests.scene import Scene
from trioproxy.journal import EndReason, ExchangeEnded

both = pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])

PRICE = {"a": 1, "b": 2}  # micro-USD per input token; an output token costs four times that
WHOLE = "the whole answer of b"
CLEAN = steps.DONE


@frozen
class Outcome:
    """What one call brought. Times are seconds on Trio's clock: the head's, and each frame's."""

    status: int
    headers: dict[str, str]
    raw: bytes
    complete: bool
    head_at: float
    times: tuple[float, ...] = ()

    @property
    def streamed(self) -> bool:
        return self.headers["content-type"].startswith("text/event-stream")

    @property
    def payloads(self) -> list[Any]:
        if not self.streamed:
            return [json.loads(self.raw)]
        lines = [line[5:].strip() for line in self.raw.splitlines() if line.startswith(b"data:")]
        return [json.loads(line) for line in lines if line != b"[DONE]"]

    @property
    def error(self) -> dict[str, Any]:
        (error,) = [payload["error"] for payload in self.payloads if "error" in payload]
        assert isinstance(error, dict)
        return error

    @property
    def choices(self) -> list[Any]:
        return [choice for payload in self.payloads for choice in payload.get("choices") or []]

    @property
    def text(self) -> str:
        return "".join(
            (choice.get("delta") or choice.get("message") or {}).get("content") or "" for choice in self.choices
        )

    @property
    def models(self) -> set[str]:
        return {payload["model"] for payload in self.payloads if "error" not in payload}

    @property
    def finishes(self) -> list[str]:
        return [choice["finish_reason"] for choice in self.choices if choice.get("finish_reason")]

    @property
    def dones(self) -> int:
        return self.raw.count(b"[DONE]")


async def call(s: Scene, streamed: bool, headers: Headers = (), **fields: object) -> Outcome:
    """One call, read to its end."""
    if streamed:
        stream = await s.stream(headers=headers, **fields)
        times = tuple(stream.times)
        return Outcome(stream.status, stream.headers, stream.raw, bool(stream.complete), stream.arrived, times)
    reply = await s.post(headers=headers, **fields)
    return Outcome(reply.status, reply.headers, reply.body, reply.complete, trio.current_time())


def scripted(text: str = WHOLE, usage: tuple[int, int] = (9, 3)) -> Step:
    """A healthy upstream that says this, in the form it is asked for, and reports this usage."""

    async def step(x: Exchange) -> None:
        if x.request.json.get("stream"):
            await steps.chat_stream(words(text), usage=usage)(x)
        else:
            await steps.chat_answer(text, usage=usage)(x)

    return step


def words(text: str) -> list[str]:
    """Cut before every space, so that the pieces join to the text."""
    return [word if at == 0 else f" {word}" for at, word in enumerate(text.split(" "))]


async def settled(s: Scene) -> ExchangeEnded:
    """The last exchange's record, once nothing moves any more; the clock stands still meanwhile."""
    await trio.testing.wait_all_tasks_blocked()
    assert s.held() == {}
    return s.ended[-1]


async def assert_answered(
    s: Scene,
    outcome: Outcome,
    by: str,
    text: str = WHOLE,
    *,
    attempts: int = 2,
    usage: tuple[int, int] = (9, 3),
    finish: str = "stop",
    model: str | None = None,
) -> ExchangeEnded:
    """`by` gave the whole of this answer, after so many attempts; everything that tells so tells the same."""
    assert (outcome.status, outcome.text) == (200, text)
    assert outcome.complete
    assert outcome.finishes == [finish]
    assert outcome.models == {f"{by}-model" if model is None else model}
    if outcome.streamed:
        assert outcome.dones == 1
        assert outcome.raw.endswith(CLEAN)
        assert not any("usage" in payload for payload in outcome.payloads)  # the client asked for none
        assert [choice["delta"].get("role") for choice in outcome.choices].count("assistant") == 1
    else:
        assert outcome.headers["content-type"] == "application/json"
        assert outcome.payloads[0]["usage"] == steps.usage_json(usage)
    assert outcome.headers["x-trioproxy-channel"] == by
    assert outcome.headers["x-trioproxy-model"] == f"{by}-model"
    assert outcome.headers["x-trioproxy-attempts"] == str(attempts)
    ended = await settled(s)
    assert (ended.reason, ended.status) == (EndReason.ANSWERED, 200)
    assert ended.request_id == outcome.headers["x-request-id"]
    assert (ended.model, ended.stream) == ("m", outcome.streamed)
    assert (ended.usage.input, ended.usage.output, ended.usage.estimated) == (*usage, False)
    assert ended.cost == PRICE[by] * (usage[0] + 4 * usage[1])
    assert len(ended.attempts) == attempts
    assert (ended.attempts[-1].channel, ended.attempts[-1].model) == (by, f"{by}-model")
    assert ended.attempts[-1].fault is None
    assert all(attempt.fault is not None for attempt in ended.attempts[:-1])
    return ended


async def assert_refused(
    s: Scene, outcome: Outcome, status: int, *, attempts: int = 1, reason: EndReason = EndReason.CHAIN_EXHAUSTED
) -> ExchangeEnded:
    """A real status with a JSON error of the dialect, nobody named as having answered, nothing charged."""
    assert outcome.status == status, outcome.raw
    assert outcome.complete
    assert outcome.headers["content-type"] == "application/json"
    assert isinstance(outcome.error["message"], str)
    assert outcome.error["message"]
    assert set(outcome.payloads[0]) == {"error"}
    assert outcome.headers["x-trioproxy-attempts"] == str(attempts)
    assert "x-trioproxy-channel" not in outcome.headers
    ended = await settled(s)
    assert (ended.reason, ended.status) == (reason, status)
    assert (ended.usage.input, ended.usage.output, ended.cost) == (0, 0, 0)
    assert len(ended.attempts) == attempts
    return ended


async def assert_cut(
    s: Scene, outcome: Outcome, text: str, *, by: str = "a", attempts: int = 1, finishes: list[str] | None = None
) -> ExchangeEnded:
    """This much was said, then one error frame ended the stream: no invented finish, no terminator."""
    assert (outcome.status, outcome.text) == (200, text)
    assert outcome.finishes == (finishes or [])
    assert outcome.dones == 0
    assert isinstance(outcome.error["message"], str)
    assert "error" in outcome.payloads[-1]
    assert outcome.raw.endswith(b"}\n\n")
    assert outcome.headers["x-trioproxy-channel"] == by
    assert outcome.models == {f"{by}-model"}
    ended = await settled(s)
    assert ended.reason is EndReason.CUT_AFTER_COMMIT
    assert ended.usage.output > 0
    assert ended.usage.estimated
    assert ended.cost == PRICE[by] * (ended.usage.input + 4 * ended.usage.output)
    assert len(ended.attempts) == attempts
    assert ended.attempts[-1].fault is not None
    return ended
