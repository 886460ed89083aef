"""The fake provider's answers have the shapes that the real ones have."""

import json
import random

import pytest

from bench import answers, distribution
from bench.answers import ANTHROPIC, GEMINI, MARKER, OPENAI, Dialect


@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC, GEMINI])
def test_whole_answers_are_json_of_their_declared_length(dialect: Dialect) -> None:
    head, _, body = answers.unary_template(dialect, 10).replace(MARKER, b"0000002a").partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head
    assert "0000002a.00000" in json.dumps(json.loads(body))


def unchunk(data: bytes) -> bytes:
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            assert data == b"\r\n"
            return body
        body += data[:length]
        assert data[length : length + 2] == b"\r\n"
        data = data[length + 2 :]


@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC, GEMINI])
def test_streams_are_well_chunked_frames_of_json(dialect: Dialect) -> None:
    blob = answers.burst_template(dialect, 3, usage=True).replace(MARKER, b"0000002a")
    body = unchunk(blob.partition(b"\r\n\r\n")[2]).decode()
    datas = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
    parsed = [json.loads(data) for data in datas if data != "[DONE]"]
    counters = [n for n in range(3) if f"0000002a.{n:05} " in body]
    assert counters == [0, 1, 2]
    assert all(isinstance(one, dict) for one in parsed)


def test_an_openai_stream_has_role_content_finish_usage_done_in_that_order() -> None:
    blob = answers.burst_template(OPENAI, 1, usage=True).partition(b"\r\n\r\n")[2]
    datas = [line[6:] for line in unchunk(blob).decode().splitlines() if line.startswith("data: ")]
    role, content, finish, usage = (json.loads(data) for data in datas[:-1])
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert content["choices"][0]["delta"]["content"].endswith(".00000 ")
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 1)
    assert datas[-1] == "[DONE]"


def test_usage_comes_only_to_those_who_ask() -> None:
    assert b'"usage"' not in answers.burst_template(OPENAI, 1, usage=False)


@pytest.mark.parametrize(
    ("path", "body", "dialect", "stream"),
    [
        (b"/v1/chat/completions", b'{"model": "m"}', OPENAI, False),
        (b"/v1/chat/completions", b'{"model": "m", "stream":true}', OPENAI, True),
        (b"/v1/messages", b'{"model": "m", "stream": true}', ANTHROPIC, True),
        (b"/v1beta/models/m:generateContent", b"{}", GEMINI, False),
        (b"/v1beta/models/m:streamGenerateContent?alt=sse", b"{}", GEMINI, True),
    ],
)
def test_path_and_body_say_how_to_answer(path: bytes, body: bytes, dialect: Dialect, *, stream: bool) -> None:
    order = answers.read_order(path, body, b"00000007")
    assert (order.dialect, order.stream, order.marker) == (dialect, stream, b"00000007")


def test_a_prompt_may_say_how_it_wants_to_be_answered() -> None:
    order = answers.read_order(b"/", b'{"content":"bench 0000002a chunks=200 every=0.05 burst=1; hi"}', b"")
    assert order.marker == b"0000002a"
    assert order.wishes == {"chunks": 200, "every": 0.05, "burst": 1}


@pytest.mark.parametrize(
    ("text", "middle"),
    [("0.5", 0.5), ("constant:2", 2), ("uniform:1,3", 2), ("lognormal:0.2,0.5", 0.2), ("exponential:1", 0.693)],
)
def test_distributions_have_the_median_they_name(text: str, middle: float) -> None:
    rng = random.Random(4)
    draw = distribution.parse(text)
    drawn = sorted(draw(rng) for _ in range(4001))
    assert drawn[2000] == pytest.approx(middle, rel=0.06)


@pytest.mark.parametrize("text", ["normal:1,2", "uniform:1", "lognormal:0,1", "fast"])
def test_another_distribution_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition(":")[0]):
        distribution.parse(text)
