"""JSON schemas: whether one can be used, and how a value does not fit it.

The `jsonschema` library judges (draft 2020-12, or what `$schema` says); it comes with the extra `regress` and is loaded only where
a schema is used. References lead into the schema itself and nowhere else: nothing is ever fetched.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

MOST = 5  # mismatches that are told
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
LONGEST = 200  # characters of one
MISSING = "needs the package jsonschema: pip install 'trioproxy[regress]'"


def objection(schema: Mapping[str, Any]) -> str | None:
    """Why the schema cannot be used, or None."""
    try:
        from jsonschema import SchemaError
    except ImportError:
        return MISSING
    for reference in _references(schema):
        if not reference.startswith("#"):
            return (
                f"the reference {reference!r} leads out of the schema: only references that begin with # are followed"
            )
    try:
        validator = _validator(schema)
        validator.check_schema(schema)
        for reference in _references(schema):
            if not _leads_somewhere(schema, reference):
                return f"the reference {reference!r} leads nowhere"
    except (SchemaError, RecursionError) as exc:
        return f"is no valid JSON schema: {getattr(exc, 'message', 'it is nested too deeply')}"
    return None


def mismatches(schema: Mapping[str, Any], value: object) -> list[str]:
    """How the value does not fit, the first few; empty where it does. `objection` must have had none."""
    try:
        errors = list(itertools.islice(_validator(schema).iter_errors(value), MOST))
    except RecursionError:
        return ["it is nested too deeply to be judged"]
    return [f"{error.json_path}: {error.message[:LONGEST]}" for error in errors]


def _validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    # An empty registry of our own: the library's would fetch what it does not know.
    return validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())


def _leads_somewhere(schema: Mapping[str, Any], reference: str) -> bool:
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resource = DRAFT202012.create_resource(schema)
    root = resource.id() or ""
    try:
        Registry().with_resource(root, resource).resolver(root).lookup(reference)
    except Unresolvable:
        return False
    return True


def _references(value: object) -> Iterator[str]:
    """Every reference in the schema, wherever it stands."""
    if isinstance(value, Mapping):
        yield from (reference for key in REFERENCES if isinstance(reference := value.get(key), str))
    if isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _references(inner)
