"""A first configuration, made from the provider keys that the environment has. It names the keys and never holds one.

Prices are left to be filled in: they change, and a wrong one orders the chain wrongly without a word.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from attrs import frozen

from trioproxy.config.model import Provider as Known
from trioproxy.config.rules import base_url
from trioproxy.config.show import toml_string


@frozen
class Provider:
    """A provider whose endpoint speaks the OpenAI dialect. `shared` is its own name for DeepSeek's chat model, if it has it."""

    name: str
    variable: str
    base_url: str
    auth: str = "bearer"
    shared: str | None = None
    url_from: str | None = None  # the variable that holds the account's own endpoint
    suffix: str = ""


PROVIDERS = (
    Provider("openai", "OPENAI_API_KEY", "https://api.openai.com/v1"),
    Provider("deepseek", "DEEPSEEK_API_KEY", "https://api.deepseek.com", shared="deepseek-chat"),
    Provider("groq", "GROQ_API_KEY", "https://api.groq.com/openai/v1"),
    Provider("mistral", "MISTRAL_API_KEY", "https://api.mistral.ai/v1"),
    Provider("openrouter", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1", shared="deepseek/deepseek-chat"),
    Provider("gemini", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/openai"),
    Provider("together", "TOGETHER_API_KEY", "https://api.together.xyz/v1"),
    Provider(
        "azure",
        "AZURE_OPENAI_API_KEY",
        "https://YOUR-RESOURCE.openai.azure.com/openai/v1",
        auth="api-key",
        url_from="AZURE_OPENAI_ENDPOINT",
        suffix="/openai/v1",
    ),
)
SHARED = "deepseek-chat"

HEAD = """\
# trioproxy: check it with `trioproxy check FILE`, see a chain with `trioproxy chain FILE MODEL`,
# and every setting with its default with `trioproxy config FILE --print`.

[listen]
data = "127.0.0.1:8787"   # only this machine; another address needs [[keys]] (`trioproxy keys new`)

[defaults]
breaker = "four-layer"    # or "consecutive", "half-open"
total_timeout = 600       # seconds, as in the official SDKs
gate_timeout = 30         # how long a stream may stay undecided before it is passed on

# Every call and its cost on disk, from which a restart goes on where it was.
# [state]
# path = "/var/lib/trioproxy/ledger.db"

# Health checks: a completion of one token at every channel once a minute, which you pay for.
# [probes]

# A class of traffic overrides what it names.
# [classes.batch]
# total_timeout = 1800
"""

LOCAL = """
# No provider key was found in the environment; this one needs none (Ollama, llama.cpp, vLLM).
[[channels]]
name = "local"
base_url = "http://127.0.0.1:11434/v1"
auth = "none"

[[models]]
name = "local/*"
channels = [{ channel = "local", model = "*" }]

# With a key, take the # away, and export the variable before the start:
"""


def found(environ: Mapping[str, str]) -> tuple[Provider, ...]:
    """The providers whose key the environment has."""
    return tuple(provider for provider in PROVIDERS if environ.get(provider.variable))


def starter(environ: Mapping[str, str]) -> str:
    """The text of the file; it loads as it is."""
    providers = found(environ)
    if providers:
        return HEAD + "".join(_blocks(providers, environ))
    examples = [provider for provider in PROVIDERS if provider.name in ("openai", "deepseek")]
    return HEAD + LOCAL + _commented("".join(_blocks(examples, environ)))


def _blocks(providers: Sequence[Provider], environ: Mapping[str, str]) -> Iterator[str]:
    for provider in providers:
        yield _channel(provider, environ)
    for provider in providers:
        yield f"""
# Ask for "{provider.name}/MODEL" and the provider's MODEL answers.
[[models]]
name = "{provider.name}/*"
channels = [{{ channel = "{provider.name}", model = "*" }}]
"""
    sharing = [provider for provider in providers if provider.shared]
    if len(sharing) > 1:
        links = "".join(f'  {{ channel = "{each.name}", model = "{each.shared}" }},\n' for each in sharing)
        yield f"""
# One model behind several channels: when one fails, the next answers. With prices, order = "cost" is cheapest first.
# Check that each provider's name below is the same model.
[[models]]
name = "{SHARED}"
order = "listed"
channels = [
{links}]
"""


def _channel(provider: Provider, environ: Mapping[str, str]) -> str:
    auth = f'auth = "{provider.auth}"\n' if provider.auth != "bearer" else ""
    # Whose rate-limit headers it answers with: one name means requests a minute at one provider, a day at another.
    whose = f'provider = "{provider.name}"\n' if provider.name in get_args(Known) else ""
    return f"""
[[channels]]
name = "{provider.name}"
base_url = {toml_string(_url(provider, environ))}
api_key = {{ env = "{provider.variable}" }}
{whose}{auth}# price = {{ input = 0.00, output = 0.00 }}   # USD per million tokens, from the provider's price page
"""


def _url(provider: Provider, environ: Mapping[str, str]) -> str:
    """The account's own endpoint where the environment has a good one."""
    own = environ.get(provider.url_from, "").rstrip("/") if provider.url_from else ""
    if not own or "?" in own:
        return provider.base_url
    try:
        base_url(None, None, own)
    except ValueError:
        return provider.base_url
    return own.removesuffix(provider.suffix) + provider.suffix


def _commented(text: str) -> str:
    return "".join(f"# {line}\n".replace("# # ", "# ") if line else "\n" for line in text.splitlines())
