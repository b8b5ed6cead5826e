"""Tags of a schema: words such as PII on records and fields, written into the schema's own text.

    Avro          "confluent:tags": ["PII"] in a record or a field             n.Customer, n.Customer.email
    JSON Schema   the same in an object or the schema of a property            object, object.list.array.object.email
    Protobuf      (confluent.message_meta).tags, (confluent.field_meta).tags   p.Customer, p.Customer.email

On the right is the path that names an entity. In JSON Schema it tells the kinds of schemas on the way: `object`, then a
property; `array`, then what its items are; `allof.0`, `oneof.1`, `anyof.2`, then that branch.

A tree is read into entities, each with the place where its tags stand; changing tags changes the tree, and its text is
then parsed again as any other schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.model import AVRO, JSON, SchemaEntity, SchemaTags
from pessoa.serde.schema_problems import SchemaProblem

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, UninterpretedOption

_KEY = "confluent:tags"
RECORD, FIELD = "sr_record", "sr_field"
EVERY_TAG = "*"
_BRANCHES = {"allOf": "allof", "anyOf": "anyof", "oneOf": "oneof"}
_TAGS_OF_META = re.compile(r'\btags\s*:\s*(\[[^\]]*\]|"(?:[^"\\]|\\.)*")\s*[,;]?')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Entity(NamedTuple):
    """A part of a schema that can have tags: its path and kind, and functions that read and set its tags."""

    path: str
    kind: str
    read: Callable[[], list[str]]
    write: Callable[[list[str]], None]


def find_tags(schema_type: str, text: str, wanted: Sequence[str]) -> list[SchemaTags]:
    """Return the entities of a schema that have one of these tags, or any tag for `*`."""
    entities, _ = _read(schema_type, text)
    found = []
    for entity in entities:
        names = [name for name in entity.read() if EVERY_TAG in wanted or name in wanted]
        if names:
            found.append(SchemaTags(SchemaEntity(entity.path, entity.kind), names))
    return found


def change_tags(schema_type: str, text: str, add: Sequence[SchemaTags], remove: Sequence[SchemaTags]) -> str:
    """Return the text with tags added and removed. Raises the problem 42201 for an entity that the schema does not
    have."""
    entities, print_text = _read(schema_type, text)
    for changes, is_addition in ((add, True), (remove, False)):
        for change in changes:
            entity = _entity(entities, change.schemaEntity)
            names = [name for name in entity.read() if name not in change.tags]
            if is_addition:
                names = list(dict.fromkeys([*entity.read(), *change.tags]))
            entity.write(names)
    return print_text()


def propagate_tags(schema_type: str, text: str, earlier: str) -> str:
    """Return the text with the tags of an earlier schema on the entities that both have."""
    present = {(each.path, each.kind) for each in _read(schema_type, text)[0]}
    kept = [
        each
        for each in find_tags(schema_type, earlier, [EVERY_TAG])
        if (each.schemaEntity.entityPath, each.schemaEntity.entityType) in present
    ]
    return change_tags(schema_type, text, kept, []) if kept else text


def _entity(entities: Sequence[Entity], wanted: SchemaEntity) -> Entity:
    path = wanted.entityPath.removeprefix(".")
    for entity in entities:
        if entity.path == path and entity.kind == wanted.entityType.lower():
            return entity
    raise registry_problems.invalid_schema(f"there is no {wanted.entityType} '{wanted.entityPath}' in it to tag")


def _read(schema_type: str, text: str) -> tuple[list[Entity], Callable[[], str]]:
    """Return the entities of the text, and a function that prints the text with their changes."""
    try:
        if schema_type not in (AVRO, JSON):
            return _read_proto(text)
        tree = json.loads(text)
        walk = _avro_entities(tree, "") if schema_type == AVRO else _json_entities(tree, "")
        return list(walk), lambda: json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError, SchemaProblem) as wrong:
        raise registry_problems.invalid_schema(f"its tags cannot be read: {wrong}") from None


def _in_tree(path: str, kind: str, tree: JsonObject) -> Entity:
    def read() -> list[str]:
        tags = tree.get(_KEY)
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []

    def write(tags: list[str]) -> None:
        if tags:
            tree[_KEY] = [*tags]
        else:
            tree.pop(_KEY, None)

    return Entity(path, kind, read, write)


def _avro_entities(tree: Any, namespace: str) -> Iterator[Entity]:
    if isinstance(tree, list):
        for branch in tree:
            yield from _avro_entities(branch, namespace)
    if not isinstance(tree, dict):
        return
    kind = tree.get("type")
    if kind in ("record", "error") and isinstance(tree.get("name"), str):
        name = tree["name"]
        if "." not in name:
            space = tree.get("namespace", namespace)
            name = f"{space}.{name}" if space else name
        yield _in_tree(name, RECORD, tree)
        inner = name.rpartition(".")[0]
        for field in tree.get("fields", []):
            yield _in_tree(f"{name}.{field['name']}", FIELD, field)
            yield from _avro_entities(field["type"], inner)
    elif kind in ("array", "map"):
        yield from _avro_entities(tree.get("items", tree.get("values")), namespace)
    elif isinstance(kind, dict | list):
        yield from _avro_entities(kind, namespace)


def _json_entities(tree: JsonValue, prefix: str, *, is_property: bool = False) -> Iterator[Entity]:
    if not isinstance(tree, dict):
        return
    properties = tree.get("properties")
    if isinstance(properties, dict):
        path = f"{prefix}object"
        if not is_property:
            # The schema of a property is that property; its tags would be found twice.
            yield _in_tree(path, RECORD, tree)
        for name, each in properties.items():
            if isinstance(each, dict):
                yield _in_tree(f"{path}.{name}", FIELD, each)
                yield from _json_entities(each, f"{path}.{name}.", is_property=True)
    if isinstance(items := tree.get("items"), dict):
        yield from _json_entities(items, f"{prefix}array.")
    for key, word in _BRANCHES.items():
        branches = tree.get(key)
        for number, branch in enumerate(branches if isinstance(branches, list) else []):
            yield from _json_entities(branch, f"{prefix}{word}.{number}.")


def _read_proto(text: str) -> tuple[list[Entity], Callable[[], str]]:
    from pessoa.serde.protobuf.linking import read_proto
    from pessoa.serde.protobuf.printing import print_proto

    proto = read_proto(text)

    def print_text() -> str:
        if any(entity.read() for entity in entities) and "confluent/meta.proto" not in proto.dependency:
            proto.dependency.append("confluent/meta.proto")
        return print_proto(proto)

    entities = [entity for message in proto.message_type for entity in _proto_entities(message, proto.package)]
    return entities, print_text


def _proto_entities(message: DescriptorProto, prefix: str) -> Iterator[Entity]:
    path = f"{prefix}.{message.name}" if prefix else message.name
    yield _in_options(path, RECORD, message, "confluent.message_meta")
    for field in message.field:
        yield _in_options(f"{path}.{field.name}", FIELD, field, "confluent.field_meta")
    for nested in message.nested_type:
        yield from _proto_entities(nested, path)


def _in_options(path: str, kind: str, owner: DescriptorProto | FieldDescriptorProto, extension: str) -> Entity:
    def of_meta(option: UninterpretedOption) -> bool:
        return bool(option.name) and option.name[0].name_part.removeprefix(".") == extension

    def read() -> list[str]:
        tags: list[str] = []
        for option in filter(of_meta, owner.options.uninterpreted_option):
            if len(option.name) == 2 and option.name[1].name_part == "tags":
                tags.append(option.string_value.decode("utf-8", "replace"))
            elif len(option.name) == 1:
                for part in _TAGS_OF_META.findall(option.aggregate_value):
                    tags += _STRING.findall(part)
        return list(dict.fromkeys(tags))

    def write(tags: list[str]) -> None:
        kept = []
        for option in owner.options.uninterpreted_option:
            if of_meta(option) and len(option.name) == 2 and option.name[1].name_part == "tags":
                continue
            if of_meta(option) and len(option.name) == 1:
                option.aggregate_value = _TAGS_OF_META.sub("", option.aggregate_value).strip()
                if not option.aggregate_value:
                    continue
            kept.append(option)
        copies = [type(option).FromString(option.SerializeToString()) for option in kept]
        owner.options.ClearField("uninterpreted_option")
        owner.options.uninterpreted_option.extend(copies)
        for tag in tags:
            added = owner.options.uninterpreted_option.add(string_value=tag.encode())
            added.name.add(name_part=extension, is_extension=True)
            added.name.add(name_part="tags", is_extension=False)
        if not owner.options.ByteSize():
            owner.ClearField("options")

    return Entity(path, kind, read, write)
