"""The schema of a request, parsed and spelt, and which version of a subject it is.

Two schemas are the same if their canonical texts, references, metadata and rules are. A request may say less than that:

    references     an Avro schema with all of its types written out is the version that refers to them
    metadata       none in the request: any; without `confluent:version`: that property of the version is disregarded
    rules          none in the request: any
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.contracts import (
    VERSION_PROPERTY,
    merged_metadata,
    merged_rules,
    property_of,
    without_version,
)
from pessoa.schema_registry.model import AVRO, ConfigValue, Metadata, Reference, RuleSet, SchemaTags
from pessoa.schema_registry.schemas import (
    LATEST,
    AvroParsed,
    Parsed,
    parse_schema,
    parsed_entry,
    referred_entry,
    resolve_references,
)
from pessoa.schema_registry.state import Entry, State, identity
from pessoa.serde.schema_problems import SchemaProblem
from pessoa.serde.subjects import parse_subject


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a registration, a look-up and a compatibility check. Other fields are ignored."""

    schema: str | None = None
    schemaType: str | None = None  # noqa: N815 - the name in the JSON
    references: list[Reference] | None = None
    metadata: Metadata | None = None
    ruleSet: RuleSet | None = None  # noqa: N815
    version: int | None = None
    id: int | None = None
    schemaTagsToAdd: list[SchemaTags] | None = None  # noqa: N815
    schemaTagsToRemove: list[SchemaTags] | None = None  # noqa: N815
    propagateSchemaTags: bool = False  # noqa: N815

    @property
    def changes_tags(self) -> bool:
        return bool(self.schemaTagsToAdd or self.schemaTagsToRemove)


class Candidate(NamedTuple):
    parsed: Parsed
    text: str
    canonical: str
    references: tuple[Reference, ...]
    is_normalized: bool
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None

    @property
    def identity(self) -> bytes:
        return identity(self.parsed.schema_type, self.canonical, self.references, self.metadata, self.rule_set)

    @property
    def text_identity(self) -> bytes:
        return identity(self.parsed.schema_type, self.canonical, self.references, None, None)


def candidate(
    state: State, subject: str, request: Request, config: ConfigValue, *, normalize: bool, deleted: bool = False
) -> Candidate:
    """Return the schema of a request, or raise the HttpProblem of an invalid one. With `deleted` it may refer to
    softly deleted versions."""
    normalize = normalize or bool(config.normalize)
    if request.schema is None or not request.schema.strip():
        raise registry_problems.invalid_schema("Empty schema: there is no text in it")
    schema_type = request.schemaType or AVRO
    try:
        references = pinned(state, subject, request.references or [])
        texts = resolve_references(state, subject, references, deleted=deleted)
        parsed = parse_schema(schema_type, request.schema, texts)
        text, canonical = parsed.text, parsed.canonical
        if normalize:
            references = tuple(sorted(references, key=lambda each: (each.name, each.subject, each.version)))
            text = parsed.normalized()
            canonical = parse_schema(schema_type, text, texts).canonical
    except SchemaProblem as wrong:
        raise registry_problems.invalid_schema(f"{shown(request, schema_type)} {wrong}") from None
    metadata, rule_set = merged_metadata(request.metadata), merged_rules(request.ruleSet)
    return Candidate(parsed, text, canonical, references, normalize, metadata, rule_set)


def pinned(state: State, subject: str, references: Sequence[Reference]) -> tuple[Reference, ...]:
    """Return the references with the number of the present version in place of `latest`: a stored schema must not
    change when a new version is registered."""
    found = []
    for reference in references:
        if reference.version == LATEST:
            entry = referred_entry(state, parse_subject(subject).context, reference)
            if entry is not None:
                reference = msgspec.structs.replace(reference, version=entry.value.version)
        found.append(reference)
    return tuple(found)


def shown(request: Request, schema_type: str) -> str:
    text = request.schema or ""
    start = text if len(text) <= 500 else text[:500] + "…"
    return f"{schema_type} with {len(request.references or [])} references, {start!r}:"


def find(state: State, subject: str, wanted: Candidate, *, deleted: bool = False) -> Entry | None:
    """Return the version of a subject that equals this schema exactly; else the newest that agrees with everything
    in the request."""
    return find_exactly(state, subject, wanted, deleted=deleted) or find_newest(state, subject, wanted, deleted=deleted)


def find_exactly(state: State, subject: str, wanted: Candidate, *, deleted: bool = False) -> Entry | None:
    sought = wanted.identity
    versions = reversed(state.versions(subject, deleted=deleted))
    return next((entry for entry in versions if entry.identity == sought), None)


def find_newest(state: State, subject: str, wanted: Candidate, *, deleted: bool = False) -> Entry | None:
    sought = wanted.text_identity
    for entry in reversed(state.versions(subject, deleted=deleted)):
        if (entry.text_identity == sought or _is_inlined(state, entry, wanted)) and _matches_contract(entry, wanted):
            return entry
    return None


def _matches_contract(entry: Entry, wanted: Candidate) -> bool:
    """Whether a version has the metadata and the rules of the request; those that the request lacks match any."""
    metadata, rule_set = merged_metadata(entry.value.metadata), merged_rules(entry.value.ruleSet)
    if property_of(wanted.metadata, VERSION_PROPERTY) is None:
        metadata = without_version(metadata)
    return wanted.metadata in (None, metadata) and wanted.rule_set in (None, rule_set)


def _is_inlined(state: State, entry: Entry, wanted: Candidate) -> bool:
    """Whether a schema without references equals this version with its references written out. Avro alone:
    serialisers hold the whole schema in memory, and send it as one text."""
    value = entry.value
    if wanted.references or not value.references or value.schemaType != AVRO:
        return False
    if not isinstance(wanted.parsed, AvroParsed):
        return False
    try:
        known = parsed_entry(state, entry)
    except SchemaProblem:
        return False
    return isinstance(known, AvroParsed) and known.inlined(normalize=wanted.is_normalized) == wanted.text
