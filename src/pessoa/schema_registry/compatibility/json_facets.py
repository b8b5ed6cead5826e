"""A JSON Schema as what it demands: facets.

JSON Schema lets one object say many things at once: `{"type": "string", "enum": ["a"], "anyOf": […]}` is a string *and*
one of these values *and* one of those. To compare two of them, each is taken apart into facets, of which one alone is
the schema and several are an allOf:

    Empty       everything is valid: true, {}
    Never       nothing is: false, {"not": {}}
    Simple      one type with its keywords: string, number, boolean, null, object, array
    Values      enum and const
    Combined    allOf, anyOf, oneOf; a list of types is an anyOf of them
    Not         not
    Condition   if, then, else

References are followed on the way, through all drafts' keywords; `definitions` and annotations demand nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pessoa.serde.problems import SchemaProblem

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
_KEYWORDS = {"string": _STRING, "number": _NUMBER, "integer": _NUMBER, "object": _OBJECT, "array": _ARRAY}
# A chain of references this long leads in a circle.
_MAX_REFERENCES = 100


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A piece of schema with the resolver that its references are relative to."""

    tree: Any
    resolver: Any

    def child(self, tree: Any) -> Node:
        return Node(tree, self.resolver)


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
    values: list[Any]
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
    tree: dict[str, Any]
    name: str = "if"


Facet: TypeAlias = Empty | Never | Simple | Values | Combined | Not | Condition


def resolve(node: Node) -> Node:
    """Follow `$ref` until there is a schema. Siblings of a `$ref` count in the newer drafts; see `facet_of`."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(node.tree, dict) or not isinstance(node.tree.get("$ref"), str) or _has_siblings(node.tree):
            return node
        node = _target(node)
    raise SchemaProblem(f"the reference {node.tree['$ref']} leads in a circle")


def _target(node: Node) -> Node:
    found = node.resolver.lookup(node.tree["$ref"])
    return Node(found.contents, found.resolver)


def _has_siblings(tree: dict[str, Any]) -> bool:
    demanding = _STRING | _NUMBER | _OBJECT | _ARRAY | {"type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if"}
    return any(key in demanding for key in tree)


def facet_of(node: Node) -> Facet:
    """What a schema demands."""
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
    facets: list[Facet] = []
    if isinstance(tree.get("$ref"), str):
        facets.append(Combined("allOf", [_target(node)]))
    facets += _typed(node)
    if "const" in tree:
        facets.append(Values([tree["const"]]))
    elif isinstance(tree.get("enum"), list):
        facets.append(Values(tree["enum"]))
    for criterion in ("allOf", "anyOf", "oneOf"):
        if isinstance(tree.get(criterion), list):
            facets.append(Combined(criterion, [node.child(each) for each in tree[criterion]]))
    if "not" in tree:
        rejected = node.child(tree["not"])
        facets.append(Never() if isinstance(facet_of(rejected), Empty) else Not(rejected))
    if "if" in tree and ("then" in tree or "else" in tree):
        facets.append(Condition({key: tree[key] for key in ("if", "then", "else") if key in tree}))
    return facets


def _typed(node: Node) -> list[Facet]:
    declared = node.tree.get("type")
    if isinstance(declared, str):
        return [_simple(declared, node)]
    if isinstance(declared, list):
        kinds = [_simple(each, node) for each in declared]
        return [kinds[0]] if len(kinds) == 1 else [Combined("anyOf", list(kinds))]
    # Without a type, keywords demand something of the values of theirs alone.
    return [
        _simple(kind, node) for kind in ("string", "number", "object", "array") if _KEYWORDS[kind] & node.tree.keys()
    ]


def _simple(kind: str, node: Node) -> Simple:
    return Simple("number", node, is_integer=True) if kind == "integer" else Simple(kind, node)
