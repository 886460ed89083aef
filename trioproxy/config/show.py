"""The effective configuration as TOML: what the file says, with every default written out and no credential in it.

Reading the text again gives the same `Config`, but for keys that stood in the file and headers that hold credentials: those
are masked. A key's hash is no credential and stays, so that the text can be used.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs

from trioproxy.config.load import BARE_KEY
from trioproxy.config.model import Channel, Config, Secret, Sink
from trioproxy.config.rules import holds_credential

MASK = "<masked>"


def render(config: Config) -> str:
    """The text, with a line end at its end."""
    return "\n".join(_document(config)) + "\n"


def toml_string(text: str) -> str:
    """A TOML basic string. JSON's escapes are TOML's, but for DEL, which JSON leaves bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _document(config: Config) -> Iterator[str]:
    yield from _table("[listen]", config.listen)
    yield from _table("[log]", config.log)
    yield from _table("[control]", config.control)
    yield from _table("[defaults]", config.defaults)
    yield f"breaker = {_value(config.breaker)}"
    yield f"switch_back = {_value(config.switch_back)}"
    for name, policy in config.classes.items():
        yield from _table(f"[classes.{_key(name)}]", policy)
    yield from _table("[state]", attrs.evolve(config.state, url=_hidden(config.state.url)))
    yield from _table("[quota]", config.quota)
    yield from _table("[organization]", config.organization)
    yield from _table("[alerts]", attrs.evolve(config.alerts, sinks=tuple(map(_masked_sink, config.alerts.sinks))))
    hooks = tuple(
        attrs.evolve(hook, url=_masked_url(hook.url), secret=_hidden(hook.secret)) for hook in config.deferred.webhooks
    )
    yield from _table("[deferred]", attrs.evolve(config.deferred, webhooks=hooks))
    if config.probes is not None:
        yield from _table("[probes]", config.probes)
    for tenant in config.tenants:
        yield from _table("[[tenants]]", tenant)
    for team in config.teams:
        yield from _table("[[teams]]", team)
    for channel in config.channels:
        yield from _table("[[channels]]", _masked(channel))
    for model in config.models:
        yield from _table("[[models]]", model)
    for rollout in config.rollouts:
        yield from _table("[[rollouts]]", rollout)
    for key in config.keys:
        yield from _table("[[keys]]", key)


def _table(header: str, part: "attrs.AttrsInstance") -> Iterator[str]:
    """One table; the blank line before it comes from joining."""
    yield f"\n{header}" if header != "[listen]" else header
    yield from (f"{_key(name)} = {_value(value)}" for name, value in _members(part))


def _members(part: "attrs.AttrsInstance") -> Iterator[tuple[str, Any]]:
    """The fields that have something to say; TOML has no word for None."""
    for field in attrs.fields(type(part)):
        value = getattr(part, field.name)
        if value is not None:
            yield field.name, value


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return toml_string(value)
        case tuple():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            return _inline(value.items())
        case _:
            return _inline(_members(value))


def _inline(members: Any) -> str:
    inside = ", ".join(f"{_key(name)} = {_value(value)}" for name, value in members)
    return f"{{ {inside} }}" if inside else "{}"


def _key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else toml_string(name)


def _masked(channel: Channel) -> Channel:
    headers = {name: MASK if holds_credential(name) else value for name, value in channel.headers.items()}
    return attrs.evolve(channel, api_key=_hidden(channel.api_key), headers=headers)


def _masked_sink(sink: Sink) -> Sink:
    url = None if sink.url is None else _masked_url(sink.url)
    return attrs.evolve(sink, url=url, secret=_hidden(sink.secret))


def _masked_url(url: str) -> str:
    """What follows the host of its address is often a credential, too."""
    host = "{0.scheme}://{0.netloc}/".format(urlsplit(url))
    return host if host.rstrip("/") == url.rstrip("/") else host + MASK


def _hidden(secret: Secret | None) -> Secret | None:
    return Secret(value=MASK) if secret is not None and secret.value is not None else secret
