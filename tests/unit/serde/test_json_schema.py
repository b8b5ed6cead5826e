"""JSON Schema: drafts, references, and validation of values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pessoa.serde.json_schema import JsonSchema, draft_of, parse_json
from pessoa.serde.schema_problems import DataProblem, SchemaProblem


@pytest.mark.parametrize(
    ("uri", "draft"),
    [
        (None, "draft-07"),
        ("http://json-schema.org/draft-04/schema#", "draft-04"),
        ("http://json-schema.org/draft-06/schema#", "draft-06"),
        ("https://json-schema.org/draft-07/schema", "draft-07"),
        ("https://json-schema.org/draft/2019-09/schema", "2019-09"),
        ("https://json-schema.org/draft/2020-12/schema", "2020-12"),
        ("http://json-schema.org/schema#", "2020-12"),
    ],
)
def test_the_draft_of_a_json_schema_is_read_from_it(uri: str | None, draft: str) -> None:
    assert draft_of({"$schema": uri} if uri else {}) == draft


@pytest.mark.parametrize("text", ["", "{", "3", "[]", '"x"', "null"])
def test_json_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaProblem):
        parse_json(text)


@pytest.mark.parametrize(
    "tree", [{"type": "strin"}, {"properties": []}, {"$schema": "http://example.com/mine"}, {"$schema": 5}]
)
def test_a_schema_that_breaks_its_draft_is_refused(tree: dict[str, Any]) -> None:
    with pytest.raises(SchemaProblem):
        JsonSchema(tree)


@pytest.mark.parametrize("reference", ["#/definitions/nothing", "other.json", "#x"])
def test_an_unresolvable_reference_of_a_json_schema_is_detected(reference: str) -> None:
    schema = JsonSchema({"properties": {"a": {"$ref": reference}}})
    with pytest.raises(SchemaProblem, match="leads nowhere"):
        schema.check_references()


@pytest.mark.parametrize("base", ["", "http://example.com/schemas/root.json"])
def test_references_to_other_schemas_are_followed(base: str) -> None:
    tree: dict[str, Any] = {"properties": {"a": {"$ref": "other.json"}, "b": {"$ref": "#/definitions/b"}}}
    tree["definitions"] = {"b": {"type": "boolean"}}
    if base:
        tree["$id"] = base
    schema = JsonSchema(tree, {"other.json": {"type": "integer"}})
    schema.check_references()
    assert schema.encode({"a": 1, "b": True}) == b'{"a":1,"b":true}'
    with pytest.raises(DataProblem, match="#/a"):
        schema.encode({"a": "x"})


def test_data_that_is_not_json_is_refused() -> None:
    with pytest.raises(DataProblem):
        JsonSchema(True).decode(b"{")
    assert JsonSchema({"type": "integer"}).decode(json.dumps(3).encode()) == 3
