"""/schemas: by id, by guid, all of them, and the types that there are."""

from __future__ import annotations

from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.api.requests import (
    DELETED,
    FIND_TAGS,
    FORMAT,
    PAGES,
    REFERENCE_FORMAT,
    RegistryGate,
    context_of,
    flag,
    id_of,
    named_subject,
    page,
    schema_part,
    schema_text,
    tags_part,
    timestamp_part,
    version_part,
    wants_qualified,
)
from pessoa.schema_registry.model import SCHEMA_TYPES
from pessoa.schema_registry.state import Entry, is_matching
from pessoa.serde.subjects import DEFAULT_CONTEXT, parse_subject
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import json_response
from pessoa.web.routing import UNDESCRIBED, Endpoint, Query

_MAX_PAGE = 1000
_SUBJECT = Query("subject", help="the subject that the id is known from; says which context it is in")
_PREFIX = Query("subjectPrefix", help="subjects that start so; `:*:` for all contexts")


def endpoints(gate: RegistryGate) -> list[Endpoint]:
    handlers = _Schemas(gate)
    by_id = {"id": "integer"}
    return [
        Endpoint("GET", "/schemas", handlers.every, "Every schema", (
            _PREFIX, DELETED, Query("latestOnly", "boolean", "the latest version of each subject"),
            Query("aliases", "boolean", "with the aliases of their subjects, which the prefix may be one of"),
            Query("ruleType", help="those with a rule of this type"), *PAGES),
            answer=list[UNDESCRIBED]),
        Endpoint("GET", "/schemas/types", handlers.types, "The types of schemas", answer=list[str]),
        Endpoint("GET", "/schemas/ids/{id}", handlers.by_id, "A schema by its id", (
            _SUBJECT, FORMAT, REFERENCE_FORMAT, FIND_TAGS, Query("fetchMaxId", "boolean", "the highest id too")),
            answer=UNDESCRIBED, path_kinds=by_id),
        Endpoint("GET", "/schemas/ids/{id}/schema", handlers.text_by_id, "Its text alone", (_SUBJECT, FORMAT),
                 answer=UNDESCRIBED, path_kinds=by_id),
        Endpoint("GET", "/schemas/ids/{id}/subjects", handlers.subjects, "The subjects that have it",
                 (_SUBJECT, DELETED, *PAGES), answer=list[str], path_kinds=by_id),
        Endpoint("GET", "/schemas/ids/{id}/versions", handlers.versions, "The versions that are it",
                 (_SUBJECT, DELETED, *PAGES), answer=list[UNDESCRIBED], path_kinds=by_id),
        Endpoint("GET", "/schemas/guids/{guid}", handlers.by_guid, "A schema by its guid", (FORMAT,),
                 answer=UNDESCRIBED),
        Endpoint("GET", "/schemas/guids/{guid}/ids", handlers.ids, "Its ids, by context", answer=list[UNDESCRIBED]),
    ]  # fmt: skip


class _Schemas:
    def __init__(self, gate: RegistryGate) -> None:
        self._gate = gate

    async def every(self, request: Request) -> Response:
        state = self._gate.state
        deleted = flag(request, "deleted")
        prefix = request.query_params.get("subjectPrefix", ":*:")
        entries: list[Entry] = []
        aliases = state.aliases() if flag(request, "aliases") else {}
        matching = set(state.matching(prefix))
        matching |= {
            subject for subject, names in aliases.items() if any(is_matching(name, prefix) for name in names)
        }  # fmt: skip
        for subject in sorted(matching):
            versions = state.versions(subject, deleted=deleted)
            entries += versions[-1:] if flag(request, "latestOnly") else versions
        rule_type = request.query_params.get("ruleType")
        if rule_type:
            entries = [entry for entry in entries if _has_rule(entry, rule_type)]
        shown = page(request, entries, _MAX_PAGE)
        parts = [version_part(state, entry) for entry in shown]
        for entry, part in zip(shown, parts, strict=True):
            if entry.value.subject in aliases:
                part["aliases"] = [*aliases[entry.value.subject]]
        return json_response(request, parts)

    async def types(self, request: Request) -> Response:
        return json_response(request, SCHEMA_TYPES)

    def _find_versions(self, request: Request) -> list[Entry]:
        """Return the versions with the id in the path; those of the subject in the query first, if there is one."""
        state = self._gate.state
        schema_id = id_of(request)
        named = request.query_params.get("subject", "")
        subject = state.unaliased(named_subject(request, named)) if named else ""
        if subject and "context" not in request.path_params:
            subject = state.located(subject)
        context = parse_subject(subject).context if subject else context_of(request)
        entries = state.by_id(context, schema_id)
        if not entries and context != DEFAULT_CONTEXT and not parse_subject(subject).name:
            entries = state.by_id(DEFAULT_CONTEXT, schema_id)
        if not entries:
            raise registry_problems.schema_not_found(schema_id)
        return sorted(entries, key=lambda entry: entry.value.subject != subject) if subject else entries

    async def by_id(self, request: Request) -> Response:
        state = self._gate.state
        entry = self._find_versions(request)[0]
        form = request.query_params.get("format", "")
        value = entry.value
        answer = schema_part(state, entry, form, qualified=wants_qualified(request)) | {"guid": entry.guid}
        answer |= {"subject": value.subject, "version": value.version, "deleted": value.deleted}
        answer |= timestamp_part(entry) | tags_part(request, entry)
        if flag(request, "fetchMaxId"):
            answer["maxId"] = state.context_of(entry.value.subject).highest_id
        return json_response(request, answer)

    async def text_by_id(self, request: Request) -> Response:
        text = schema_text(self._gate.state, self._find_versions(request)[0], request.query_params.get("format", ""))
        return raw_schema(request, text)

    def _find_visible(self, request: Request) -> list[Entry]:
        deleted = flag(request, "deleted")
        return [entry for entry in self._find_versions(request) if deleted or not entry.value.deleted]

    async def subjects(self, request: Request) -> Response:
        names = list(dict.fromkeys(entry.value.subject for entry in self._find_visible(request)))
        return json_response(request, page(request, names))

    async def versions(self, request: Request) -> Response:
        pairs = [
            {"subject": entry.value.subject, "version": entry.value.version} for entry in self._find_visible(request)
        ]
        return json_response(request, page(request, pairs))

    def _by_guid(self, request: Request) -> list[Entry]:
        state = self._gate.state
        text: str = request.path_params["guid"]
        try:
            wanted = UUID(text).bytes
        except ValueError:
            raise registry_problems.schema_not_found(text) from None
        found = [
            entries[0]
            for context, each in state.contexts.items()
            if wanted in each.ids and (entries := state.by_id(context, each.ids[wanted]))
        ]
        if not found:
            raise registry_problems.schema_not_found(text)
        return found

    async def by_guid(self, request: Request) -> Response:
        entry = self._by_guid(request)[0]
        part = schema_part(self._gate.state, entry, request.query_params.get("format", ""))
        return json_response(request, part | {"guid": entry.guid})

    async def ids(self, request: Request) -> Response:
        return json_response(
            request,
            [
                {"context": parse_subject(entry.value.subject).context, "id": entry.value.id}
                for entry in self._by_guid(request)
            ],
        )


def _has_rule(entry: Entry, rule_type: str) -> bool:
    rules = entry.value.ruleSet
    if rules is None:
        return False
    lists = (rules.migrationRules, rules.domainRules, rules.encodingRules)
    return any(rule.type == rule_type for each in lists for rule in each or [])


def raw_schema(request: Request, text: str) -> Response:
    """Return a response with the schema's text as its body; for Avro and JSON Schema that is JSON."""
    from pessoa.web.asgi_app import media_type

    return Answer(text.encode(), content_type=media_type(request))
