"""The first configuration: it loads as it is, names keys and holds none."""

from typing import get_args

import pytest

from trioproxy.config.load import parse_config
from trioproxy.config.model import Provider as Known
from trioproxy.config.secrets import resolve_all
from trioproxy.config.starter import PROVIDERS, Provider, starter
from trioproxy.policy.access import Catalogue


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_one_key_makes_one_channel_and_its_wildcard(provider: Provider) -> None:
    environ = {provider.variable: "sk-spilled"}
    text = starter(environ)
    assert "spilled" not in text
    config = parse_config(text, "x")
    assert [channel.name for channel in config.channels] == [provider.name]
    # Its headers are read as its own wherever they are known.
    assert config.channels[0].provider == (provider.name if provider.name in get_args(Known) else "other")
    assert resolve_all(config, environ) == {provider.name: "sk-spilled"}
    found = Catalogue.of(config.models).find(f"{provider.name}/some-model")
    assert found is not None
    assert found[1] == "some-model"


def test_all_keys_make_a_model_behind_several_channels() -> None:
    config = parse_config(starter({provider.variable: "k" for provider in PROVIDERS}), "x")
    assert len(config.channels) == len(PROVIDERS)
    shared = next(model for model in config.models if "*" not in model.name)
    assert len(shared.channels) > 1


@pytest.mark.parametrize(
    "endpoint, url",
    [
        ("https://me.openai.azure.com/", "https://me.openai.azure.com/openai/v1"),
        ("https://me.openai.azure.com/openai/v1", "https://me.openai.azure.com/openai/v1"),
        ("https://u:secret@me/", "https://YOUR-RESOURCE.openai.azure.com/openai/v1"),
        ("https://me/?key=secret", "https://YOUR-RESOURCE.openai.azure.com/openai/v1"),
        ("", "https://YOUR-RESOURCE.openai.azure.com/openai/v1"),
    ],
)
def test_azures_endpoint_is_the_accounts_own_where_it_is_good(endpoint: str, url: str) -> None:
    text = starter({"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": endpoint})
    assert parse_config(text, "x").channels[0].base_url == url
    assert "secret" not in text


def test_without_a_key_it_is_a_local_channel_and_commented_examples_that_load_too() -> None:
    text = starter({})
    assert [channel.name for channel in parse_config(text, "x").channels] == ["local"]
    head, _, examples = text.partition("before the start:\n")
    lines = [line.removeprefix("# ") for line in examples.splitlines() if not line.startswith("# Ask")]
    assert [channel.name for channel in parse_config(head + "\n" + "\n".join(lines), "x").channels] == [
        "local",
        "openai",
        "deepseek",
    ]
