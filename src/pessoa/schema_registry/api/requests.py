"""What the handlers ask of a request, and the way of a write: here if this instance leads, else through the leader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from pessoa.base.json_value import JsonObject
from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.leader_forwarding import OFFSET, WriteForwarder
from pessoa.schema_registry.model import AVRO, SchemaValue, as_json
from pessoa.schema_registry.registry import NotLeader, Outcome, Registry
from pessoa.schema_registry.schemas import LATEST, parsed_entry
from pessoa.schema_registry.state import Entry, State, qualify
from pessoa.schema_registry.tags import find_tags
from pessoa.serde.schema_problems import SchemaProblem
from pessoa.serde.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, parse_subject
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import json_response
from pessoa.web.forwarding import is_forwarded
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Query

O = TypeVar("O", bound=Outcome)  # noqa: E741
T = TypeVar("T")

MAX_VERSION = 2**31 - 1
PAGES = (
    Query("offset", "integer", "how many to leave out at the start"),
    Query("limit", "integer", "how many to return at most; less than 1 for all"),
)
DELETED = Query("deleted", "boolean", "softly deleted ones too")
FORMAT = Query("format", help="serialized (Protobuf), resolved (Avro)")
FIND_TAGS = Query("findTags", help="name what has these tags; * for any", many=True)
REFERENCE_FORMAT = Query("referenceFormat", help="qualified: the subjects of references with their contexts")
NORMALIZE = Query("normalize", "boolean", "compare in the normal spelling")


@dataclass(frozen=True, slots=True)
class RegistryGate:
    """The handlers' access to the registry: the state to read, and `write`, which decides here if this instance
    leads, else forwards to the leader."""

    registry: Registry
    forwarder: WriteForwarder

    @property
    def state(self) -> State:
        return self.registry.state

    def subject_of(self, request: Request) -> str:
        """Return the full name of the subject in the path; if that is an alias, of the subject behind it."""
        return self.state.unaliased(subject_of(request))

    def located_subject(self, request: Request) -> str:
        """Return the subject as `subject_of` does, for reads: a name without context may be that of a subject in
        another context."""
        subject = self.subject_of(request)
        return self.state.located(subject) if "context" not in request.path_params else subject

    async def write(
        self, request: Request, body: bytes, decide: Callable[[State], O], answer: Callable[[O], object] | None
    ) -> Response:
        """Decide, write and return the response; or return the leader's if another instance leads. Without `answer`
        the status is 204."""
        while True:
            if not self.registry.is_leader:
                try:
                    return await self.forwarder.forward(request, body)
                except NotLeader:
                    pass  # it is this instance by now
            try:
                outcome = await self.registry.write(decide)
            except NotLeader:
                if is_forwarded(request):
                    raise registry_problems.unknown_leader() from None
                continue
            response = Answer(b"", 204) if answer is None else json_response(request, answer(outcome))
            response.extra_headers[OFFSET] = str(self.registry.store.applied_offset)
            return response


# Paths and queries.


def subject_of(request: Request) -> str:
    """The full name of the subject in the path."""
    return named_subject(request, request.path_params["subject"])


def named_subject(request: Request, name: str) -> str:
    if name == "__EMPTY":
        name = ""
    return qualify(name, context_of(request))


def context_of(request: Request) -> str:
    """Return the context in the path: /contexts/:.name:/subjects/…"""
    prefix: str = request.path_params.get("context", "")
    return as_context(prefix) if prefix else DEFAULT_CONTEXT


def as_context(text: str) -> str:
    """Return `.name` for `:.name:`, `.name` or `name`."""
    name = text.strip(":")
    return name if name.startswith(".") else f".{name}"


def place_of(request: Request) -> str | None:
    """Return the scope in the path: a subject, a context, or None for the global one."""
    name = request.path_params.get("subject")
    if name is None:
        context = context_of(request)
        return None if context == DEFAULT_CONTEXT else f":{context}:"
    subject = named_subject(request, name)
    parsed = parse_subject(subject)
    if parsed.name:
        return subject
    if parsed.context == DEFAULT_CONTEXT:
        return None
    return f":{parsed.context}:" if parsed.context != GLOBAL_CONTEXT else f":{GLOBAL_CONTEXT}:"


def version_of(request: Request) -> int:
    text: str = request.path_params["version"]
    if text == "latest":
        return LATEST
    try:
        number = int(text) if text.lstrip("-").isdecimal() and text.isascii() else 0
    except ValueError:
        number = 0  # more digits than Python turns into a number
    if number != LATEST and not 1 <= number <= MAX_VERSION:
        raise registry_problems.invalid_version(text)
    return number


def id_of(request: Request) -> int:
    text: str = request.path_params["id"]
    if not text.isascii() or not text.lstrip("-").isdecimal() or len(text) > 12:
        raise HttpProblem(404, "HTTP 404 Not Found")
    return int(text)


def flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return int(text) if len(text) < 20 else default
    except ValueError:
        raise HttpProblem(404, "HTTP 404 Not Found") from None


def page(request: Request, items: Sequence[T], highest: int | None = None) -> Sequence[T]:
    """Return the items from `offset` on, at most `limit` of them, as the query parameters of the request say."""
    start = max(number(request, "offset", 0), 0)
    limit = number(request, "limit", -1)
    if limit < 1:
        limit = highest if highest is not None else len(items)
    if highest is not None:
        limit = min(limit, highest)
    return items[start : start + limit]


# Entries.


def find_entry(state: State, subject: str, version: int, *, deleted: bool = False) -> Entry:
    """Return a version of a subject. Raises an HttpProblem if it does not exist."""
    if not state.versions(subject, deleted=deleted):
        raise registry_problems.subject_not_found(subject)
    entry = state.latest(subject, deleted=deleted) if version == LATEST else state.entry(subject, version)
    if entry is None or (entry.value.deleted and not deleted):
        raise registry_problems.version_not_found(version)
    return entry


def schema_text(state: State, entry: Entry, form: str) -> str:
    """Return the text of a version in the format that the request wants."""
    if not form:
        return entry.value.schema
    try:
        return parsed_entry(state, entry).formatted(form)
    except SchemaProblem as wrong:
        raise registry_problems.invalid_schema(str(wrong)) from None


def schema_part(state: State, entry: Entry, form: str = "", *, qualified: bool = False) -> JsonObject:
    """Return the JSON fields of a schema that are the same for all subjects that have it."""
    value = entry.value
    part: JsonObject = {}
    if value.schemaType != AVRO:
        part["schemaType"] = value.schemaType
    if value.references:
        context = parse_subject(value.subject).context
        part["references"] = [
            as_json(reference) | ({"subject": qualify(reference.subject, context)} if qualified else {})
            for reference in value.references
        ]
    if value.metadata is not None:
        part["metadata"] = as_json(value.metadata)
    if value.ruleSet is not None:
        part["ruleSet"] = as_json(value.ruleSet)
    return {**part, "schema": schema_text(state, entry, form)}


def version_part(state: State, entry: Entry, form: str = "", *, qualified: bool = False) -> JsonObject:
    """Return the JSON object of a version with all its fields."""
    value = entry.value
    part: JsonObject = {"subject": value.subject, "version": value.version, "id": value.id, "guid": entry.guid}
    part |= schema_part(state, entry, form, qualified=qualified) | timestamp_part(entry)
    return part | {"deleted": True} if value.deleted else part


def timestamp_part(entry: Entry) -> JsonObject:
    return {} if entry.timestamp_ms is None else {"ts": entry.timestamp_ms}


def wants_qualified(request: Request) -> bool:
    return request.query_params.get("referenceFormat", "").lower() == "qualified"


def tags_part(request: Request, entry: Entry) -> JsonObject:
    """Return the field `schemaTags` with the tags that `findTags` names; empty without that parameter."""
    wanted = request.query_params.getlist("findTags")
    if not wanted:
        return {}
    return {"schemaTags": [as_json(each) for each in find_tags(entry.value.schemaType, entry.value.schema, wanted)]}


class StoredVersion(SchemaValue, frozen=True):
    """For the document: a version as it is answered."""

    guid: str = ""
    ts: int = 0
