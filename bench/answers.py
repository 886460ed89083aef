"""What the fake provider says: whole answers and stream frames in three dialects, as byte templates.

Every answer carries the marker that its request named, and every content frame a counter, so a client can tell that it got
its own answer, whole and in order, and no cache can stand in for the provider. Marker and counter have a fixed width:
a template's chunk sizes stay right when they are filled in.

A prompt may say how it wants to be answered: `bench 0000002a chunks=200 every=0.05 burst=1 wait=0.3`.
"""

import functools
import re
from collections.abc import Mapping

from attrs import frozen

MARKER = b"@MARKER@"
PROMPT = re.compile(rb"bench ([0-9a-f]{8})((?: [a-z]+=[0-9.]+)*)")
WORD = re.compile(rb" ([a-z]+)=([0-9.]+)")
MODEL = re.compile(rb'"model"\s*:\s*"([^"]*)"')
STREAM = re.compile(rb'"stream"\s*:\s*true')
USAGE = re.compile(rb'"include_usage"\s*:\s*true')
PROMPT_TOKENS = 19


@frozen
class Dialect:
    """One provider's wire form. `content` holds the marker and `%05d` for the counter."""

    unary: bytes  # the marker, then %d completion tokens
    opening: bytes
    content: bytes
    closing: bytes
    usage: bytes  # only where asked for; %d completion tokens
    done: bytes


def openai_chunk(choices: str, more: str = "") -> bytes:
    """One frame of a chat completion stream."""
    head = '"id":"chatcmpl-@MARKER@","object":"chat.completion.chunk","created":1764000000,"model":"bench"'
    return f'data: {{{head},"system_fingerprint":"fp_44709d6fcb","choices":[{choices}]{more}}}\n\n'.encode()


OPENAI = Dialect(
    unary=b'{"id":"chatcmpl-@MARKER@","object":"chat.completion","created":1764000000,"model":"bench","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"@MARKER@.00000 The quick brown fox jumps over the lazy dog.","refusal":null},'
    b'"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":%d,"total_tokens":%d},'
    b'"system_fingerprint":"fp_44709d6fcb"}',
    opening=openai_chunk('{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}'),
    content=openai_chunk('{"index":0,"delta":{"content":"@MARKER@.%05d "},"logprobs":null,"finish_reason":null}'),
    closing=openai_chunk('{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}'),
    usage=openai_chunk("", ',"usage":{"prompt_tokens":19,"completion_tokens":%d,"total_tokens":%d}'),
    done=b"data: [DONE]\n\n",
)
ANTHROPIC = Dialect(
    unary=b'{"id":"msg_@MARKER@","type":"message","role":"assistant","model":"bench","content":[{"type":"text","text":"@MARKER@.00000 '
    b'The quick brown fox."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":19,"output_tokens":%d}}',
    opening=b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_@MARKER@","type":"message","role":"assistant",'
    b'"model":"bench","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":19,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n',
    content=b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
    b'"text":"@MARKER@.%05d "}}\n\n',
    closing=b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n',
    usage=b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
    b'"usage":{"output_tokens":%d}}\n\n',
    done=b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
)
GEMINI_USAGE = (
    b'"usageMetadata":{"promptTokenCount":19,"candidatesTokenCount":%d,"totalTokenCount":%d},"responseId":"@MARKER@"}'
)
GEMINI = Dialect(
    unary=b'{"candidates":[{"content":{"role":"model","parts":[{"text":"@MARKER@.00000 The quick brown fox."}]},'
    b'"finishReason":"STOP","index":0}],' + GEMINI_USAGE,
    opening=b"",
    content=b'data: {"candidates":[{"content":{"role":"model","parts":[{"text":"@MARKER@.%05d "}]},"index":0}],'
    b'"responseId":"@MARKER@"}\n\n',
    closing=b"",
    usage=b'data: {"candidates":[{"content":{"role":"model","parts":[]},"finishReason":"STOP","index":0}],'
    + GEMINI_USAGE
    + b"\n\n",
    done=b"",
)


@frozen
class Order:
    """What one request asks for. `wishes` are the numbers in its prompt (chunks, every, burst, wait)."""

    dialect: Dialect
    stream: bool
    marker: bytes
    model: str
    usage: bool
    wishes: Mapping[str, float]


def read_order(path: bytes, body: bytes, marker: bytes) -> Order:
    """What a request asks for; `marker` is used where the prompt names none."""
    prompt = PROMPT.search(body)
    model = MODEL.search(body)
    dialect = ANTHROPIC if b"/messages" in path else GEMINI if b"enerateContent" in path else OPENAI
    return Order(
        dialect=dialect,
        stream=b":streamGenerateContent" in path or STREAM.search(body) is not None,
        marker=prompt[1] if prompt else marker,
        model=model[1].decode() if model else "",
        usage=dialect is not OPENAI or USAGE.search(body) is not None,
        wishes={k.decode(): float(v) for k, v in WORD.findall(prompt[2])} if prompt else {},
    )


def tokens(template: bytes, completion: int) -> bytes:
    """Fill in the token counts."""
    counts = (completion, PROMPT_TOKENS + completion)
    return template % counts[: template.count(b"%d")]


def chunked(data: bytes) -> bytes:
    """One HTTP chunk, or nothing for nothing."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def reply(status: str, body: bytes, headers: bytes = b"") -> bytes:
    """A whole HTTP answer with a JSON body."""
    head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
    return head % (status.encode(), headers, len(body)) + body


@functools.cache
def unary_template(dialect: Dialect, completion: int) -> bytes:
    """A whole unary answer, but for the marker."""
    return reply("200 OK", tokens(dialect.unary, completion))


@functools.cache
def opening_template(dialect: Dialect) -> bytes:
    """Status line, headers and the frames before the first content."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    return head + b"transfer-encoding: chunked\r\n\r\n" + chunked(dialect.opening)


@functools.cache
def content_template(dialect: Dialect, counter: int) -> bytes:
    """The content frame with this counter."""
    return chunked(dialect.content % counter)


@functools.cache
def closing_template(dialect: Dialect, completion: int, *, usage: bool) -> bytes:
    """The frames after the last content, and the end of the body."""
    said = tokens(dialect.usage, completion) if usage else b""
    return chunked(dialect.closing) + chunked(said) + chunked(dialect.done) + b"0\r\n\r\n"


@functools.cache
def burst_template(dialect: Dialect, chunks: int, *, usage: bool) -> bytes:
    """A whole stream for one write."""
    contents = b"".join(content_template(dialect, counter) for counter in range(chunks))
    return opening_template(dialect) + contents + closing_template(dialect, chunks, usage=usage)
