"""The table of endpoints as an OpenAPI 3.1 document, and as a page to read.

The document is made from the rows alone: paths and their parameters, query parameters, the msgspec types of bodies and
answers. So it cannot say anything that the table does not do. The page at /docs is plain HTML from the same document;
it loads nothing from anywhere, and works on a machine without a network.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import NotRequired, TypeAlias, TypedDict

import msgspec

from pessoa import __version__
from pessoa.web.negotiation import essence
from pessoa.web.routing import Endpoint

Schema: TypeAlias = dict[str, object]
Content: TypeAlias = dict[str, dict[str, Schema]]


class Info(TypedDict):
    title: str
    version: str


# "in" is a word of Python's, and no name of a field in a class.
Parameter = TypedDict(
    "Parameter", {"name": str, "in": str, "required": bool, "schema": Schema, "description": NotRequired[str]}
)


class RequestBody(TypedDict):
    required: bool
    content: Content


class Response(TypedDict):
    description: str
    content: NotRequired[Content]


class Operation(TypedDict):
    summary: str
    operationId: str
    parameters: list[Parameter]
    responses: dict[str, Response]
    requestBody: NotRequired[RequestBody]


class Document(TypedDict):
    openapi: str
    info: Info
    # By path and by method.
    paths: dict[str, dict[str, Operation]]
    components: dict[str, dict[str, Schema]]


_PARAMETER = re.compile(r"{(\w+)(?:\.\.\.)?}")
_REFERENCES = "#/components/schemas/{name}"
_ERROR: Schema = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
}


def document(
    name: str, endpoints: Iterable[Endpoint], *, consumes: tuple[str, ...], produces: tuple[str, ...]
) -> Document:
    rows = list(endpoints)
    types = [kind for row in rows for kind in (row.body, row.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCES)
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Operation]] = {}
    for row in rows:
        operation: Operation = {
            "summary": row.summary or f"{row.method} {row.path}",
            "operationId": _operation_id(row),
            "parameters": [*_path_parameters(row), *_query_parameters(row)],
            "responses": _responses(row, by_type, produces),
        }
        if row.body is not None:
            taken = consumes if row.consumes is None else row.consumes
            operation["requestBody"] = {
                "required": True,
                "content": {each: {"schema": by_type[id(row.body)]} for each in taken},
            }
        paths.setdefault(row.path.replace("...}", "}"), {})[row.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": __version__},
        "paths": paths,
        "components": {"schemas": {**components, "Error": _ERROR}},
    }


def _operation_id(row: Endpoint) -> str:
    return "_".join([row.method.lower(), *re.findall(r"\w+", row.path)])


def _path_parameters(row: Endpoint) -> list[Parameter]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": row.path_kinds.get(name, "string")}}
        for name in _PARAMETER.findall(row.path)
    ]


def _query_parameters(row: Endpoint) -> list[Parameter]:
    parameters: list[Parameter] = []
    for query in row.query:
        schema: Schema = {"type": query.kind}
        if query.many:
            schema = {"type": "array", "items": schema}
        parameters.append(
            {"name": query.name, "in": "query", "required": False, "schema": schema, "description": query.help}
        )
    return parameters


def _responses(row: Endpoint, by_type: dict[int, Schema], produces: tuple[str, ...]) -> dict[str, Response]:
    types = [essence(each) for each in (produces if row.produces is None else row.produces)]
    success: Response = {"description": "Success"}
    if row.answer is not None:
        success["content"] = {each: {"schema": by_type[id(row.answer)]} for each in types}
    error: Response = {
        "description": "A problem",
        "content": {each: {"schema": {"$ref": _REFERENCES.format(name="Error")}} for each in types},
    }
    return {str(row.status): success, "default": error}


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733 }}
h1 {{ font-weight: 600 }} summary {{ cursor: pointer; padding: .35rem 0 }}
code, pre {{ font-family: ui-monospace, monospace }}
details {{ border-bottom: 1px solid #dde3ea }} table {{ border-collapse: collapse; margin: .3rem 0 1rem 1rem }}
td {{ padding: .1rem .8rem .1rem 0; vertical-align: top }}
.verb {{ display: inline-block; width: 4.5rem; font-weight: 600 }}
.get {{ color: #12683b }} .post {{ color: #1f5fa8 }} .put {{ color: #8a5a00 }} .delete {{ color: #a32020 }}
.dim {{ color: #5d6b7a }}
</style></head><body>
<h1>{title}</h1><p class="dim">version {version} · <a href="openapi.json">OpenAPI document</a> ·
<a href="metrics">metrics</a> · <a href="health">health</a></p>
{rows}
</body></html>
"""


def page(openapi: Document) -> str:
    """Return the document as HTML."""
    rows = [
        _row(method, path, operation)
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
    ]
    info = openapi["info"]
    return _PAGE.format(title=html.escape(info["title"]), version=html.escape(info["version"]), rows="\n".join(rows))


def _row(method: str, path: str, operation: Operation) -> str:
    cells = [
        (each["name"], each["in"], str(each["schema"].get("type", "")), each.get("description", ""))
        for each in operation["parameters"]
    ]
    if "requestBody" in operation:
        cells += [("body", "request", media_type, "") for media_type in operation["requestBody"]["content"]]
    cells += [
        ("answer", status, media_type, answer["description"])
        for status, answer in operation["responses"].items()
        for media_type in answer.get("content", {"": {}})
    ]
    table = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
    return (
        f'<details><summary><span class="verb {method}">{method.upper()}</span><code>{html.escape(path)}</code> '
        f'<span class="dim">{html.escape(operation["summary"])}</span></summary><table>{table}</table></details>'
    )
