"""What is asked: shapes of calls, mixed by weight, as request bytes for one endpoint.

A shape is words: `name=chat model=m weight=3 stream chunks=50 every=0.05 size=2000 key=sk-a class=batch`.
"""

import json
import random
from collections.abc import Callable, Mapping
from typing import Literal

from attrs import field, frozen

from bench.answers import MARKER

FILLER = "The quick brown fox jumps over the lazy dog. "
ApiDialect = Literal["openai", "anthropic"]


@frozen
class Endpoint:
    """Where a target takes calls, and what it wants to hear."""

    port: int
    host: str = "127.0.0.1"
    path: str = "/v1/chat/completions"
    model: str | None = None  # the target's own word for the model
    key: str = "sk-bench"
    headers: Mapping[str, str] = field(factory=dict)


@frozen
class Shape:
    """One kind of call. Times in seconds, `size` in bytes of prompt."""

    name: str = "call"
    model: str = "m"
    weight: float = 1.0
    stream: bool = False
    chunks: int = 10
    every: float | None = None  # None, here and below: as the provider does by itself
    burst: bool = False
    wait: float | None = None
    size: int = 200
    leave: float | None = None  # the client hangs up so long after sending
    key: str | None = None
    tier: str | None = None  # traffic class; `class=` in text
    dialect: ApiDialect = "openai"

    def prompt(self) -> str:
        """The user's message: the marker, how the provider shall answer, and filler up to `size`."""
        wishes = {"chunks": self.chunks, "every": self.every, "burst": int(self.burst) or None, "wait": self.wait}
        said = " ".join(f"{name}={value:g}" for name, value in wishes.items() if value is not None)
        text = f"bench {MARKER.decode()} {said}; "
        return text + (FILLER * (self.size // len(FILLER) + 1))[: max(0, self.size - len(text))]

    def request(self, endpoint: Endpoint) -> bytes:
        """The request with the marker still to be filled in."""
        messages = [{"role": "user", "content": self.prompt()}]
        if self.dialect == "openai":
            messages.insert(0, {"role": "system", "content": "You are a helpful assistant."})
        said = {"model": endpoint.model or self.model, "messages": messages, "max_tokens": 400}
        # The marker's placeholder is as long as the marker, so the length is right already.
        body = json.dumps(said | ({"stream": True} if self.stream else {})).encode()
        key = self.key or endpoint.key
        headers = {
            "host": f"{endpoint.host}:{endpoint.port}",
            "content-type": "application/json",
            "content-length": str(len(body)),
        }
        headers |= {"x-api-key": key} if self.dialect == "anthropic" else {"authorization": f"Bearer {key}"}
        headers |= {"x-trioproxy-class": self.tier} if self.tier else {}
        path = endpoint.path if self.dialect == "openai" else "/v1/messages"
        lines = [
            f"POST {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in (headers | dict(endpoint.headers)).items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + body


def flag(value: str) -> bool:
    """A word alone is a yes."""
    return value in ("", "1", "true")


WORDS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("name", "model", "key", "class", "dialect"), str),
    **dict.fromkeys(("weight", "every", "wait", "leave"), float),
    **dict.fromkeys(("chunks", "size"), int),
    **dict.fromkeys(("stream", "burst"), flag),
}


def parse(text: str) -> Shape:
    """The shape that `text` describes. Raises `ValueError` naming a word that is not understood."""
    values: dict[str, object] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if name not in WORDS:
            raise ValueError(f"{word!r} in {text!r}: the words are {', '.join(WORDS)}")
        values["tier" if name == "class" else name] = WORDS[name](value)
    return Shape(**values)  # type: ignore[arg-type]  # the words above are the fields


@frozen
class Mix:
    """Shapes with their request bytes for one endpoint, drawn by weight."""

    shapes: tuple[Shape, ...]
    requests: tuple[bytes, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, shapes: tuple[Shape, ...], endpoint: Endpoint) -> "Mix":
        """The shapes as an endpoint wants them."""
        return cls(shapes, tuple(shape.request(endpoint) for shape in shapes), tuple(shape.weight for shape in shapes))

    def draw(self, rng: random.Random) -> tuple[Shape, bytes]:
        """One shape and its request."""
        if len(self.shapes) == 1:
            return self.shapes[0], self.requests[0]
        index = rng.choices(range(len(self.shapes)), self.weights)[0]
        return self.shapes[index], self.requests[index]
