"""What a call will use, before it is sent.

A body is measured once: its words are weighed by script, its messages, tool calls and images counted where they stand in the
bytes, without decoding it. The measure then gives the input tokens for any model's profile; what is learned (`learned`) turns
them into a reservation, and the provider's rules (`charges`) into what that provider counts.

The JSON around a message weighs as text does, and the provider counts something else in its place: a mark (a key that comes
once or twice per part) stands for it, and takes the difference back.
"""

import math
from collections.abc import Callable, Mapping

from attrs import define, field, frozen

from trioproxy.codec.jsonsplice import Span
from trioproxy.policy.images import Detail, Size, size_of
from trioproxy.policy.profile import Profile
from trioproxy.policy.scripts import SCALES, UNIT, Scale, Vocabulary, plain
from trioproxy.policy.survey import EXACT, survey

Tokenizer = Callable[[str], int]  # exact tokens of a text; may be slow, is given `EXACT` bytes at most

# Top-level keys of every dialect that cost input tokens, and how each is counted.
_PARTS = {
    **dict.fromkeys(
        ("messages", "system", "instructions", "input", "prompt", "contents", "systemInstruction"), "prose"
    ),
    **dict.fromkeys(("tools", "functions"), "tools"),
    **dict.fromkeys(("response_format", "text", "output_config"), "schema"),
}

# Files that are not images, tokens per character of their base64: a PDF page is 3,000 tokens of text and an image and
# seldom less than 64 KiB; sound is 10 tokens a second and seldom less than 16 KB/s.
_FILES = ((b"data:application/pdf", 4500 / 87_381), (b"JVBERi0", 4500 / 87_381), (b"data:audio", 10 / 21_333))
_SOUND = 10 / 21_333
_IMAGES = (b"data:image/", b"iVBORw0KGgo", b"/9j/", b"\\/9j", b"R0lGOD", b"UklGR")


def _weight(syntax: bytes) -> int:
    """ASCII weighs the same in every vocabulary."""
    return SCALES["o200k"].weigh(syntax)


MARKED = 64 * 1024  # bytes of text in which marks are counted one by one; a longer body is taken to go on as it began
_MESSAGE = _weight(b'{"role":"","content":},')
# What one occurrence takes back, in hundredths of a token. `text` comes twice per part, as its type and as its key, and
# `image_url` too; a tool call adds 8 tokens to its name and arguments, a tool's result 4; their ids cost nothing.
_PART = -_weight(b'{"type":"text","text":},') // 2
_IMAGE = -_weight(b'{"type":"image_url","image_url":{"url":}},')
_TOOL_MARKS = (
    (b'"tool_calls"', -_weight(b'"tool_calls":[],')),
    (
        b'"arguments"',
        8 * UNIT - _weight(b'{"id":"call_a0B1c2D3e4F5g6H7i8J9","type":"","function":{"name":"","arguments":}},'),
    ),
    (b'"tool_call_id"', 4 * UNIT - _weight(b'"tool_call_id":"call_a0B1c2D3e4F5g6H7i8J9",')),
)
# Chat has the first twice per image, Responses one of each of the first two, Anthropic the third.
_PICTURES = ((b'"image_url"', 0.5), (b'"input_image"', 0.5), (b'"image"', 1.0))


@frozen
class Picture:
    """One image. `size` is None where its bytes are elsewhere or cannot be read."""

    size: Size | None
    detail: Detail = "auto"


@define
class Measure:
    """A body in figures that hold for every model of one vocabulary. `words` and `schema` and `tools` are tokens."""

    words: float = 0.0
    messages: float = 0.0
    tools: float = 0.0
    files: float = 0.0
    pictures: list[Picture] = field(factory=list)

    def tokens(self, profile: Profile) -> int:
        """Input tokens as the model counts them, to the best of our knowledge and without a margin."""
        total = self.words * profile.factor + self.messages * profile.message + profile.reply + self.files
        if self.tools:
            total += self.tools * profile.factor * profile.schema + profile.tools
        if self.pictures:
            total += sum(profile.images.tokens(picture.size, picture.detail) for picture in self.pictures)
        return max(1, math.ceil(total))


@define(eq=False)
class Estimator:
    """Measures bodies in one vocabulary, with an exact tokenizer where there is one. Holds no state of any call."""

    vocabulary: Vocabulary = "o200k"
    tokenizer: Tokenizer | None = None
    _scale: Scale = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._scale = SCALES[self.vocabulary]

    def measure(self, body: bytes, members: Mapping[str, Span]) -> Measure:
        """The figures of a body whose top-level values stand at `members`. Bounded work, whatever the body's size."""
        measure = Measure()
        left = EXACT
        for name, span in members.items():
            part = _PARTS.get(name)
            if part == "prose":
                left -= self._prose(body, span, left, measure)
            elif part is not None:
                found = survey(body, span, self._scale, max(0, left))
                left -= found.spent
                if part == "tools":
                    measure.tools += found.weight / UNIT
                else:
                    measure.words += found.weight / UNIT
        return measure

    def _prose(self, body: bytes, span: Span, exact: int, measure: Measure) -> int:
        """Add what people and models said. Returns how much of `exact` the walk took."""
        found = survey(body, span, self._scale, max(0, exact))
        stretch = found.text / found.exact if found.exact else 1.0
        messages, back, pictures = _marks(body, found.regions, found.exact)
        weight = found.weight
        if self.tokenizer is not None and found.exact:
            weight *= self._correction(body, found.regions)
        measure.words += max(0.0, weight - (messages * _MESSAGE - back) * stretch) / UNIT
        measure.messages += messages * stretch
        seen = 0
        for start, end in found.files:
            if body.startswith(_IMAGES, start):
                seen += 1
                measure.pictures.append(Picture(size_of(body, (start, end)), _detail(body, (start, end))))
            else:
                rates = (rate for prefix, rate in _FILES if body.startswith(prefix, start))
                measure.files += (end - start) * next(rates, _SOUND)
        # Images by address, and those too small to be met as files.
        measure.pictures += [Picture(None)] * (math.ceil(pictures) - seen)
        return found.spent

    def _correction(self, body: bytes, regions: list[Span]) -> float:
        """Exact tokens over weighed ones, on the text that was weighed piece by piece."""
        assert self.tokenizer is not None, "asked only where there is one"
        exact = sum(self.tokenizer(plain(body[start:end])) for start, end in regions)
        weighed = sum(survey(body, region, self._scale).weight for region in regions)
        return exact * UNIT / weighed if weighed else 1.0


def _marks(body: bytes, regions: list[Span], exact: int) -> tuple[float, float, float]:
    """Messages, what the other marks take back, and images, in the regions; counted in the first `MARKED` bytes of them."""
    messages = seen = 0
    back = pictures = 0.0
    for start, end in regions:
        stop = min(end, start + MARKED - seen)
        messages += body.count(b'"role"', start, stop)
        if body.find(b'"type"', start, stop) >= 0:
            back += body.count(b'"text"', start, stop) * _PART
            images = _images(body, (start, stop))
            back += images * _IMAGE
            pictures += images
        if body.find(b'"tool_call', start, stop) >= 0:
            back += sum(body.count(mark, start, stop) * weight for mark, weight in _TOOL_MARKS)
        seen += stop - start
        if seen >= MARKED:
            break
    whole = exact / seen if seen >= MARKED else 1.0
    return messages * whole, back * whole, pictures * whole


def _images(body: bytes, region: Span) -> float:
    start, end = region
    if body.find(b"image", start, end) < 0:
        return 0.0
    return sum(body.count(mark, start, end) * share for mark, share in _PICTURES)


def _detail(body: bytes, span: Span) -> Detail:
    """The `detail` that stands beside an image's address, before or after it."""
    start, end = span
    beside = body[max(0, start - 48) : start] + body[end : end + 48]
    if b'"detail"' not in beside:
        return "auto"
    details: tuple[Detail, ...] = ("low", "high", "original")
    return next((detail for detail in details if b'"%b"' % detail.encode() in beside), "auto")
