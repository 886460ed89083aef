"""Input tokens of whole bodies, from their bytes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy import pictures, samples
from trioproxy.codec.jsonsplice import members
from trioproxy.policy.estimate import Estimator, Measure, Picture
from trioproxy.policy.profile import Profile, profile_of

GPT = profile_of("gpt-4o")


def measured(body: dict[str, Any], estimator: Estimator | None = None) -> Measure:
    text = json.dumps({"model": "m", **body}, ensure_ascii=False).encode()
    return (estimator or Estimator()).measure(text, members(text))


def says(content: object, role: str = "user") -> dict[str, object]:
    return {"role": role, "content": content}


def test_prose_costs_its_words_the_message_and_the_reply() -> None:
    words = len(samples.ENGLISH) / 4.45
    tokens = measured({"messages": [says(samples.ENGLISH)]}).tokens(GPT)
    assert tokens == pytest.approx(words + 1 + 3 + 3, rel=0.15)


@pytest.mark.parametrize("count", [1, 2, 10, 100])
def test_every_message_costs_about_four_tokens_more_than_its_text(count: int) -> None:
    """3 and one for the role; `hello` is a word of one or two tokens."""
    tokens = measured({"messages": [says("hello")] * count}).tokens(GPT)
    assert 3 + count * 4 <= tokens <= 3 + count * 7


def test_blanks_between_the_members_cost_next_to_nothing() -> None:
    body = {"messages": [says("hello there")] * 20}
    tight, loose = (json.dumps(body, separators=(",", ":")).encode(), json.dumps(body, indent=1).encode())
    estimates = [Estimator().measure(text, members(text)).tokens(GPT) for text in (tight, loose)]
    assert estimates[1] == pytest.approx(estimates[0], rel=0.15)


def test_text_in_parts_costs_what_the_same_text_costs_in_one() -> None:
    one = measured({"messages": [says(samples.ENGLISH)]}).tokens(GPT)
    parts = measured({"messages": [says([{"type": "text", "text": samples.ENGLISH}])]}).tokens(GPT)
    assert parts == pytest.approx(one, abs=4)


def test_tools_cost_nine_tenths_of_their_json_and_twelve() -> None:
    tool = {
        "type": "function",
        "function": {"name": "search", "description": samples.ENGLISH, "parameters": {"type": "object"}},
    }
    bare, armed = measured({"messages": [says("hi")]}), measured({"messages": [says("hi")], "tools": [tool]})
    assert armed.tools == pytest.approx(len(samples.ENGLISH) / 4.45 + 30, rel=0.15)
    assert armed.tokens(GPT) - bare.tokens(GPT) == pytest.approx(armed.tools * 0.9 + 12, abs=1)
    claude = profile_of("claude-sonnet-4-5")
    assert armed.tokens(claude) - bare.tokens(claude) == pytest.approx(armed.tools * 1.15 + 346, abs=1)


def test_a_schema_costs_its_tokens_once() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"description": samples.ENGLISH}}}
    bare = measured({"messages": [says("hi")]}).tokens(GPT)
    bound = measured({"messages": [says("hi")], "response_format": schema}).tokens(GPT)
    assert bound - bare == pytest.approx(len(samples.ENGLISH) / 4.45 + 15, rel=0.15)


def test_a_tool_call_in_the_history_costs_its_name_its_arguments_and_eight() -> None:
    call = {"id": "call_a0B1c2D3e4F5g6H7i8J9", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    bare = measured({"messages": [says("hi")] * 3}).tokens(GPT)
    calling = {"role": "assistant", "content": "hi", "tool_calls": [call]}
    called = measured({"messages": [says("hi"), calling, says("hi")]}).tokens(GPT)
    assert called - bare == pytest.approx(8 + 2, abs=4)


def test_members_that_are_not_sent_to_the_model_cost_nothing() -> None:
    plain = measured({"messages": [says("hi")]})
    assert measured({"messages": [says("hi")], "metadata": {"note": samples.ENGLISH}, "user": "x" * 500}) == plain


def image(address: str, **more: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": address, **more}}


@pytest.mark.parametrize(
    "address",
    [
        pictures.url(pictures.png(1024, 1024)),
        pictures.url(pictures.jpeg(1024, 1024), "jpeg"),
        pictures.url(pictures.gif(1024, 1024), "gif"),
        pictures.url(pictures.webp_extended(1024, 1024), "webp"),
    ],
    ids=["png", "jpeg", "gif", "webp"],
)
def test_an_image_in_the_body_costs_by_its_size(address: str) -> None:
    found = measured({"messages": [says([{"type": "text", "text": "look"}, image(address)])]})
    assert found.pictures == [Picture((1024, 1024))]
    assert found.tokens(GPT) == pytest.approx(765 + 8, abs=6)


def test_an_image_elsewhere_costs_the_assumption() -> None:
    found = measured({"messages": [says([image("https://example.org/a.png")])]})
    assert found.pictures == [Picture(None)]
    assert 1105 <= found.tokens(GPT) <= 1130


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("detail", ["low", "high", "original", "auto"])
def test_the_detail_is_seen_on_either_side_of_the_address(detail: str, before: bool) -> None:
    address = pictures.url(pictures.png(640, 480))
    inner = {"detail": detail, "url": address} if before else {"url": address, "detail": detail}
    found = measured({"messages": [says([{"type": "image_url", "image_url": inner}])]})
    assert [picture.detail for picture in found.pictures] == [detail]


def test_images_are_counted_whether_small_large_or_elsewhere() -> None:
    addresses = [
        pictures.url(pictures.png(10, 10), size=10),  # too short to be met as a file
        pictures.url(pictures.png(640, 480), size=50_000),
        "https://example.org/a.png",
    ]
    found = measured({"messages": [says([image(address) for address in addresses])]})
    assert sorted(str(picture.size) for picture in found.pictures) == ["(640, 480)", "None", "None"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}},
        {"type": "input_image", "image_url": ""},
    ],
    ids=["anthropic", "responses"],
)
def test_images_of_the_other_dialects_are_one_each(part: dict[str, Any]) -> None:
    address = pictures.url(pictures.png(300, 200))
    if "source" in part:
        part = {**part, "source": {**part["source"], "data": address.partition(",")[2]}}
    else:
        part = {**part, "image_url": address}
    assert measured({"messages": [says([part])]}).pictures == [Picture((300, 200))]


def test_a_pdf_costs_by_its_length_and_is_no_image() -> None:
    address = pictures.url(b"%PDF-1.7\n", size=65_536).replace("image/png", "application/pdf")
    found = measured({"messages": [says([{"type": "file", "file": {"file_data": address}}])]})
    assert found.pictures == []
    assert found.files == pytest.approx(4500, rel=0.01)


def test_sound_costs_ten_tokens_a_second() -> None:
    sound = pictures.url(b"ID3\x04", size=160_000).partition(",")[2]
    found = measured({"messages": [says([{"type": "input_audio", "input_audio": {"data": sound, "format": "mp3"}}])]})
    assert found.files == pytest.approx(100, rel=0.02)


def test_a_tokenizer_sets_what_words_cost() -> None:
    """It is given the text with the escapes undone, and its count replaces ours."""
    heard: list[str] = []

    def count(text: str) -> int:
        heard.append(text)
        return 1000

    found = measured({"messages": [says('a "quoted"\nline')]}, Estimator(tokenizer=count))
    assert 'a "quoted"\nline' in heard[0]
    assert 300 < found.words < 1000  # the syntax, which the provider does not count, is taken off in proportion


@pytest.mark.parametrize("name", ["ENGLISH", "RUSSIAN", "CHINESE"])
def test_a_long_body_is_estimated_as_its_parts_are(name: str) -> None:
    text = getattr(samples, name)
    one = measured({"messages": [says(text)]})
    many = measured({"messages": [says(text)] * 2000})
    assert many.words == pytest.approx(one.words * 2000, rel=0.05)
    assert many.messages == pytest.approx(2000, rel=0.02)


def test_the_profile_says_what_a_token_is() -> None:
    found = Measure(words=1000.0, messages=2)
    assert found.tokens(Profile(factor=1.35, message=4, reply=8)) == 1350 + 8 + 8


json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["messages", "tools", "text", "system", "response_format", "x"]), json_values))
def test_any_readable_body_has_an_estimate(body: dict[str, Any]) -> None:
    found = measured(body)
    assert found.tokens(GPT) >= 1
    assert min(found.words, found.messages, found.tools, found.files) >= 0
