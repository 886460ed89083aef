"""A text in the model's place, and a streamed request made whole."""

import json

from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.chat_facts import facts_of
from trioproxy.codec.openai_chat import CHAT

FIXED: set[str] = {"model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "user"}
NAMES = st.text(min_size=1).filter(lambda name: str(name) not in FIXED)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def prompt(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user"}], **fields}).encode()


@given(st.text(min_size=1), st.integers(1, 5), st.booleans())
def test_whatever_the_text_it_is_an_answer_that_the_gateway_itself_would_take(
    text: str, choices: int, streamed: bool
) -> None:
    facts = facts_of(prompt(n=choices, stream=streamed))
    said = CHAT.spoken(text, "degraded", facts, request_id="req_1", created=1)
    whole = CHAT.answer_from_stream(said) if streamed else said
    assert whole is not None
    assert CHAT.read_answer(whole, 200, 0.0)[0] is None
    answer = json.loads(whole)
    assert [choice["message"]["content"] for choice in answer["choices"]] == [text] * choices
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"stop"}


@given(st.dictionaries(NAMES, JSON), st.booleans(), st.booleans())
def test_a_streamed_request_becomes_whole_and_is_the_same_otherwise(
    others: dict[str, object], streamed: bool, last: bool
) -> None:
    stream = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
    body = prompt(**others, **stream) if last else json.dumps({**stream, **json.loads(prompt(**others))}).encode()
    whole = CHAT.unstreamed(body, facts_of(body))
    expected = json.loads(body)
    expected.pop("stream_options", None)
    assert json.loads(whole) == (expected | {"stream": False} if streamed else expected)
    assert not facts_of(whole).stream
