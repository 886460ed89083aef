"""What the official `openai` SDK makes of degraded delivery: a text in the model's place, and a call that is put off."""

from pathlib import Path

import openai
import pytest

from tests.sdk.process import Running, running

TEXT = "Please try again in a few minutes."
FILE = """
[listen]
data = "127.0.0.1:0"
[log]
format = "json"
[state]
path = "{folder}/ledger.db"
[[channels]]
name = "a"
base_url = "http://127.0.0.1:9/v1"
auth = "none"
[[models]]
name = "said"
channels = [{{ channel = "a", model = "m" }}]
on_exhausted = "answer"
degraded = {{ text = "{text}" }}
[[models]]
name = "later"
channels = [{{ channel = "a", model = "m" }}]
on_exhausted = "defer"
"""


@pytest.fixture
def gateway_file(tmp_path: Path) -> Path:
    """Of a gateway whose one channel is never there."""
    file = tmp_path / "gateway.toml"
    file.write_text(FILE.format(folder=tmp_path, text=TEXT))
    return file


def client_of(gateway: Running) -> openai.OpenAI:
    return openai.OpenAI(api_key="unused", base_url=gateway.base_url, timeout=15)


def test_the_text_is_an_answer_like_any_in_both_forms(gateway_file: Path) -> None:
    with running("serve", str(gateway_file), until="listening") as gateway, client_of(gateway) as client:
        raw = client.chat.completions.with_raw_response.create(
            model="said", messages=[{"role": "user", "content": "hello"}]
        )
        answer = raw.parse()
        assert raw.headers["x-trioproxy-degraded"] == "answer"
        assert (answer.model, answer.choices[0].message.content) == ("degraded", TEXT)
        assert (answer.choices[0].finish_reason, answer.choices[0].message.role) == ("stop", "assistant")
        assert answer.usage is not None
        assert answer.usage.total_tokens == 0
        chunks = list(
            client.chat.completions.create(
                model="said",
                messages=[{"role": "user", "content": "hello"}],
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == TEXT
        assert {chunk.model for chunk in chunks} == {"degraded"}
        assert [bool(chunk.usage) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        with client.chat.completions.stream(model="said", messages=[{"role": "user", "content": "hello"}]) as stream:
            assert stream.get_final_completion().choices[0].message.content == TEXT
        assert [line["reason"] for line in gateway.end()] == ["degraded"] * 3


def test_a_call_that_is_put_off_can_be_followed_with_the_sdk_s_own_client(gateway_file: Path) -> None:
    with running("serve", str(gateway_file), until="listening") as gateway, client_of(gateway) as client:
        raw = client.chat.completions.with_raw_response.create(
            model="later",
            messages=[{"role": "user", "content": "hello"}],
            extra_headers={"idempotency-key": "order 7"},
        )
        told = raw.http_response.json()
        assert (raw.http_response.status_code, told["object"], told["status"]) == (202, "deferred", "pending")
        again = client.get(told["poll_url"].removeprefix("/v1"), cast_to=object)
        assert isinstance(again, dict)
        assert again["id"] == told["id"]
        for _ in range(500):  # it may be on one of its runs just now
            try:
                client.delete(told["poll_url"].removeprefix("/v1"), cast_to=object)
            except openai.ConflictError:
                continue
            break
        with pytest.raises(openai.APIStatusError) as caught:
            client.get(told["poll_url"].removeprefix("/v1"), cast_to=object)
        assert caught.value.status_code == 410
        assert caught.value.code == "deferred_cancelled"
