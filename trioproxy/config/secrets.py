"""Where credentials are taken from their environment variables and files, and how they are kept from being shown.

A fault names the variable or the file, never the value; and not even those where they do not look like one, because then
the key itself may have been written in their place.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen

from trioproxy.codec.signature import signing_key
from trioproxy.config.model import Config, Secret
from trioproxy.config.rules import shown
from trioproxy.errors import ConfigError, ConfigFault

Read = Callable[[str], str]

VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
DATABASE = "[state] url"  # under this name its address is found; no channel can be called so
HEADER_SAFE = re.compile(r"[\x21-\x7e]+")


@frozen(repr=False)
class Credential:
    """A key and where it was found. Only `value` has the key; printing tells the source alone."""

    source: str
    value: str = field(repr=False)

    def __repr__(self) -> str:
        return f"<secret from {self.source}>"


def resolve(secret: Secret, environ: Mapping[str, str], read: Read) -> str:
    """The value of one secret, without the line end that files and shells leave. Raises `ConfigError` with one fault."""
    source = source_of(secret)
    if secret.env is not None:
        text = environ.get(secret.env, "")
        missing = f"{source} is not set or empty: export it before the start"
    elif secret.file is not None:
        text = _contents(secret.file, source, read)
        missing = f"{source} is empty: put the key into it"
    else:
        text = secret.value or ""
        missing = "the key is empty: give it by env or file"
    text = text.rstrip("\r\n")
    if not text:
        raise _refused(missing)
    if not HEADER_SAFE.fullmatch(text):
        raise _refused(f"{source} has a space, a control character or a non-ASCII one in it: a key has none")
    return text


def credentials(config: Config, environ: Mapping[str, str], read: Read | None = None) -> dict[str, Credential]:
    """Every channel's credential by the channel's name, every sink's secret by `sink_name`, and the database's address by
    `DATABASE`; who has none is left out.

    `read` gives a file's text and may raise OSError or UnicodeDecodeError; by default the file is read. Raises
    `ConfigError` with the faults of all channels.
    """
    found: dict[str, Credential] = {}
    faults: list[ConfigFault] = []
    for index, channel in enumerate(config.channels):
        if channel.api_key is None or channel.auth == "none":
            continue
        try:
            value = resolve(channel.api_key, environ, read or read_file)
            found[channel.name] = Credential(source_of(channel.api_key), value)
        except ConfigError as exc:
            faults += [ConfigFault(f"channels[{index}].api_key", fault.message) for fault in exc.faults]
    url = config.state.url
    if url is not None:
        try:
            found[DATABASE] = Credential(source_of(url), database_url(config, environ, read) or "")
        except ConfigError as exc:
            faults += exc.faults
    found |= _signing(config, faults, environ, read or read_file)
    if faults:
        raise ConfigError(faults)
    return found


def database_url(config: Config, environ: Mapping[str, str], read: Read | None = None) -> str | None:
    """The address of the store's database; None where it is a file. Raises `ConfigError`."""
    if config.state.url is None:
        return None
    try:
        url = resolve(config.state.url, environ, read or read_file)
    except ConfigError as exc:
        raise ConfigError([ConfigFault("state.url", fault.message) for fault in exc.faults]) from exc
    if not url.startswith(("postgresql://", "postgres://")):
        raise ConfigError([ConfigFault("state.url", "does not begin with postgresql://")])
    return url


def resolve_sinks(config: Config, environ: Mapping[str, str], read: Read | None = None) -> dict[str, str]:
    """What is signed with, alone: bare, by `sink_name` and `hook_name`. Raises `ConfigError` with the faults of all."""
    faults: list[ConfigFault] = []
    found = _signing(config, faults, environ, read or read_file)
    if faults:
        raise ConfigError(faults)
    return {name: credential.value for name, credential in found.items()}


def _signing(
    config: Config, faults: list[ConfigFault], environ: Mapping[str, str], read: Read
) -> dict[str, Credential]:
    """What sinks sign with. Adds to `faults`."""
    found: dict[str, Credential] = {}
    posted = [(sink_name(index), sink.secret) for index, sink in enumerate(config.alerts.sinks)]
    posted += [(hook_name(hook.name), hook.secret) for hook in config.deferred.webhooks]
    for name, secret in posted:
        if secret is None:
            continue
        source = source_of(secret)
        try:
            found[name] = Credential(source, resolve(secret, environ, read))
            signing_key(found[name].value)
        except ConfigError as exc:
            faults += [ConfigFault(f"{name}.secret", fault.message) for fault in exc.faults]
        except ValueError:
            faults.append(ConfigFault(f"{name}.secret", f"{source}: what follows whsec_ is not base64"))
    return found


def sink_name(index: int) -> str:
    """What a sink is called, here and in the log; no channel can have such a name."""
    return f"alerts.sinks[{index}]"


def hook_name(name: str) -> str:
    """The same of a webhook for results."""
    return f"deferred.webhooks[{name}]"


def resolve_all(config: Config, environ: Mapping[str, str], read: Read | None = None) -> dict[str, str]:
    """`credentials`, bare: for the code that puts them into headers."""
    return {name: credential.value for name, credential in credentials(config, environ, read).items()}


def source_of(secret: Secret) -> str:
    """Where the key is, in words that can be shown."""
    if secret.env is not None:
        return f"env {secret.env}" if VARIABLE.fullmatch(secret.env) else "the variable named by env"
    if secret.file is not None:
        return f"file {shown(secret.file)}" if os.sep in secret.file else "the file named by file"
    return "the configuration file"


def read_file(path: str) -> str:
    return Path(path).read_text("utf-8")


def _contents(path: str, source: str, read: Read) -> str:
    try:
        return read(path)
    except UnicodeDecodeError:
        raise _refused(f"{source} is not UTF-8 text") from None
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        reason = getattr(exc, "strerror", None) or "no valid path"
        raise _refused(f"{source} cannot be read ({reason}): check the path and its permissions") from None


def _refused(message: str) -> ConfigError:
    return ConfigError([ConfigFault("api_key", message)])
