"""What a reader makes of one message, for both implementations behind the seam."""

import gc

import attrs
import pytest

from trioproxy.http.head import response_head as response_judge
from trioproxy.http.message import DEFAULT_LIMITS, END, Event, Limits, MessageError, RequestHead, ResponseHead, readers

REQUEST = b"POST /v1/x HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture(params=["httptools", "h11"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def requests(name: str, *pieces: bytes, limits: Limits = DEFAULT_LIMITS) -> list[Event]:
    reader = readers(name)[0](limits)
    events = []
    for piece in pieces:
        reader.feed(piece)
        while (event := reader.next_event()) is not None:
            events.append(event)
    return events


def responses(name: str, *pieces: bytes, limits: Limits = DEFAULT_LIMITS) -> list[Event]:
    reader = readers(name)[1](limits)
    events = []
    for piece in pieces:
        reader.feed(piece)
        while (event := reader.next_event()) is not None:
            events.append(event)
    return events


def request_head(events: list[Event], at: int = 0) -> RequestHead:
    head = events[at]
    assert isinstance(head, RequestHead)
    return head


def response_head(events: list[Event]) -> ResponseHead:
    head = events[0]
    assert isinstance(head, ResponseHead)
    return head


def refused(name: str, data: bytes, limits: Limits = DEFAULT_LIMITS) -> MessageError:
    with pytest.raises(MessageError) as caught:
        requests(name, data, limits=limits)
    return caught.value


# --- requests


def test_a_head_says_what_was_sent_with_lower_case_names_and_bare_values(name: str) -> None:
    events = requests(name, REQUEST + b"X-Thing: \t a b \t\r\nEmpty:\r\nContent-Length: 3\r\n\r\nabc")
    fields = [(b"host", b"a"), (b"x-thing", b"a b"), (b"empty", b""), (b"content-length", b"3")]
    assert events == [
        RequestHead(
            b"POST",
            b"/v1/x",
            headers=fields,
            keep_alive=True,
            expects_continue=False,
            length=3,
            chunked=False,
        ),
        b"abc",
        END,
    ]


def test_a_request_without_framing_has_no_body(name: str) -> None:
    events = requests(name, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert request_head(events).length is None
    assert events[1:] == [END]


def test_one_read_of_many_chunks_is_one_event_without_extensions_and_trailers(name: str) -> None:
    head = REQUEST + b"Transfer-Encoding: Chunked\r\n\r\n"
    events = requests(name, head + b'3;a=b\r\nabc\r\n2;q="x;y"\r\nde\r\n0;z\r\nX-Evil: 1\r\nHost: b\r\n\r\n')
    assert request_head(events).chunked
    assert [field for field, _ in request_head(events).headers] == [b"host", b"transfer-encoding"]
    assert events[1:] == [b"abcde", END]


def test_pipelined_requests_come_in_order_and_trailers_do_not_reach_the_next_head(name: str) -> None:
    chunked = b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Evil: 1\r\n\r\n"
    events = requests(name, REQUEST + chunked + REQUEST + b"Content-Length: 1\r\n\r\nb" + REQUEST + b"\r\n")
    assert [event for event in events if not isinstance(event, RequestHead)] == [b"a", END, b"b", END, END]
    assert request_head(events, 3).headers == [(b"host", b"a"), (b"content-length", b"1")]


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [
        ("1.1", None, True),
        ("1.1", "close", False),
        ("1.1", "X, Close", False),
        ("1.1", "keep-alive, close", False),
        ("1.0", None, False),
        ("1.0", "Keep-Alive", True),
        ("1.0", "keep-alive, close", False),
    ],
)
def test_keep_alive(name: str, version: str, connection: str | None, kept: bool) -> None:
    field = f"Connection: {connection}\r\n" if connection else ""
    events = requests(name, f"GET / HTTP/{version}\r\nHost: a\r\n{field}\r\n".encode())
    assert request_head(events).keep_alive is kept


def test_bytes_after_a_request_that_closes_are_ignored(name: str) -> None:
    closing = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert len(requests(name, closing + REQUEST + b"\r\n", b"garbage", b"")) == 2
    assert len(requests(name, b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n" + REQUEST)) == 2


@pytest.mark.parametrize(("version", "expects"), [("1.1", True), ("1.0", False)])
def test_only_http_1_1_may_expect_a_100(name: str, version: str, expects: bool) -> None:
    events = requests(name, f"POST / HTTP/{version}\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n".encode())
    assert request_head(events).expects_continue is expects


@pytest.mark.parametrize("target", [b"/a?b=c", b"*", b"http://h:1/a?b"])
def test_targets_come_as_sent(name: str, target: bytes) -> None:
    assert request_head(requests(name, b"OPTIONS %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)).target == target


@pytest.mark.parametrize(
    ("tail", "read"),
    [
        (b"\r\n", []),
        (b"Content-Length: 3\r\n\r\nabc", [b"abc"]),
        (b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", [b"abc"]),
    ],
)
@pytest.mark.parametrize(
    "start", [b"POST / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n", b"CONNECT a:1 HTTP/1.1\r\n"]
)
def test_an_upgrade_is_an_ordinary_request_body_and_successor_included(
    name: str, start: bytes, tail: bytes, read: list[bytes]
) -> None:
    data = (start + b"Host: a\r\n" + tail) * 2 + REQUEST + b"\r\n"
    events = requests(name, data)
    assert events[1:-2] == [*read, END, events[0], *read, END]
    assert request_head(events, -2).target == b"/v1/x"


def test_many_pipelined_upgrades_are_no_deep_recursion(name: str) -> None:
    one = b"GET / HTTP/1.1\r\nHost:\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    assert requests(name, one * 1000).count(END) == 1000


def test_garbage_behind_an_upgrade_is_a_malformed_next_request(name: str) -> None:
    """The upgrade itself can still be taken and answered."""
    reader = readers(name)[0](Limits())
    with pytest.raises(MessageError) as caught:
        reader.feed(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nx\x00\r\n\r\n")
    assert caught.value.status == 400
    assert isinstance(reader.next_event(), RequestHead)
    assert reader.next_event() is END
    with pytest.raises(MessageError):
        reader.feed(b"more")


def test_in_message_tells_an_idle_connection_from_a_half_sent_head(name: str) -> None:
    reader = readers(name)[0](DEFAULT_LIMITS)
    seen = [reader.in_message]
    for piece in (b"\r\n", b"G", b"ET / HTTP/1.1\r\nHost: a\r\n\r\n"):
        reader.feed(piece)
        seen.append(reader.in_message)
    assert seen == [False, False, True, True]
    for still in (True, False):
        assert reader.next_event() is not None
        assert reader.in_message is still
    assert reader.next_event() is None


def test_an_end_of_stream_is_an_error_inside_a_request_only(name: str) -> None:
    assert len(requests(name, REQUEST + b"\r\n", b"")) == 2
    for part in (b"G", REQUEST, REQUEST + b"Content-Length: 2\r\n\r\na"):
        with pytest.raises(MessageError, match="ended early"):
            requests(name, part, b"")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (REQUEST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (REQUEST + b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400),
        (REQUEST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (REQUEST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400),
        *(
            (REQUEST + b"Content-Length:%b\r\n\r\n" % value, 400)
            for value in (
                b" +5",
                b" -5",
                b" 5, 5",
                b" 5,6",
                b" 0x5",
                b" 5 5",
                b"",
                b" 9999999999999999999",
                b" 99999999999999999999999",
                b" 5_0",
            )
        ),
        *(
            (REQUEST + b"Transfer-Encoding:%b\r\n\r\n" % value, 501)
            for value in (
                b" gzip",
                b" xchunked",
                b" gzip, chunked",
                b" chunked, gzip",
                b" chunked,",
                b' "chunked"',
                b"",
            )
        ),
        (REQUEST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
        (REQUEST + b"Transfer-Encoding: \x0bchunked\r\n\r\n", 400),
        (REQUEST + b"Transfer-Encoding : chunked\r\n\r\n", 400),
        (REQUEST + b"Transfer-Encoding\r\n : chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (REQUEST + b"Host: a\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET / HTTP/0.9\r\n\r\n", 505),
        (b"GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET v1 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        *(
            (REQUEST + b"X: b%bc\r\n\r\n" % bad, 400)
            for bad in (b"\x00", b"\x01", b"\x7f", b"\r", b"\n", b"\r\n ", b"\r\n\t")
        ),
        *(
            (REQUEST + bad + b"\r\n\r\n", 400)
            for bad in (b"X : b", b": b", b"nocolon", b" X: b", b"X\xe9: b", b"X(: b")
        ),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\n X: b\r\nHost: a\r\n\r\n", 400),
        *(
            (REQUEST + b"Transfer-Encoding: chunked\r\n\r\n" + bad, 400)
            for bad in (
                b"g\r\n",
                b"\r\n",
                b"-1\r\n",
                b"+1\r\n",
                b"0x1\r\n",
                b"1\r\nabc\r\n",
                b"1\r\na0\r\n\r\n",
                b"F" * 21 + b"\r\n",
            )
        ),
    ],
)
def test_what_two_parsers_could_read_differently_is_refused(name: str, data: bytes, status: int) -> None:
    assert refused(name, data).status == status
    with pytest.raises(MessageError) as caught:
        requests(name, *(data[at : at + 1] for at in range(len(data))))
    assert caught.value.status == status


def test_the_head_may_be_as_long_as_its_limit_and_no_longer_in_any_split(name: str) -> None:
    def head(size: int) -> bytes:
        return REQUEST + b"X: " + b"x" * (size - len(REQUEST) - 7) + b"\r\n\r\n"

    limits = Limits(max_head=200)
    body = b"Content-Length: 300\r\n\r\n" + b"b" * 300
    for step in (1, 7, 200, 1000):
        fits, too_long = head(200), head(201)
        assert requests(name, *split(fits, step), limits=limits)[1:] == [END]
        with pytest.raises(MessageError) as caught:
            requests(name, *split(too_long, step), limits=limits)
        assert caught.value.status == 431
        assert requests(name, *split(REQUEST + body, step), limits=limits)[-1] is END


def split(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]


def test_a_request_line_that_fills_the_head_alone_is_a_414(name: str) -> None:
    assert refused(name, b"GET /" + b"a" * 300, limits=Limits(max_head=200)).status == 414


def test_blank_lines_do_not_come_for_ever(name: str) -> None:
    assert refused(name, b"\r\n" * 101, limits=Limits(max_head=200)).status == 431


def test_the_number_of_fields_is_bounded(name: str) -> None:
    limits = Limits(max_headers=3)
    assert requests(name, REQUEST + b"A: 1\r\nB: 2\r\n\r\n", limits=limits)[1:] == [END]
    assert refused(name, REQUEST + b"A: 1\r\nB: 2\r\nC: 3\r\n\r\n", limits=limits).status == 431


@pytest.mark.parametrize("endless", [b"1;" + b"a" * 1000, b"0" * 1000, b"0\r\nX: " + b"x" * 1000])
def test_chunk_lines_and_trailers_are_bounded(name: str, endless: bytes) -> None:
    with pytest.raises(MessageError):
        requests(
            name, REQUEST + b"Transfer-Encoding: chunked\r\n\r\n", *split(endless, 50), limits=Limits(max_head=200)
        )


# --- responses


@pytest.mark.parametrize(
    ("data", "body", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", [b"abc"], True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", [], True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", [b"abc"], False),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x\r\nbc\r\n0\r\nT: 1\r\n\r\n",
            [b"abc"],
            True,
        ),
        (
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n1\r\na\r\n0\r\n\r\n",
            [b"a"],
            False,
        ),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", [b"abc"], False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc", [b"abc"], True),
        (b"HTTP/1.1 204 No\r\n\r\n", [], True),
        (b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n", [], True),
        (b"HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n", [], True),
        (b"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 1\r\n\r\na", [b"a"], True),
    ],
)
def test_where_a_response_ends(name: str, data: bytes, body: list[bytes], kept: bool) -> None:
    events = responses(name, data)
    assert events[1:] == [*body, END]
    assert response_head(events).keep_alive is kept


def test_a_response_without_framing_ends_with_the_connection(name: str) -> None:
    events = responses(name, b"HTTP/1.1 200 OK\r\n\r\nabc", b"def", b"")
    head = response_head(events)
    assert (head.length, head.chunked, head.keep_alive) == (None, False, False)
    assert events[1:] == [b"abc", b"def", END]


def test_interim_responses_are_swallowed(name: str) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    events = responses(name, interim, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")
    assert (response_head(events).status, response_head(events).headers) == (200, [(b"content-length", b"1")])
    assert events[1:] == [b"a", END]


@pytest.mark.parametrize("line", [b"HTTP/1.1 200\r\n", b"HTTP/1.1 200 \r\n"])
def test_the_reason_may_be_missing(name: str, line: bytes) -> None:
    assert response_head(responses(name, line + b"Content-Length: 0\r\n\r\n")).reason == b""


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"a" * 500,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"H",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"\r\n",
    ],
)
def test_a_response_that_is_cut_is_an_error_after_what_came(name: str, data: bytes) -> None:
    with pytest.raises(MessageError, match="ended early"):
        responses(name, data, b"")


def test_an_end_of_stream_before_any_reply_byte_is_no_error_but_not_started(name: str) -> None:
    reader = readers(name)[1](Limits())
    reader.feed(b"")
    assert reader.next_event() is None
    assert not reader.started
    reader.feed(b"H")
    assert reader.started


@pytest.mark.parametrize("after", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", b"HTTP/1.1 2"])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("closing", [b"", b"Connection: close\r\n"])
def test_bytes_after_the_end_are_surplus_and_never_events(
    name: str, after: bytes, together: bool, closing: bytes
) -> None:
    data = b"HTTP/1.1 200 OK\r\n%bContent-Length: 1\r\n\r\na" % closing
    reader = readers(name)[1](Limits())
    for piece in [data + after] if together else [data, after]:
        reader.feed(piece)
    assert isinstance(reader.next_event(), ResponseHead)
    assert [reader.next_event() for _ in range(3)] == [b"a", END, None]
    assert reader.surplus
    reader.reset()
    assert not reader.surplus


def test_reset_is_ready_for_the_next_response(name: str) -> None:
    reader = readers(name)[1](Limits())
    for body in (b"a", b"b"):
        reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + body)
        assert isinstance(reader.next_event(), ResponseHead)
        assert [reader.next_event(), reader.next_event()] == [body, END]
        reader.feed(b"")  # closing after the end cuts nothing
        reader.reset()
        assert not reader.started


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc",
        b"HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 099 x\r\n\r\n",
        b"HTTP/1.1 20x x\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 a\x01b\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_a_response_that_breaks_http_is_refused(name: str, data: bytes) -> None:
    with pytest.raises(MessageError):
        responses(name, data)


def test_what_came_of_a_body_before_a_fault_can_still_be_taken(name: str) -> None:
    reader = readers(name)[1](Limits())
    with pytest.raises(MessageError):
        reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n!\r\n")
    assert isinstance(reader.next_event(), ResponseHead)
    assert [reader.next_event(), reader.next_event()] == [b"a", None]


def test_an_unknown_implementation_is_named_with_the_choices() -> None:
    with pytest.raises(ValueError, match="'curl': use 'httptools' or 'h11'"):
        readers("curl")


def test_the_judge_itself_takes_one_length_only() -> None:
    """Both tokenizers refuse a second one before; a third need not."""
    with pytest.raises(MessageError, match="more than one"):
        response_judge(200, b"", version="1.1", headers=[(b"content-length", b"1")] * 2)


def test_reset_leaves_nothing_for_the_garbage_collector() -> None:
    reader = readers("httptools")[1](DEFAULT_LIMITS)
    before = count_parsers()
    gc.disable()
    try:
        for _ in range(50):
            reader.reset()
        assert count_parsers() == before
    finally:
        gc.enable()


def count_parsers() -> int:
    return sum(type(each).__name__ == "HttpResponseParser" for each in gc.get_objects())


def test_heads_are_slotted() -> None:
    assert not hasattr(ResponseHead(200, b"", [], keep_alive=True, length=0, chunked=False), "__dict__")
    assert attrs.has(RequestHead)
