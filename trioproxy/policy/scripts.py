r"""Tokens in a text without a tokenizer: every character weighs what its script costs.

One table (`RATIOS`) says how many characters of typical prose make a token, per script and vocabulary; they were measured
with the real vocabularies. A letter's weight is the ratio's inverse, raised a little because the blanks between words weigh
next to nothing and lowered for the punctuation that weighs more. Weights are bytes, in hundredths of a token, so that a
piece is weighed by two calls into C: translate every byte into its weight, and add them up.

A script is known by the first byte of its characters in UTF-8; the others weigh nothing. Long runs without a blank, quote or
comma are base64 or the like, which costs three times as much a letter.
"""

import re
import zlib
from typing import Literal

from attrs import frozen

Vocabulary = Literal["o200k", "cl100k", "deepseek"]

PIECE = 256  # bytes weighed at once: 256 · 255 is just below 65,521, where the checksum that adds them up begins anew
UNIT = 100  # weights are hundredths of a token

# Characters per token of typical prose, blanks and punctuation included: o200k, cl100k, DeepSeek V4. Then the upper bytes of
# the script's code points, and what a letter weighs over the ratio's inverse (calibrated on prose of each script).
RATIOS: dict[str, tuple[float, float, float, range, float]] = {
    "latin": (2.2, 1.4, 1.8, range(0x01, 0x03), 1.0),  # accented letters; nobody's figure: a little dearer than Greek
    "greek": (2.6, 1.2, 2.1, range(0x03, 0x04), 1.12),
    "cyrillic": (3.4, 2.0, 2.9, range(0x04, 0x05), 1.12),
    "hebrew": (2.5, 1.0, 2.0, range(0x05, 0x06), 1.15),
    "arabic": (3.5, 1.4, 3.1, range(0x06, 0x08), 1.12),
    "indic": (3.5, 1.0, 1.7, range(0x08, 0x0E), 1.2),
    "thai": (2.6, 1.1, 2.5, range(0x0E, 0x10), 1.03),
    "other": (1.4, 0.9, 1.4, range(0x10, 0x20), 1.0),  # Georgian to Ethiopic; nobody's figure: the dear one
    "symbols": (1.0, 0.6, 1.0, range(0x20, 0x30), 1.0),
    "kana": (1.4, 0.9, 1.4, range(0x30, 0x34), 1.0),
    "han": (1.4, 0.8, 1.9, range(0x34, 0xA0), 1.0),
    "hangul": (1.7, 0.9, 1.4, range(0xAC, 0xD8), 1.3),
    "astral": (0.8, 0.4, 0.7, range(0), 1.1),  # emoji
    "forms": (1.0, 0.5, 1.0, range(0xF0, 0x100), 1.0),  # full-width forms, variation selectors
}
BASE64 = (1.5, 1.3, 1.4)

# English prose comes to 4.2-4.7 characters a token, with JSON to 3.2, Python code to 3.1, digits to 2.7.
_LETTER, _DIGIT, _MARK, _BLANK = 24, 37, 82, 3
# A quote in a JSON text ends or begins a string and shares its token with its neighbour; a quote of the text is `\"`.
_QUOTE, _BACKSLASH = 0, 50
_SOLID = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-\\"
_PLAIN = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@frozen(eq=False)
class Scale:
    """The weights of one vocabulary. Pure tables; made once for the process (`SCALES`)."""

    first: bytes  # by first byte of a character in UTF-8
    thai: int  # what Thai weighs more than the Indic scripts, with whom it shares its first byte
    solid: int  # one character of base64

    def weigh(self, piece: bytes) -> int:
        """What at most `PIECE` bytes of JSON text weigh, without regard to escapes and solid runs."""
        total = zlib.adler32(piece.translate(self.first), 0) & 0xFFFF
        if b"\xe0" in piece:
            total += (piece.count(b"\xe0\xb8") + piece.count(b"\xe0\xb9")) * self.thai
        return total

    def weigh_escaped(self, piece: bytes) -> int:
        r"""As `weigh`, where a client writes its letters as `\uXXXX`. Must not begin inside a run of backslashes.

        Both halves of an emoji weigh as Hangul does.
        """
        if b"\\u" not in piece or not piece.isascii():
            return self.weigh(piece)
        # Python knows all of JSON's escapes but `\/`. Pairs go first, so that what remains begins an escape.
        single = piece.replace(b"\\\\", b"==").replace(b"\\/", b"/")
        text = single.decode("unicode_escape", "ignore")
        lines = piece.count(b"\\n") * (_BACKSLASH + _LETTER)  # newlines weigh in code, and would be blanks now
        return self.weigh(text.encode("utf-8", "surrogatepass")) + lines


def is_solid(piece: bytes) -> bool:
    """Whether a whole piece is one unbroken run as base64, hexadecimal and keys are; digits alone and rules are not."""
    if len(piece) < PIECE or not piece.isascii() or piece.translate(None, _SOLID):
        return False
    return not piece.isdigit() and b"\\u" not in piece and piece.count(piece[:1]) < PIECE // 4


def plain(text: bytes) -> str:
    """A stretch of JSON text with the escapes undone, for a tokenizer to count. Cut characters are lost."""

    def undo(escape: re.Match[str]) -> str:
        return chr(int(escape[1], 16)) if escape[1] else _CONTROLS.get(escape[2], escape[2])

    undone = text.decode("utf-8", "ignore")
    if "\\" not in undone:
        return undone
    # Escaped emoji come as two surrogates, which only UTF-16 joins again.
    return _PLAIN.sub(undo, undone).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _scale(column: int) -> Scale:
    first = bytearray(_ascii(code) if code < 128 else 0 for code in range(256))
    weights: dict[str, int] = {}
    for script, row in RATIOS.items():
        ratio, uppers, share = row[:3][column], row[3], row[4]
        weights[script] = weight = min(255, round(UNIT * share / ratio))
        for byte in uppers:
            for lead in _leads(byte):
                first[lead] = first[lead] or weight  # where scripts share a first byte, the table's earlier one counts
    first[0xC2] = first[0xC3] = weights["latin"]
    first[0xF0:0xF5] = bytes([weights["astral"]] * 5)
    return Scale(bytes(first), weights["thai"] - weights["indic"], round(UNIT / BASE64[column]))


def _leads(upper: int) -> set[int]:
    """The first bytes that characters with this upper byte have in UTF-8."""
    return {chr(upper << 8 | lower).encode("utf-8", "surrogatepass")[0] for lower in range(0, 256, 64)}


def _ascii(code: int) -> int:
    char = chr(code)
    if char in '"\\':
        return _QUOTE if char == '"' else _BACKSLASH
    if char.isalnum():
        return _DIGIT if char.isdigit() else _LETTER
    return _BLANK if code <= 32 else _MARK


SCALES: dict[Vocabulary, Scale] = {"o200k": _scale(0), "cl100k": _scale(1), "deepseek": _scale(2)}
