"""/schemas: by id, by guid, all of them, and the types that there are."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from pessoa.schema_registry import problems
from pessoa.schema_registry.api.requests import (
    DELETED,
    FORMAT,
    PAGES,
    Desk,
    context_of,
    flag,
    id_of,
    named_subject,
    page,
    schema_part,
    schema_text,
    version_part,
)
from pessoa.schema_registry.model import SCHEMA_TYPES
from pessoa.schema_registry.state import Entry
from pessoa.serde.subjects import DEFAULT_CONTEXT, parse_subject
from pessoa.web.answers import Answer
from pessoa.web.app import json_response
from pessoa.web.routing import Endpoint, Query

_MAX_PAGE = 1000
_SUBJECT = Query("subject", help="the subject that the id is known from; says which context it is in")
_PREFIX = Query("subjectPrefix", help="subjects that start so; `:*:` for all contexts")


def endpoints(desk: Desk) -> list[Endpoint]:
    handlers = _Schemas(desk)
    by_id = {"id": "integer"}
    return [
        Endpoint("GET", "/schemas", handlers.every, "Every schema", (
            _PREFIX, DELETED, Query("latestOnly", "boolean", "the latest version of each subject"), *PAGES),
            answer=list[dict[str, Any]]),
        Endpoint("GET", "/schemas/types", handlers.types, "The types of schemas", answer=list[str]),
        Endpoint("GET", "/schemas/ids/{id}", handlers.by_id, "A schema by its id", (
            _SUBJECT, FORMAT, Query("fetchMaxId", "boolean", "the highest id too")),
            answer=dict[str, Any], path_kinds=by_id),
        Endpoint("GET", "/schemas/ids/{id}/schema", handlers.text_by_id, "Its text alone", (_SUBJECT, FORMAT),
                 answer=dict[str, Any], path_kinds=by_id),
        Endpoint("GET", "/schemas/ids/{id}/subjects", handlers.subjects, "The subjects that have it",
                 (_SUBJECT, DELETED, *PAGES), answer=list[str], path_kinds=by_id),
        Endpoint("GET", "/schemas/ids/{id}/versions", handlers.versions, "The versions that are it",
                 (_SUBJECT, DELETED, *PAGES), answer=list[dict[str, Any]], path_kinds=by_id),
        Endpoint("GET", "/schemas/guids/{guid}", handlers.by_guid, "A schema by its guid", (FORMAT,),
                 answer=dict[str, Any]),
        Endpoint("GET", "/schemas/guids/{guid}/ids", handlers.ids, "Its ids, by context", answer=list[dict[str, Any]]),
    ]  # fmt: skip


class _Schemas:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def every(self, request: Request) -> Response:
        state = self._desk.state
        deleted = flag(request, "deleted")
        prefix = request.query_params.get("subjectPrefix", ":*:")
        entries: list[Entry] = []
        for subject in state.matching(prefix):
            versions = state.versions(subject, deleted=deleted)
            entries += versions[-1:] if flag(request, "latestOnly") else versions
        shown = page(request, entries, _MAX_PAGE)
        return json_response(request, [version_part(state, entry) for entry in shown])

    async def types(self, request: Request) -> Response:
        return json_response(request, SCHEMA_TYPES)

    def _found(self, request: Request) -> list[Entry]:
        """The versions with the id of the path; those of a subject first, if one is named."""
        state = self._desk.state
        schema_id = id_of(request)
        named = request.query_params.get("subject", "")
        subject = named_subject(request, named) if named else ""
        context = parse_subject(subject).context if subject else context_of(request)
        entries = state.by_id(context, schema_id)
        if not entries and context != DEFAULT_CONTEXT and not parse_subject(subject).name:
            entries = state.by_id(DEFAULT_CONTEXT, schema_id)
        if not entries:
            raise problems.schema_not_found(schema_id)
        return sorted(entries, key=lambda entry: entry.value.subject != subject) if subject else entries

    async def by_id(self, request: Request) -> Response:
        state = self._desk.state
        entry = self._found(request)[0]
        answer = schema_part(state, entry, request.query_params.get("format", "")) | {"guid": entry.guid}
        if flag(request, "fetchMaxId"):
            answer["maxId"] = state.context_of(entry.value.subject).highest_id
        return json_response(request, answer)

    async def text_by_id(self, request: Request) -> Response:
        text = schema_text(self._desk.state, self._found(request)[0], request.query_params.get("format", ""))
        return raw_schema(request, text)

    def _visible(self, request: Request) -> list[Entry]:
        deleted = flag(request, "deleted")
        return [entry for entry in self._found(request) if deleted or not entry.value.deleted]

    async def subjects(self, request: Request) -> Response:
        names = list(dict.fromkeys(entry.value.subject for entry in self._visible(request)))
        return json_response(request, page(request, names))

    async def versions(self, request: Request) -> Response:
        pairs = [{"subject": entry.value.subject, "version": entry.value.version} for entry in self._visible(request)]
        return json_response(request, page(request, pairs))

    def _by_guid(self, request: Request) -> list[Entry]:
        state = self._desk.state
        text: str = request.path_params["guid"]
        try:
            wanted = UUID(text).bytes
        except ValueError:
            raise problems.schema_not_found(text) from None
        found = [
            entries[0]
            for context, each in state.contexts.items()
            if wanted in each.ids and (entries := state.by_id(context, each.ids[wanted]))
        ]
        if not found:
            raise problems.schema_not_found(text)
        return found

    async def by_guid(self, request: Request) -> Response:
        entry = self._by_guid(request)[0]
        part = schema_part(self._desk.state, entry, request.query_params.get("format", ""))
        return json_response(request, part | {"guid": entry.guid})

    async def ids(self, request: Request) -> Response:
        return json_response(
            request,
            [
                {"context": parse_subject(entry.value.subject).context, "id": entry.value.id}
                for entry in self._by_guid(request)
            ],
        )


def raw_schema(request: Request, text: str) -> Response:
    """A schema's own text, which for Avro and JSON Schema is JSON itself."""
    from pessoa.web.app import media_type

    return Answer(text.encode(), content_type=media_type(request))
