"""The table of endpoints, and how a path finds its row.

A path is cut at its slashes *before* it is percent-decoded: the subject `a/b` travels as `a%2Fb` and is one segment.
That is why the tree below exists; a router that matches decoded paths cannot tell the two apart. Looking up costs one
dictionary access per segment, however many endpoints there are.

    /subjects/{subject}/versions/{version}   a name in braces takes one segment
    /static/{path...}                        with dots it takes all the rest

Where a literal and a name both fit, the literal wins; a choice that leads nowhere is taken back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

# For the document: an object of JSON whose members are not described.
UNDESCRIBED = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter. `kind` is a type of JSON Schema: string, integer or boolean."""

    name: str
    kind: str = "string"
    help: str = ""
    many: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """One row of the table: method, path, handler, and its description at /docs."""

    method: str
    path: str
    handle: Handler
    summary: str = ""
    query: tuple[Query, ...] = ()
    # A msgspec type, for the document alone: handlers decode their bodies themselves.
    body: object = None
    # What the answer looks like, again for the document; None for an answer without a body.
    answer: object = None
    status: int = 200
    # None: the app's default.
    consumes: tuple[str, ...] | None = None
    produces: tuple[str, ...] | None = None
    # Answers also to clients that are not authenticated: health checks.
    is_public: bool = False
    # Stands in the document; another way to the same thing need not.
    is_listed: bool = True
    # JSON Schemas for path parameters that are not plain strings, for the document.
    path_kinds: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Node:
    """The children of one path segment in the tree."""

    literals: dict[str, Node] = field(default_factory=dict)
    parameter: tuple[str, Node] | None = None
    rest: tuple[str, dict[str, Endpoint]] | None = None
    methods: dict[str, Endpoint] = field(default_factory=dict)


class Match(NamedTuple):
    """The rows of a path by method, and the values of its parameters."""

    methods: Mapping[str, Endpoint]
    parameters: dict[str, str]


class RouteTree:
    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = Node()
        for endpoint in endpoints:
            self._add(endpoint)

    def _add(self, endpoint: Endpoint) -> None:
        node = self._root
        methods: dict[str, Endpoint] | None = None
        for segment in _segments(endpoint.path):
            assert methods is None, f"{endpoint.path}: nothing may follow the rest of a path"
            if segment.endswith("...}"):
                if node.rest is None:
                    node.rest = (segment[1:-4], {})
                methods = node.rest[1]
            elif segment.startswith("{"):
                name = segment[1:-1]
                if node.parameter is None:
                    node.parameter = (name, Node())
                assert node.parameter[0] == name, f"{endpoint.path}: another row calls {name} {node.parameter[0]}"
                node = node.parameter[1]
            else:
                node = node.literals.setdefault(segment, Node())
        methods = node.methods if methods is None else methods
        assert endpoint.method not in methods, f"two rows for {endpoint.method} {endpoint.path}"
        methods[endpoint.method] = endpoint

    def find(self, raw_path: str) -> Match | None:
        """Return the rows for a path as it came over the wire, percent-encoded; a slash at the end changes nothing."""
        parameters: dict[str, str] = {}
        methods = _walk(self._root, _segments(raw_path), 0, parameters)
        return Match(methods, parameters) if methods else None


def _segments(path: str) -> list[str]:
    inner = path.strip("/")
    return inner.split("/") if inner else []


def _walk(node: Node, segments: list[str], depth: int, parameters: dict[str, str]) -> Mapping[str, Endpoint] | None:
    if depth == len(segments):
        return node.methods or None
    segment = segments[depth]
    if "%" in segment:
        segment = unquote(segment)
    literal = node.literals.get(segment)
    if literal is not None:
        found = _walk(literal, segments, depth + 1, parameters)
        if found:
            return found
    if node.parameter is not None and segment:
        name, following = node.parameter
        found = _walk(following, segments, depth + 1, parameters)
        if found:
            parameters[name] = segment
            return found
    if node.rest is not None:
        name, methods = node.rest
        parameters[name] = unquote("/".join(segments[depth:]))
        return methods
    return None
