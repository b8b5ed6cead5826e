"""Registering and looking up: the state and a request in, records and an answer out.

    1. the mode of the subject lets it be: not read-only; ids and versions are given only while importing
    2. the schema parses, with its references (candidates.py); its metadata and rules are put together (contracts.py)
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
from typing import NamedTuple

import msgspec

from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.candidates import (
    Candidate,
    Request,
    candidate,
    find,
    find_exactly,
    find_newest,
    pinned,
    shown,
)
from pessoa.schema_registry.compatibility.levels import Comparable, Earlier, Level, check_level, parse_level
from pessoa.schema_registry.contracts import (
    asked_version,
    check_rules,
    configured_metadata,
    configured_rules,
    property_of,
    reserved_fields,
    with_version,
    without_version,
)
from pessoa.schema_registry.model import (
    AVRO,
    ConfigValue,
    Metadata,
    Mode,
    RuleSet,
    SchemaValue,
)
from pessoa.schema_registry.registry_records import Record, SchemaKey
from pessoa.schema_registry.schemas import LATEST, parse_schema, parsed_entry, resolve_references
from pessoa.schema_registry.state import Entry, State
from pessoa.schema_registry.tags import change_tags, propagate_tags
from pessoa.serde.framing import MAX_ID
from pessoa.serde.schema_problems import SchemaProblem
from pessoa.serde.subjects import GLOBAL_CONTEXT, WILDCARD, parse_subject

# Shorter texts parse faster than a thread is woken.
_LONG_TEXT = 4096


class Decision(NamedTuple):
    """The records to write, and the entry to respond with."""

    records: tuple[Record, ...]
    entry: Entry


def effective_config(state: State, subject: str | None, default_level: Level) -> ConfigValue:
    """Return the configuration that holds for a subject: each setting from the nearest scope that has it."""
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


async def prepare_in_thread(
    state: State, subject: str, request: Request, default_level: Level, against: Sequence[Entry] | None = None
) -> None:
    """Parse and compare the schema of a request in a thread, so that the decision finds both results in the cache.

    A megabyte of schema takes seconds, in which all other requests would wait. Raises the HttpProblem of an invalid
    schema. `against` are the versions to compare with, if not those that a registration compares with.
    """
    if not request.schema:
        return
    schema_type = request.schemaType or AVRO
    config = effective_config(state, subject, default_level)
    metadata = request.metadata or _inherit(state, subject)[0]
    entries = _predecessors(state, subject, config, metadata) if against is None else list(against)
    if len(request.schema) + sum(len(each.value.schema) for each in entries) < _LONG_TEXT:
        return
    if any(each.value.schema == request.schema for each in entries):
        entries = []  # it is there already, and will not be compared
    try:
        texts = resolve_references(state, subject, pinned(state, subject, request.references or []))
        # Resolved here: the state is the loop's.
        earlier = [(each.value, resolve_references(state, each.value.subject, each.value.references))
                   for each in entries]  # fmt: skip
    except SchemaProblem as wrong:
        raise registry_problems.invalid_schema(f"{shown(request, schema_type)} {wrong}") from None
    text = request.schema

    def prepare() -> None:
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
        await asyncio.to_thread(prepare)
    except SchemaProblem as wrong:
        raise registry_problems.invalid_schema(f"{shown(request, schema_type)} {wrong}") from None


def decide_register(
    state: State, subject: str, request: Request, *, default_level: Level, normalize: bool, force: bool
) -> Decision:
    check_subject(subject)
    mode = state.mode_of(subject)
    config = effective_config(state, subject, default_level)
    request = _add_tags(state, subject, _complete(state, subject, request))
    wanted = candidate(state, subject, request, config, normalize=normalize)
    check_rules(wanted.rule_set)
    given_id = request.id if request.id is not None and request.id >= 0 else None
    given_version = request.version if request.version not in (None, 0, -1) else None
    if request.changes_tags and given_version is None:
        given_version = _version_for(state, subject, None, mode)
    if given_id is None and given_version is None:
        existing = _find_registered(state, subject, wanted)
        if existing is not None:
            return Decision((), existing)
    _check_mode(mode, subject, given_id)
    if given_id is None and not mode.allows_import:
        wanted = _add_contract(state, subject, wanted, config)
        wanted_version = given_version or asked_version(wanted.metadata)
        if wanted_version is not None:
            given_version = _version_for(state, subject, wanted_version if wanted_version > 0 else None, mode)
            wanted = wanted._replace(metadata=with_version(wanted.metadata, given_version))
        else:
            existing = find_exactly(state, subject, wanted)
            if existing is not None:
                return Decision((), existing)
        _check_reserved(wanted, config)
    if not mode.allows_import and not force:
        found = findings(state, subject, wanted, config)
        if found:
            raise registry_problems.incompatible(subject, ", ".join(found))
    schema_id = _id_for(state, subject, wanted, given_id)
    version = _version_for(state, subject, given_version, mode)
    value = SchemaValue(
        subject, version, schema_id, wanted.text, wanted.parsed.schema_type, wanted.references, wanted.metadata,
        wanted.rule_set,
    )  # fmt: skip
    records = [Record(SchemaKey(subject, version), value), *_replacement_records(state, subject, schema_id, version)]
    return Decision(tuple(records), Entry(value, wanted.identity, wanted.text_identity))


def _complete(state: State, subject: str, request: Request) -> Request:
    """Return the request with the latest schema, if it has metadata or rules and no schema."""
    latest = state.latest(subject)
    if request.schema or latest is None or (request.metadata is None and request.ruleSet is None):
        return request
    value = latest.value
    return msgspec.structs.replace(
        request, schema=value.schema, schemaType=value.schemaType, references=list(value.references)
    )


def _add_tags(state: State, subject: str, request: Request) -> Request:
    """Return the request with its tags added to, or removed from, the schema's text."""
    text, schema_type = request.schema or "", request.schemaType or AVRO
    latest = state.latest(subject)
    if request.propagateSchemaTags and text and latest is not None and latest.value.schemaType == schema_type:
        text = propagate_tags(schema_type, text, latest.value.schema)
    if request.changes_tags:
        text = change_tags(schema_type, text, request.schemaTagsToAdd or [], request.schemaTagsToRemove or [])
    return request if text == request.schema else msgspec.structs.replace(request, schema=text or None)


def _find_registered(state: State, subject: str, wanted: Candidate) -> Entry | None:
    """Return the version that a registration would repeat: without metadata and rules, the newest with this text."""
    if wanted.metadata is None and wanted.rule_set is None:
        return find_newest(state, subject, wanted)
    return find(state, subject, wanted)


def _inherit(state: State, subject: str) -> tuple[Metadata | None, RuleSet | None]:
    """Return the metadata and rules that the next version gets if the request has none: those of the latest version."""
    latest = state.latest(subject)
    return (None, None) if latest is None else (without_version(latest.value.metadata), latest.value.ruleSet)


def _add_contract(state: State, subject: str, wanted: Candidate, config: ConfigValue) -> Candidate:
    """Return the schema with the metadata and the rules that it would be registered with."""
    metadata, rule_set = _inherit(state, subject)
    return wanted._replace(
        metadata=configured_metadata(config, wanted.metadata or metadata),
        rule_set=configured_rules(config, wanted.rule_set or rule_set),
    )


def _check_mode(mode: Mode, subject: str, given_id: int | None) -> None:
    check_writable(mode, subject)
    if given_id is not None and not mode.allows_import:
        raise registry_problems.not_permitted(
            f"An id can be given only while '{subject}' is being imported: set its mode to IMPORT"
        )
    if given_id is None and mode is not Mode.READWRITE:
        raise registry_problems.not_permitted(
            f"The mode of '{subject}' is {mode}: schemas without an id need READWRITE"
        )


def _check_reserved(wanted: Candidate, config: ConfigValue) -> None:
    if not config.validateFields:
        return
    conflicts = [name for name in reserved_fields(wanted.metadata) if name in wanted.parsed.field_names()]
    if conflicts:
        raise registry_problems.invalid_schema(f"its metadata reserve the fields {', '.join(conflicts)}, which it has")


def check_subject(subject: str) -> None:
    """Raise the HttpProblem for a subject's name under which no schema can be registered."""
    parsed = parse_subject(subject)
    if (
        not parsed.name
        or parsed.context in (WILDCARD, GLOBAL_CONTEXT)
        or any(character < " " or "\ud800" <= character <= "\udfff" for character in subject)
        or parsed.name in (GLOBAL_CONTEXT.lstrip("."), "__EMPTY")
    ):
        raise registry_problems.invalid_subject(subject)


def check_writable(mode: Mode, subject: str | None) -> None:
    if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        raise registry_problems.not_permitted(f"'{subject}' is read-only" if subject else "The registry is read-only")


def findings(state: State, subject: str, wanted: Candidate, config: ConfigValue) -> tuple[str, ...]:
    """Return the incompatibilities between a schema and the versions of a subject that it has to follow."""
    predecessors = _predecessors(state, subject, config, wanted.metadata)
    if config.validateFields and predecessors:
        removed = set(reserved_fields(predecessors[0].value.metadata)) - set(reserved_fields(wanted.metadata))
        if removed:
            sentence = f"Fields that were reserved are not any more: {', '.join(sorted(removed))}"
            return (f"{{errorType:'RESERVED_FIELDS_REMOVED', description:'{sentence}'}}",)
    return compare(state, wanted.parsed, predecessors, config)


def _predecessors(state: State, subject: str, config: ConfigValue, metadata: Metadata | None) -> list[Entry]:
    """Return the versions that a new version is compared with, newest first: those of its compatibility group."""
    level = level_of(config)
    if level is Level.NONE:
        return []
    entries = list(reversed(state.versions(subject)))
    group = config.compatibilityGroup
    if group is not None:
        own = property_of(metadata, group)
        entries = [each for each in entries if property_of(each.value.metadata, group) == own]
    return entries if level.is_transitive else entries[:1]


def compare(state: State, schema: Comparable, entries: Sequence[Entry], config: ConfigValue) -> tuple[str, ...]:
    earlier = []
    for entry in entries:
        try:
            earlier.append(Earlier(entry.value.version, parsed_entry(state, entry)))
        except SchemaProblem as wrong:
            # A version that was taken elsewhere and that we cannot read: nothing can be promised about it.
            return (f"{{errorType:'UNREADABLE', description:'Version {entry.value.version} does not parse: {wrong}'}}",)
    return check_level(level_of(config), schema, earlier, is_lenient=config.compatibilityPolicy == "LENIENT")


def _id_for(state: State, subject: str, wanted: Candidate, given: int | None) -> int:
    context = state.context_of(subject)
    if given is None:
        known = context.ids.get(wanted.identity)
        number = context.highest_id + 1 if known is None else known
        if number > MAX_ID:
            raise registry_problems.store_failed("every schema id has been used")
        return number
    if given > MAX_ID:
        raise registry_problems.id_mismatch(f"{given} is no schema id")
    others = state.by_id(parse_subject(subject).context, given)
    if others and others[0].text_identity != wanted.text_identity:
        raise registry_problems.not_permitted(f"Another schema has the id {given} already")
    return given


def next_version(state: State, subject: str) -> int:
    latest = state.latest(subject, deleted=True)
    return 1 if latest is None else latest.value.version + 1


def _version_for(state: State, subject: str, given: int | None, mode: Mode) -> int:
    following = next_version(state, subject)
    if given is None or given in (0, -1) or given == following:
        return following
    if mode.allows_import and 0 < given <= MAX_ID:
        return given
    raise registry_problems.invalid_schema(f"the next version is {following}, and not {given}")


def _replacement_records(state: State, subject: str, schema_id: int, version: int) -> list[Record]:
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
    """Return the version of a subject that equals this schema. Raises an HttpProblem if there is none."""
    config = effective_config(state, subject, default_level)
    wanted = candidate(state, subject, request, config, normalize=normalize, deleted=True)
    if not state.versions(subject, deleted=deleted):
        raise registry_problems.subject_not_found(subject)
    entry = find(state, subject, wanted, deleted=deleted)
    if entry is None:
        raise registry_problems.schema_not_found()
    return entry


def decide_compatible(
    state: State, subject: str, request: Request, version: int | None, *, default_level: Level, normalize: bool
) -> tuple[str, ...]:
    """Return the incompatibilities of the schema with one version, or with those that a registration compares with."""
    config = effective_config(state, subject, default_level)
    wanted = candidate(state, subject, _complete(state, subject, request), config, normalize=normalize)
    check_rules(wanted.rule_set)
    if version is None:
        wanted = _add_contract(state, subject, wanted, config)
        _check_reserved(wanted, config)
        return findings(state, subject, wanted, config)
    entry = state.latest(subject) if version == LATEST else state.entry(subject, version)
    if entry is None and version == LATEST:
        return ()  # the first version of a subject follows nothing
    if entry is None or entry.value.deleted:
        raise registry_problems.version_not_found(version)
    return compare(state, wanted.parsed, [entry], config)
