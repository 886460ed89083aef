"""One chat stream: frames before commit, bytes after it, and what is seen on the way."""

import json

import pytest

from tests.codec.chunks import DONE, ERROR, REPORT, ROLE, STOP, USAGE, chunk, frame, token
from trioproxy.codec.chat_stream import ChatStream, with_model
from trioproxy.codec.chat_template import Template
from trioproxy.codec.frame import Kind, StreamReader
from trioproxy.codec.sse import EventTooLong
from trioproxy.journal import Usage

WHOLE = ROLE + token("Hi") + token(" there") + STOP + USAGE + DONE


def reading(**options: object) -> ChatStream:
    return ChatStream(**options)  # type: ignore[arg-type]


def kinds(*pieces: bytes) -> list[Kind]:
    stream = ChatStream()
    return [frame.kind for piece in pieces for frame in stream.feed(piece)]


def test_a_whole_stream_is_judged_frame_by_frame_and_kept_byte_by_byte() -> None:
    stream = ChatStream()
    frames = stream.feed(WHOLE)
    neutral, content = Kind.NEUTRAL, Kind.CONTENT
    assert [frame.kind for frame in frames] == [neutral, content, content, Kind.FINISH, neutral, Kind.END]
    assert b"".join(frame.raw for frame in frames) == WHOLE
    assert (stream.finished, stream.ended, stream.content, stream.fault) == (True, True, True, None)
    assert stream.usage == Usage(input=9, output=3)
    assert stream.output_bytes == len(token("Hi") + token(" there"))


def test_it_is_a_stream_reader() -> None:
    reader: StreamReader = ChatStream()
    assert reader.follow(WHOLE) == WHOLE


def test_half_a_frame_is_kept_back_until_it_is_whole() -> None:
    stream = ChatStream()
    assert stream.follow(ROLE + token()[:20]) == ROLE
    assert stream.follow(token()[20:-1]) == b""
    assert stream.follow(b"\n") == token()


def test_a_gate_stops_at_the_first_content_and_the_rest_waits_even_for_the_end() -> None:
    stream = ChatStream()
    assert [f.kind for f in stream.gated(WHOLE)] == [Kind.NEUTRAL, Kind.CONTENT]
    assert b"".join(f.raw for f in stream.close()) == WHOLE[len(ROLE + token("Hi")) :]
    stream = ChatStream()
    stream.gated(WHOLE + token())
    assert stream.follow(b"") == WHOLE[len(ROLE + token("Hi")) :]
    assert stream.ended


def test_the_usage_frame_is_dropped_only_if_it_was_not_asked_for() -> None:
    assert ChatStream(drop_usage=True).follow(WHOLE) == WHOLE.replace(USAGE, b"")
    assert ChatStream(drop_usage=False).follow(WHOLE) == WHOLE
    told = [frame.usage_only for frame in ChatStream(drop_usage=True).feed(WHOLE)]
    assert told == [False, False, False, False, True, False]
    assert not any(frame.usage_only for frame in ChatStream(drop_usage=False).feed(WHOLE))


def test_a_usage_frame_alone_in_a_read_is_dropped_and_counted() -> None:
    stream = ChatStream(drop_usage=True)
    assert stream.follow(token()) == token()
    assert stream.follow(USAGE) == b""
    assert stream.usage == Usage(input=9, output=3)


def test_usage_null_and_usage_on_other_frames_stay_as_they_came() -> None:
    body = token(usage=None) + frame(chunk(finish="stop", usage=REPORT))
    stream = ChatStream(drop_usage=True)
    assert stream.follow(body) == body
    assert stream.usage == Usage(input=9, output=3)


def test_of_several_reports_the_last_counts() -> None:
    stream = ChatStream()
    stream.follow(token(usage={"prompt_tokens": 9, "completion_tokens": 1}) + token(usage=REPORT) + token("x"))
    assert stream.usage == Usage(input=9, output=3)


def test_nothing_follows_the_terminator() -> None:
    for tail in (DONE, b"data: more\n\n", token()):
        assert ChatStream().follow(WHOLE + tail) == WHOLE
        assert [frame.kind for frame in ChatStream().feed(WHOLE + tail)].count(Kind.END) == 1
        stream = ChatStream()
        stream.follow(WHOLE)
        assert stream.follow(tail) == b""
        assert stream.feed(tail) == []
        stream.follow(b"data: half")
        assert stream.close() == []


def test_nothing_follows_an_error_frame_and_it_passes_as_it_came() -> None:
    body = token() + ERROR
    stream = ChatStream()
    assert stream.follow(body + DONE) == body
    assert stream.fault is not None
    assert (stream.fault.status, stream.ended, stream.terminator()) == (502, False, b"")
    assert stream.follow(STOP) == b""
    assert kinds(token() + ERROR + DONE) == [Kind.CONTENT, Kind.ERROR]


def test_a_terminator_without_a_finish_is_seen_but_withheld() -> None:
    stream = ChatStream()
    assert stream.follow(token() + DONE) == token()
    assert (stream.ended, stream.finished, stream.terminator()) == (True, False, b"")
    last = ChatStream().feed(token() + DONE)[-1]
    assert (last.kind, last.raw) == (Kind.END, b"")


def test_the_terminator_is_owed_after_a_finish_only() -> None:
    stream = ChatStream()
    stream.follow(token())
    assert stream.terminator() == b""
    stream.follow(STOP)
    assert stream.terminator() == DONE
    stream.follow(DONE)
    assert stream.terminator() == b""


def test_every_choice_must_finish() -> None:
    stream = ChatStream(choices=2)
    stream.follow(frame(chunk(finish="stop", index=1)))
    stream.follow(frame(chunk(finish="stop", index=1)))
    assert not stream.finished
    stream.follow(frame(chunk(finish="length", index=0)))
    assert stream.finished


@pytest.mark.parametrize("cut", [1, 2])
def test_a_last_frame_that_lacks_its_blank_line_is_used(cut: int) -> None:
    stream = ChatStream()
    stream.follow(token() + STOP + DONE[:-cut])
    (last,) = stream.close()
    assert (last.kind, last.raw) == (Kind.END, DONE)
    assert stream.ended


def test_a_frame_that_was_cut_is_dropped_at_the_end() -> None:
    for rest in (token()[:-20], b": comm", b"event: x", b"<html", b"data"):
        stream = ChatStream()
        stream.follow(token() + rest)
        assert stream.close() == []
    stream = ChatStream()
    assert [frame.raw for frame in stream.feed(b"\n")] == [b"\n"]
    assert stream.feed(b"\r") == []
    assert [frame.raw for frame in stream.close()] == [b"\r"]


def test_an_error_without_framing_is_found_at_the_end() -> None:
    stream = ChatStream()
    assert stream.feed(b'[{\n "error": {"code": 429,\n "message": "slow"}}\n]') == []
    (last,) = stream.close()
    assert last.kind is Kind.ERROR
    assert stream.fault is not None
    assert stream.fault.status == 429


def test_text_in_other_scripts_survives_any_split() -> None:
    body = token("北京😀") + frame(chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"城":"京"}'}}]}))
    stream = ChatStream()
    assert b"".join(stream.follow(body[at : at + 1]) for at in range(len(body))) == body


def test_crlf_frames_pass_untouched_after_a_mark_that_is_dropped() -> None:
    body = WHOLE.replace(b"\n", b"\r\n").replace(b"data: ", b"data:")
    stream = ChatStream()
    assert b"".join(stream.follow(piece) for piece in (b"\xef\xbb", b"\xbf" + body[:30], body[30:])) == body
    assert (stream.ended, stream.usage) == (True, Usage(input=9, output=3))


def test_words_for_numbers_become_null_and_the_stream_goes_on() -> None:
    odd = b'data: {"choices":[{"index":0,"delta":{"content":"NaN"},"p":NaN}]}\n\n'
    stream = ChatStream()
    out = stream.follow(token() + odd + odd + token())
    assert out == token() + (odd.replace(b'"p":NaN', b'"p":null') * 2) + token()
    assert stream.feed(odd)[0].raw == odd.replace(b'"p":NaN', b'"p":null')
    named = b"event: x\n" + odd.replace(b',"p"', b',\ndata: "p"')
    assert ChatStream().follow(named) == named.replace(b'"p":NaN', b'"p":null')


def test_a_malformed_frame_amid_good_ones_is_relayed_untouched() -> None:
    bad = b'data: {"choices":[{"index":0,"delta":{"content":"abc\n\n'
    body = token("a") + token("b") + bad + token("c") + STOP + DONE
    assert ChatStream().follow(body) == body
    assert Kind.SUSPECT in kinds(body)


def test_the_models_name_is_replaced_in_every_frame() -> None:
    body = ROLE + token("a") + token('say "model":"m"') + token("c") + STOP + USAGE + DONE
    expected = body.replace(b',"model":"m"', b',"model":"public"')
    assert ChatStream(rewrite_model="public").follow(body) == expected
    assert b"".join(f.raw for f in ChatStream(rewrite_model="public").feed(body)) == expected
    stream = ChatStream(rewrite_model="public")
    assert b"".join(stream.follow(piece) for piece in body.splitlines(keepends=True)) == expected


def test_a_models_name_behind_the_text_is_replaced_too() -> None:
    frames = [b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}],"model":"m"}\n\n' % at for at in range(4)]
    out = ChatStream(rewrite_model="p").follow(b"".join(frames))
    assert out == b"".join(frames).replace(b'"m"', b'"p"')


def test_frames_without_a_model_are_left_alone() -> None:
    for text in (b'{"a":1}', b"[1]", b"hello", b'{"model":"a","model":"b"}'):
        assert with_model(text, "x") == text
    assert json.loads(with_model(b'{"model":null}', 'q"')) == {"model": 'q"'}
    body = frame({"choices": [{"delta": {"content": "a"}}]}) * 3 + b": ping\n\n" + b"data: not json\n\n"
    assert ChatStream(rewrite_model="x").follow(body) == body


def test_an_endless_frame_is_an_error_of_its_own() -> None:
    for verb in ("feed", "follow"):
        with pytest.raises(EventTooLong):
            getattr(reading(limit=64), verb)(b"data: " + b"x" * 100)


# The shortcut for frames that are alike


@pytest.mark.parametrize("obfuscated", [False, True])
def test_a_burst_of_like_frames_is_recognised(obfuscated: bool) -> None:
    def like(text: str) -> bytes:
        return token(text, usage=None, **({"obfuscation": "x" * len(text)} if obfuscated else {}))

    template = Template.from_frame(like("Hi"))
    assert template is not None
    texts = ["a", "say \\ \" 'x'", "\n\n", 'end"', "back\\"]
    body = b"".join(map(like, texts))
    assert template.run(body, 0) == len(body)
    other = like("more") + STOP
    assert template.run(body + other, 0) == len(body + like("more"))


@pytest.mark.parametrize(
    "other",
    [
        STOP,
        DONE,
        ERROR,
        token(""),
        token("x", usage=REPORT),
        frame(chunk({"content": "x"}, "stop")),
        token("x").replace(b'"finish_reason":null', b'"finish_reason": "stop"'),
        token("x").replace(b'"finish_reason":null', b'"finish_reason":NaN'),
        token("x")[:-3] + b"\n\n",
        token("x")[:-60] + b"\n\n",
        token('x"')[:-60] + b"\n\n",
        token("x").replace(b'"x"', b"null"),
        token("x").replace(b'"x"', b'"x\\\\","y":"z"'),
        token("x", created=2),
    ],
)
def test_a_frame_that_differs_in_more_than_its_text_is_not_recognised(other: bytes) -> None:
    template = Template.from_frame(token("Hi"))
    assert template is not None
    assert template.run(token("a") + other, 0) == len(token("a"))
    assert template.run(other + token("a"), 0) == 0


def test_there_is_no_template_without_text() -> None:
    for raw in (STOP, DONE, token(""), b": ping\n\n"):
        assert Template.from_frame(raw) is None


def test_frames_that_are_never_alike_are_judged_one_by_one() -> None:
    body = b"".join(token(f"w{at}", created=at) for at in range(100)) + STOP + DONE
    stream = ChatStream()
    assert stream.follow(body) == body
    assert (stream.finished, stream.ended) == (True, True)
    assert stream._lessons == 0


def test_frames_that_differ_now_and_then_are_learned_again() -> None:
    body = b"".join(token(f"w{at}", created=at // 10) for at in range(1000)) + STOP + DONE
    stream = ChatStream()
    assert stream.follow(body) == body
    assert stream._lessons > 0
