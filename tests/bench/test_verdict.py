"""Only complete and correct answers count: what each way of being wrong is called, in any split of the bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import answers
from bench.answers import ANTHROPIC, MARKER, OPENAI, Dialect
from bench.verdict import ENDS, StreamVerdict, UnaryVerdict

MINE = b"0000002a"


def frames(dialect: Dialect, chunks: int) -> list[bytes]:
    parts = [dialect.opening, *(dialect.content % n for n in range(chunks)), dialect.closing]
    parts += [answers.tokens(dialect.usage, chunks), dialect.done]
    return [part.replace(MARKER, MINE) for part in parts]


def fault_of(parts: list[bytes], chunks: int, api: str = "openai") -> str | None:
    verdict = StreamVerdict(MINE, chunks, ENDS[api])
    for part in parts:
        verdict.feed(part)
    return verdict.fault()


@pytest.mark.parametrize(("api", "dialect"), [("openai", OPENAI), ("anthropic", ANTHROPIC)])
@given(cuts=st.lists(st.integers(min_value=1, max_value=1500), max_size=8))
def test_a_whole_stream_is_complete_in_any_split(api: str, dialect: Dialect, cuts: list[int]) -> None:
    body = b"".join(frames(dialect, 4))
    places = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    parts = [body[a:b] for a, b in pairwise(places)]
    verdict = StreamVerdict(MINE, 4, ENDS[api])
    assert sum(verdict.feed(part) for part in parts) == 4
    assert verdict.fault() is None


@pytest.mark.parametrize("burst", [False, True])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda parts: parts[:2] + parts[3:], "frames lost or out of order"),
        (lambda parts: [*parts[:2], parts[3], parts[2], *parts[4:]], "frames lost or out of order"),
        (lambda parts: parts[:4] + parts[5:], "frames missing"),
        (lambda parts: parts[:5] + parts[6:], "no finish reason"),
        (lambda parts: parts[:-1], "0 ends of stream"),
        (lambda parts: [*parts, parts[-1]], "frames after the end|2 ends of stream"),
        (lambda parts: [part.replace(MINE, b"0000002b") for part in parts], "another call's answer"),
    ],
)
def test_what_is_wrong_with_a_stream_is_said(spoil: object, said: str, *, burst: bool) -> None:
    assert callable(spoil)
    parts = spoil(frames(OPENAI, 4))
    fault = fault_of([b"".join(parts)] if burst else parts, 4)
    assert fault in said.split("|")


def test_a_whole_answer_must_be_the_calls_own_and_complete() -> None:
    body = answers.tokens(OPENAI.unary, 10).replace(MARKER, MINE)
    for marker, data, said in [
        (MINE, body, None),
        (b"0000002b", body, "another call's answer"),
        (MINE, body[:150], "incomplete answer"),
    ]:
        verdict = UnaryVerdict(marker)
        verdict.feed(data)
        assert verdict.fault() == said
