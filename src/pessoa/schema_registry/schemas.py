"""Texts of three types, parsed: canonical and normal spelling, other formats, and comparison with an earlier schema.

A schema is parsed with the texts that it refers to, which `resolve_references` collects from the state, those first
that others need. The canonical text of Avro and JSON Schema is what is stored; a .proto file is stored as it was sent,
comments and all, and its canonical text is the printed tree (base64 descriptors are stored printed: no text came).

Parsed schemas are remembered by their text: registering the same schema again, the commonest of all requests, and
checking a new version against ten old ones should not parse anything twice.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pessoa.schema_registry.compatibility.differences import Difference
from pessoa.schema_registry.compatibility.levels import Comparable
from pessoa.schema_registry.model import AVRO, JSON, PROTOBUF, Reference
from pessoa.schema_registry.records import SchemaKey
from pessoa.schema_registry.state import Entry, State, qualify
from pessoa.serde.problems import SchemaProblem
from pessoa.serde.subjects import parse_subject

_CACHE_SIZE = 1000
LATEST = -1


class AvroParsed:
    schema_type = AVRO

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from pessoa.serde.avro.parsing import parse_avro
        from pessoa.serde.avro.printing import print_avro
        from pessoa.serde.avro.schema import NamedType

        known: dict[str, NamedType] = {}
        for each in references.values():
            known.update(parse_avro(each, known)[1])
        self.schema, self._own = parse_avro(text, known)
        self.text = self.canonical = print_avro(self.schema, self._own)

    def normalized(self) -> str:
        from pessoa.serde.avro.printing import print_avro

        return print_avro(self.schema, self._own, normalize=True)

    def formatted(self, form: str) -> str:
        from pessoa.serde.avro.printing import print_avro

        return print_avro(self.schema, self._own, resolve=True) if form == "resolved" else self.text

    def findings(self, writer: Comparable, *, is_new: bool, is_lenient: bool) -> list[str]:
        from pessoa.schema_registry.compatibility.avro import check_avro

        assert isinstance(writer, AvroParsed)
        return _sentences(check_avro(self.schema, writer.schema), is_new=is_new)


class JsonParsed:
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

    def findings(self, writer: Comparable, *, is_new: bool, is_lenient: bool) -> list[str]:
        from pessoa.schema_registry.compatibility.json_schema import check_json

        assert isinstance(writer, JsonParsed)
        return _sentences(check_json(self.schema, writer.schema, is_lenient=is_lenient), is_new=is_new)


class ProtobufParsed:
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

    def findings(self, writer: Comparable, *, is_new: bool, is_lenient: bool) -> list[str]:
        from pessoa.schema_registry.compatibility.protobuf import check_protobuf

        assert isinstance(writer, ProtobufParsed)
        return _sentences(check_protobuf(self.file, writer.file), is_new=is_new)


Parsed = AvroParsed | JsonParsed | ProtobufParsed
_TYPES: dict[str, Callable[[str, Mapping[str, str]], Parsed]] = {
    AVRO: AvroParsed,
    JSON: JsonParsed,
    PROTOBUF: ProtobufParsed,
}


def parse_schema(schema_type: str, text: str, references: Mapping[str, str]) -> Parsed:
    if schema_type not in _TYPES:
        raise SchemaProblem(f"{schema_type} is no type of schema: there are {', '.join(_TYPES)}")
    return _parse(schema_type, text, tuple(references.items()))


@lru_cache(maxsize=_CACHE_SIZE)
def _parse(schema_type: str, text: str, references: tuple[tuple[str, str], ...]) -> Parsed:
    parsed = _TYPES[schema_type](text, dict(references))
    try:
        parsed.text.encode()
    except UnicodeEncodeError as wrong:
        # JSON can spell half a surrogate pair; no text can hold it.
        raise SchemaProblem(f"{wrong.object[wrong.start]!r} is half of a character") from None
    return parsed


def canonical_of(schema_type: str, text: str) -> str:
    """The canonical text of a schema that is stored: parsed only where it has to be."""
    if schema_type != PROTOBUF:
        return text
    from pessoa.serde.protobuf.linking import read_proto
    from pessoa.serde.protobuf.printing import print_proto

    try:
        return print_proto(read_proto(text))
    except SchemaProblem:
        return text  # somebody else's parser took it; here it is the same only as itself


def resolve_references(state: State, subject: str, references: Sequence[Reference]) -> dict[str, str]:
    """The texts behind references, by name, those first that others need; SchemaProblem for one that is not there."""
    found: dict[str, str] = {}
    _collect(state, parse_subject(subject).context, references, found, ())
    return found


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
    """A stored version, parsed."""
    value = entry.value
    return parse_schema(value.schemaType, value.schema, resolve_references(state, value.subject, value.references))


def _sentences(differences: Sequence[Difference], *, is_new: bool) -> list[str]:
    reader, writer = ("new", "old") if is_new else ("old", "new")
    return [each.sentence(reader, writer) for each in differences]


def _compact(tree: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)
