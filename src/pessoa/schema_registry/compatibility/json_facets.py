"""A JSON Schema as what it demands: facets.

JSON Schema lets one object say many things at once: `{"type": "string", "enum": ["a"], "anyOf": […]}` is a string *and*
one of these values *and* one of those. To compare two of them, each is taken apart into facets, of which one alone is
the schema and several are an allOf:

    Empty       everything is valid: true, {}
    Never       nothing is: false
    Simple      one type with its keywords: string, number, boolean, null, object, array
    Values      enum and const
    Combined    allOf, anyOf, oneOf; a list of types is an anyOf of them
    Not         not
    Condition   if, then, else

References are followed on the way; `definitions` and annotations demand nothing. What stands beside a `$ref` counts
since 2019-09; before, a reference is all there is. References that are resolved while a value is read (`$dynamicRef`,
`$recursiveRef`) are followed to where they lead without a detour, which is all that can be said without a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.serde.schema_problems import SchemaProblem

if TYPE_CHECKING:
    from referencing._core import Resolver
    from referencing.jsonschema import Schema

_STRING = {"minLength", "maxLength", "pattern"}
_NUMBER = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_OBJECT = {
    "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties",
    "dependencies", "dependentRequired", "dependentSchemas", "propertyNames", "unevaluatedProperties",
}  # fmt: skip
_ARRAY = {
    "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
    "maxContains", "unevaluatedItems",
}  # fmt: skip
_DEMANDING = _STRING | _NUMBER | _OBJECT | _ARRAY | {"type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if"}
_NEW_DRAFTS = ("2019-09", "2020-12")
_KEYWORDS = {"string": _STRING, "number": _NUMBER, "integer": _NUMBER, "object": _OBJECT, "array": _ARRAY}
# A chain of references this long leads in a circle.
_MAX_REFERENCES = 100


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A piece of schema with the resolver that its references are relative to, and the draft that it is written in."""

    # Any JSON, behind a reference: the draft's own schema does not look there.
    tree: Any
    resolver: Resolver[Schema]
    draft: str

    @property
    def is_new_draft(self) -> bool:
        """Whether the draft is 2019-09 or later."""
        return self.draft in _NEW_DRAFTS

    def child(self, tree: JsonValue) -> Node:
        return Node(tree, self.resolver, self.draft)


@dataclass(frozen=True, slots=True, eq=False)
class Empty:
    name: str = "anything"


@dataclass(frozen=True, slots=True, eq=False)
class Never:
    name: str = "nothing"


@dataclass(frozen=True, slots=True, eq=False)
class Simple:
    # string, number (integers too), boolean, null, object, array
    name: str
    node: Node
    is_integer: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    values: list[JsonValue]
    name: str = "enum"


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    # allOf, anyOf, oneOf
    name: str
    parts: list[Node | Facet] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Not:
    node: Node
    name: str = "not"


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    tree: JsonObject
    name: str = "if"


Facet: TypeAlias = Empty | Never | Simple | Values | Combined | Not | Condition


def resolve(node: Node) -> Node:
    """Return the schema at the end of the node's references. A reference with keywords beside it that count is not
    followed; see `_facets`."""
    for _ in range(_MAX_REFERENCES):
        found = _references(node)
        if not found or len(found) > 1 or (node.is_new_draft and not _DEMANDING.isdisjoint(node.tree)):
            return node
        node = _target(node, found[0])
    raise SchemaProblem(f"the reference {_references(node)[0]} leads in a circle")


def _references(node: Node) -> list[str]:
    if not isinstance(node.tree, dict):
        return []
    keywords = ("$ref", "$dynamicRef", "$recursiveRef") if node.is_new_draft else ("$ref",)
    return [node.tree[keyword] for keyword in keywords if isinstance(node.tree.get(keyword), str)]


def _target(node: Node, reference: str) -> Node:
    found = node.resolver.lookup(reference)
    return Node(found.contents, found.resolver, node.draft)


def facet_of(node: Node) -> Facet:
    """Return the demands of a schema as a facet."""
    node = resolve(node)
    tree = node.tree
    if isinstance(tree, bool):
        return Empty() if tree else Never()
    facets = _facets(node)
    if not facets:
        return Empty()
    return facets[0] if len(facets) == 1 else Combined("allOf", list(facets))


def _facets(node: Node) -> list[Facet]:
    tree = node.tree
    facets: list[Facet] = [Combined("allOf", [_target(node, reference)]) for reference in _references(node)]
    facets += _type_facets(node)
    if "const" in tree:
        facets.append(Values([tree["const"]]))
    elif isinstance(tree.get("enum"), list):
        facets.append(Values(tree["enum"]))
    for criterion in ("allOf", "anyOf", "oneOf"):
        if isinstance(tree.get(criterion), list):
            facets.append(Combined(criterion, [node.child(each) for each in tree[criterion]]))
    if "not" in tree:
        facets.append(Not(node.child(tree["not"])))
    if "if" in tree and ("then" in tree or "else" in tree):
        facets.append(Condition({key: tree[key] for key in ("if", "then", "else") if key in tree}))
    return facets


def _type_facets(node: Node) -> list[Facet]:
    declared = node.tree.get("type")
    if isinstance(declared, str):
        return [_simple_facet(declared, node)]
    if isinstance(declared, list):
        return [Combined("anyOf", [_simple_facet(each, node) for each in declared])]
    # Without a type, keywords demand something of the values of theirs alone.
    return [
        _simple_facet(kind, node)
        for kind in ("string", "number", "object", "array")
        if _KEYWORDS[kind] & node.tree.keys()
    ]


def _simple_facet(kind: str, node: Node) -> Simple:
    return Simple("number", node, is_integer=True) if kind == "integer" else Simple(kind, node)
