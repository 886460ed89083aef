"""Laws of a chat stream: no split changes anything, and what is passed on blindly means what is judged exactly."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codec.chunks import DONE, ERROR, REPORT, ROLE, STOP, USAGE, chunk, frame, token
from trioproxy.codec.chat_stream import ChatStream

texts = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(
    ['"', "\\", '\\"', "NaN", "a", "b", "[DONE]"]
)
frames = st.one_of(
    texts.map(token),
    texts.map(token),
    texts.map(lambda text: token(text, usage=None, obfuscation="pad")),
    texts.map(lambda text: frame(chunk({"reasoning_content": text}))),
    texts.map(lambda text: frame(chunk({"content": text}, "stop"))),
    texts.map(lambda text: frame(chunk({"content": text}, index=1))),
    texts.map(lambda text: frame(chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}))),
    st.sampled_from(
        [
            ROLE,
            STOP,
            USAGE,
            token("x", usage=REPORT),
            frame(chunk(finish="stop", index=1)),
            b": ping\n\n",
            b"\n",
            b'data: {"choices":[{"delta":{"content":"\n\n',
            b'data: {"choices":[{"delta":{"content":"x"},"p":NaN}],"model":"m"}\n\n',
            b'event: ping\ndata: {"type":"ping"}\n\n',
        ]
    ),
)
endings = st.sampled_from([b"", DONE, DONE[:-1], DONE + token(), ERROR, ERROR[:-2] + DONE, token()[:30]])
bodies = st.tuples(st.lists(frames, max_size=14).map(b"".join), endings, st.sampled_from([b"\n", b"\r\n", b"\r"])).map(
    lambda parts: (parts[0] + parts[1]).replace(b"\n", parts[2])
)
options = st.fixed_dictionaries(
    {
        "drop_usage": st.booleans(),
        "choices": st.integers(1, 2),
        "rewrite_model": st.none() | st.just("p"),
    }
)
splits = st.lists(st.integers(0, 600), max_size=8)


def pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    return [body[a:b] for a, b in pairwise(at)]


def seen(stream: ChatStream) -> tuple[object, ...]:
    return (
        stream.usage,
        stream.finished,
        stream.ended,
        stream.content,
        stream.fault,
        stream.output_bytes,
        stream.terminator(),
    )


def by_feed(parts: list[bytes], stream: ChatStream) -> bytes:
    found = [frame for part in parts for frame in stream.feed(part)] + stream.close()
    return b"".join(frame.raw for frame in found if not frame.usage_only)


def by_follow(parts: list[bytes], stream: ChatStream) -> bytes:
    out = b"".join(map(stream.follow, parts))
    return out + b"".join(frame.raw for frame in stream.close() if not frame.usage_only)


def options_of(chosen: dict[str, object]) -> ChatStream:
    return ChatStream(**chosen)  # type: ignore[arg-type]


@given(bodies, splits, options)
@settings(max_examples=250, deadline=None)
def test_no_split_changes_bytes_or_verdict(body: bytes, cuts: list[int], chosen: dict[str, object]) -> None:
    whole, split = options_of(chosen), options_of(chosen)
    assert by_feed(pieces(body, cuts), split) == by_feed([body], whole)
    assert seen(split) == seen(whole)


@given(bodies, splits, options)
@settings(max_examples=250, deadline=None)
def test_following_equals_judging_every_frame(body: bytes, cuts: list[int], chosen: dict[str, object]) -> None:
    exact, fast = options_of(chosen), options_of(chosen)
    assert by_follow(pieces(body, cuts), fast) == by_feed([body], exact)
    assert seen(fast) == seen(exact)


@given(bodies, splits, options, st.integers(0, 8))
@settings(max_examples=150, deadline=None)
def test_feeding_first_and_following_then_is_the_same(
    body: bytes, cuts: list[int], chosen: dict[str, object], turn: int
) -> None:
    exact, mixed = options_of(chosen), options_of(chosen)
    parts = pieces(body, cuts)
    head = b"".join(f.raw for part in parts[:turn] for f in mixed.feed(part) if not f.usage_only)
    assert head + by_follow(parts[turn:], mixed) == by_feed([body], exact)
    assert seen(mixed) == seen(exact)


@given(bodies, splits, options, st.integers(0, 8))
@settings(max_examples=150, deadline=None)
def test_what_a_gate_leaves_waiting_is_not_lost(
    body: bytes, cuts: list[int], chosen: dict[str, object], turn: int
) -> None:
    exact, mixed = options_of(chosen), options_of(chosen)
    parts = pieces(body, cuts)
    held = [f for part in parts[:turn] for f in mixed.gated(part)]
    assert all(not f.content for f in held[:-1])
    head = b"".join(f.raw for f in held if not f.usage_only)
    assert head + by_follow(parts[turn:], mixed) == by_feed([body], exact)
    assert seen(mixed) == seen(exact)


@given(st.lists(texts, max_size=10), splits)
def test_a_good_stream_passes_byte_for_byte(words: list[str], cuts: list[int]) -> None:
    body = ROLE + b"".join(map(token, words)) + STOP + DONE
    stream = ChatStream()
    assert by_follow(pieces(body, cuts), stream) == body
    assert stream.content == any(words)
