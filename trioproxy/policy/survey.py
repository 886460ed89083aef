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
SAMPLES = 1024

# Keys whose strings hold files: chat and Responses (`url`, `image_url`, `file_data`), Anthropic and Gemini (`data`). The
# quotes of a key inside somebody's text are escaped, so it does not match.
_FILE_KEY = re.compile(rb'"(?:url|image_url|data|file_data)"\s*:\s*"$')
_LONGEST_KEY = 32


@define(eq=False)
class Survey:
    """What the walk found. `weight` is in hundredths of a token; `text` and `exact` are bytes of text, without files."""

    weight: float = 0.0
    text: int = 0
    exact: int = 0
    files: list[Span] = field(factory=list)  # strings without their quotes
    regions: list[Span] = field(factory=list)  # the text that was weighed exactly


def survey(body: bytes, span: Span, scale: Scale, exact: int = EXACT) -> Survey:
    """Walk over `span`. Weighs `exact` bytes of text as they are, and samples the rest."""
    found = Survey()
    at, end = span
    # A client writes all its letters one way, so the first part tells for the whole.
    escaped = body.find(b"\\u", at, min(end, at + exact)) >= 0
    weigh = scale.weigh_escaped if escaped else scale.weigh
    begun, known, stride = at, at, 0
    while at < end:
        piece = body[at : min(at + PIECE, end)]
        solid = b" " not in piece and is_solid(piece)
        if solid and at >= known:
            start, known = _string(body, at, (known, end))
            if _FILE_KEY.search(body, max(0, start - _LONGEST_KEY), start):
                start = max(begun, start)
                if not stride:
                    found.weight -= scale.weigh(body[start:at])  # its first bytes were taken for text
                    found.regions.append((begun, start))
                found.files.append((start, known))
                begun = at = known
                continue
        if escaped and (cut := piece.find(b"\\u", -5)) > 0:
            piece = piece[:cut]
        weight = len(piece) * scale.solid if solid else weigh(piece)
        if found.exact < exact:
            reach = len(piece)
            found.exact += reach
        else:
            if not stride:
                found.regions.append((begun, at))
                stride = max(PIECE, (end - at) // SAMPLES)
            reach = min(stride, end - at)
        found.weight += weight * reach / len(piece)
        found.text += reach
        at += reach
    if not stride:
        found.regions.append((begun, end))
    return found


def _string(body: bytes, at: int, within: Span) -> Span:
    """The string that `at` stands in, without its quotes, as far as `within` goes."""
    floor, end = within
    stop = body.find(b'"', at, end)
    start = body.rfind(b'"', floor, at) + 1 or floor
    return start, (end if stop < 0 else stop)
