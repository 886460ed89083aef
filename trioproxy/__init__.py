"""An LLM gateway for Trio applications: what an embedder needs, under one name.

    async with trioproxy.open_gateway(trioproxy.load_config("gateway.toml")) as gateway:
        async with gateway.dispatch(trioproxy.Request.post("/v1/chat/completions", payload)) as answer:
            ...

`trioproxy/docs/embedding.md` has the rest. Names are looked up when they are first used, so that importing the package costs
nothing and the command line answers `--help` without loading Trio.
"""

from typing import TYPE_CHECKING

__all__ = [
    "Answer",
    "AttemptError",
    "ChainExhausted",
    "ConfigError",
    "Gateway",
    "Refusal",
    "Request",
    "TrioproxyError",
    "__version__",
    "load_config",
    "open_gateway",
    "parse_config",
]

if TYPE_CHECKING:
    from trioproxy.answer import Answer
    from trioproxy.app import open_gateway
    from trioproxy.call import Request
    from trioproxy.config.load import load_config, parse_config
    from trioproxy.errors import AttemptError, ChainExhausted, ConfigError, Refusal, TrioproxyError
    from trioproxy.gateway import Gateway

    __version__: str
else:  # hidden from type checkers, to which a module with `__getattr__` has every name there is
    _HOMES = {
        "Answer": "answer",
        "open_gateway": "app",
        "Request": "call",
        "load_config": "config.load",
        "parse_config": "config.load",
        "AttemptError": "errors",
        "ChainExhausted": "errors",
        "ConfigError": "errors",
        "Refusal": "errors",
        "TrioproxyError": "errors",
        "Gateway": "gateway",
    }

    def __getattr__(name: str) -> object:
        import importlib
        import importlib.metadata

        if name == "__version__":
            value = importlib.metadata.version(__name__)
        elif name in _HOMES:
            value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return __all__
