"""Believe the bytes, not the label: a stream that came where one answer was asked for, and the other way round.

Both directions keep what the model said, its usage and its finish; what cannot be turned into the form that was asked for (an
error, a stream that was cut) is None, and so the channel's fault.
"""

from attrs import define, field

from trioproxy.codec import jsonread, sse
from trioproxy.codec.chat_chunk import error_in, index_of
from trioproxy.codec.chat_stream import DONE

_ENVELOPE = ("id", "created", "model", "system_fingerprint", "service_tier", "provider")
_TEXTS = ("refusal", "reasoning", "reasoning_content")
_IN_PIECES = ("function_call", "audio")
_CHOICE_ONLY = frozenset({"index", "delta", "message", "finish_reason"})


def answer_from_frames(body: bytes) -> bytes | None:
    """One `chat.completion` from a whole chunk stream; None if it is no complete answer."""
    try:
        return _answer(body)
    except ValueError:
        return None


def stream_from_answer(body: bytes, wants_usage: bool) -> bytes | None:
    """A chunk stream from one whole `chat.completion`; None if it is no answer with messages."""
    try:
        return _stream(body, wants_usage)
    except ValueError:
        return None


def _answer(body: bytes) -> bytes | None:
    answer: dict[str, object] = {"object": "chat.completion"}
    told: dict[int, Told] = {}
    for event in sse.events(body):
        data = event.data.strip()
        if data == b"[DONE]":
            break
        if not data:
            continue
        chunk, _ = jsonread.read(data)
        if event.event == b"error" or error_in(chunk) is not None or not isinstance(chunk, dict):
            return None
        answer |= {name: chunk[name] for name in _ENVELOPE if chunk.get(name)}
        if chunk.get("usage"):
            answer["usage"] = chunk["usage"]
        _tell(told, chunk.get("choices"))
    if not told or not all(choice.finish for choice in told.values()):
        return None
    answer["choices"] = [told[index].choice(index) for index in sorted(told)]
    return jsonread.write(answer)


def _stream(body: bytes, wants_usage: bool) -> bytes | None:
    answer, _ = jsonread.read(body)
    if error_in(answer) is not None or not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
        return None
    choices = [choice for choice in answer["choices"] if isinstance(choice, dict)]
    if not choices or not all(isinstance(choice.get("message"), dict) for choice in choices):
        return None
    head = {name: answer[name] for name in _ENVELOPE if name in answer} | {"object": "chat.completion.chunk"}
    chunks: list[dict[str, object]] = []
    for index, choice in enumerate(choices):
        chunks += ({**head, "choices": [part]} for part in _parts(index, choice))
    if wants_usage and answer.get("usage"):
        chunks.append({**head, "choices": [], "usage": answer["usage"]})
    return b"".join(b"data: " + jsonread.write(chunk) + b"\n\n" for chunk in chunks) + DONE


@define(eq=False)
class Told:
    """What one choice has said so far."""

    finish: str | None = None
    role: str = "assistant"
    texts: dict[str, str] = field(factory=dict)
    lists: dict[str, list[object]] = field(factory=dict)
    calls: list[dict[str, object]] = field(factory=list)
    pieces: dict[str, dict[str, object]] = field(factory=dict)
    rest: dict[str, object] = field(factory=dict)  # what is not added up: the last one counts
    extra: dict[str, object] = field(factory=dict)  # beside the message: log probabilities and the like

    def hear(self, choice: dict[str, object]) -> None:
        """Add one chunk's share."""
        delta = choice.get("delta") or choice.get("message")
        for name, value in delta.items() if isinstance(delta, dict) else ():
            self._hear_field(name, value)
        finish = choice.get("finish_reason")
        self.finish = finish if isinstance(finish, str) and finish else self.finish
        for name, value in choice.items():
            if name == "logprobs":
                self._hear_logprobs(value)
            elif name not in _CHOICE_ONLY and value is not None:
                self.extra[name] = value

    def choice(self, index: int) -> dict[str, object]:
        """The choice of a whole answer."""
        message: dict[str, object] = {"role": self.role, "content": self._content(), **self.rest, **self.pieces}
        message |= {name: text for name, text in self.texts.items() if name != "content"}
        message |= {name: parts for name, parts in self.lists.items() if name != "content"}
        if self.calls:
            message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in self.calls]
        return {"index": index, "message": message, "finish_reason": self.finish, **self.extra}

    def _content(self) -> object:
        text = self.texts.get("content")
        parts = self.lists.get("content")
        if parts is None:
            return text
        return [{"type": "text", "text": text}, *parts] if text else parts

    def _hear_field(self, name: str, value: object) -> None:
        if name == "role":
            self.role = value if isinstance(value, str) and value else self.role
        elif isinstance(value, str) and (name == "content" or name in _TEXTS):
            self.texts[name] = self.texts.get(name, "") + value
        elif isinstance(value, list):
            self._hear_list(name, value)
        elif isinstance(value, dict) and name in _IN_PIECES:
            _add_up(self.pieces.setdefault(name, {}), value)
        elif value is not None:
            self.rest[name] = value

    def _hear_list(self, name: str, value: list[object]) -> None:
        if name != "tool_calls":
            self.lists.setdefault(name, []).extend(value)
            return
        for call in value:
            self._hear_call(call)

    def _hear_call(self, delta: object) -> None:
        if not isinstance(delta, dict):
            return
        call = self._call_for(delta)
        for name, value in delta.items():
            if isinstance(value, dict):
                held = call.setdefault(name, {})
                if isinstance(held, dict):
                    _add_up(held, value)
            elif value not in (None, ""):
                call.setdefault(name, value)

    def _call_for(self, delta: dict[str, object]) -> dict[str, object]:
        """The call that a delta goes on with: by index; without one (Gemini's layer), a new id begins a new call."""
        index = delta.get("index")
        if isinstance(index, int):
            same = [call for call in self.calls if call.get("index") == index]
        else:
            same = [call for call in self.calls[-1:] if not delta.get("id") or call.get("id") == delta["id"]]
        if not same:
            same = [{}]
            self.calls += same
        return same[0]

    def _hear_logprobs(self, value: object) -> None:
        if isinstance(value, dict):
            held = self.extra.setdefault("logprobs", {})
            assert isinstance(held, dict), "only dicts are put there"
            for name, tokens in value.items():
                if isinstance(tokens, list):
                    held.setdefault(name, []).extend(tokens)


def _add_up(held: dict[str, object], delta: dict[str, object]) -> None:
    """Arguments, data and transcripts come in pieces; names and ids come once, or are said again."""
    for name, given in delta.items():
        value = jsonread.write(given).decode() if isinstance(given, dict | list) else given
        before = held.get(name)
        if name in ("arguments", "input", "data", "transcript") and isinstance(before, str) and isinstance(value, str):
            held[name] = before + value
        elif value is not None:
            held[name] = value


def _tell(told: dict[int, Told], choices: object) -> None:
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            told.setdefault(index_of(choice), Told()).hear(choice)


def _parts(position: int, choice: dict[str, object]) -> list[dict[str, object]]:
    message = choice["message"]
    assert isinstance(message, dict), "the caller has looked"
    index = choice["index"] if isinstance(choice.get("index"), int) else position
    delta = {"role": "assistant", **{name: value for name, value in message.items() if value is not None}}
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls) if isinstance(call, dict)]
    said = {"index": index, "delta": delta, "finish_reason": None}
    if choice.get("logprobs") is not None:
        said["logprobs"] = choice["logprobs"]
    # A whole answer has ended, whether or not it says how.
    finish = choice.get("finish_reason") or ("tool_calls" if calls else "stop")
    extra = {name: value for name, value in choice.items() if name not in _CHOICE_ONLY and name != "logprobs"}
    return [said, {"index": index, "delta": {}, "finish_reason": finish, **extra}]
