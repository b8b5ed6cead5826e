"""/subjects: what there is, registering, looking up."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.base.json_value import JsonObject
from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.api.requests import (
    DELETED,
    FIND_TAGS,
    FORMAT,
    NORMALIZE,
    PAGES,
    REFERENCE_FORMAT,
    RegistryGate,
    StoredVersion,
    find_entry,
    flag,
    page,
    schema_part,
    schema_text,
    tags_part,
    version_of,
    version_part,
    wants_qualified,
)
from pessoa.schema_registry.api.schema_endpoints import raw_schema
from pessoa.schema_registry.candidates import Request as SchemaRequest
from pessoa.schema_registry.contracts import merged_rules, without_rules, without_version
from pessoa.schema_registry.model import Metadata, RuleSet, SchemaTags
from pessoa.schema_registry.registering import (
    Decision,
    decide_lookup,
    decide_register,
    next_version,
    prepare_in_thread,
)
from pessoa.schema_registry.registry_records import SchemaKey
from pessoa.schema_registry.state import Entry, State
from pessoa.web.asgi_app import json_response
from pessoa.web.bodies import decode_json, read_body
from pessoa.web.routing import UNDESCRIBED, Endpoint, Query


class Registered(msgspec.Struct):
    """For the document: the answer to a registration."""

    id: int
    version: int = 0
    guid: str = ""
    schema: str = ""


class TagRequest(msgspec.Struct):
    newVersion: int | None = None  # noqa: N815 - the names in the JSON
    tagsToAdd: list[SchemaTags] | None = None  # noqa: N815
    tagsToRemove: list[SchemaTags] | None = None  # noqa: N815
    metadata: Metadata | None = None
    ruleSet: RuleSet | None = None  # noqa: N815
    rulesToMerge: RuleSet | None = None  # noqa: N815
    rulesToRemove: list[str] | None = None  # noqa: N815


def endpoints(gate: RegistryGate) -> list[Endpoint]:
    handlers = _Subjects(gate)
    only = Query("deletedOnly", "boolean", "only softly deleted ones")
    version = "/subjects/{subject}/versions/{version}"
    return [
        Endpoint("GET", "/subjects", handlers.names, "The subjects",
                 (Query("subjectPrefix", help="those that start so"), DELETED, only, *PAGES), answer=list[str]),
        Endpoint("GET", "/subjects/{subject}/versions", handlers.versions, "The versions of a subject",
                 (DELETED, only, Query("deletedAsNegative", "boolean", "softly deleted ones as negative numbers"),
                  *PAGES), answer=list[int]),
        Endpoint("GET", version, handlers.version, "One version", (FORMAT, REFERENCE_FORMAT, DELETED, FIND_TAGS),
                 answer=StoredVersion),
        Endpoint("GET", f"{version}/schema", handlers.text, "Its text alone", (FORMAT, DELETED), answer=UNDESCRIBED),
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
    def __init__(self, gate: RegistryGate) -> None:
        self._gate = gate
        self._level = gate.registry.config.default_level

    async def names(self, request: Request) -> Response:
        state = self._gate.state
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
        subject = self._gate.subject_of(request)
        everything = self._gate.state.versions(subject, deleted=True)
        as_negative, only = flag(request, "deletedAsNegative"), flag(request, "deletedOnly")
        with_deleted = flag(request, "deleted") or as_negative or only
        entries = [
            entry
            for entry in everything
            if (entry.value.deleted and with_deleted) or (not entry.value.deleted and not only)
        ]
        if not entries:
            raise registry_problems.subject_not_found(subject)
        numbers = [
            -entry.value.version if as_negative and entry.value.deleted else entry.value.version for entry in entries
        ]
        return json_response(request, page(request, numbers))

    def _entry(self, request: Request) -> Entry:
        subject, version = self._gate.located_subject(request), version_of(request)
        return find_entry(self._gate.state, subject, version, deleted=flag(request, "deleted"))

    async def version(self, request: Request) -> Response:
        form = request.query_params.get("format", "")
        entry = self._entry(request)
        part = version_part(self._gate.state, entry, form, qualified=wants_qualified(request))
        return json_response(request, part | tags_part(request, entry))

    async def text(self, request: Request) -> Response:
        entry = self._entry(request)
        return raw_schema(request, schema_text(self._gate.state, entry, request.query_params.get("format", "")))

    async def referenced_by(self, request: Request) -> Response:
        state = self._gate.state
        # A softly deleted version may still be referred to.
        entry = find_entry(state, self._gate.subject_of(request), version_of(request), deleted=True)
        keys = state.referrers.get(SchemaKey(entry.value.subject, entry.value.version), {})
        entries = [state.subjects[key.subject][key.version] for key in keys]
        deleted = flag(request, "deleted")
        ids = sorted({each.value.id for each in entries if deleted or not each.value.deleted})
        return json_response(request, page(request, ids))

    async def by_metadata(self, request: Request) -> Response:
        state, subject = self._gate.state, self._gate.subject_of(request)
        query = request.query_params
        wanted = dict(zip(query.getlist("key"), query.getlist("value"), strict=False))
        entries = state.versions(subject, deleted=flag(request, "deleted"))
        if not entries:
            raise registry_problems.subject_not_found(subject)
        for entry in reversed(entries):
            properties = (entry.value.metadata.properties if entry.value.metadata else None) or {}
            if all(properties.get(key) == value for key, value in wanted.items()):
                return json_response(request, version_part(state, entry, query.get("format", "")))
        raise registry_problems.schema_not_found()

    async def register(self, request: Request) -> Response:
        body = await read_body(request)
        wanted = decode_json(body, SchemaRequest)
        subject = self._gate.subject_of(request)
        normalize, force = flag(request, "normalize"), flag(request, "force")

        def decide(state: State) -> Decision:
            return decide_register(state, subject, wanted, default_level=self._level, normalize=normalize, force=force)

        def answer(decision: Decision) -> JsonObject:
            return _registration_json(self._gate.state, decision.entry, wanted, request.query_params.get("format", ""))

        await prepare_in_thread(self._gate.state, subject, wanted, self._level)
        # What is there already needs no leader: this is what serialisers do all day.
        known = decide(self._gate.state)
        if not known.records:
            return json_response(request, answer(known))
        return await self._gate.write(request, body, decide, answer)

    async def look_up(self, request: Request) -> Response:
        wanted = decode_json(await read_body(request), SchemaRequest)
        subject = self._gate.located_subject(request)
        await prepare_in_thread(self._gate.state, subject, wanted, self._level, against=())
        entry = decide_lookup(
            self._gate.state,
            subject,
            wanted,
            default_level=self._level,
            normalize=flag(request, "normalize"),
            deleted=flag(request, "deleted"),
        )
        return json_response(request, version_part(self._gate.state, entry, request.query_params.get("format", "")))

    async def tag(self, request: Request) -> Response:
        body = await read_body(request)
        wanted = decode_json(body, TagRequest)
        subject, version = self._gate.subject_of(request), version_of(request)

        def decide(state: State) -> Decision:
            value = find_entry(state, subject, version).value
            rules = without_rules(wanted.ruleSet or value.ruleSet, wanted.rulesToRemove or [])
            changed = SchemaRequest(
                value.schema,
                value.schemaType,
                list(value.references),
                wanted.metadata or without_version(value.metadata),
                merged_rules(rules, wanted.rulesToMerge),
                wanted.newVersion or next_version(state, subject),
                schemaTagsToAdd=wanted.tagsToAdd,
                schemaTagsToRemove=wanted.tagsToRemove,
            )
            return decide_register(state, subject, changed, default_level=self._level, normalize=False, force=False)

        def answer(decision: Decision) -> JsonObject:
            return _registration_json(self._gate.state, decision.entry, None, "")

        return await self._gate.write(request, body, decide, answer)


def _registration_json(state: State, entry: Entry, wanted: SchemaRequest | None, form: str) -> JsonObject:
    """Return the JSON of a registration's response. It has the schema only if that is not the one in the request:
    clients keep the schema of the response in place of their own, also if they sent theirs in another format."""
    value = entry.value
    answer: JsonObject = {"id": value.id, "version": value.version, "guid": entry.guid}
    if wanted is not None and wanted.schema and (value.metadata, value.ruleSet) == (wanted.metadata, wanted.ruleSet):
        return answer
    return answer | schema_part(state, entry, form)
