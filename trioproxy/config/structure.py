"""TOML values → the frozen classes, strictly: one cattrs converter and the translation of what it complains about.

cattrs by itself makes "false" true and 3 "3"; the hooks here compare `type(value)` and nothing else, so that a value is what
the operator wrote or a fault. Every field's rule runs beside its type hook, so one table gives all of its faults at once.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, time
from functools import partial
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import AttributeValidationNote, BaseValidationError, ForbiddenExtraKeysError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, override

from trioproxy.config.lines import Path
from trioproxy.config.model import Secret
from trioproxy.config.rules import preset, shown
from trioproxy.policy.breaker import PRESETS, BreakerPolicy

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]

BOUND = re.compile(r"'\w+' must be ([<>])(=?) (\S+): (.*)")
SPEAKABLE = 20  # a longer word where a choice is wanted may be a credential in the wrong place


def structure(raw: object, cls: type[T]) -> tuple[T | None, list[tuple[Path, str]]]:
    """The value as `cls`, and what is wrong with it: (path, message) each, empty when nothing is.

    A table with faults is tried again without the fields at fault, so that what remains can still be judged with the rest of
    the file; None where it cannot stand without them.
    """
    try:
        return CONVERTER.structure(raw, cls), []
    except (BaseValidationError, TypeError, ValueError) as exc:
        faults = list(_told(exc, ()))
    if not isinstance(raw, Mapping):
        return None, faults
    bad = {path[0] for path, _ in faults if path}
    try:
        return CONVERTER.structure({key: value for key, value in raw.items() if key not in bad}, cls), faults
    except BaseValidationError:
        return None, faults


def unknown(key: str, known: Mapping[str, object] | list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"unknown key; did you mean {shown(near[0])}?" if near else f"unknown key; known are {', '.join(known)}"


def _told(exc: Exception, path: Path) -> Iterator[tuple[Path, str]]:
    for note in getattr(exc, "__notes__", ()):
        match note:
            case AttributeValidationNote():
                path = (*path, note.name)
            case IterableValidationNote():
                path = (*path, note.index)
    match exc:
        case BaseValidationError():
            for inner in exc.exceptions:
                yield from _told(inner, path)
        case ForbiddenExtraKeysError():
            known = [field.name for field in attrs.fields(exc.cl)]
            for key in sorted(exc.extra_fields):
                yield (*path, key), unknown(key, known)
        case KeyError():
            yield path, "is missing: give it a value"
        case _:
            yield path, BOUND.sub(_bound, str(exc))


def _bound(found: re.Match[str]) -> str:
    """What attrs' own validators say, in our words."""
    _, equal, bound, value = found.groups()
    if found[1] == "<":
        return f"{value} is too much: give {'at most' if equal else 'less than'} {bound}"
    return f"{value} is too little: give {'at least' if equal else 'more than'} {bound}"


def _scalar(wanted: type, words: str) -> Hook:
    def hook(value: Any, _type: Any) -> Any:
        if type(value) is not wanted:
            raise TypeError(f"{shown(value)} is {_kind(value)}: give {words}")
        return value

    return hook


def _string(value: Any, _type: Any) -> str:
    if type(value) is not str:  # not shown: what stands in the place of a string may be a credential
        raise TypeError(f"this is {_kind(value)}: give a string in quotes")
    return value


def _float(value: Any, _type: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{shown(value)} is {_kind(value)}: give a number without quotes")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{shown(value)} is not finite: give a number that is")
    return number


def _literal(value: Any, cls: Any) -> Any:
    choices = get_args(cls)
    if type(value) is str and value in choices:
        return value
    offer = f"give one of {', '.join(map(shown, choices))}"
    if type(value) is not str:
        raise TypeError(f"this is {_kind(value)}: {offer}")
    near = difflib.get_close_matches(value, choices, n=1)
    meant = f"; did you mean {shown(near[0])}?" if near else ""
    raise ValueError(f"{shown(value) if len(value) <= SPEAKABLE else 'this'} is no choice here: {offer}{meant}")


def _tuple(value: Any, cls: Any) -> tuple[Any, ...]:
    if type(value) is not list:
        raise TypeError(f"this is {_kind(value)}: give a list in [ ]")
    element = get_args(cls)[0]
    return tuple(_elements(enumerate(value), element, cls).values())


def _mapping(value: Any, cls: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise TypeError(f"this is {_kind(value)}: give a table {{ key = value }}")
    return _elements(value.items(), get_args(cls)[1], cls)


def _elements(items: Any, element: Any, cls: Any) -> dict[Any, Any]:
    done, errors = {}, []
    for key, item in items:
        try:
            done[key] = CONVERTER.structure(item, element)
        except Exception as exc:  # noqa: BLE001 - every element's faults are told together, as cattrs does for classes
            exc.add_note(IterableValidationNote("", key, element))
            errors.append(exc)
    if errors:
        raise cattrs.IterableValidationError("", errors, cls)
    return done


def _class(cls: type, converter: cattrs.Converter) -> Hook:
    """The hook cattrs makes for an attrs class, with each field's rule run beside its type."""
    ruled = {
        field.name: override(struct_hook=partial(_ruled, converter, field))
        for field in attrs.fields(cls)
        if field.validator
    }
    # mypy cannot see through the ** of overrides
    inner: Hook = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **ruled)  # type: ignore[arg-type]
    example = '{ env = "OPENAI_API_KEY" }' if cls is Secret else "{ key = value }"

    def hook(value: Any, type_: Any) -> Any:
        if type(value) is not dict:
            raise TypeError(f"this is {_kind(value)}: give a table such as {example}")
        return inner(value, type_)

    return hook


def _ruled(converter: cattrs.Converter, field: "attrs.Attribute[Any]", value: Any, _type: Any) -> Any:
    done = converter.structure(value, field.type)  # type: ignore[arg-type]  # a union is no type to mypy
    assert field.validator
    field.validator(None, field, done)
    return done


def _breaker(value: Any, _type: Any) -> str | BreakerPolicy:
    """A preset's name, or a table that overrides some of its fields: `{ preset = "half-open", failures = 3 }`."""
    if type(value) is str:
        return value  # the field's rule knows the presets
    if type(value) is not dict:
        raise TypeError(f'this is {_kind(value)}: give a preset\'s name, or a table such as {{ preset = "half-open" }}')
    based_on = value.get("preset", "four-layer")
    if type(based_on) is not str:
        raise TypeError(f"preset is {_kind(based_on)}: give one of {', '.join(map(shown, PRESETS))}")
    preset(None, None, based_on)
    base = attrs.asdict(PRESETS[based_on])
    changes = {key: change for key, change in value.items() if key != "preset"}
    return CONVERTER.structure(base | changes, BreakerPolicy)


def _kind(value: object) -> str:
    match value:
        case bool():
            return "a boolean"
        case int():
            return "a whole number"
        case float():
            return "a decimal number"
        case str():
            return "a string"
        case list():
            return "a list"
        case date() | time():
            return "a date or time without quotes"
        case _:
            return "a table"


def _made_from(origin: object) -> Callable[[Any], bool]:
    return lambda cls: bool(get_origin(cls) == origin)


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(bool, _scalar(bool, "true or false, without quotes"))
    converter.register_structure_hook(int, _scalar(int, "a whole number without quotes"))
    converter.register_structure_hook(float, _float)
    converter.register_structure_hook(str, _string)
    converter.register_structure_hook_func(_made_from(Literal), _literal)
    converter.register_structure_hook_func(_made_from(tuple), _tuple)
    converter.register_structure_hook_func(_made_from(Mapping), _mapping)
    for union in (str | BreakerPolicy, str | BreakerPolicy | None, Union[str, BreakerPolicy, None]):  # noqa: UP007
        converter.register_structure_hook(union, _breaker)
    converter.register_structure_hook_factory(attrs.has, _class)
    return converter


CONVERTER = _converter()
