"""One TOML file → a `Config`, or all of its faults at once, each with its path, its line and what to do.

The file's sections are structured one by one (`config.structure`), then what can be read is judged together
(`config.consistency`). Nothing is guessed: an unknown key, a string in the place of a number, a half-right table are faults.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
from attrs import define, evolve, field, frozen

from trioproxy.config import consistency, fitting, sharing
from trioproxy.config.deferred import Deferring
from trioproxy.config.limits import Quotas, QuotaSettings, Team, Tenant
from trioproxy.config.lines import Path as KeyPath
from trioproxy.config.lines import key_lines
from trioproxy.config.model import (
    Alerts,
    Channel,
    ClassPolicy,
    Config,
    Control,
    Key,
    Listen,
    Logging,
    Model,
    Rollout,
    State,
)
from trioproxy.config.probes import Probes
from trioproxy.config.rules import NAME, preset, shown
from trioproxy.config.structure import structure, unknown
from trioproxy.errors import ConfigError, ConfigFault
from trioproxy.policy.breaker import BreakerPolicy
from trioproxy.policy.classes import CLASSES
from trioproxy.policy.switchback import SwitchBackPolicy

T = TypeVar("T")

SECTIONS = ["listen", "defaults", "channels", "models", "keys", "classes", "log"]
SECTIONS += [
    "quota",
    "organization",
    "tenants",
    "teams",
    "state",
    "alerts",
    "probes",
    "rollouts",
    "control",
    "deferred",
]
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@frozen
class Defaults:
    """The part of `[defaults]` that is no class policy."""

    breaker: str | BreakerPolicy = field(default="four-layer", validator=preset)
    switch_back: SwitchBackPolicy = field(factory=SwitchBackPolicy)


def load_config(path: str | os.PathLike[str]) -> Config:
    """Read the file. Raises `ConfigError`, for a file that cannot be read, too."""
    name = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except OSError as exc:
        raise ConfigError([ConfigFault(name, f"cannot be read: {exc.strerror}")]) from exc
    return parse_config(decode(data, name), name)


def decode(data: bytes, name: str) -> str:
    """The text of a file; a byte order mark, as some editors write, is no part of it. Raises `ConfigError`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError([ConfigFault(name, "is not UTF-8: save it as UTF-8", line)]) from exc


def parse_config(text: str, name: str) -> Config:
    """The text of the file called `name`. Raises `ConfigError` with every fault, in the order of the file."""
    reading = Reading(parse_toml(text, name))
    config = reading.config()
    if config is None or reading.found:
        raise told(reading.found, text, name)
    return config


def told(found: Iterable[tuple[KeyPath, str]], text: str, name: str) -> ConfigError:
    """All that was found wrong in the text of the file called `name`, in the order of the file."""
    lines = places(text)
    faults = [located(ConfigFault(dotted(path) or name, what), lines) for path, what in found]
    return ConfigError(sorted(faults, key=lambda fault: fault.line or 0))


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The tables of the file called `name`. Raises `ConfigError` where it is no TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        place = re.search(r"at line (\d+)", str(exc))
        line = int(place[1]) if place else text.count("\n") + 1  # else "at end of document"
        raise ConfigError([ConfigFault(name, f"is no TOML: {exc}", line)]) from exc
    except RecursionError:
        raise ConfigError([ConfigFault(name, "is nested too deeply: a configuration needs four levels")]) from None


def dotted(path: KeyPath) -> str:
    """`channels[0].price.input`; a key that needs quotes has them."""
    text = ""
    for part in path:
        match part:
            case int():
                text += f"[{part}]"
            case str():
                text += f".{part}" if BARE_KEY.fullmatch(part) else f".{shown(part)}"
    return text.removeprefix(".")


def places(text: str) -> Mapping[str, int]:
    """The line of every path in a text that `tomllib` accepts."""
    return {dotted(path): line for path, line in key_lines(text).items()}


def located(fault: ConfigFault, lines: Mapping[str, int]) -> ConfigFault:
    """The fault with its line: its own, or that of the nearest thing around it; a missing key stands where its table does."""
    path = fault.path
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return evolve(fault, line=lines.get(path))


def _queue(name: str, written: Any, total: Any) -> Any:
    """A class's queue: what was written over what its name stands for. No wait outlasts the call itself."""
    stated = CLASSES.get(name)
    if stated is None or not isinstance(written, Mapping | None):
        return written
    waits = min(stated.max_wait, total) if isinstance(total, int | float) else stated.max_wait
    return {**attrs.asdict(stated), "max_wait": waits, **(written or {})}


@define(eq=False)
class Reading:
    """One pass over a parsed file. `found` gathers its faults, as (path, message)."""

    raw: Mapping[str, Any]
    found: list[tuple[KeyPath, str]] = field(init=False, factory=list)

    def config(self) -> Config | None:
        """The configuration; None only where `found` says why."""
        self.found += [((key,), unknown(key, SECTIONS)) for key in self.raw if key not in SECTIONS]
        listen, log = self._table("listen", Listen), self._table("log", Logging)
        deferred = self._table("deferred", Deferring) or Deferring()
        control, rollouts = self._table("control", Control), self._list("rollouts", Rollout)
        defaults, apart, classes = self._policies()
        channels, models = self._list("channels", Channel), self._list("models", Model)
        keys = self._list("keys", Key)
        probes = self._table("probes", Probes) if "probes" in self.raw else None
        quota, organization = self._table("quota", QuotaSettings), self._table("organization", Quotas)
        state = self._table("state", State) or State()
        tenants, teams = self._list("tenants", Tenant), self._list("teams", Team)
        alerts = self._table("alerts", Alerts) or Alerts()
        self._missing()
        named = [channel.get("name") for channel in self._tables("channels") if isinstance(channel, Mapping)]
        parts = consistency.Parts(
            listen=listen,
            channels=channels,
            models=models,
            keys=keys,
            channel_names=frozenset(name for name in named if isinstance(name, str)),
            has_keys="keys" in self.raw,
            quota=quota or QuotaSettings(),
            organization=organization or Quotas(),
            tenants=tenants,
            teams=teams,
            classes={"default": defaults, **classes},
            state=state,
            alerts=alerts,
            rollouts=rollouts,
            deferred=deferred,
        )
        self.found += consistency.findings(parts)
        self.found += fitting.findings(parts)
        self.found += sharing.findings(parts)
        if self.found or listen is None or log is None or quota is None or organization is None or control is None:
            return None
        return Config(
            channels=tuple(channels.values()),
            models=tuple(models.values()),
            listen=listen,
            defaults=defaults,
            breaker=apart.breaker,
            switch_back=apart.switch_back,
            rollouts=tuple(rollouts.values()),
            control=control,
            keys=tuple(keys.values()),
            classes=classes,
            log=log,
            quota=quota,
            organization=organization,
            tenants=tuple(tenants.values()),
            teams=tuple(teams.values()),
            state=state,
            alerts=alerts,
            probes=probes,
            deferred=deferred,
        )

    def _missing(self) -> None:
        for section, what in (("channels", "a place to send to"), ("models", "a name to ask for")):
            if section not in self.raw:
                self.found.append(((section,), f"there are none: add [[{section}]], {what}"))

    def _policies(self) -> tuple[ClassPolicy, Defaults, Mapping[str, ClassPolicy]]:
        """`[defaults]`, what of it is no class policy, and the classes, each filled from the defaults."""
        raw = self.raw.get("defaults", {})
        names = [each.name for each in attrs.fields(Defaults)]
        apart = {key: raw[key] for key in names if isinstance(raw, Mapping) and key in raw}
        rest = {key: value for key, value in raw.items() if key not in apart} if isinstance(raw, Mapping) else raw
        defaults = self._structure(("defaults",), rest, ClassPolicy) or ClassPolicy()
        others = self._structure(("defaults",), apart, Defaults) or Defaults()
        classes = {}
        named = self.raw.get("classes", {})
        if not isinstance(named, Mapping):
            self.found.append((("classes",), "this is no table: write [classes.NAME]"))
            named = {}
        for name, changes in named.items():
            self._name_of_class(name)
            complete = changes
            if isinstance(changes, Mapping):
                complete = {**attrs.asdict(defaults), **changes}
                complete["queue"] = _queue(name, changes.get("queue"), complete["total_timeout"])
            classes[name] = self._structure(("classes", name), complete, ClassPolicy) or defaults
        return defaults, others, classes

    def _name_of_class(self, name: str) -> None:
        if name == "default":
            self.found.append((("classes", name), '"default" is what [defaults] describes: put its settings there'))
        elif not NAME.fullmatch(name):
            self.found.append((("classes", name), f"{shown(name)} is no name: use A-Z a-z 0-9 . _ : / @ + -"))

    def _table(self, section: str, cls: type[T]) -> T | None:
        return self._structure((section,), self.raw.get(section, {}), cls)

    def _tables(self, section: str) -> Iterable[Any]:
        raw = self.raw.get(section, [])
        return raw if isinstance(raw, list) else []

    def _list(self, section: str, cls: type[T]) -> dict[int, T]:
        """The readable elements of an array of tables, by their index."""
        if not isinstance(self.raw.get(section, []), list):
            self.found.append(((section,), f"this is no list of tables: write [[{section}]]"))
        done = ((index, self._structure((section, index), raw, cls)) for index, raw in enumerate(self._tables(section)))
        return {index: element for index, element in done if element is not None}

    def _structure(self, path: KeyPath, raw: object, cls: type[T]) -> T | None:
        value, faults = structure(raw, cls)
        self.found += [((*path, *inner), what) for inner, what in faults]
        return value
