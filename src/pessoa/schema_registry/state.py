"""What is registered: the records of `_schemas`, replayed.

`replay` alone changes the state, on the live path and on load alike, and never refuses: what stands in the topic is the
truth. Everything else here answers questions. Two states exist in a leader: the one that readers are served from, which
holds what is committed, and a copy that is ahead by what is being committed, on which the next decision rests.

Ids belong to a context. They only grow: the next id is one above the highest that was ever seen, and when the
schema with the highest id is deleted for good, a mark with that id is left in the topic (`ID_MARKS`), since compaction
would otherwise forget it. The mark is shaped as a configuration of a context that no client uses: other registries
read over it. Associations and exporters, for which the topic's format has no records that we know, are kept the same
way: private records, each a text under a name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from pessoa.schema_registry.model import (
    ConfigValue,
    DeleteSubjectValue,
    Metadata,
    Mode,
    ModeValue,
    Reference,
    RuleSet,
    SchemaValue,
)
from pessoa.schema_registry.registry_records import (
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    ModeKey,
    Record,
    SchemaKey,
)
from pessoa.serde.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, WILDCARD, Subject, parse_subject

ID_MARKS = ".pessoa-ids"
ASSOCIATIONS = ".pessoa-associations"
EXPORTERS = ".pessoa-exporters"
_PRIVATE = (ASSOCIATIONS, EXPORTERS)
_PRIVATE_PROPERTY = "json"
_MARK_PROPERTY = "highest.id"

# schema type, text → the text by which two schemas are the same
Canonical = Callable[[str, str], str]


def identity(
    schema_type: str,
    canonical: str,
    references: tuple[Reference, ...],
    metadata: Metadata | None,
    rule_set: RuleSet | None,
) -> bytes:
    """Return a hash of sixteen bytes, equal only for equal schemas; it is also the guid."""
    parts = (schema_type, canonical, [(each.name, each.subject, each.version) for each in references])
    rest = (metadata, rule_set) if metadata or rule_set else ()
    return hashlib.md5(msgspec.json.encode((*parts, *rest)), usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a subject."""

    value: SchemaValue
    identity: bytes
    # The same without metadata and rules.
    text_identity: bytes
    # When the version, or the last change to it, was written.
    timestamp_ms: int | None = None

    @property
    def guid(self) -> str:
        digits = self.identity.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@dataclass(slots=True)
class ContextState:
    """The ids of the schemas in one context."""

    highest_id: int = 0
    # id → (subject, version) that have it, in the order in which they came
    uses: dict[int, dict[SchemaKey, None]] = field(default_factory=dict)
    # identity → id
    ids: dict[bytes, int] = field(default_factory=dict)

    def copy(self) -> ContextState:
        uses = {number: dict(keys) for number, keys in self.uses.items()}
        return ContextState(self.highest_id, uses, dict(self.ids))


class State:
    def __init__(self, canonical: Canonical) -> None:
        self._canonical = canonical
        # Every subject by its full name, with its versions; a version that is deleted for good is not there.
        self.subjects: dict[str, dict[int, Entry]] = {}
        self.contexts: dict[str, ContextState] = {}
        self.configs: dict[str | None, ConfigValue] = {}
        self.modes: dict[str | None, ModeValue] = {}
        # (subject, version) → the versions that refer to it
        self.referrers: dict[SchemaKey, dict[SchemaKey, None]] = {}
        self.declared_contexts: dict[str, None] = {}
        # kind of private record → name → text
        self.private: dict[str, dict[str, str]] = {}

    def __repr__(self) -> str:
        return f"<State {len(self.subjects)} subjects in {len(self.contexts)} contexts>"

    def copy(self) -> State:
        duplicate = State(self._canonical)
        duplicate.subjects = {subject: dict(versions) for subject, versions in self.subjects.items()}
        duplicate.contexts = {name: context.copy() for name, context in self.contexts.items()}
        duplicate.configs = dict(self.configs)
        duplicate.modes = dict(self.modes)
        duplicate.referrers = {key: dict(each) for key, each in self.referrers.items()}
        duplicate.declared_contexts = dict(self.declared_contexts)
        duplicate.private = {kind: dict(texts) for kind, texts in self.private.items()}
        return duplicate

    # Replaying.

    def replay(self, record: Record) -> None:
        key, value, timestamp_ms = record
        match key:
            case SchemaKey():
                self._remove_version(key)
                if isinstance(value, SchemaValue):
                    self._replay_schema(key, value, timestamp_ms)
            case ConfigKey():
                self._configure(key.subject, value)
            case ModeKey():
                if isinstance(value, ModeValue):
                    self.modes[key.subject] = value
                else:
                    self.modes.pop(key.subject, None)
            case DeleteSubjectKey() if isinstance(value, DeleteSubjectValue):
                self._delete_up_to(key.subject, value.version)
            case ContextKey():
                self.declared_contexts[key.context] = None

    def _replay_schema(self, key: SchemaKey, value: SchemaValue, timestamp_ms: int | None) -> None:
        canonical = self._canonical(value.schemaType, value.schema)
        text_identity = identity(value.schemaType, canonical, value.references, None, None)
        full = text_identity
        if value.metadata or value.ruleSet:
            full = identity(value.schemaType, canonical, value.references, value.metadata, value.ruleSet)
        entry = Entry(value, full, text_identity, timestamp_ms)
        versions = self.subjects.setdefault(key.subject, {})
        versions[key.version] = entry
        if len(versions) > 1 and key.version != max(versions):
            # Kept in the order of versions, which is not that of the log after compaction.
            self.subjects[key.subject] = dict(sorted(versions.items()))
        context = self.context_of(key.subject)
        context.highest_id = max(context.highest_id, value.id)
        context.uses.setdefault(value.id, {})[key] = None
        context.ids.setdefault(entry.identity, value.id)
        for reference in value.references:
            self.referrers.setdefault(self.referred(key.subject, reference), {})[key] = None

    def _remove_version(self, key: SchemaKey) -> None:
        versions = self.subjects.get(key.subject, {})
        entry = versions.pop(key.version, None)
        if entry is None:
            return
        if not versions:
            del self.subjects[key.subject]
        context = self.context_of(key.subject)
        uses = context.uses[entry.value.id]
        uses.pop(key, None)
        if not uses:
            del context.uses[entry.value.id]
            if context.ids.get(entry.identity) == entry.value.id:
                del context.ids[entry.identity]
        for reference in entry.value.references:
            referrers = self.referrers.get(self.referred(key.subject, reference), {})
            referrers.pop(key, None)

    def _delete_up_to(self, subject: str, version: int) -> None:
        for number, entry in list(self.subjects.get(subject, {}).items()):
            if number <= version and not entry.value.deleted:
                deleted = msgspec.structs.replace(entry.value, deleted=True)
                self.subjects[subject][number] = Entry(deleted, entry.identity, entry.text_identity, entry.timestamp_ms)

    def _configure(self, subject: str | None, value: object) -> None:
        place = parse_subject(subject or "")
        if place.context == ID_MARKS:
            if isinstance(value, ConfigValue):
                self._raise_highest_id(place.name, value)
        elif place.context in _PRIVATE:
            self._keep_private(place, value)
        elif isinstance(value, ConfigValue):
            self.configs[subject] = value
        else:
            self.configs.pop(subject, None)

    def _keep_private(self, place: Subject, value: object) -> None:
        texts = self.private.setdefault(place.context, {})
        metadata = value.defaultMetadata if isinstance(value, ConfigValue) else None
        text = ((metadata.properties if metadata else None) or {}).get(_PRIVATE_PROPERTY)
        if text is None:
            texts.pop(place.name, None)
        else:
            texts[place.name] = text

    def _raise_highest_id(self, context: str, mark: ConfigValue) -> None:
        properties = (mark.defaultMetadata.properties if mark.defaultMetadata else None) or {}
        number = properties.get(_MARK_PROPERTY, "")
        if number.isdigit():
            state = self.contexts.setdefault(context, ContextState())
            state.highest_id = max(state.highest_id, int(number))

    # Questions.

    def context_of(self, subject: str) -> ContextState:
        return self.contexts.setdefault(parse_subject(subject).context, ContextState())

    def referred(self, subject: str, reference: Reference) -> SchemaKey:
        """Return the subject and version that a reference of `subject` names; a name without context is in the
        subject's own."""
        return SchemaKey(qualify(reference.subject, parse_subject(subject).context), reference.version)

    def versions(self, subject: str, *, deleted: bool = False) -> list[Entry]:
        """The versions of a subject, oldest first."""
        found = self.subjects.get(subject, {}).values()
        return [entry for entry in found if deleted or not entry.value.deleted]

    def latest(self, subject: str, *, deleted: bool = False) -> Entry | None:
        found = self.versions(subject, deleted=deleted)
        return found[-1] if found else None

    def entry(self, subject: str, version: int) -> Entry | None:
        return self.subjects.get(subject, {}).get(version)

    def by_id(self, context: str, schema_id: int) -> list[Entry]:
        """Every version with this id, those that are softly deleted too."""
        state = self.contexts.get(context)
        if state is None:
            return []
        return [self.subjects[key.subject][key.version] for key in state.uses.get(schema_id, {})]

    def is_referenced(self, key: SchemaKey, *, deleted: bool = False) -> bool:
        """Whether a version refers to this one, with `deleted` also one that is softly deleted."""
        entries = (self.entry(*referrer) for referrer in self.referrers.get(key, {}))
        return any(entry is not None and (deleted or not entry.value.deleted) for entry in entries)

    def all_contexts(self) -> list[str]:
        from_subjects = {parse_subject(subject).context for subject in self.subjects}
        return sorted(from_subjects | self.declared_contexts.keys() | {DEFAULT_CONTEXT})

    def matching(self, prefix: str) -> Iterator[str]:
        """Yield the subjects with this prefix; `:*:` in front searches all contexts."""
        return (subject for subject in sorted(self.subjects) if is_matching(subject, prefix))

    # Names.

    def unaliased(self, subject: str) -> str:
        """Return the subject that `subject` is an alias of (`alias` in its config), or `subject` itself."""
        config = self.configs.get(subject)
        if config is None or not config.alias:
            return subject
        return qualify(config.alias, parse_subject(subject).context)

    def aliases(self) -> dict[str, list[str]]:
        """The aliases of each subject that has any."""
        found: dict[str, list[str]] = {}
        for name in sorted(each for each in self.configs if each is not None and parse_subject(each).name):
            subject = self.unaliased(name)
            if subject != name:
                found.setdefault(subject, []).append(name)
        return found

    def located(self, subject: str) -> str:
        """Return the subject itself if it exists or has a context; else the subject of that name in another context,
        if there is one."""
        if subject in self.subjects or parse_subject(subject).context != DEFAULT_CONTEXT:
            return subject
        for context in sorted(self.contexts):
            qualified = str(Subject(context, subject))
            if qualified in self.subjects:
                return qualified
        return subject

    # Scopes: a setting is looked for at the subject, its context, everywhere.

    def config_scopes(self, subject: str | None) -> Iterator[ConfigValue]:
        for scope in scopes(subject):
            if scope in self.configs:
                yield self.configs[scope]

    def mode_of(self, subject: str | None) -> Mode:
        if None in self.modes and self.modes[None].mode == Mode.READONLY_OVERRIDE:
            return Mode.READONLY_OVERRIDE
        for scope in scopes(subject):
            if scope in self.modes:
                mode = self.modes[scope].mode
                # A mode that a newer registry wrote and we do not know restricts nothing.
                return Mode(mode) if mode in Mode.__members__ else Mode.READWRITE
        return Mode.READWRITE


def is_matching(subject: str, prefix: str) -> bool:
    found, wanted = parse_subject(subject), parse_subject(prefix)
    return wanted.context in (WILDCARD, found.context) and found.name.startswith(wanted.name)


def qualify(subject: str, context: str) -> str:
    """Return the full name of a subject that is named from within a context."""
    parsed = parse_subject(subject)
    if parsed.context == DEFAULT_CONTEXT and not subject.startswith(":"):
        return str(Subject(context, parsed.name))
    return str(parsed)


def scopes(subject: str | None) -> list[str | None]:
    """Return the scopes in which a setting of a subject is looked up, nearest first."""
    if subject is None:
        return [f":{GLOBAL_CONTEXT}:", None]
    context = parse_subject(subject).context
    # A context's own settings stand under its name with an empty subject.
    around: list[str | None] = [] if context == DEFAULT_CONTEXT else [f":{context}:"]
    return [subject, *around, None, f":{GLOBAL_CONTEXT}:"]


def private_record(kind: str, name: str, text: str | None) -> Record:
    """Return the record that stores a text of our own under a name, or deletes it if the text is None."""
    subject = f":{kind}:{name}"
    if text is None:
        return Record(ConfigKey(subject), None)
    metadata = Metadata(properties={_PRIVATE_PROPERTY: text})
    return Record(ConfigKey(subject), ConfigValue(subject=subject, compatibilityLevel="NONE", defaultMetadata=metadata))


def id_mark(context: str, highest_id: int) -> Record:
    """Return the record that stores the highest id of a context, so that ids are not used again."""
    subject = f":{ID_MARKS}:{context}"
    metadata = Metadata(properties={_MARK_PROPERTY: str(highest_id)})
    return Record(ConfigKey(subject), ConfigValue(subject=subject, compatibilityLevel="NONE", defaultMetadata=metadata))
