"""Which schemas are taken, and that none of them can make us fetch anything."""

import socket
import sys
from typing import Any

import pytest

from trioproxy.policy.schema import MISSING, MOST, mismatches, objection

TREE = {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"}


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, TREE, {"$schema": "http://json-schema.org/draft-07/schema#"}]
)
def test_a_schema_that_can_be_used(schema: dict[str, Any]) -> None:
    assert objection(schema) is None
    assert mismatches(schema, {}) == []


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "strnig"}, "is no valid JSON schema"),
        ({"pattern": "("}, "is no valid JSON schema"),
        ({"properties": {"a": {"$ref": "https://example.com/s.json"}}}, "leads out of the schema"),
        ({"$ref": "file:///etc/passwd"}, "leads out of the schema"),
        ({"$ref": "#/$defs/none"}, "leads nowhere"),
        ({"$dynamicRef": "https://example.com/s.json"}, "leads out of the schema"),
    ],
)
def test_a_schema_that_cannot(schema: dict[str, Any], said: str) -> None:
    assert said in str(objection(schema))


def test_references_inside_are_followed_at_every_depth() -> None:
    assert mismatches(TREE, {"next": {"next": 3}}) == ["$.next.next: 3 is not of type 'object'"]


def test_nothing_is_fetched_even_where_a_reference_was_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[object] = []
    monkeypatch.setattr(socket, "create_connection", lambda *args, **_: dialled.append(args))
    with pytest.raises(Exception, match="Unresolvable"):
        mismatches({"$dynamicRef": "http://127.0.0.1:9/x"}, {})
    assert dialled == []


def test_anchors_are_followed_too() -> None:
    schema = {"$defs": {"n": {"$anchor": "node", "type": "integer"}}, "items": {"$ref": "#node"}}
    assert objection(schema) is None
    assert mismatches(schema, ["x"]) == ["$[0]: 'x' is not of type 'integer'"]


def test_only_the_first_mismatches_are_told_and_each_is_short() -> None:
    told = mismatches({"items": {"type": "string"}}, [*range(100), "x" * 10_000])
    assert len(told) == MOST
    assert all(len(each) < 300 for each in mismatches({"type": "integer"}, "x" * 10_000))


def test_without_the_library_a_set_with_a_schema_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert objection({}) == MISSING
