"""The name of what a schema is about, for the subject name strategies that go by it."""

from __future__ import annotations

import json

from pessoa.serde.codecs import AVRO, JSON, Codec
from pessoa.serde.schema_problems import SchemaProblem


def record_name(schema_type: str, text: str, codec: Codec) -> str:
    """Return the record's name for its subject. Avro: the full name of the record; JSON Schema: its title; Protobuf:
    the full name of the first message."""
    if schema_type == AVRO:
        tree = json.loads(text)
        if isinstance(tree, dict) and isinstance(tree.get("name"), str):
            name, namespace = tree["name"], tree.get("namespace")
            return f"{namespace}.{name}" if namespace and "." not in name else str(name)
    elif schema_type == JSON:
        tree = json.loads(text)
        if isinstance(tree, dict) and isinstance(tree.get("title"), str):
            return str(tree["title"])
    else:
        from pessoa.serde.protobuf.codec import ProtobufCodec

        assert isinstance(codec, ProtobufCodec)
        return codec.message_name((0,))
    raise SchemaProblem("the schema has no name to make a subject of")
