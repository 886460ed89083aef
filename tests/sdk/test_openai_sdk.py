"""The official `openai` SDK against a gateway in a process of its own: only the base URL is ours.

The synchronous client runs as in any program; the asynchronous one runs natively under Trio, as its transport can.
"""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import openai
import pytest
import trio
from openai.types.chat import ChatCompletionChunk

from tests.sdk.process import Running, demo, running
from trioproxy.policy.access import key_hash

MODEL = "demo-model"
HELLO: list[Any] = [{"role": "user", "content": "hello there"}]
WEATHER: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
# The SDK stops reading at `[DONE]` and leaves its own generators to be collected, which Trio points out.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")


@pytest.fixture(scope="module")
def shared() -> Generator[Running]:
    """One demo for all tests that break nothing."""
    with demo() as running_demo:
        yield running_demo


@pytest.fixture
def alone() -> Generator[Running]:
    """A demo to break."""
    with demo() as running_demo:
        yield running_demo


def client_of(gateway: Running, **options: Any) -> openai.OpenAI:
    settings: dict[str, Any] = {"api_key": "unused", "base_url": gateway.base_url, "timeout": 15} | options
    return openai.OpenAI(**settings)


def said(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def test_an_answer_comes_whole(shared: Running) -> None:
    with client_of(shared) as client:
        answer = client.chat.completions.create(model=MODEL, messages=HELLO)
    assert "You said: hello there." in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage
    assert answer.usage.completion_tokens > 0
    assert answer._request_id is not None
    assert answer._request_id.startswith("req_")


@pytest.mark.parametrize("wanted", [True, False])
def test_an_answer_comes_as_a_stream(wanted: bool, shared: Running) -> None:
    """The gateway asks for usage itself; who did not ask does not see that frame."""
    options: Any = {"stream_options": {"include_usage": True}} if wanted else {}
    with client_of(shared) as client:
        chunks = list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True, **options))
    assert "You said: hello there." in said(chunks)
    assert [bool(chunk.usage) for chunk in chunks] == [False] * (len(chunks) - 1) + [wanted]
    assert all(chunk.choices for chunk in chunks) is not wanted


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_and_its_result_is_answered(streamed: bool, shared: Running) -> None:
    messages = [{"role": "user", "content": "call weather for me"}]
    with client_of(shared) as client:

        def ask() -> Any:
            asked: Any = {"model": MODEL, "messages": messages, "tools": WEATHER}
            if not streamed:
                return client.chat.completions.create(**asked).choices[0]
            with client.chat.completions.stream(**asked) as stream:
                return stream.get_final_completion().choices[0]

        choice = ask()
        (call,) = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls"
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments) == {"city": "example"}
        messages.append(choice.message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
        assert "The tool says: sunny." in ask().message.content


def test_models_are_listed_and_looked_up(shared: Running) -> None:
    with client_of(shared) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        assert client.models.retrieve(MODEL).owned_by == "trioproxy"
        with pytest.raises(openai.NotFoundError, match="no-such-model"):
            client.models.retrieve("no-such-model")


@pytest.mark.parametrize(
    ("wrong", "error", "param", "code"),
    [
        ({"model": "no-such-model"}, openai.NotFoundError, "model", "model_not_found"),
        ({"messages": []}, openai.BadRequestError, "messages", "invalid_request"),
        ({"n": -1}, openai.BadRequestError, "n", "invalid_request"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens", "invalid_request"),
    ],
    ids=["unknown-model", "no-messages", "n", "max_tokens"],
)
def test_a_mistake_raises_the_exception_that_is_for_it(
    wrong: dict[str, Any], error: type[openai.APIStatusError], param: str, code: str, shared: Running
) -> None:
    before = shared.calls()
    with client_of(shared) as client, pytest.raises(error) as caught:
        client.chat.completions.create(**({"model": MODEL, "messages": HELLO} | wrong))
    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.request_id is not None
    assert shared.calls() == before


def test_an_endpoint_that_the_gateway_does_not_have_is_not_found(shared: Running) -> None:
    with client_of(shared) as client, pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model=MODEL, input="hello")
    assert caught.value.code == "not_found"


def test_a_key_is_asked_for_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f"""
[listen]
data = "127.0.0.1:0"
[[channels]]
name = "nowhere"
base_url = "http://127.0.0.1:9/v1"
[[models]]
name = "m"
channels = [{{ channel = "nowhere", model = "m" }}]
[[keys]]
id = "me"
hash = "{key_hash("tp-right")}"
""")
    with running("serve", str(file), until='"listening"') as gateway:
        with client_of(gateway, api_key="tp-right") as client:
            assert [model.id for model in client.models.list()] == ["m"]
        with client_of(gateway, api_key="tp-wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
            client.chat.completions.create(model="m", messages=HELLO)
        assert caught.value.code == "invalid_api_key"
        assert [(line["reason"], line["key"]) for line in gateway.end()] == [("refused_auth", "anonymous")]


def test_a_gateway_whose_log_nobody_reads_goes_on_answering(alone: Running) -> None:
    assert alone.process.stdout is not None
    alone.process.stdout.close()
    with client_of(alone, max_retries=0) as client:
        for _ in range(3):
            assert client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2).choices


def test_the_sdk_does_not_try_again_what_the_chain_has_tried(alone: Running) -> None:
    alone.break_down("503")
    with client_of(alone, max_retries=3) as client, pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model=MODEL, messages=HELLO)
    assert caught.value.status_code == 503
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.response.headers["x-trioproxy-attempts"] == "3"
    assert alone.calls() == {"thrifty": 1, "steady": 1, "premium": 1}


def test_where_a_wait_is_known_a_second_try_is_invited(alone: Running) -> None:
    """Every upstream throttles and says for how long; the next call is told what is left of it, and no one is asked."""
    alone.break_down("429")
    with client_of(alone, max_retries=0) as client:
        for _ in range(2):
            with pytest.raises(openai.RateLimitError) as caught:
                client.chat.completions.create(model=MODEL, messages=HELLO)
            assert caught.value.response.headers["x-should-retry"] == "true"
            assert 1 <= int(caught.value.response.headers["retry-after"]) <= 5
    assert alone.calls() == {"thrifty": 1, "steady": 1, "premium": 1}


def test_a_conversation_goes_on_while_its_channels_break(alone: Running) -> None:
    messages: list[Any] = []

    def turn(text: str, *, streamed: bool) -> str:
        """The channel that answered; the conversation grows by what it said."""
        messages.append({"role": "user", "content": text})
        asked: Any = {"model": MODEL, "messages": messages, "stream": streamed, "max_tokens": 6}
        raw = client.chat.completions.with_raw_response.create(**asked)
        parsed: Any = raw.parse()
        answer = said(list(parsed)) if streamed else parsed.choices[0].message.content
        assert answer
        messages.append({"role": "assistant", "content": answer})
        return raw.headers["x-trioproxy-channel"]

    with client_of(alone) as client:
        channels = [turn("one", streamed=True)]
        alone.break_down("error-in-stream", "thrifty")
        channels += [turn("two", streamed=True), turn("three", streamed=False)]
        alone.break_down("html", "steady")
        channels += [turn("four", streamed=True), turn("five", streamed=False)]
        alone.break_down("ok")
        channels.append(turn("six", streamed=False))
    assert channels[:5] == ["thrifty", "steady", "steady", "premium", "premium"]
    assert len(messages) == 12
    assert {line["reason"] for line in alone.end()} == {"answered"}


def test_a_stream_that_is_cut_after_content_raises_and_never_looks_complete(alone: Running) -> None:
    alone.break_down("cut")
    chunks: list[ChatCompletionChunk] = []
    with client_of(alone) as client:
        stream = client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
        with pytest.raises(openai.APIError, match="ended early"):
            chunks.extend(stream)  # what came before the error stays in it
    assert said(chunks)
    assert not any(choice.finish_reason for chunk in chunks for choice in chunk.choices)
    assert [line["reason"] for line in alone.end()] == ["cut_after_commit"]


def test_leaving_a_stream_early_leaves_the_upstream_too(alone: Running) -> None:
    with client_of(alone) as client:
        stream = client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
        next(iter(stream))
        stream.close()
        client.models.list()
    (left,) = alone.end()
    assert left["reason"] == "client_left"


async def test_the_asynchronous_client_runs_natively_under_trio(shared: Running) -> None:
    async with openai.AsyncOpenAI(api_key="unused", base_url=shared.base_url, timeout=15) as client:
        answers: list[str] = []

        async def whole() -> None:
            answer = await client.chat.completions.create(model=MODEL, messages=HELLO)
            answers.append(answer.choices[0].message.content or "")

        async def streamed() -> None:
            stream = await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
            answers.append(said([chunk async for chunk in stream]))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(whole)
                nursery.start_soon(streamed)
        assert [model.id async for model in client.models.list()] == [MODEL]
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="no-such-model", messages=HELLO)
    assert len(answers) == 10
    assert all("You said: hello there." in answer for answer in answers)


def test_the_example_in_the_readme_runs_as_it_stands(shared: Running, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(import openai\n.*?)```", readme, re.DOTALL)
    exec(compile(example.replace("127.0.0.1:8787", shared.address), "README.md", "exec"), {})  # noqa: S102 - ours
    assert "You said" in capsys.readouterr().out
