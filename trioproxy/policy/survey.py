"""One walk over a stretch of JSON text: what its words weigh, and where files stand in it.

The work is bounded whatever the size: the first `EXACT` bytes of text are weighed piece by piece, of what follows `SAMPLES`
pieces stand for the rest. A file (an image as a data URL, say) is met as a solid run inside a string whose key holds data;
the walk jumps to that string's end, which costs one search for a quote (0.3 ms for 20 MB), and never weighs it. Each string
is looked at once, so that a hostile text cannot make the searches quadratic.
"""

import re

from attrs import define, field

from trioproxy.codec.jsonsplice import Span
from trioproxy.policy.scripts import PIECE, Scale, is_solid

EXACT = 256 * 1024  # bytes of text
SAMPLES = 256
FILE = 1024  # bytes of text that one file stands for in work: many small ones are sampled too

# Keys whose strings hold files: chat and Responses (`url`, `image_url`, `file_data`), Anthropic and Gemini (`data`). The
# quotes of a key inside somebody's text are escaped, so it does not match.
_FILE_KEY = re.compile(rb'"(?:url|image_url|data|file_data)"\s*:\s*"$')
_LONGEST_KEY = 32


@define(eq=False)
class Survey:
    """What the walk found. `weight` is in hundredths of a token; `text` and `exact` are bytes of text, without files.

    `spent` is how much of the bytes that were to be weighed exactly the walk took, files included.
    """

    weight: float = 0.0
    text: int = 0
    exact: int = 0
    spent: int = 0
    files: list[Span] = field(factory=list)  # strings without their quotes
    regions: list[Span] = field(factory=list)  # the text that was weighed exactly


def survey(body: bytes, span: Span, scale: Scale, exact: int = EXACT) -> Survey:
    """Walk over `span`. Weighs `exact` bytes of text as they are, and samples the rest."""
    found = Survey()
    begin, end = span
    # A client writes all its letters one way, so the first part tells for the whole.
    escaped = body.find(b"\\u", begin, min(end, begin + exact)) >= 0
    weigh = scale.weigh_escaped if escaped else scale.weigh
    left = exact // 4 if escaped else exact  # escapes are a sixth of the letters and take four times as long
    at = known = begin
    weight = read = 0
    while at < end and left > 0:
        piece = body[at : at + PIECE] if at + PIECE <= end else body[at:end]
        solid = b" " not in piece and is_solid(piece)
        if solid and at >= known:
            file, known = _string(body, at, (known, end))
            if file is not None:
                file = max(begin, file)
                weight -= scale.weigh(body[file:at])  # its first bytes were taken for text
                found.regions.append((begin, file))
                found.files.append((file, known))
                begin = at = known
                left -= FILE
                continue
        if escaped and not solid:
            piece = _uncut(piece)
        weight += PIECE * scale.solid if solid else weigh(piece)
        at += len(piece)
        read += len(piece)
        left -= len(piece)
    found.regions.append((begin, at))
    found.weight, found.spent = weight, exact - left
    found.exact = found.text = read
    if at < end:
        _sample(body, (at, end), scale, found)
    return found


def _sample(body: bytes, span: Span, scale: Scale, found: Survey) -> None:
    """The same walk in strides: each piece stands for the text up to the next one."""
    at, end = span
    stride, known = max(PIECE, (end - at) // SAMPLES), 0
    while at < end:
        piece = body[at : min(at + PIECE, end)]
        solid = b" " not in piece and is_solid(piece)
        if solid and at >= known:
            file, known = _string(body, at, (known, end))
            if file is not None:
                found.files.append((file, known))
                at = known
                continue
        reach = min(stride, end - at)
        weight = len(piece) * scale.solid if solid else scale.weigh_escaped(piece.lstrip(b"\\"))
        found.weight += weight * reach / len(piece)
        found.text += reach
        at += reach


def _string(body: bytes, at: int, within: Span) -> tuple[int | None, int]:
    """Where the string that `at` stands in begins if it holds a file, else None; and where it ends."""
    floor, end = within
    stop = body.find(b'"', at, end)
    start = body.rfind(b'"', floor, at) + 1
    file = start > 0 and _FILE_KEY.search(body, max(0, start - _LONGEST_KEY), start)
    return start if file else None, end if stop < 0 else stop


def _uncut(piece: bytes) -> bytes:
    """As much of a piece as does not end inside an escape; all of it where there is nothing else."""
    cut = piece.find(b"\\u", -5)
    return (piece[:cut] if cut > 0 else piece).rstrip(b"\\") or piece
