"""The request as a channel takes it: what is edited, and that nothing else is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.frame import Shape
from trioproxy.codec.openai_chat import CHAT
from trioproxy.errors import Refusal, RefusalKind

MESSAGES = '[{"role":"user","content":"Hi \\u4eac"}]'


def text(*members: str, stream: bool = False) -> bytes:
    return (
        "{" + ", ".join(['"model" : "m"', f'"messages":{MESSAGES}', *members, *(['"stream":true'] * stream)]) + "}"
    ).encode()


def sent(body: bytes, **shape: Any) -> bytes:
    result = CHAT.request(body, CHAT.facts(body), Shape(**shape), "vendor/m")
    json.loads(result)
    return result


def refused(body: bytes, **shape: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        sent(body, **shape)
    assert caught.value.kind is RefusalKind.BAD_REQUEST
    return caught.value


def test_only_the_model_changes() -> None:
    body = text('"temperature":1.0', '"x" : [ 1 ,2]')
    assert sent(body) == body.replace(b'"m"', b'"vendor/m"')


def test_a_models_name_is_escaped_where_it_must_be() -> None:
    body = text()
    assert json.loads(CHAT.request(body, CHAT.facts(body), Shape(), 'a"b'))["model"] == 'a"b'


def test_a_parameter_is_renamed_where_it_stands() -> None:
    body = text('"max_tokens" : 5', '"top_p":1')
    assert b'"max_completion_tokens" : 5, "top_p":1' in sent(body, rename={"max_tokens": "max_completion_tokens"})


def test_a_renamed_parameter_meets_its_twin() -> None:
    rename = {"max_tokens": "max_completion_tokens"}
    for members in (('"max_tokens":5', '"max_completion_tokens":5'), ('"max_completion_tokens":5', '"max_tokens":5')):
        result = json.loads(sent(text(*members), rename=rename))
        assert (result["max_completion_tokens"], "max_tokens" in result) == (5, False)
    for members in (
        ('"max_tokens":null', '"max_completion_tokens":5'),
        ('"max_tokens":5', '"max_completion_tokens":null'),
    ):
        result = json.loads(sent(text(*members), rename=rename))
        assert (result["max_completion_tokens"], "max_tokens" in result) == (5, False)


def test_two_parameters_of_one_name_must_agree() -> None:
    error = refused(text('"a":1', '"b":2'), rename={"a": "c", "b": "c"})
    assert "a and b" in error.message
    assert json.loads(sent(text('"a":1', '"b":1'), rename={"a": "c", "b": "c"}))["c"] == 1


def test_members_that_route_are_never_renamed() -> None:
    assert json.loads(sent(text(), rename={"model": "x", "messages": "y"}))["model"] == "vendor/m"


def test_an_allow_list_lets_nothing_else_through() -> None:
    body = text('"a":1', '"top_p":1', '"b":{"x":2}', '"max_tokens":5', stream=True)
    result = json.loads(
        sent(body, allow=frozenset({"top_p", "max_completion_tokens"}), rename={"max_tokens": "max_completion_tokens"})
    )
    assert list(result) == ["model", "messages", "top_p", "max_completion_tokens", "stream", "stream_options"]


def test_leading_members_can_go_too() -> None:
    body = b'{ "a":1 , "b":2, "model":"m","messages":[{"role":"user"}], "c":3 }'
    assert sent(body, allow=frozenset()) == b'{ "model":"vendor/m","messages":[{"role":"user"}] }'


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ((), b', "stream":true,"stream_options":{"include_usage":true}}'),
        (('"stream_options":null',), b'"stream_options":{"include_usage":true}, "stream":true}'),
        (('"stream_options":{ }',), b'"stream_options":{"include_usage":true}, "stream":true}'),
        (('"stream_options":{"include_usage":false}',), b'"stream_options":{"include_usage":true}, "stream":true}'),
        (('"stream_options":{"include_usage" : true}',), b'"stream_options":{"include_usage" : true}, "stream":true}'),
        (('"stream_options":{"x":1}',), b'"stream_options":{"include_usage":true,"x":1}, "stream":true}'),
    ],
)
def test_usage_is_asked_for_on_streams(members: tuple[str, ...], expected: bytes) -> None:
    assert sent(text(*members, stream=True)).endswith(expected)


def test_usage_is_not_asked_for_where_it_is_not_taken() -> None:
    assert b"stream_options" not in sent(text())
    assert b"stream_options" not in sent(text(stream=True), force_usage=False)
    asked = text('"stream_options":{"include_usage":true}', stream=True)
    assert b"stream_options" not in sent(asked, force_usage=False)


def test_a_dropped_last_member_does_not_take_the_question_with_it() -> None:
    body = text('"stream":true', '"x":1')
    assert json.loads(sent(body, allow=frozenset()))["stream_options"] == {"include_usage": True}


def test_stream_options_that_contradict_themselves_are_refused() -> None:
    body = text('"stream_options":{"include_usage":true,"include_us\\u0061ge":false}', stream=True)
    assert refused(body).param == "stream_options.include_usage"


NULLS = (
    b'{"model":"m","messages":[{"role":"user","content":"null"},{"content" : null ,"role":"assistant","tool_calls":[]},'
    b' {"role":"assistant","c\\u006fntent":null},{"role":"tool"}]}'
)


def test_null_content_becomes_empty_or_goes_or_stays() -> None:
    named = NULLS.replace(b'"m"', b'"vendor/m"')
    assert sent(NULLS) == named
    assert sent(NULLS, null_content="empty") == named.replace(b" null ", b' "" ').replace(b":null", b':""')
    gone = named.replace(b'"content" : null ,', b"").replace(b',"c\\u006fntent":null', b"")
    assert sent(NULLS, null_content="drop") == gone
    for body in (text(), text('"x":null'), NULLS.replace(b" null ", b'"x"').replace(b":null", b':"null"')):
        assert sent(body, null_content="drop") == body.replace(b'"m"', b'"vendor/m"')


def test_a_message_with_two_contents_is_refused() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"x","content":null}]}'
    assert refused(body, null_content="empty").param == "messages[0].content"


def test_one_channels_edits_are_not_the_next_ones() -> None:
    body = text('"max_tokens":5', stream=True)
    before = bytes(body)
    facts = CHAT.facts(body)
    shape = Shape(rename={"max_tokens": "x"}, allow=frozenset({"x"}))
    first = CHAT.request(body, facts, shape, "a")
    plain = CHAT.request(body, facts, Shape(force_usage=False), "m")
    assert (body, plain) == (before, before)
    assert CHAT.request(body, facts, shape, "a") == first


names = st.sampled_from(["temperature", "a", "max_tokens", "top_p", "logit_bias"])


@given(
    st.dictionaries(names, st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers()), max_size=5),
    st.booleans(),
    st.sets(names),
    st.booleans(),
    st.sampled_from(["keep", "empty", "drop"]),
)
def test_a_splice_equals_an_edit_of_the_decoded_body(
    extra: dict[str, Any], stream: bool, allow: set[str], limited: bool, nulls: str
) -> None:
    extra.pop("max_tokens", None)
    value = {**extra, "model": "m", "messages": [{"role": "user", "content": None}], "stream": stream}
    body = json.dumps(value, indent=1).encode()
    shape = Shape(rename={"a": "b"}, allow=frozenset(allow) if limited else None, null_content=nulls)
    result = CHAT.request(body, CHAT.facts(body), shape, "x")
    kept = {name: v for name, v in value.items() if name not in extra or not limited or name in allow}
    expected = {("b" if name == "a" else name): v for name, v in kept.items()} | {"model": "x"}
    content: dict[str, dict[str, Any]] = {"keep": {"content": None}, "empty": {"content": ""}, "drop": {}}
    expected["messages"] = [{"role": "user", **content[nulls]}]
    if stream:
        expected["stream_options"] = {"include_usage": True}
    assert json.loads(result) == expected
