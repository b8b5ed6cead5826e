"""/subjects: what there is, registering, looking up."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.schema_registry import problems
from pessoa.schema_registry.api.requests import (
    DELETED,
    FORMAT,
    NORMALIZE,
    PAGES,
    Desk,
    StoredVersion,
    find_entry,
    flag,
    page,
    schema_part,
    schema_text,
    subject_of,
    version_of,
    version_part,
)
from pessoa.schema_registry.api.schemas import raw_schema
from pessoa.schema_registry.model import Metadata, RuleSet
from pessoa.schema_registry.records import SchemaKey
from pessoa.schema_registry.registering import (
    Decision,
    decide_lookup,
    decide_register,
    think_ahead,
)
from pessoa.schema_registry.registering import Request as SchemaRequest
from pessoa.schema_registry.state import Entry, State
from pessoa.web.app import json_response
from pessoa.web.bodies import decode_json, read_body
from pessoa.web.routing import Endpoint, Query


class Registered(msgspec.Struct):
    """For the document: the answer to a registration."""

    id: int
    version: int = 0
    guid: str = ""
    schema: str = ""


class SchemaEntity(msgspec.Struct):
    entityPath: str = ""  # noqa: N815 - the names in the JSON
    entityType: str = "sr_field"  # noqa: N815


class SchemaTags(msgspec.Struct):
    schemaEntity: SchemaEntity  # noqa: N815
    tags: list[str] = []


class TagRequest(msgspec.Struct):
    newVersion: int | None = None  # noqa: N815
    tagsToAdd: list[SchemaTags] | None = None  # noqa: N815
    tagsToRemove: list[SchemaTags] | None = None  # noqa: N815
    metadata: Metadata | None = None
    ruleSet: RuleSet | None = None  # noqa: N815


def endpoints(desk: Desk) -> list[Endpoint]:
    handlers = _Subjects(desk)
    only = Query("deletedOnly", "boolean", "only softly deleted ones")
    version = "/subjects/{subject}/versions/{version}"
    return [
        Endpoint("GET", "/subjects", handlers.names, "The subjects",
                 (Query("subjectPrefix", help="those that start so"), DELETED, only, *PAGES), answer=list[str]),
        Endpoint("GET", "/subjects/{subject}/versions", handlers.versions, "The versions of a subject",
                 (DELETED, only, Query("deletedAsNegative", "boolean", "softly deleted ones as negative numbers"),
                  *PAGES), answer=list[int]),
        Endpoint("GET", version, handlers.version, "One version", (FORMAT, DELETED), answer=StoredVersion),
        Endpoint("GET", f"{version}/schema", handlers.text, "Its text alone", (FORMAT, DELETED), answer=dict[str, Any]),
        Endpoint("GET", f"{version}/referencedby", handlers.referenced_by, "The ids of schemas that refer to it",
                 (DELETED, *PAGES), answer=list[int]),
        Endpoint("POST", f"{version}/tags", handlers.tag, "Change the tags of a schema", body=TagRequest,
                 answer=Registered),
        Endpoint("GET", "/subjects/{subject}/metadata", handlers.by_metadata, "The latest version with this metadata",
                 (Query("key", many=True), Query("value", many=True), FORMAT, DELETED), answer=StoredVersion),
        Endpoint("POST", "/subjects/{subject}/versions", handlers.register, "Register a schema",
                 (NORMALIZE, FORMAT, Query("force", "boolean", "without asking whether it is compatible")),
                 body=SchemaRequest, answer=Registered),
        Endpoint("POST", "/subjects/{subject}", handlers.look_up, "Look a schema up", (NORMALIZE, FORMAT, DELETED),
                 body=SchemaRequest, answer=StoredVersion),
    ]  # fmt: skip


class _Subjects:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._level = desk.registry.config.default_level

    async def names(self, request: Request) -> Response:
        state = self._desk.state
        default = f":{request.path_params['context'].strip(':')}:" if "context" in request.path_params else ":*:"
        found = []
        for subject in state.matching(request.query_params.get("subjectPrefix", default)):
            is_alive = bool(state.versions(subject))
            if flag(request, "deletedOnly"):
                wanted = not is_alive
            else:
                wanted = is_alive or flag(request, "deleted")
            if wanted:
                found.append(subject)
        return json_response(request, page(request, found))

    async def versions(self, request: Request) -> Response:
        subject = subject_of(request)
        everything = self._desk.state.versions(subject, deleted=True)
        as_negative, only = flag(request, "deletedAsNegative"), flag(request, "deletedOnly")
        with_deleted = flag(request, "deleted") or as_negative or only
        entries = [
            entry
            for entry in everything
            if (entry.value.deleted and with_deleted) or (not entry.value.deleted and not only)
        ]
        if not entries:
            raise problems.subject_not_found(subject)
        numbers = [
            -entry.value.version if as_negative and entry.value.deleted else entry.value.version for entry in entries
        ]
        return json_response(request, page(request, numbers))

    def _entry(self, request: Request) -> Entry:
        subject, version = subject_of(request), version_of(request)
        return find_entry(self._desk.state, subject, version, deleted=flag(request, "deleted"))

    async def version(self, request: Request) -> Response:
        form = request.query_params.get("format", "")
        return json_response(request, version_part(self._desk.state, self._entry(request), form))

    async def text(self, request: Request) -> Response:
        entry = self._entry(request)
        return raw_schema(request, schema_text(self._desk.state, entry, request.query_params.get("format", "")))

    async def referenced_by(self, request: Request) -> Response:
        state = self._desk.state
        # A softly deleted version may still be referred to.
        entry = find_entry(state, subject_of(request), version_of(request), deleted=True)
        keys = state.referrers.get(SchemaKey(entry.value.subject, entry.value.version), {})
        entries = [state.subjects[key.subject][key.version] for key in keys]
        deleted = flag(request, "deleted")
        ids = sorted({each.value.id for each in entries if deleted or not each.value.deleted})
        return json_response(request, page(request, ids))

    async def by_metadata(self, request: Request) -> Response:
        state, subject = self._desk.state, subject_of(request)
        query = request.query_params
        wanted = dict(zip(query.getlist("key"), query.getlist("value"), strict=False))
        entries = state.versions(subject, deleted=flag(request, "deleted"))
        if not entries:
            raise problems.subject_not_found(subject)
        for entry in reversed(entries):
            properties = (entry.value.metadata.properties if entry.value.metadata else None) or {}
            if all(properties.get(key) == value for key, value in wanted.items()):
                return json_response(request, version_part(state, entry, query.get("format", "")))
        raise problems.schema_not_found()

    async def register(self, request: Request) -> Response:
        body = await read_body(request)
        wanted = decode_json(body, SchemaRequest)
        subject = subject_of(request)
        normalize, force = flag(request, "normalize"), flag(request, "force")

        def decide(state: State) -> Decision:
            return decide_register(state, subject, wanted, default_level=self._level, normalize=normalize, force=force)

        def answer(decision: Decision) -> dict[str, Any]:
            return _registered(self._desk.state, decision.entry, wanted, request.query_params.get("format", ""))

        await think_ahead(self._desk.state, subject, wanted, self._level)
        # What is there already needs no leader: this is what serialisers do all day.
        known = decide(self._desk.state)
        if not known.records:
            return json_response(request, answer(known))
        return await self._desk.write(request, body, decide, answer)

    async def look_up(self, request: Request) -> Response:
        wanted = decode_json(await read_body(request), SchemaRequest)
        if self._desk.state.versions(subject_of(request), deleted=True):
            await think_ahead(self._desk.state, subject_of(request), wanted, self._level, against=())
        entry = decide_lookup(
            self._desk.state,
            subject_of(request),
            wanted,
            default_level=self._level,
            normalize=flag(request, "normalize"),
            deleted=flag(request, "deleted"),
        )
        return json_response(request, version_part(self._desk.state, entry, request.query_params.get("format", "")))

    async def tag(self, request: Request) -> Response:
        body = await read_body(request)
        wanted = decode_json(body, TagRequest)
        subject, version = subject_of(request), version_of(request)

        def decide(state: State) -> Decision:
            value = find_entry(state, subject, version).value
            metadata = _tagged(wanted.metadata or value.metadata, wanted)
            changed = SchemaRequest(
                value.schema, value.schemaType, list(value.references), metadata, wanted.ruleSet or value.ruleSet,
                wanted.newVersion,
            )  # fmt: skip
            return decide_register(state, subject, changed, default_level=self._level, normalize=False, force=False)

        def answer(decision: Decision) -> dict[str, Any]:
            return _registered(self._desk.state, decision.entry, None, "")

        return await self._desk.write(request, body, decide, answer)


def _registered(state: State, entry: Entry, wanted: SchemaRequest | None, form: str) -> dict[str, Any]:
    """The answer to a registration. The schema itself is in it only if it is not the one that was sent.

    Clients keep the schema of this answer in place of their own, in whatever format they sent theirs.
    """
    value = entry.value
    answer = {"id": value.id, "version": value.version, "guid": entry.guid}
    if wanted is not None and (value.metadata, value.ruleSet) == (wanted.metadata, wanted.ruleSet):
        return answer
    return answer | schema_part(state, entry, form)


def _tagged(metadata: Metadata | None, request: TagRequest) -> Metadata:
    tags = {path: list(names) for path, names in ((metadata.tags if metadata else None) or {}).items()}
    for each in request.tagsToAdd or []:
        names = tags.setdefault(each.schemaEntity.entityPath, [])
        names += [name for name in each.tags if name not in names]
    for each in request.tagsToRemove or []:
        path = each.schemaEntity.entityPath
        tags[path] = [name for name in tags.get(path, []) if name not in each.tags]
    kept = {path: names for path, names in tags.items() if names}
    return msgspec.structs.replace(metadata or Metadata(), tags=kept or None)
