r"""Tokens in a text without a tokenizer: every character weighs what its script costs.

One table (`RATIOS`) says how many characters of typical prose make a token, per script and vocabulary; they were measured
with the real vocabularies. A letter's weight is the ratio's inverse, raised a little because the blanks between words weigh
next to nothing and lowered for the punctuation that weighs more. Weights are bytes in hundredths of a token, so that a whole
piece is weighed by two calls into C: translate every byte into its weight, and add them up.

ASCII is known by its byte; any other script by the upper byte of its UTF-16 code unit, which is also what a JSON escape
(`\u0434`) shows. Long runs without a blank, quote or comma are base64 or the like, which costs three times as much a letter.
"""

import re
import zlib
from typing import Literal

from attrs import frozen

Vocabulary = Literal["o200k", "cl100k", "deepseek"]

PIECE = 128  # bytes weighed at once; 255 · 257 is the most whose sum the checksum below can hold
UNIT = 100  # weights are hundredths of a token

# Characters per token of typical prose, blanks and punctuation included: o200k, cl100k, DeepSeek V4. Then the UTF-16 upper
# bytes of the script's letters, and the share of a letter in that ratio (see above; calibrated on prose of each script).
RATIOS: dict[str, tuple[float, float, float, range, float]] = {
    "latin": (2.2, 1.4, 1.8, range(0x01, 0x03), 1.0),  # accented letters beyond Latin-1; no figure: as Greek, less for context
    "greek": (2.6, 1.2, 2.1, range(0x03, 0x04), 1.12),
    "cyrillic": (3.4, 2.0, 2.9, range(0x04, 0x05), 1.12),
    "hebrew": (2.5, 1.0, 2.0, range(0x05, 0x06), 1.15),
    "arabic": (3.5, 1.4, 3.1, range(0x06, 0x09), 1.12),
    "indic": (3.5, 1.0, 1.7, range(0x09, 0x0E), 1.2),
    "thai": (2.6, 1.1, 2.5, range(0x0E, 0x10), 1.03),
    "other": (1.4, 0.9, 1.4, range(0x10, 0x20), 1.0),  # Georgian to Ethiopic: nobody's figure, so the dear one
    "symbols": (1.0, 0.6, 1.0, range(0x20, 0x30), 1.0),
    "kana": (1.4, 0.9, 1.4, range(0x30, 0x34), 1.0),
    "han": (1.4, 0.8, 1.9, range(0x34, 0xA0), 1.0),
    "hangul": (1.7, 0.9, 1.4, range(0xAC, 0xD8), 1.3),
    "astral": (0.8, 0.4, 0.7, range(0xD8, 0xDC), 1.1),  # emoji: one token and more for each; the low surrogate weighs nothing
    "forms": (1.0, 0.5, 1.0, range(0xF0, 0x100), 1.0),  # full-width forms, variation selectors
}
BASE64 = {"o200k": 1.5, "cl100k": 1.3, "deepseek": 1.4}

# English prose comes to 4.2-4.7 characters a token, with JSON to 3.2, Python code to 3.1 (D4 of the measurements).
_LETTER, _DIGIT, _MARK, _BLANK = 24, 37, 82, 3
# A quote in a JSON text ends or begins a string and shares its token with its neighbour; a quote of the text is `\"`.
_QUOTE, _BACKSLASH = 0, 50
_ESCAPE = re.compile(rb"\\u([0-9a-fA-F]{2})[0-9a-fA-F]{2}")
_SOLID = re.compile(rb"(?:[A-Za-z0-9+/=_-]|\\[nr/])+")
_PLAIN = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@frozen(eq=False)
class Scale:
    """The weights of one vocabulary. Pure tables; made once for the process (`SCALES`)."""

    single: bytes  # by byte: ASCII, and Latin-1 letters by their first byte
    upper: bytes  # by upper byte of a UTF-16 unit; 0 for what `single` knows
    solid: int  # one character of base64

    def weigh(self, piece: bytes) -> int:
        """What at most 256 bytes of JSON text weigh, without regard to escapes and solid runs. A cut character is lost."""
        total = zlib.adler32(piece.translate(self.single), 0) & 0xFFFF
        if not piece.isascii():
            units = piece.decode("utf-8", "ignore").encode("utf-16-be")
            total += zlib.adler32(units[::2].translate(self.upper), 0) & 0xFFFF
        return total

    def weigh_escaped(self, piece: bytes) -> int:
        r"""As `weigh`, where characters may be written as `\uXXXX`."""
        parts = _ESCAPE.split(piece)
        uppers = (int(upper, 16) for upper in parts[1::2])
        return self.weigh(b"".join(parts[::2])) + sum(self.upper[unit] if unit else self.single[0xC3] for unit in uppers)


def is_solid(piece: bytes) -> bool:
    """Whether a piece is one unbroken run as base64, hexadecimal and keys are; digits alone and rules are not."""
    if len(piece) < PIECE or b'"' in piece or b"," in piece or _SOLID.fullmatch(piece) is None:
        return False
    return not piece.isdigit() and len(set(piece)) > 8


def plain(text: bytes) -> str:
    """A stretch of JSON text with the escapes undone, for a tokenizer to count. Cut characters are lost."""

    def undo(escape: re.Match[str]) -> str:
        return chr(int(escape[1], 16)) if escape[1] else _CONTROLS.get(escape[2], escape[2])

    undone = text.decode("utf-8", "ignore")
    if "\\" not in undone:
        return undone
    # Escaped emoji come as two surrogates, which only UTF-16 joins again.
    return _PLAIN.sub(undo, undone).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _scale(column: int, vocabulary: str) -> Scale:
    single = bytearray(256)
    for code in range(128):
        char = chr(code)
        kinds = ((char.isalpha(), _LETTER), (char.isdigit(), _DIGIT), (code <= 32, _BLANK))
        single[code] = next((weight for fits, weight in kinds if fits), _MARK)
    single[ord('"')], single[ord("\\")] = _QUOTE, _BACKSLASH
    upper = bytearray(256)
    for *ratios, uppers, share in RATIOS.values():
        for byte in uppers:  # type: ignore[attr-defined]
            upper[byte] = min(255, round(UNIT * share / ratios[column]))  # type: ignore[operator]
    single[0xC2] = single[0xC3] = upper[0x01]
    return Scale(bytes(single), bytes(upper), round(UNIT / BASE64[vocabulary]))


SCALES: dict[str, Scale] = {name: _scale(column, name) for column, name in enumerate(("o200k", "cl100k", "deepseek"))}
