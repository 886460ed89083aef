"""SSE framing: where events end, whatever the line ends and however the bytes are split."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.sse import BOM, Event, EventTooLong, Framer, complete, events, parse


def cut(*pieces: bytes, limit: int = 1000) -> list[bytes]:
    framer = Framer(limit)
    return [framer.cut(piece) for piece in pieces]


def fields(event: Event) -> tuple[bytes, bytes]:
    return event.data, event.event


@pytest.mark.parametrize(
    ("raw", "data", "name"),
    [
        (b"data: x\n\n", b"x", b""),
        (b"data:x\n\n", b"x", b""),
        (b"data:  x\n\n", b" x", b""),
        (b"data\n\n", b"", b""),
        (b"data: x\r\n\r\n", b"x", b""),
        (b"data: x\r\r", b"x", b""),
        (b"data: a\ndata:b\ndata\n\n", b"a\nb\n", b""),
        (b": comment\ndata: x\nretry: 3000\nid: 7\nunknown: y\n\n", b"x", b""),
        (b"event: error\ndata: {}\n\n", b"{}", b"error"),
        (b"event:a\nevent: b\ndata: {}\n\n", b"{}", b"b"),
        (b": only a comment\n\n", b"", b""),
        (b"\ndata: x\n\n", b"x", b""),
        (b"data: x", b"x", b""),
    ],
)
def test_fields_follow_the_grammar(raw: bytes, data: bytes, name: bytes) -> None:
    assert fields(parse(raw)) == (data, name)
    assert parse(raw).raw == raw


def test_whole_events_pass_at_once_and_parts_wait() -> None:
    assert cut(b"data: a\n\ndata: b", b"\n", b"\ndata: c\n\n") == [b"data: a\n\n", b"", b"data: b\n\ndata: c\n\n"]


@pytest.mark.parametrize("split", [1, 2])
def test_a_byte_order_mark_is_dropped_even_when_split(split: int) -> None:
    assert cut(BOM[:split], BOM[split:], b"data: x\n\n") == [b"", b"", b"data: x\n\n"]


def test_what_only_begins_like_a_byte_order_mark_is_kept() -> None:
    assert b"".join(cut(b"\xef", b"data: x\n\n")) == b"\xefdata: x\n\n"
    assert b"".join(cut(b"", b"data: x\n\n" + BOM + b"\n\n")) == b"data: x\n\n" + BOM + b"\n\n"


def test_a_crlf_split_between_reads_is_one_line_end() -> None:
    assert cut(b"data: x\r\n\r", b"\ndata: y\r\n\r\n") == [b"", b"data: x\r\n\r\ndata: y\r\n\r\n"]


def test_bare_carriage_returns_end_an_event_without_waiting() -> None:
    assert cut(b"data: x\r\r", b"data: y\r", b"\r") == [b"data: x\r\r", b"", b"data: y\r\r"]


def test_mixed_line_ends_are_found() -> None:
    assert cut(b"data: x\n\r", b"\ndata: y\r\n\n") == [b"", b"data: x\n\r\ndata: y\r\n\n"]


def test_events_of_a_run_are_told_apart() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        body = (b"data: a@@: c@@data: b@@").replace(b"@", end)
        assert [event.data for event in events(body)] == [b"a", b"", b"b"]
        assert b"".join(event.raw for event in events(body)) == body


def test_a_last_event_without_its_blank_line_is_taken() -> None:
    assert [event.data for event in events(b"data: a\n\ndata: [DONE]")] == [b"a", b"[DONE]"]
    assert [event.data for event in events(b"data: a\n\n\n\ndata: b\n\n\n")] == [b"a", b"", b"", b"b", b""]


@pytest.mark.parametrize("tail", [b"", b"\n", b"\r\n", b"\r"])
def test_an_unterminated_event_gets_its_blank_line(tail: bytes) -> None:
    whole = complete(b"data: x" + tail)
    assert cut(whole) == [whole]
    assert parse(whole).data == b"x"


def test_an_endless_event_is_refused_by_size_not_by_patience() -> None:
    framer = Framer(limit=10)
    assert framer.cut(b"data: 1234") == b""
    with pytest.raises(EventTooLong, match="10 bytes") as caught:
        framer.cut(b"5")
    assert caught.value.limit == 10
    with pytest.raises(EventTooLong):
        Framer(limit=10).cut(b"data: x\n\n" + b"y" * 11)


def test_a_large_event_inside_one_read_is_no_fault() -> None:
    event = b"data: " + b"x" * 100 + b"\n\n"
    assert cut(event, limit=10) == [event]


def test_the_rest_is_handed_over_once() -> None:
    framer = Framer()
    framer.cut(b"data: x\n\ndata: y")
    assert framer.close() == b"data: y"
    assert framer.close() == b""


line = st.sampled_from([b"data: x", b"data:y", b": c", b"event: e", b"id: 1", b"", b"data"])
end = st.sampled_from([b"\n", b"\r\n", b"\r"])
bodies = st.lists(st.tuples(line, end), max_size=12).map(lambda parts: b"".join(a + b for a, b in parts))


@given(bodies, st.lists(st.integers(0, 100), max_size=6), st.booleans())
def test_no_split_changes_what_comes_out(body: bytes, cuts: list[int], mark: bool) -> None:
    data = BOM + body if mark else body
    framer = Framer()
    at = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    whole = b"".join(framer.cut(data[a:b]) for a, b in pairwise(at))
    assert whole + framer.close() == body


@given(st.lists(st.tuples(line, st.just(b"\n")), max_size=12), st.integers(0, 60))
def test_only_whole_events_come_out_of_a_line_feed_stream(parts: list[tuple[bytes, bytes]], at: int) -> None:
    body = b"".join(a + b for a, b in parts)
    framer = Framer()
    for piece in (body[:at], body[at:]):
        whole = framer.cut(piece)
        assert whole == b"" or whole.endswith((b"\n\n", b"\n"))
    assert b"\n\n" not in framer.close()
