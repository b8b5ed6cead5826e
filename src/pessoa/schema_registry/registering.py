"""Registering and looking up: the state and a request in, records and an answer out.

    1. the mode of the subject lets it be: not read-only; ids and versions are given only while importing
    2. the schema parses, with its references; normalised if the request or the configuration says so
    3. the same schema is already under this subject: that is the answer, nothing is written
    4. it may follow the earlier versions, by the level of the subject (not asked while importing, or with force)
    5. the same schema is in this context: it keeps its id; else the next one
    6. the version is one more than the highest that the subject ever had; and a softly deleted version with the same
       schema goes for good, unless something refers to it

Ids and versions are never given out twice, because the state that this rests on is the leader's (see registry.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from pessoa.schema_registry import problems
from pessoa.schema_registry.compatibility.levels import Comparable, Earlier, Level, check_level, parse_level
from pessoa.schema_registry.model import (
    AVRO,
    ConfigValue,
    Metadata,
    Mode,
    Reference,
    RuleSet,
    SchemaValue,
)
from pessoa.schema_registry.records import Record, SchemaKey
from pessoa.schema_registry.schemas import (
    LATEST,
    Parsed,
    parse_schema,
    parsed_entry,
    referred_entry,
    resolve_references,
)
from pessoa.schema_registry.state import Entry, State, identity
from pessoa.serde.framing import MAX_ID
from pessoa.serde.problems import SchemaProblem
from pessoa.serde.subjects import GLOBAL_CONTEXT, WILDCARD, parse_subject

# Shorter texts parse faster than a thread is woken.
_LONG_TEXT = 4096


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a registration, a look-up and a compatibility check. Other fields are ignored."""

    schema: str | None = None
    schemaType: str | None = None  # noqa: N815 - the name in the JSON
    references: list[Reference] | None = None
    metadata: Metadata | None = None
    ruleSet: RuleSet | None = None  # noqa: N815
    version: int | None = None
    id: int | None = None


class Decision(NamedTuple):
    """What to write, and the entry to answer with."""

    records: tuple[Record, ...]
    entry: Entry


class Candidate(NamedTuple):
    """A schema that was asked about, parsed and spelt."""

    parsed: Parsed
    text: str
    identity: bytes
    references: tuple[Reference, ...]
    metadata: Metadata | None
    rule_set: RuleSet | None


def effective_config(state: State, subject: str | None, default_level: Level) -> ConfigValue:
    """The configuration that holds for a subject: each setting from the nearest scope that has it."""
    merged = ConfigValue()
    for config in state.config_scopes(subject):
        gaps = {
            name: getattr(config, name)
            for name in ConfigValue.__struct_fields__
            if getattr(merged, name) is None and name not in ("subject", "alias")
        }
        merged = msgspec.structs.replace(merged, **gaps)
    if merged.compatibilityLevel is None:
        merged = msgspec.structs.replace(merged, compatibilityLevel=str(default_level))
    return merged


def level_of(config: ConfigValue) -> Level:
    return parse_level(config.compatibilityLevel or "") or Level.BACKWARD


def candidate(state: State, subject: str, request: Request, config: ConfigValue, *, normalize: bool) -> Candidate:
    """The schema of a request, or the problem with it."""
    normalize = normalize or bool(config.normalize)
    if request.schema is None or not request.schema.strip():
        raise problems.invalid_schema("there is no text in it")
    schema_type = request.schemaType or AVRO
    try:
        references = _pinned(state, subject, request.references or [])
        texts = resolve_references(state, subject, references)
        parsed = parse_schema(schema_type, request.schema, texts)
        text, canonical = parsed.text, parsed.canonical
        if normalize:
            text = parsed.normalized()
            canonical = parse_schema(schema_type, text, texts).canonical
    except SchemaProblem as wrong:
        raise problems.invalid_schema(f"{_shown(request, schema_type)} {wrong}") from None
    metadata = _layered(Metadata, config.defaultMetadata, request.metadata, config.overrideMetadata)
    rule_set = _layered(RuleSet, config.defaultRuleSet, request.ruleSet, config.overrideRuleSet)
    own_identity = identity(schema_type, canonical, references, metadata, rule_set)
    return Candidate(parsed, text, own_identity, references, metadata, rule_set)


async def think_ahead(
    state: State, subject: str, request: Request, default_level: Level, against: Sequence[Entry] | None = None
) -> None:
    """Parse the schema of a request in a thread, and compare it; the decision finds both among what is remembered.

    A megabyte of schema takes seconds, in which everybody else would wait. What is wrong with it is said at once.
    `against` is what it will be compared with, if not with the versions that a registration looks at.
    """
    if not request.schema:
        return
    schema_type = request.schemaType or AVRO
    config = effective_config(state, subject, default_level)
    entries = _predecessors(state, subject, config) if against is None else list(against)
    if len(request.schema) + sum(len(each.value.schema) for each in entries) < _LONG_TEXT:
        return
    if any(each.value.schema == request.schema for each in entries):
        entries = []  # it is there already, and will not be compared
    try:
        texts = resolve_references(state, subject, _pinned(state, subject, request.references or []))
        # Resolved here: the state is the loop's.
        earlier = [(each.value, resolve_references(state, each.value.subject, each.value.references))
                   for each in entries]  # fmt: skip
    except SchemaProblem as wrong:
        raise problems.invalid_schema(f"{_shown(request, schema_type)} {wrong}") from None
    text = request.schema

    def think() -> None:
        parsed = parse_schema(schema_type, text, texts)
        if config.normalize:
            parse_schema(schema_type, parsed.normalized(), texts)
        for value, known in earlier:
            try:
                before = Earlier(value.version, parse_schema(value.schemaType, value.schema, known))
            except SchemaProblem:
                return  # the decision will say so
            if check_level(level_of(config), parsed, [before], is_lenient=config.compatibilityPolicy == "LENIENT"):
                return

    try:
        await asyncio.to_thread(think)
    except SchemaProblem as wrong:
        raise problems.invalid_schema(f"{_shown(request, schema_type)} {wrong}") from None


Layer = TypeVar("Layer", Metadata, RuleSet)


def _layered(kind: type[Layer], *layers: Layer | None) -> Layer | None:
    """Defaults, what the request says, and what the configuration insists on: later layers win, name by name."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name in kind.__struct_fields__:
            value = getattr(layer, name, None)
            if isinstance(value, dict):
                value = {**merged.get(name, {}), **value}
            if value is not None:
                merged[name] = value
    return kind(**merged) if merged else None


def _pinned(state: State, subject: str, references: Sequence[Reference]) -> tuple[Reference, ...]:
    """`latest` means the version that is the latest now: a schema must not change by itself."""
    pinned = []
    for reference in references:
        if reference.version == LATEST:
            entry = referred_entry(state, parse_subject(subject).context, reference)
            if entry is not None:
                reference = msgspec.structs.replace(reference, version=entry.value.version)
        pinned.append(reference)
    return tuple(pinned)


def _shown(request: Request, schema_type: str) -> str:
    text = request.schema or ""
    shown = text if len(text) <= 500 else text[:500] + "…"
    return f"{schema_type} with {len(request.references or [])} references, {shown!r}:"


def decide_register(
    state: State, subject: str, request: Request, *, default_level: Level, normalize: bool, force: bool
) -> Decision:
    check_subject(subject)
    mode = state.mode_of(subject)
    config = effective_config(state, subject, default_level)
    wanted = candidate(state, subject, request, config, normalize=normalize)
    if request.id is None or request.id < 0:
        existing = find(state, subject, wanted)
        if existing is not None and (request.version in (None, 0, -1) or existing.value.version == request.version):
            return Decision((), existing)
    check_writable(mode, subject)
    given_id = request.id if request.id is not None and request.id >= 0 else None
    if given_id is not None and not mode.allows_import:
        raise problems.not_permitted(
            f"An id can be given only while '{subject}' is being imported: set its mode to IMPORT"
        )
    if given_id is None and mode is not Mode.READWRITE:
        raise problems.not_permitted(f"The mode of '{subject}' is {mode}: schemas without an id need READWRITE")
    if not mode.allows_import and not force:
        found = findings(state, subject, wanted.parsed, config)
        if found:
            raise problems.incompatible(subject, found)
    schema_id = _id_for(state, subject, wanted, given_id)
    version = _version_for(state, subject, request.version, mode)
    value = SchemaValue(
        subject, version, schema_id, wanted.text, wanted.parsed.schema_type, wanted.references, wanted.metadata,
        wanted.rule_set,
    )  # fmt: skip
    records = [Record(SchemaKey(subject, version), value), *_replaced(state, subject, schema_id, version)]
    return Decision(tuple(records), Entry(value, wanted.identity))


def check_subject(subject: str) -> None:
    """A name that a schema can be registered under."""
    parsed = parse_subject(subject)
    if (
        not parsed.name
        or parsed.context in (WILDCARD, GLOBAL_CONTEXT)
        or any(character < " " or "\ud800" <= character <= "\udfff" for character in subject)
        or parsed.name in (GLOBAL_CONTEXT.lstrip("."), "__EMPTY")
    ):
        raise problems.invalid_subject(subject)


def check_writable(mode: Mode, subject: str | None) -> None:
    if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        raise problems.not_permitted(f"'{subject}' is read-only" if subject else "The registry is read-only")


def find(state: State, subject: str, wanted: Candidate, *, deleted: bool = False) -> Entry | None:
    """The newest version of a subject that is this schema."""
    for entry in reversed(state.versions(subject, deleted=deleted)):
        if entry.identity == wanted.identity:
            return entry
    return None


def findings(state: State, subject: str, schema: Comparable, config: ConfigValue) -> tuple[str, ...]:
    """What keeps a schema from following the versions of a subject."""
    return compare(state, schema, _predecessors(state, subject, config), config)


def _predecessors(state: State, subject: str, config: ConfigValue) -> list[Entry]:
    """The versions that the next one is compared with, newest first."""
    level = level_of(config)
    if level is Level.NONE:
        return []
    entries = list(reversed(state.versions(subject)))
    if config.compatibilityGroup is not None:
        entries = [each for each in entries if _same_group(each, config.compatibilityGroup, entries)]
    return entries if level.is_transitive else entries[:1]


def _same_group(entry: Entry, group: str, entries: Sequence[Entry]) -> bool:
    def value_of(each: Entry) -> str | None:
        properties = each.value.metadata.properties if each.value.metadata else None
        return (properties or {}).get(group)

    return value_of(entry) == value_of(entries[0])


def compare(state: State, schema: Comparable, entries: Sequence[Entry], config: ConfigValue) -> tuple[str, ...]:
    earlier = []
    for entry in entries:
        try:
            earlier.append(Earlier(entry.value.version, parsed_entry(state, entry)))
        except SchemaProblem as wrong:
            # A version that was taken elsewhere and that we cannot read: nobody can promise anything about it.
            return (f"{{errorType:'UNREADABLE', description:'Version {entry.value.version} does not parse: {wrong}'}}",)
    return check_level(level_of(config), schema, earlier, is_lenient=config.compatibilityPolicy == "LENIENT")


def _id_for(state: State, subject: str, wanted: Candidate, given: int | None) -> int:
    context = state.context_of(subject)
    if given is None:
        known = context.ids.get(wanted.identity)
        number = context.highest_id + 1 if known is None else known
        if number > MAX_ID:
            raise problems.store_failed("every schema id has been used")
        return number
    if given > MAX_ID:
        raise problems.id_mismatch(f"{given} is no schema id")
    others = state.by_id(parse_subject(subject).context, given)
    if others and others[0].identity != wanted.identity:
        raise problems.not_permitted(f"Another schema has the id {given} already")
    return given


def _version_for(state: State, subject: str, given: int | None, mode: Mode) -> int:
    latest = state.latest(subject, deleted=True)
    following = 1 if latest is None else latest.value.version + 1
    if given is None or given in (0, -1) or given == following:
        return following
    if mode.allows_import and 0 < given <= MAX_ID:
        return given
    raise problems.invalid_schema(f"the next version is {following}, and not {given}")


def _replaced(state: State, subject: str, schema_id: int, version: int) -> list[Record]:
    return [
        Record(SchemaKey(subject, entry.value.version), None)
        for entry in state.versions(subject, deleted=True)
        if entry.value.deleted
        and entry.value.id == schema_id
        and entry.value.version != version
        and not state.is_referenced(SchemaKey(subject, entry.value.version))
    ]


def decide_lookup(
    state: State, subject: str, request: Request, *, default_level: Level, normalize: bool, deleted: bool
) -> Entry:
    """The version of a subject that is this schema."""
    if not state.versions(subject, deleted=deleted):
        raise problems.subject_not_found(subject)
    config = effective_config(state, subject, default_level)
    wanted = candidate(state, subject, request, config, normalize=normalize)
    entry = find(state, subject, wanted, deleted=deleted)
    if entry is None:
        raise problems.schema_not_found()
    return entry


def decide_compatible(
    state: State, subject: str, request: Request, version: int | None, *, default_level: Level, normalize: bool
) -> tuple[str, ...]:
    """What keeps the schema from being compatible with one version, or with those that a registration looks at."""
    config = effective_config(state, subject, default_level)
    if version is None:
        wanted = candidate(state, subject, request, config, normalize=normalize)
        return findings(state, subject, wanted.parsed, config)
    if not state.versions(subject):
        raise problems.subject_not_found(subject)
    entry = state.latest(subject) if version == LATEST else state.entry(subject, version)
    if entry is None or entry.value.deleted:
        raise problems.version_not_found(version)
    wanted = candidate(state, subject, request, config, normalize=normalize)
    return compare(state, wanted.parsed, [entry], config)
