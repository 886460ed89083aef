"""What a chat request says, as far as the line needs it, and what is refused before any channel is asked.

Only what routes, authorises or costs is judged here; the rest is the provider's to judge. A key that comes twice is refused,
however it is escaped: we and the provider might each believe another of the two.
"""

import msgspec

from trioproxy.codec.frame import Facts
from trioproxy.codec.jsonsplice import DuplicateKey, NotAnObject, Span, members
from trioproxy.errors import Refusal, RefusalKind

LONGEST_MODEL = 256  # characters
MOST_CHOICES = 128  # OpenAI's own bound for `n`


class Message(msgspec.Struct):
    """As much of a message as makes it one."""

    role: str


class Head(msgspec.Struct):
    """The members that are looked at. Their types are judged below, where the refusal can name the value."""

    messages: msgspec.Raw = msgspec.Raw()
    model: object = None
    stream: object = None
    stream_options: object = None
    n: object = None
    max_tokens: object = None
    max_completion_tokens: object = None
    user: object = None


_HEAD = msgspec.json.Decoder(Head)
_MESSAGES = msgspec.json.Decoder(list[Message])


def facts_of(body: bytes) -> Facts:
    """The facts, and where every top-level value stands. Raises `Refusal` (BAD_REQUEST), naming the member at fault."""
    spans = _spans(body)
    try:
        body.decode()
        head = _HEAD.decode(body)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as exc:
        raise refusal(f"the request body is not valid JSON: {exc}") from None
    _check_messages(head.messages)
    stream = _flag(head.stream)
    return Facts(
        model=_model(head.model),
        stream=stream,
        wants_usage=_wants_usage(head.stream_options, stream=stream),
        output_cap=_output_cap(head),
        user=head.user if isinstance(head.user, str) else None,
        choices=_count("n", head.n, most=MOST_CHOICES) or 1,
        members=spans,
    )


def refusal(message: str, param: str | None = None) -> Refusal:
    """A bad request. The message names the value, the limit and what to do."""
    return Refusal(RefusalKind.BAD_REQUEST, message, param=param)


def _spans(body: bytes) -> dict[str, Span]:
    try:
        return members(body)
    except DuplicateKey as exc:
        raise refusal(f"{exc.key!r} comes twice in the request body; send it once", exc.key) from None
    except NotAnObject as exc:
        raise refusal(f"the request body is not a readable JSON object: {exc}") from None


def _check_messages(raw: msgspec.Raw) -> None:
    try:
        messages = _MESSAGES.decode(raw) if memoryview(raw).nbytes else None
    except (msgspec.DecodeError, RecursionError) as exc:
        raise refusal(f"messages must be a list of objects with a string role: {exc}", "messages") from None
    if not messages:
        raise refusal("messages is missing or empty; send at least one message", "messages")


def _model(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise refusal("model is missing; send the name of a model as a string", "model")
    if len(value) > LONGEST_MODEL:
        raise refusal(f"model is {len(value)} characters long; at most {LONGEST_MODEL} are allowed", "model")
    if not value.isprintable():
        raise refusal("model contains control characters; send a plain name", "model")
    return value


def _flag(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise refusal(f"stream is {_shown(value)}; send true or false", "stream")


def _wants_usage(options: object, *, stream: bool) -> bool:
    if options is None:
        return False
    if not isinstance(options, dict):
        raise refusal(f"stream_options is {_shown(options)}; send an object", "stream_options")
    if not stream:
        raise refusal("stream_options is only allowed with stream: true", "stream_options")
    wanted = options.get("include_usage")
    if wanted is None or isinstance(wanted, bool):
        return bool(wanted)
    raise refusal(f"include_usage is {_shown(wanted)}; send true or false", "stream_options.include_usage")


def _output_cap(head: Head) -> int | None:
    old = _count("max_tokens", head.max_tokens)
    new = _count("max_completion_tokens", head.max_completion_tokens)
    if old is not None and new is not None and old != new:
        message = f"max_tokens is {old} and max_completion_tokens is {new}; send one of them, or the same value"
        raise refusal(message, "max_tokens")
    return old if new is None else new


def _count(name: str, value: object, *, most: int | None = None) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1 and (most is None or value <= most):
        return value
    limit = "at least 1" if most is None else f"between 1 and {most}"
    raise refusal(f"{name} is {_shown(value)}; it must be a whole number, {limit}", name)


def _shown(value: object) -> str:
    """A value as JSON, short enough for a message."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 64 else text[:61] + "..."
