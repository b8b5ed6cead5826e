"""JSON Schema, draft 4 to 2020-12: texts, references, validation.

A schema says its draft in `$schema`; without it, draft 7 holds, as in the JVM registry. References to other schemas are
URIs: the `name` of a registry reference is the URI that `$ref` uses, absolute or relative to the schema's own `$id`.
Nothing is ever fetched: a reference that was not handed in does not resolve. What checking a value may cost is bounded
by json_validation.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import urljoin

from jsonschema import Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from referencing import Registry, Resource, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012, Schema, SchemaRegistry

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.serde.json_text import read_json
from pessoa.serde.json_validation import bounded_validator, check
from pessoa.serde.schema_problems import DataProblem, SchemaProblem

if TYPE_CHECKING:
    from referencing._core import Resolver

_DRAFTS: dict[str, tuple[type[Validator], Specification[Schema]]] = {
    "draft-04": (Draft4Validator, DRAFT4),
    "draft-06": (Draft6Validator, DRAFT6),
    "draft-07": (Draft7Validator, DRAFT7),
    "2019-09": (Draft201909Validator, DRAFT201909),
    "2020-12": (Draft202012Validator, DRAFT202012),
}
DEFAULT_DRAFT = "draft-07"

Tree = JsonObject | bool


def parse_json(text: str) -> Tree:
    """Return the parsed text; SchemaProblem if it cannot be a JSON Schema."""
    try:
        tree = read_json(text)
    except ValueError as wrong:
        raise SchemaProblem(f"not JSON: {wrong}") from None
    except RecursionError:
        raise SchemaProblem("nested too deeply") from None
    if not isinstance(tree, dict | bool):
        raise SchemaProblem(f"a JSON Schema is an object or a boolean, and not {type(tree).__name__}")
    return tree


def draft_of(tree: Tree) -> str:
    uri = tree.get("$schema") if isinstance(tree, dict) else None
    if uri is None:
        return DEFAULT_DRAFT
    if isinstance(uri, str):
        for name in _DRAFTS:
            if name in uri:
                return name
        if uri.rstrip("#/").endswith("json-schema.org/schema"):
            return "2020-12"
    raise SchemaProblem(f"$schema names no known draft: {uri!r}; known are {', '.join(_DRAFTS)}")


class JsonSchema:
    """A schema with the schemas that it refers to, ready to validate."""

    def __init__(self, tree: Tree, references: Mapping[str, Tree] | None = None) -> None:
        self.tree = tree
        self.draft = draft_of(tree)
        self.references = dict(references or {})
        validator, specification = _DRAFTS[self.draft]
        try:
            validator.check_schema(cast(JsonObject, tree))
        except SchemaError as wrong:
            place = "/".join(str(part) for part in wrong.absolute_path)
            raise SchemaProblem(f"not a valid schema of {self.draft}: {wrong.message} (at #/{place})") from None
        except RecursionError:
            raise SchemaProblem("nested too deeply") from None
        registry: SchemaRegistry = Registry()
        base = tree.get("$id", tree.get("id", "")) if isinstance(tree, dict) else ""
        for name, referred in self.references.items():
            resource = _DRAFTS[draft_of(referred)][1].create_resource(referred)
            registry = registry.with_resource(name, resource)
            if isinstance(base, str) and base:
                registry = registry.with_resource(urljoin(base, name), resource)
        self._resolver = registry.resolver_with_root(specification.create_resource(tree))
        self._validator = bounded_validator(validator)(tree, registry=registry)

    def check_references(self) -> None:
        """Raise SchemaProblem if a `$ref` cannot be resolved."""
        _check(self.tree, self._resolver, set())

    def validate(self, value: JsonValue, size: int) -> None:
        """Raise DataProblem, with the place, if the value does not follow the schema; `size` is the value's size in
        bytes."""
        try:
            check(self._validator, value, size)
        except ValidationError as wrong:
            place = "/".join(str(part) for part in wrong.absolute_path)
            raise DataProblem(f"#/{place}: {wrong.message}") from None
        except Unresolvable as wrong:
            raise SchemaProblem(f"the reference {wrong.ref} leads nowhere") from None
        except RecursionError:
            raise DataProblem("nested too deeply") from None

    def encode(self, value: JsonValue) -> bytes:
        """Return the value as JSON in UTF-8; DataProblem if the value is not valid."""
        try:
            data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except RecursionError:
            raise DataProblem("nested too deeply") from None
        self.validate(value, len(data))
        return data

    def decode(self, data: bytes, *, validate: bool = True) -> JsonValue:
        try:
            value: JsonValue = json.loads(data)
        except (ValueError, RecursionError) as wrong:
            raise DataProblem(f"not JSON: {wrong}") from None
        if validate:
            self.validate(value, len(data))
        return value

    def resolver(self) -> Resolver[Schema]:
        """The resolver of references, for code that walks the schema itself."""
        return self._resolver


def _check(tree: JsonValue, resolver: Resolver[Schema], seen: set[int]) -> None:
    if id(tree) in seen:
        return
    seen.add(id(tree))
    if isinstance(tree, dict):
        identifier = tree.get("$id")
        if isinstance(identifier, str):
            resolver = resolver.in_subresource(Resource.from_contents(tree, default_specification=DRAFT202012))
        for keyword in ("$ref", "$dynamicRef"):
            reference = tree.get(keyword)
            if isinstance(reference, str):
                try:
                    resolver.lookup(reference)
                except Unresolvable:
                    raise SchemaProblem(f"the reference {reference} leads nowhere") from None
        for key, value in tree.items():
            # These hold data and not schemas.
            if key not in ("enum", "const", "default", "examples", "example"):
                _check(value, resolver, seen)
    elif isinstance(tree, list):
        for value in tree:
            _check(value, resolver, seen)
