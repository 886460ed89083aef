"""What texts weigh without a tokenizer: the measured characters per token of each script, within 15 %."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy import samples
from trioproxy.policy.scripts import PIECE, SCALES, UNIT, Vocabulary, is_solid, plain
from trioproxy.policy.survey import survey

# Characters per token: o200k, cl100k, DeepSeek V4. Prose is said to be 4.2-4.7; the middle is asked of the sample.
MEASURED = {
    "ENGLISH": (4.45, 4.45, 4.45),
    "JSON": (3.2, 3.2, 3.2),
    "PYTHON": (3.1, 3.1, 3.0),
    "RUSSIAN": (3.4, 2.0, 2.9),
    "ARABIC": (3.5, 1.4, 3.1),
    "HINDI": (3.5, 1.0, 1.7),
    "GREEK": (2.6, 1.2, 2.1),
    "HEBREW": (2.5, 1.0, 2.0),
    "THAI": (2.6, 1.1, 2.5),
    "CHINESE": (1.4, 0.8, 1.9),
    "JAPANESE": (1.4, 0.9, 1.4),
    "KOREAN": (1.7, 0.9, 1.4),
    "BASE64": (1.5, 1.3, 1.4),
    "DIGITS": (2.7, 2.7, 2.7),
    "EMOJI": (0.8, 0.4, 0.7),
}
VOCABULARIES: tuple[Vocabulary, ...] = get_args(Vocabulary)


def tokens(text: str, vocabulary: Vocabulary, *, escaped: bool) -> float:
    body = json.dumps(text, ensure_ascii=escaped).encode()
    return survey(body, (0, len(body)), SCALES[vocabulary]).weight / UNIT


@pytest.mark.parametrize("escaped", [False, True], ids=["utf-8", "escapes"])
@pytest.mark.parametrize("column", range(3), ids=VOCABULARIES)
@pytest.mark.parametrize("script", MEASURED)
def test_a_script_weighs_what_was_measured(script: str, column: int, escaped: bool) -> None:
    text: str = getattr(samples, script)
    wanted = len(text) / MEASURED[script][column]
    assert tokens(text, VOCABULARIES[column], escaped=escaped) == pytest.approx(wanted, rel=0.15)


@pytest.mark.parametrize("length", [PIECE, 4 * PIECE])
def test_a_piece_of_the_dearest_characters_does_not_wrap_the_sum(length: int) -> None:
    """The sum is a checksum's, modulo 65,521; the heaviest byte comes at most once in four."""
    heaviest = max(SCALES["cl100k"].first)
    assert heaviest * PIECE < 65_521
    body = "\U0001f600".encode() * (length // 4)
    assert survey(body, (0, len(body)), SCALES["cl100k"]).weight == heaviest * length // 4


@given(st.binary(max_size=PIECE))
def test_the_weight_is_the_sum_of_the_bytes_weights(piece: bytes) -> None:
    scale = SCALES["o200k"]
    thai = piece.count(b"\xe0\xb8") + piece.count(b"\xe0\xb9")
    assert scale.weigh(piece) == sum(scale.first[byte] for byte in piece) + thai * scale.thai


@given(st.text(st.sampled_from('\\\\\\/"ndux0дя\U0001f600 ')), st.integers(0, 600))
def test_escapes_are_read_wherever_a_piece_is_cut(text: str, exact: int) -> None:
    """Python's decoder warns of escapes that it does not know, and warnings are errors here."""
    written = json.dumps("д" + text * 8).replace("/", "\\/").encode()
    assert survey(written, (0, len(written)), SCALES["o200k"], exact).weight > 0


@pytest.mark.parametrize(
    "piece, solid",
    [
        (samples.BASE64[:PIECE].encode(), True),
        (samples.noise(PIECE).hex()[:PIECE].encode(), True),
        (samples.DIGITS[:PIECE].encode(), False),
        (b"=" * PIECE, False),
        (samples.ENGLISH[:PIECE].encode(), False),
        (samples.CHINESE.encode()[:PIECE], False),
        (json.dumps(samples.CHINESE)[1 : PIECE + 1].encode(), False),
        (samples.BASE64[: PIECE - 1].encode(), False),
    ],
    ids=["base64", "hex", "digits", "rule", "prose", "han", "escapes", "short"],
)
def test_a_solid_run_is_known_from_other_texts_without_blanks(piece: bytes, solid: bool) -> None:
    assert is_solid(piece) is solid


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_the_plain_text_is_what_the_json_means(text: str, escaped: bool) -> None:
    written = json.dumps(text, ensure_ascii=escaped)[1:-1].encode()
    assert plain(written) == text
