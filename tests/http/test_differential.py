"""llhttp against h11: the same bytes, in any split, give the same events and the same refusals."""

from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.http.message import (
    END,
    Event,
    Limits,
    MessageError,
    RequestHead,
    RequestSource,
    ResponseHead,
    ResponseSource,
    readers,
)

H = b"Host: a\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
IMPLEMENTATIONS = ("httptools", "h11")

GOOD_REQUESTS = [
    b"GET / HTTP/1.1\r\n" + H + b"\r\n",
    b"\r\n\r\nGET /a?b HTTP/1.1\r\n" + H + b"X:  y \t\r\nZ:\r\nO: \xe9\xff\r\n\r\n",
    b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 0005 \r\n\r\nabcde",
    b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 0\r\nExpect: 100-continue\r\n\r\n",
    b"POST / HTTP/1.1\r\n"
    + H
    + b"TRANSFER-encoding:\tChunKed \r\n\r\n3;a=b\r\nabc\r\n00A\r\n0123456789\r\n0\r\nT: 1\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\naGET / HTTP/1.0\r\n\r\nGET /late HTTP/1.1\r\n",
    b"GET http://u@h:80/p?q HTTP/1.1\r\n" + H + b"\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + H + b"Connection: close, x\r\n\r\nignored\x00",
    b"HEAD / HTTP/1.1\r\n" + H + b"\r\n" + b"GET / HTTP/1.1\r\n" + H + b"\r\n",
    b"CONNECT a:443 HTTP/1.1\r\n" + H + b"\r\nGET / HTTP/1.1\r\n" + H + b"\r\n",
    b"GET / HTTP/1.1\r\n"
    + H
    + b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\nGET / HTTP/1.1\r\n"
    + H
    + b"\r\n",
    (b"POST / HTTP/1.1\r\n" + H + b"Upgrade: x\r\nConnection: upgrade\r\nContent-Length: 3\r\n\r\nabc") * 2,
    (b"POST / HTTP/1.1\r\n" + H + b"Upgrade: x\r\nConnection: upgrade\r\n" + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n") * 2,
    b"GET / HTTP/1.1\r\n" + H + b"Upgrade: x\r\nConnection: upgrade, close\r\n\r\nx",
    b"POST / HTTP/1.1\r\n"
    + H
    + CHUNKED
    + b"1\r\na\r\n0\r\n\r\n"
    + b"POST / HTTP/1.1\r\n"
    + H
    + b"Content-Length: 1\r\n\r\nb",
]

GOOD_RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 404 Not \xe9 Found\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"5\r\nhello\r\n6;x=y\r\n world\r\n0;z\r\nT: 1\r\nU: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 205 Reset\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nab",
    b"HTTP/1.0 200 OK\r\n" + CHUNKED + b"1\r\na\r\n0\r\n\r\n",
    b"HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n",
    b"HTTP/1.1 304 No\r\n" + CHUNKED,
    b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 102 P\r\n\r\nHTTP/1.1 103 E\r\nLink: x\r\n\r\nHTTP/1.1 500 E\r\nContent-Length: 1\r\n\r\na",
    b"\r\nHTTP/1.1 600 x\r\nContent-Length: 1\r\n\r\na",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\naxyz",
    b"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 1\r\n\r\na",
]

BAD_REQUESTS = [
    b"GET / HTTP/1.1\r\n" + H + b"\r\nGARBAGE \x00\r\n\r\n",
    b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"1\r\na\r\nzz\r\n",
    b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"1\r\nab\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 3\r\n\r\nab",
    b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 3, 3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + H + b"X: a\r\n b\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + H + b"X: a\rb\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + H + b"X: a\nb: c\r\n\r\n",
    b"GET / HTTP/3.0\r\n" + H + b"\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"x" * 400,
    b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * 30 + H + b"\r\n",
]

LIMITS = Limits(max_head=300, max_headers=20)


def outcome(source: RequestSource | ResponseSource, pieces: list[bytes]) -> tuple[list[Event], int | None]:
    """All events with adjoining bytes joined, and the status of the refusal if there was one."""
    events: list[Event] = []
    status = None
    for piece in [*pieces, b""]:
        try:
            source.feed(piece)
        except MessageError as exc:
            status = exc.status
        while (event := source.next_event()) is not None:
            before = events[-1] if events else None
            if isinstance(event, bytes) and isinstance(before, bytes):
                events[-1] = before + event
            else:
                events.append(plain(event))
        if status is not None:
            break
    return events, status


def plain(event: Event) -> Event:
    """h11 lower-cases the coding's name, which carries no meaning."""
    if isinstance(event, RequestHead | ResponseHead):
        fields = [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in event.headers]
        return attrs.evolve(event, headers=fields)
    return event


def cut(data: bytes, points: list[int]) -> list[bytes]:
    edges = [0, *sorted(set(points)), len(data)]
    return [data[start:end] for start, end in pairwise(edges) if end > start]


def splits(data: bytes) -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.integers(0, len(data)), max_size=12).map(lambda points: cut(data, points))


def agreed(data: bytes, pieces: list[bytes], side: int) -> tuple[list[Event], int | None]:
    """The one outcome: of both implementations, whole, in the given pieces and byte by byte."""
    ways = ([data], pieces, [data[at : at + 1] for at in range(len(data))])
    found = [outcome(readers(name)[side](LIMITS), way) for name in IMPLEMENTATIONS for way in ways]
    assert all(each == found[0] for each in found), found
    return found[0]


@given(st.data())
@pytest.mark.parametrize("request_bytes", GOOD_REQUESTS)
def test_good_requests_read_alike_in_any_split(request_bytes: bytes, data: st.DataObject) -> None:
    events, status = agreed(request_bytes, data.draw(splits(request_bytes)), 0)
    assert status is None
    assert events[-1] is END


@given(st.data())
@pytest.mark.parametrize("response", GOOD_RESPONSES)
def test_good_responses_read_alike_in_any_split(response: bytes, data: st.DataObject) -> None:
    events, status = agreed(response, data.draw(splits(response)), 1)
    assert status is None
    assert events[-1] is END


@given(st.data())
@pytest.mark.parametrize("request_bytes", BAD_REQUESTS)
def test_bad_requests_are_refused_alike_in_any_split(request_bytes: bytes, data: st.DataObject) -> None:
    _, status = agreed(request_bytes, data.draw(splits(request_bytes)), 0)
    assert status is not None


token = st.text("abcXYZ019-_!~", min_size=1, max_size=8).map(str.encode)
value = st.text('az09 \t,;="é', max_size=12).map(lambda text: text.encode("latin-1"))
fields = st.lists(st.tuples(token.map(lambda name: b"X-" + name), value), max_size=5)
body = st.binary(max_size=40)


@st.composite
def framed(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A body with the end of the head that frames it, and what it means."""
    content = draw(body)
    if draw(st.booleans()):
        return b"Content-Length: %d\r\n\r\n%b" % (len(content), content), content
    chunks = [chunk for chunk in cut(content, draw(st.lists(st.integers(0, 40), max_size=4))) if chunk]
    lines = [b"%x%b\r\n%b\r\n" % (len(chunk), draw(st.sampled_from([b"", b";a", b";a=b"])), chunk) for chunk in chunks]
    trailers = draw(st.sampled_from([b"", b"T: 1\r\n", b"Host: evil\r\nT: 2\r\n"]))
    return CHUNKED + b"".join(lines) + b"0\r\n" + trailers + b"\r\n", content


def lines_of(drawn: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % field for field in drawn)


@given(st.lists(st.tuples(fields, framed()), min_size=1, max_size=3), st.data())
def test_generated_requests_mean_what_was_meant(
    messages: list[tuple[list[tuple[bytes, bytes]], tuple[bytes, bytes]]], data: st.DataObject
) -> None:
    stream = b"".join(b"POST /p HTTP/1.1\r\n" + H + lines_of(drawn) + tail for drawn, (tail, _) in messages)
    pieces = data.draw(splits(stream))
    whole = Limits(max_head=10_000)
    found = [outcome(readers(name)[0](whole), way) for name in IMPLEMENTATIONS for way in ([stream], pieces)]
    assert all(each == found[0] for each in found)
    events, status = found[0]
    assert status is None
    assert [event for event in events if isinstance(event, bytes)] == [
        content for _, (_, content) in messages if content
    ]
    assert events.count(END) == len(messages)
    meant = [(name.lower(), text.strip(b" \t")) for drawn, _ in messages for name, text in drawn]
    heads = [event for event in events if isinstance(event, RequestHead)]
    assert [field for head in heads for field in head.headers if field[0].startswith(b"x-")] == meant


@given(fields, framed(), st.data())
def test_generated_responses_mean_what_was_meant(
    drawn: list[tuple[bytes, bytes]], framing: tuple[bytes, bytes], data: st.DataObject
) -> None:
    tail, content = framing
    stream = b"HTTP/1.1 200 OK\r\n" + lines_of(drawn) + tail
    pieces = data.draw(splits(stream))
    whole = Limits(max_head=10_000)
    found = [outcome(readers(name)[1](whole), way) for name in IMPLEMENTATIONS for way in ([stream], pieces)]
    assert all(each == found[0] for each in found)
    events, status = found[0]
    assert status is None
    assert events[1:] == [*([content] if content else []), END]


def compare_damaged(data: bytes, pieces: list[bytes], side: int) -> None:
    wholes = []
    for name in IMPLEMENTATIONS:
        wholes.append(outcome(readers(name)[side](LIMITS), [data]))
        assert outcome(readers(name)[side](LIMITS), pieces) == wholes[-1]
    (llhttp_events, llhttp_status), (h11_events, h11_status) = wholes
    if llhttp_status is None and h11_status is None:
        assert llhttp_events == h11_events


@given(st.sampled_from([*GOOD_REQUESTS, *BAD_REQUESTS]), st.data())
def test_damaged_requests_give_one_outcome_in_any_split(original: bytes, data: st.DataObject) -> None:
    """Whatever a byte is replaced by: no other exception, no dependence on how the bytes arrived, and where both
    implementations take the bytes, they take them for the same."""
    at = data.draw(st.integers(0, len(original) - 1))
    damaged = original[:at] + data.draw(st.binary(max_size=2)) + original[at + 1 :]
    compare_damaged(damaged, data.draw(splits(damaged)), 0)


@given(st.sampled_from(GOOD_RESPONSES), st.data())
def test_damaged_responses_give_one_outcome_in_any_split(original: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(original) - 1))
    damaged = original[:at] + data.draw(st.binary(max_size=2)) + original[at + 1 :]
    compare_damaged(damaged, data.draw(splits(damaged)), 1)


# --- where they differ, and why that may stay


def statuses(data: bytes, side: int = 0) -> list[int | None]:
    """httptools first."""
    return [outcome(readers(name)[side](Limits()), [data])[1] for name in IMPLEMENTATIONS]


def test_llhttp_knows_only_registered_methods() -> None:
    """The door answers 405 to a method it does not serve; llhttp's 400 is the same refusal earlier."""
    assert statuses(b"FOO / HTTP/1.1\r\n" + H + b"\r\n") == [400, None]


def test_llhttp_takes_several_spaces_in_the_request_line() -> None:
    """Allowed by RFC 9112, 3; the target comes out the same."""
    assert statuses(b"GET  /  HTTP/1.1\r\n" + H + b"\r\n") == [None, 400]


def test_llhttp_reads_rtsp_as_http_1_0() -> None:
    """httptools does not say which protocol was named. Harmless: it is answered as HTTP/1.0 and closed."""
    assert statuses(b"GET / RTSP/1.0\r\n\r\n") == [None, 400]


@pytest.mark.parametrize("chunk", [b"1 \r\na\r\n", b"1;\r\na\r\n", b"1; a = b\r\na\r\n", b"1;\x01\r\na\r\n"])
def test_h11_forgives_odd_chunk_lines(chunk: bytes) -> None:
    """Neither reads another size than the digits say."""
    assert statuses(b"POST / HTTP/1.1\r\n" + H + CHUNKED + chunk + b"0\r\n\r\n") == [400, None]


@pytest.mark.parametrize(
    "trailer", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"X: a\n", b"X: a\r\n b\r\n"]
)
def test_llhttp_refuses_trailers_that_look_like_framing_or_break_lines(trailer: bytes) -> None:
    """h11 drops them as it does every trailer."""
    assert statuses(b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"0\r\n" + trailer + b"\r\n") in ([400, None], [501, None])


def test_llhttp_believes_a_trailer_that_closes_the_connection() -> None:
    """A request behind it is refused instead of served."""
    first = b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"0\r\nConnection: close\r\n\r\n"
    assert statuses(first + b"GET / HTTP/1.1\r\n" + H + b"\r\n") == [400, None]


def test_only_h11_sees_blank_lines_behind_an_end_in_the_same_read() -> None:
    """llhttp skips them; they are no part of a next message either way, so the connection may be used again."""
    seen = []
    for name in IMPLEMENTATIONS:
        reader = readers(name)[1](Limits())
        reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na\r\n")
        seen.append(reader.surplus)
    assert seen == [False, True]


def test_httptools_lets_a_pipelined_head_be_longer_by_what_came_in_one_read() -> None:
    """It does not say where in a read a message began; the bound still holds from the next read on."""
    first = b"GET / HTTP/1.1\r\n" + H + b"\r\n"
    long = b"GET / HTTP/1.1\r\n" + H + b"X: " + b"x" * 300 + b"\r\n\r\n"
    reader_of = readers("httptools")[0]
    assert outcome(reader_of(LIMITS), [first + long])[1] is None
    assert outcome(reader_of(LIMITS), [first, long])[1] == 431
    assert outcome(reader_of(LIMITS), [first + long, b"GET / HTTP/1.1\r\nX: " + b"x" * 600])[1] == 431
