"""A chat request as one channel takes it: the client's bytes, with as few edits as the channel's shape asks for.

The model's name is replaced, parameters renamed or left out, `content: null` given the form that the channel reads, the usage
frame asked for. Every other byte survives, and the client's body itself is never touched: the next channel starts from it.
"""

from collections.abc import Mapping

import msgspec

from trioproxy.codec import jsonread
from trioproxy.codec.chat_facts import refusal
from trioproxy.codec.frame import Facts, Shape
from trioproxy.codec.jsonsplice import DuplicateKey, Edit, NotAnObject, Span, items, key_span, members, removal, splice

ALWAYS = frozenset({"model", "messages", "stream", "stream_options"})
_ASK = b'{"include_usage":true}'


class NullContent(msgspec.Struct):
    """As much of a message as tells whether its content is null."""

    content: msgspec.Raw = msgspec.Raw()


_NULLS = msgspec.json.Decoder(list[NullContent])


def request_for(body: bytes, facts: Facts, shape: Shape, model: str) -> bytes:
    """The body for one channel. Raises `Refusal` where two parameters that mean the same there disagree."""
    try:
        return splice(body, _edits(body, facts, shape, model))
    except (NotAnObject, RecursionError):
        # The body was read once, so this is a depth at the limit and a deeper stack than before.
        raise refusal("the request body is nested too deeply; flatten it") from None


def _edits(body: bytes, facts: Facts, shape: Shape, model: str) -> list[Edit]:
    spans = facts.members
    edits: list[Edit] = [(*spans["model"], jsonread.write(model))]
    dropped, renamed = _plan(body, spans, shape) if shape.rename or shape.allow is not None else (set(), {})
    if not shape.force_usage and "stream_options" in spans:
        dropped.add("stream_options")  # such a channel refuses the parameter, whoever sent it
    if dropped:
        edits += removal(body, spans, dropped)
    edits += [(*key_span(body, spans, name), jsonread.write(word)) for name, word in renamed.items()]
    if shape.null_content != "keep":
        edits += _null_contents(body, spans["messages"], drop=shape.null_content == "drop")
    if facts.stream and shape.force_usage:
        edits += _usage_asked(body, spans)
    return edits


def _plan(body: bytes, spans: Mapping[str, Span], shape: Shape) -> tuple[set[str], dict[str, str]]:
    """Which members go, and which get another name. One name is held by one member."""
    dropped: set[str] = set()
    holders: dict[str, str] = {}
    for name in spans:
        word = name if name in ALWAYS else shape.rename.get(name, name)
        if shape.allow is not None and shape.allow.isdisjoint((name, word)) and name not in ALWAYS:
            dropped.add(name)
            continue
        rival = holders.setdefault(word, name)
        if rival != name:
            loser = _loser(body, spans, word, (rival, name))
            dropped.add(loser)
            holders[word] = name if loser == rival else rival
    return dropped, {name: word for word, name in holders.items() if word != name}


def _loser(body: bytes, spans: Mapping[str, Span], word: str, pair: tuple[str, str]) -> str:
    """Of two members that would have the same name, the one that may go: a null, or a twin. Others are refused."""
    first, second = pair
    one, other = (jsonread.read(body[slice(*spans[name])])[0] for name in pair)
    if one is None or (one == other and first != word):
        return first
    if other is None or one == other:
        return second
    raise refusal(f"{first} and {second} are the same parameter here, but differ; send one of them", second)


def _null_contents(body: bytes, span: Span, *, drop: bool) -> list[Edit]:
    text = body[slice(*span)]
    if b"null" not in text:
        return []
    nulls = [at for at, message in enumerate(_NULLS.decode(text)) if _is_null(message.content)]
    places = items(body, span) if nulls else []
    edits: list[Edit] = []
    for at in nulls:
        fields = _unique(body, places[at], f"messages[{at}]")
        if drop:
            edits += removal(body, fields, {"content"}, places[at][0])
        else:
            edits.append((*fields["content"], b'""'))
    return edits


def _is_null(value: msgspec.Raw) -> bool:
    return memoryview(value).nbytes == 4 and bytes(value) == b"null"


def _usage_asked(body: bytes, spans: Mapping[str, Span]) -> list[Edit]:
    span = spans.get("stream_options")
    if span is None:
        end = max(last for _, last in spans.values())
        return [(end, end, b',"stream_options":' + _ASK)]
    if body[slice(*span)] == b"null":
        return [(*span, _ASK)]
    options = _unique(body, span, "stream_options")
    if not options:
        return [(*span, _ASK)]
    if "include_usage" in options:
        return [(*options["include_usage"], b"true")]
    return [(span[0] + 1, span[0] + 1, b'"include_usage":true,')]


def _unique(body: bytes, span: Span, path: str) -> dict[str, Span]:
    try:
        return members(body, span)
    except DuplicateKey as exc:
        raise refusal(f"{exc.key!r} comes twice in {path}; send it once", f"{path}.{exc.key}") from None
