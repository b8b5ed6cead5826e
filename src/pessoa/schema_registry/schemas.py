"""Texts of three types, parsed: canonical and normal spelling, other formats, and comparison with an earlier schema.

A schema is parsed with the texts that it refers to, which `resolve_references` collects from the state, those first
that others need. The canonical text of Avro and JSON Schema is what is stored; a .proto file is stored as it was sent,
comments and all, and its canonical text is the printed tree (base64 descriptors are stored printed: no text came).

Parsed schemas are remembered by their text, and so is what a comparison of two has found: registering the same schema
again, the commonest of all requests, should not parse anything twice; and what a worker thread has parsed and compared
ahead (registering.py) the decision finds here.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pessoa.base.weighted_cache import WeightedCache
from pessoa.schema_registry.compatibility.differences import Difference
from pessoa.schema_registry.compatibility.levels import Comparable
from pessoa.schema_registry.model import AVRO, JSON, PROTOBUF, Reference
from pessoa.schema_registry.registry_records import SchemaKey
from pessoa.schema_registry.state import Entry, State, qualify
from pessoa.serde.schema_problems import SchemaProblem
from pessoa.serde.subjects import parse_subject

LATEST = -1
# Characters of schemas that are kept parsed. A tree takes some twenty times as much as its text.
_KEPT_CHARACTERS = 12 * 1024 * 1024
_KEPT_FINDINGS = 8 * 1024 * 1024
# What an entry weighs beside its text.
_ENTRY_WEIGHT = 200


class _Cacheable:
    """A schema with a key for the cache of findings; the key is empty for a schema that is not cached."""

    key = b""


class AvroParsed(_Cacheable):
    schema_type = AVRO

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from pessoa.serde.avro.avro_schema import NamedType
        from pessoa.serde.avro.parsing import parse_avro
        from pessoa.serde.avro.printing import print_avro

        known: dict[str, NamedType] = {}
        for each in references.values():
            known.update(parse_avro(each, known)[1])
        self.schema, self._own = parse_avro(text, known)
        self.text = self.canonical = print_avro(self.schema, self._own)

    def normalized(self) -> str:
        from pessoa.serde.avro.printing import print_avro

        return print_avro(self.schema, self._own, normalize=True)

    def inlined(self, *, normalize: bool) -> str:
        """Return the text with every type that it refers to written out."""
        from pessoa.serde.avro.printing import print_avro

        return print_avro(self.schema, self._own, resolve=True, normalize=normalize)

    def formatted(self, form: str) -> str:
        return self.inlined(normalize=False) if form == "resolved" else self.text

    def field_names(self) -> set[str]:
        from pessoa.serde.avro.avro_schema import Record

        return {field.name for field in self.schema.fields} if isinstance(self.schema, Record) else set()

    def findings(self, writer: Comparable, *, is_new: bool, is_lenient: bool) -> list[str]:
        from pessoa.schema_registry.compatibility.avro_compatibility import check_avro

        assert isinstance(writer, AvroParsed)
        return _cached_findings(self, writer, is_new, is_lenient, lambda: check_avro(self.schema, writer.schema))


class JsonParsed(_Cacheable):
    schema_type = JSON

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from pessoa.serde.json_schema import JsonSchema, parse_json

        tree = parse_json(text)
        self.schema = JsonSchema(tree, {name: parse_json(each) for name, each in references.items()})
        self.schema.check_references()
        self.text = self.canonical = _compact(tree)

    def normalized(self) -> str:
        return _compact(self.schema.tree, sort_keys=True)

    def formatted(self, form: str) -> str:
        return self.text

    def field_names(self) -> set[str]:
        tree = self.schema.tree
        properties = tree.get("properties") if isinstance(tree, dict) else None
        return set(properties) if isinstance(properties, dict) else set()

    def findings(self, writer: Comparable, *, is_new: bool, is_lenient: bool) -> list[str]:
        from pessoa.schema_registry.compatibility.json_schema_compatibility import check_json

        assert isinstance(writer, JsonParsed)
        check = partial(check_json, self.schema, writer.schema, is_lenient=is_lenient)
        return _cached_findings(self, writer, is_new, is_lenient, check)


class ProtobufParsed(_Cacheable):
    schema_type = PROTOBUF

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from pessoa.serde.protobuf.linking import link, read_proto
        from pessoa.serde.protobuf.parsing import parse_proto
        from pessoa.serde.protobuf.printing import print_proto

        tree = read_proto(text)
        self.file = link(tree, {name: read_proto(each, name) for name, each in references.items()})
        self.canonical = print_proto(tree)
        try:
            parse_proto(text)
            self.text = text
        except SchemaProblem:
            self.text = self.canonical

    def normalized(self) -> str:
        from pessoa.serde.protobuf.printing import print_proto

        return print_proto(self.file.proto, normalize=True)

    def formatted(self, form: str) -> str:
        return base64.b64encode(self.file.serialized()).decode() if form == "serialized" else self.text

    def field_names(self) -> set[str]:
        return {field.name for message in self.file.proto.message_type[:1] for field in message.field}

    def findings(self, writer: Comparable, *, is_new: bool, is_lenient: bool) -> list[str]:
        from pessoa.schema_registry.compatibility.protobuf_compatibility import check_protobuf

        assert isinstance(writer, ProtobufParsed)
        return _cached_findings(self, writer, is_new, is_lenient, lambda: check_protobuf(self.file, writer.file))


Parsed = AvroParsed | JsonParsed | ProtobufParsed
_TYPES: dict[str, Callable[[str, Mapping[str, str]], Parsed]] = {
    AVRO: AvroParsed,
    JSON: JsonParsed,
    PROTOBUF: ProtobufParsed,
}


_parsed: WeightedCache[Parsed] = WeightedCache(_KEPT_CHARACTERS)
_findings: WeightedCache[list[str]] = WeightedCache(_KEPT_FINDINGS)


def parse_schema(schema_type: str, text: str, references: Mapping[str, str]) -> Parsed:
    if schema_type not in _TYPES:
        raise SchemaProblem(f"{schema_type} is no type of schema: there are {', '.join(_TYPES)}")
    key = _key(schema_type, text, references)
    known = _parsed.get(key)
    if known is not None:
        return known
    parsed = _TYPES[schema_type](text, references)
    try:
        parsed.text.encode()
    except UnicodeEncodeError as wrong:
        # JSON can spell half a surrogate pair; no text can hold it.
        raise SchemaProblem(f"{wrong.object[wrong.start]!r} is half of a character") from None
    parsed.key = key
    _parsed.put(key, parsed, _ENTRY_WEIGHT + len(text) + sum(map(len, references.values())))
    return parsed


def _key(schema_type: str, text: str, references: Mapping[str, str]) -> bytes:
    digest = hashlib.sha256()
    for part in (schema_type, text, *(each for pair in references.items() for each in pair)):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest.digest()


def _cached_findings(
    reader: _Cacheable,
    writer: _Cacheable,
    is_new: bool,
    is_lenient: bool,
    check: Callable[[], Sequence[Difference]],
) -> list[str]:
    """Return the findings of a comparison, from the cache if they are there."""
    key = (reader.key, writer.key, is_new, is_lenient) if reader.key and writer.key else None
    known = _findings.get(key)
    if key is not None and known is not None:
        return known
    found = _sentences(check(), is_new=is_new)
    if key is not None:
        _findings.put(key, found, _ENTRY_WEIGHT + sum(map(len, found)))
    return found


def canonical_of(schema_type: str, text: str) -> str:
    """Return the canonical text of a stored schema; only Protobuf has to be parsed for it."""
    if schema_type != PROTOBUF:
        return text
    from pessoa.serde.protobuf.linking import read_proto
    from pessoa.serde.protobuf.printing import print_proto

    try:
        return print_proto(read_proto(text))
    except SchemaProblem:
        return text  # another registry's parser took it; here it is the same only as itself


def resolve_references(
    state: State, subject: str, references: Sequence[Reference], *, deleted: bool = True
) -> dict[str, str]:
    """Return the texts of referenced schemas by name, each after those that it needs. Raises SchemaProblem for a
    reference to a missing version; without `deleted`, softly deleted versions count as missing: a new schema must
    not refer to them."""
    if not deleted:
        _check_alive(state, parse_subject(subject).context, references)
    found: dict[str, str] = {}
    _collect(state, parse_subject(subject).context, references, found, ())
    return found


def _check_alive(state: State, context: str, references: Sequence[Reference]) -> None:
    for reference in references:
        entry = referred_entry(state, context, reference)
        if entry is not None and entry.value.deleted:
            raise SchemaProblem(
                f"the reference {reference.name} leads to version {reference.version} of '{reference.subject}', "
                "which is deleted"
            )


def _collect(
    state: State, context: str, references: Sequence[Reference], found: dict[str, str], chain: tuple[SchemaKey, ...]
) -> None:
    for reference in references:
        if not reference.name or not reference.subject:
            raise SchemaProblem("a reference needs a name, a subject and a version")
        entry = referred_entry(state, context, reference)
        if entry is None:
            raise SchemaProblem(
                f"the reference {reference.name} leads to version {reference.version} of '{reference.subject}', "
                "which is not there"
            )
        key = SchemaKey(entry.value.subject, entry.value.version)
        if key in chain:
            raise SchemaProblem(f"references run in a circle through {key.subject}, version {key.version}")
        if reference.name in found:
            continue
        _collect(state, parse_subject(key.subject).context, entry.value.references, found, (*chain, key))
        found[reference.name] = entry.value.schema


def referred_entry(state: State, context: str, reference: Reference) -> Entry | None:
    subject = qualify(reference.subject, context)
    if reference.version == LATEST:
        return state.latest(subject)
    return state.entry(subject, reference.version)


def parsed_entry(state: State, entry: Entry) -> Parsed:
    """Return the parsed schema of a stored version."""
    value = entry.value
    return parse_schema(value.schemaType, value.schema, resolve_references(state, value.subject, value.references))


def _sentences(differences: Sequence[Difference], *, is_new: bool) -> list[str]:
    reader, writer = ("new", "old") if is_new else ("old", "new")
    return [each.sentence(reader, writer) for each in differences]


def _compact(tree: object, *, sort_keys: bool = False) -> str:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)
