"""What an upstream of the exam does when it is asked: the faults of S01 to S16 as scripts. Seconds are those that really pass."""

import trio

from bench.exam import speech
from bench.exam.provider import Exchange, HangUp, Step, head, length
from bench.exam.speech import Who

SETTLED = 0.05  # what was written has left before the line is cut
CUT_AT = 40
TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
FILTERED = "The response was filtered due to the prompt triggering content management policy."
PREFILL = "This model does not support assistant message prefill. The conversation must end with a user message."


def healthy(who: Who) -> Step:
    """The whole answer, in the form it is asked for."""

    async def step(x: Exchange) -> None:
        if not x.streamed:
            await x.whole(200, speech.completion(who))
            return
        await x.open()
        await x.send(speech.role(who), *speech.contents(who), *speech.ending(who), speech.DONE)
        await x.close()

    return step


def fails(status: int, *headers: bytes, message: str = "scripted fault", code: str | None = None) -> Step:
    """An error status with OpenAI's error body."""
    type_ = "invalid_request_error" if status == 400 else "rate_limit_error" if status == 429 else "server_error"

    async def step(x: Exchange) -> None:
        await x.whole(status, speech.error(message, type_, code), *headers)

    return step


def once(fault: Step, then: Step) -> Step:
    """The fault for the first call only."""

    async def step(x: Exchange) -> None:
        await (fault if x.number == 1 else then)(x)

    return step


def during(seconds: float, fault: Step, then: Step) -> Step:
    """The fault for so long, from the first call on."""

    async def step(x: Exchange) -> None:
        await (fault if x.since < seconds else then)(x)

    return step


async def resets(_: Exchange) -> None:
    """A TCP reset instead of an answer."""
    raise HangUp(True)


async def is_silent(_: Exchange) -> None:
    """Takes the call and never answers."""
    await trio.sleep_forever()


def begins_late(seconds: float) -> Step:
    """A's headers at once, its first token after so long."""

    async def step(x: Exchange) -> None:
        await x.open(b"text/event-stream" if x.streamed else b"application/json")
        await trio.sleep(seconds)
        if x.streamed:
            await x.send(speech.role("a"), *speech.contents("a"), *speech.ending("a"), speech.DONE)
        else:
            await x.send(speech.completion("a"))
        await x.close()

    return step


async def half(x: Exchange) -> None:
    """40 of A's 60 tokens, or two thirds of its body."""
    if x.streamed:
        await x.open()
        await x.send(speech.role("a"), *speech.contents("a", 0, CUT_AT))
    else:
        body = speech.completion("a")
        said = head(200, b"content-type: application/json", length(body)) + body[: len(body) * 2 // 3]
        await x.stream.send_all(said)


async def cuts(x: Exchange) -> None:
    """Half an answer, then the connection ends."""
    await half(x)
    await trio.sleep(SETTLED)
    raise HangUp(False)


def stalls(seconds: float) -> Step:
    """Half an answer, silence, the other half."""

    async def step(x: Exchange) -> None:
        await half(x)
        await trio.sleep(seconds)
        if x.streamed:
            await x.send(*speech.contents("a", CUT_AT), *speech.ending("a"), speech.DONE)
            await x.close()
        else:
            body = speech.completion("a")
            await x.stream.send_all(body[len(body) * 2 // 3 :])

    return step


async def garbles(x: Exchange) -> None:
    """One frame of the stream is no JSON; a whole answer is none."""
    if not x.streamed:
        await x.whole(200, speech.completion("a")[:-40])
        return
    await x.open()
    await x.send(speech.role("a"), *speech.contents("a", 0, CUT_AT), b'data: {"id":"chatcmpl-a","choices":[{"ind\n\n')
    await x.send(*speech.contents("a", CUT_AT), *speech.ending("a"), speech.DONE)
    await x.close()


async def omits_done(x: Exchange) -> None:
    """Everything but `[DONE]`."""
    await x.open()
    await x.send(speech.role("a"), *speech.contents("a"), *speech.ending("a"))
    await x.close()


async def filters(x: Exchange) -> None:
    """A 200 that ends in `content_filter`."""
    if not x.streamed:
        await x.whole(200, speech.completion("a", "a00 ", "content_filter"))
        return
    await x.open()
    await x.send(speech.role("a"), *speech.contents("a", 0, 1), *speech.ending("a", "content_filter"), speech.DONE)
    await x.close()


async def wants_no_prefill(x: Exchange) -> None:
    """B, which takes no conversation that ends with the assistant."""
    prefilled = x.asked["messages"][-1]["role"] == "assistant"
    await (fails(400, message=PREFILL) if prefilled else healthy("b"))(x)
