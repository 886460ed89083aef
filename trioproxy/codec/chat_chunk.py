"""What one event of a chat stream means to the gate: the decision table, provider deviations included.

Error shapes are looked for first, in every place where some provider puts them; then content, then the finish. Whatever
says nothing is neutral: comments, pings, role-only deltas, usage, Azure's filter annotations.
"""

from attrs import define

from trioproxy.codec import jsonread
from trioproxy.codec.faults import classify_error_object
from trioproxy.codec.frame import Kind
from trioproxy.codec.sse import Event
from trioproxy.codec.usage import usage_of
from trioproxy.errors import Fault
from trioproxy.journal import Usage

# Finish reasons by which OpenRouter, Mistral and DeepSeek say that there is no answer.
FAILED_FINISHES = frozenset({"error", "insufficient_system_resource"})

# What a usage frame carries besides the usage. Anything else in it (a filter's verdict, say) is the client's.
_ENVELOPE = frozenset(
    {
        *("id", "object", "created", "model", "choices", "usage"),
        *("system_fingerprint", "service_tier", "provider", "x_groq", "obfuscation"),
    }
)
_SPOKEN = ("refusal", "reasoning", "reasoning_content", "reasoning_details", "images")


@define(eq=False)
class Verdict:
    """One event, judged. `strict` is the event's data as strict JSON, where it was not.

    `told`: a client that knows the dialect sees by itself that an error is one (the official SDK looks for a top-level
    `error` and passes over everything else).
    """

    kind: Kind
    content: bool = False
    finished: tuple[int, ...] = ()
    usage: Usage | None = None
    usage_only: bool = False
    fault: Fault | None = None
    strict: bytes | None = None
    told: bool = False
    refused: bool = False


def judge(event: Event) -> Verdict:
    """The verdict on one event. Never raises: what cannot be read is suspect."""
    data = event.data.strip()
    if not data:
        return _without_data(event.raw)
    if data == b"[DONE]":
        return Verdict(Kind.END)
    try:
        chunk, odd = jsonread.read(data)
    except ValueError:
        if event.event == b"error":
            said = {"error": {"message": data.decode("utf-8", "replace")}}
            return Verdict(Kind.ERROR, fault=classify_error_object(said))
        return Verdict(Kind.SUSPECT)
    verdict = _judge_json(chunk, named_error=event.event == b"error")
    if verdict.kind is not Kind.ERROR and not jsonread.is_text(data):
        return Verdict(Kind.SUSPECT)
    if odd:
        verdict.strict = jsonread.strict(event.data)
    return verdict


def error_in(chunk: object) -> object | None:
    """The part of a decoded chunk or answer that is an error, in any of the family's shapes; None if there is none."""
    if isinstance(chunk, list):  # Gemini's wrapping; one level, whatever somebody may nest
        return next((found for item in chunk if isinstance(item, dict) and (found := error_in(item))), None)
    if not isinstance(chunk, dict):
        return None
    if chunk.get("error") or chunk.get("object") == "error" or chunk.get("type") == "error" or _is_flat_error(chunk):
        return chunk
    groq = chunk.get("x_groq")
    if isinstance(groq, dict) and groq.get("error"):
        return groq
    for choice in _choices(chunk):
        if choice.get("error"):
            return choice
        if choice.get("finish_reason") in FAILED_FINISHES:
            reason = choice["finish_reason"]
            return {"error": {"code": reason, "message": f"the provider ended its answer with {reason!r}"}}
    return None


def refuses(body: bytes) -> bool:
    """Whether a whole answer refuses. Never raises."""
    try:
        answer = jsonread.read(body)[0]
    except ValueError:
        return False
    return isinstance(answer, dict) and any(map(_refuses, _choices(answer)))


def _refuses(choice: dict[str, object]) -> bool:
    """By OpenAI's words: `finish_reason` for what a filter held back, `refusal` for what the model declined."""
    said = choice.get("delta") or choice.get("message")
    return choice.get("finish_reason") == "content_filter" or (isinstance(said, dict) and bool(said.get("refusal")))


def says_something(delta: object) -> bool:
    """Whether a delta (or a whole message) carries what the model said."""
    if not isinstance(delta, dict):
        return False
    content = delta.get("content")
    if any(map(_part_speaks, content)) if isinstance(content, list) else content:
        return True
    if any(delta.get(name) for name in _SPOKEN) or _calls(delta.get("function_call")):
        return True
    calls = delta.get("tool_calls")
    if isinstance(calls, list) and any(_calls(part) for call in calls for part in _call_parts(call)):
        return True
    audio = delta.get("audio")
    return isinstance(audio, dict) and bool(audio.get("data") or audio.get("transcript"))


def choice_speaks(choice: dict[str, object]) -> bool:
    """Whether a choice carries content: a delta, a whole message, or the text of a legacy completion."""
    return says_something(choice.get("delta")) or says_something(choice.get("message")) or bool(choice.get("text"))


def index_of(choice: dict[str, object]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def _judge_json(chunk: object, *, named_error: bool) -> Verdict:
    error = chunk if named_error else error_in(chunk)
    if error is not None:
        told = isinstance(chunk, dict) and bool(chunk.get("error"))
        return Verdict(Kind.ERROR, usage=usage_of(chunk), fault=classify_error_object(error), told=told)
    if not isinstance(chunk, dict):
        return Verdict(Kind.SUSPECT)
    choices = _choices(chunk)
    usage = usage_of(chunk)
    content = any(map(choice_speaks, choices))
    finished = tuple(index_of(choice) for choice in choices if choice.get("finish_reason"))
    refused = any(map(_refuses, choices))
    if finished:
        return Verdict(Kind.FINISH, content, finished, usage, refused=refused)
    if content:
        return Verdict(Kind.CONTENT, content, usage=usage, refused=refused)
    only = usage is not None and not chunk.get("choices") and _ENVELOPE.issuperset(chunk)
    return Verdict(Kind.NEUTRAL, usage=usage, usage_only=only)


def _without_data(raw: bytes) -> Verdict:
    """Comments, retry and id fields; or JSON and pages that came without `data:`, which a client would never see."""
    text = raw.strip()
    if text[:1] not in (b"{", b"[", b"<"):
        return Verdict(Kind.NEUTRAL)
    try:
        error = error_in(jsonread.read(text)[0])
    except ValueError:
        error = None
    return Verdict(Kind.SUSPECT) if error is None else Verdict(Kind.ERROR, fault=classify_error_object(error))


def _is_flat_error(chunk: dict[str, object]) -> bool:
    """Azure's API management and some relays answer `{"statusCode": 401, "message": …}` where a chunk should be."""
    if "choices" in chunk or "usage" in chunk:
        return False
    said = chunk.get("message") or chunk.get("msg") or chunk.get("detail")
    coded = chunk.get("statusCode") or chunk.get("status_code") or chunk.get("code") or chunk.get("detail")
    return bool(said and coded)


def _choices(chunk: dict[str, object]) -> list[dict[str, object]]:
    choices = chunk.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _part_speaks(part: object) -> bool:
    if isinstance(part, dict):
        return any(value for name, value in part.items() if name != "type")
    return bool(part)


def _call_parts(call: object) -> tuple[object, ...]:
    return (call.get("function"), call.get("custom")) if isinstance(call, dict) else ()


def _calls(function: object) -> bool:
    return isinstance(function, dict) and any(function.get(name) for name in ("name", "arguments", "input"))
