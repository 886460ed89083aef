"""JSON as providers write it: read leniently, sent on strictly."""

import json

import pytest

from trioproxy.codec import jsonread


def test_strict_json_is_read_as_it_is() -> None:
    assert jsonread.read(b' {"a":[1,2.5,null,"x"]} ') == ({"a": [1, 2.5, None, "x"]}, False)


@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity"])
def test_words_for_numbers_are_read_reported_and_replaced(word: bytes) -> None:
    text = b'{"a":' + word + b',"b":"' + word + b' \\" ' + word + b'","c":[' + word + b"]}"
    _, odd = jsonread.read(text)
    assert odd
    fixed = jsonread.strict(text)
    assert json.loads(fixed) == {"a": None, "b": f'{word.decode()} " {word.decode()}', "c": [None]}


def test_a_whole_answer_is_changed_only_where_it_must_be() -> None:
    for same in (b'{"a":1}', b'{"a":"NaN"}', b'{"a":"-Infinity', b"<p>NaN</p>"):
        assert jsonread.tidy(same) is same
    assert jsonread.tidy(b'{"a": -Infinity,"b":"NaN"}') == b'{"a": null,"b":"NaN"}'


@pytest.mark.parametrize("text", [b'{"a":"\\ud83d"}', b'{"a":1e999}', b'{"a":"\xff"}', b"\xef\xbb\xbf{}"])
def test_what_only_a_strict_reader_refuses_is_read_and_is_not_odd(text: bytes) -> None:
    value, odd = jsonread.read(text)
    assert isinstance(value, dict)
    assert not odd


@pytest.mark.parametrize("text", [b"", b"{", b"{}x", b"hello", b"[" * 100_000, b'{"a":"\n"}'])
def test_what_nobody_can_read_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        jsonread.read(text)


def test_a_depth_that_only_the_second_reader_sees_is_an_error_too() -> None:
    with pytest.raises(ValueError, match="deep"):
        jsonread.read(b'{"a":NaN,"b":' + b"[" * 100_000)


def test_writing_survives_half_an_emoji_and_words_for_numbers() -> None:
    assert jsonread.write({"a": "\ud83d"}) == b'{"a":"\\ud83d"}'
    assert jsonread.write({"a": float("nan"), "b": "京"}) == '{"a":null,"b":"京"}'.encode()


@pytest.mark.parametrize(
    ("head", "form"),
    [
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b'\n\n {"a":1}', "json"),
        (b"\xef\xbb\xbf[{", "json"),
        (b"data: {}", "sse"),
        (b": PROCESSING\n", "sse"),
        (b"event: ping", "sse"),
        (b"<!DOCTYPE html>", "html"),
        (b"upstream connect error", "other"),
    ],
)
def test_the_form_is_told_by_the_first_bytes(head: bytes, form: str) -> None:
    assert jsonread.form_of(head) == form
