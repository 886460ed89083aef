"""The examples of embedding.md run, and what it lists of a gateway is what there is."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import trioproxy
from tests.docs.pages import DOCS, Example, examples, section, table, words
from trioproxy.sim.upstream import Manner, ScriptedUpstream


class Provider:
    """A scripted provider on loopback, and what an example needs to reach it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def run(self, example: Example) -> dict[str, Any]:
        """The names that an example defines, with its upstream's address put right."""
        text = example.text.replace("127.0.0.1:11434", f"127.0.0.1:{self.port}")
        names: dict[str, Any] = {"__name__": "example"}
        exec(compile(text, str(example), "exec"), names)  # noqa: S102 - our own documentation
        return names

    def config(self) -> str:
        return f"""
            [[channels]]
            name = "local"
            base_url = "http://127.0.0.1:{self.port}/v1"
            [[models]]
            name = "llama"
            channels = [{{ channel = "local", model = "llama3.3" }}]
            [[models]]
            name = "local/*"
            channels = [{{ channel = "local", model = "*" }}]
        """


def on_loopback(test: Callable[[Provider], Any]) -> None:
    async def program() -> None:
        async with trio.open_nursery() as nursery:
            upstream = ScriptedUpstream("provider", ("llama3.3",), Manner(first=0, every=0))
            await test(Provider(await nursery.start(upstream.run)))
            nursery.cancel_scope.cancel("the example has run")

    trio.run(program)


def embedding() -> list[Example]:
    return [example for example in examples("python") if example.page == "embedding.md"]


def functions() -> list[tuple[Example, str, list[str]]]:
    """Every coroutine function that an example defines, with its parameters."""
    return [
        (example, node.name, [argument.arg for argument in node.args.args])
        for example in embedding()
        for node in ast.parse(example.text).body
        if isinstance(node, ast.AsyncFunctionDef)
    ]


EXPECTED = {
    "streamed": True,
    "careful": "model_not_found",
    "failing": "went on",
    "overheard": [("answered", 15, ["local"])],
    "watched": {
        "ready": True,
        "breakers": {"local": "closed"},
        "chain": ["local"],
        "calls": {"local": 1},
        "passed over": {"local": 0},
        "left": {},
        "open": 0,
        "waiting": {},
        "refused": 0,
        "estimates": {},
        "rollouts": {},
        "late": 0.0,
        "kept": False,
    },
}


def test_every_example_of_embedding_is_run_by_a_test_here() -> None:
    assert {name for _, name, _ in functions()} == {*EXPECTED, "main", "with_keys", "patient"}
    assert len(embedding()) == len(functions())


@pytest.mark.parametrize(
    ("example", "name", "parameters"), functions(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_example_of_embedding_runs(
    example: Example, name: str, parameters: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(provider: Provider) -> None:
        function = provider.run(example)[name]
        file = tmp_path / "gateway.toml"
        file.write_text(provider.config())
        async with trioproxy.open_gateway(trioproxy.load_config(file)) as gateway:
            given = {"gateway": gateway, "path": file, "seconds": 10}
            result = await function(*(given[parameter] for parameter in parameters))
        if name in EXPECTED:
            assert result == EXPECTED[name]
        elif name == "with_keys":
            assert result == ["local"]
        elif name == "patient":
            assert b"You said: Hello" in result
        else:
            assert "You said: Hello" in capsys.readouterr().out

    on_loopback(run)


def test_every_reading_of_the_gateway_is_documented_and_no_other() -> None:
    """What dispatches, and what the gateway is made of, is told elsewhere or is no embedder's business."""
    made_of = {"line", "supervisor", "endpoints", "dialect", "dispatch", "recognises", "desk", "perform"}
    public = {name for name in vars(trioproxy.Gateway) if not name.startswith("_")} - made_of
    rows = [words(row[0])[0].partition("(")[0] for row in table(section(DOCS / "embedding.md", "Reading how it is"))]
    assert sorted([*rows, "order_rollout"]) == sorted(public)


def test_the_embedded_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = [each for each in examples("python") if each.page == "README.md" and "open_gateway" in each.text]
    monkeypatch.chdir(tmp_path)
    text = example.text.replace("trio.run(main)\n", "")
    assert text != example.text

    async def run(provider: Provider) -> None:
        (tmp_path / "gateway.toml").write_text(provider.config())
        await provider.run(attrs.evolve(example, text=text))["main"]()

    on_loopback(run)
    assert capsys.readouterr().out.startswith("200 b'{")
