"""Routing of paths to rows, also with percent-encoded slashes."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import Response

from pessoa.web.routing import Endpoint, RouteTree


async def nothing(_: Request) -> Response:
    return Response()


def tree(*paths: str) -> RouteTree:
    return RouteTree(Endpoint("GET", path, nothing) for path in paths)


def found(routes: RouteTree, path: str) -> tuple[str, dict[str, str]] | None:
    match = routes.find(path)
    return (match.methods["GET"].path, match.parameters) if match else None


def test_an_encoded_slash_stays_inside_its_segment() -> None:
    routes = tree("/subjects/{subject}", "/subjects/{subject}/versions")
    assert found(routes, "/subjects/a%2Fversions") == ("/subjects/{subject}", {"subject": "a/versions"})
    assert found(routes, "/subjects/a/versions") == ("/subjects/{subject}/versions", {"subject": "a"})


def test_segments_are_decoded_as_utf8() -> None:
    assert found(tree("/s/{name}"), "/s/%3A.ctx%3Acaf%C3%A9") == ("/s/{name}", {"name": ":.ctx:café"})


def test_a_literal_segment_is_preferred_and_routing_backtracks_from_a_dead_end() -> None:
    routes = tree("/schemas/types", "/schemas/{kind}/x")
    assert found(routes, "/schemas/types") == ("/schemas/types", {})
    assert found(routes, "/schemas/types/x") == ("/schemas/{kind}/x", {"kind": "types"})


def test_a_trailing_slash_is_ignored() -> None:
    assert found(tree("/a/b"), "/a/b/") == ("/a/b", {})
    assert found(tree("/"), "/") == ("/", {})


@pytest.mark.parametrize("path", ["/a", "/a/b/c", "/a//b", "/x"])
def test_unknown_paths_have_no_route(path: str) -> None:
    assert found(tree("/a/{x}"), path) is None


def test_a_rest_parameter_takes_the_remaining_path() -> None:
    assert found(tree("/files/{path...}"), "/files/a/b%20c") == ("/files/{path...}", {"path": "a/b c"})


def test_two_endpoints_for_one_method_and_path_are_an_error() -> None:
    with pytest.raises(AssertionError):
        tree("/a", "/a")
