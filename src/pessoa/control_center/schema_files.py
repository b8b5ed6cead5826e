"""Records without a frame whose schema is a file on the operator's disk: bare Avro, or a bare Protobuf message.

    orders*: /etc/schemas/order.avsc; payments: /etc/schemas/pay.proto shop.Payment; key of payments: /etc/keys.avsc

`pessoa.control.center.schema.files` says for which topics (`*` and `?` as in names of files) which file holds, for the
values or with `key of` for the keys, and of a .proto file which message, by its full name; without one it is the first.
What a .proto file imports lies beside it. Files are read once, at start, and stand among the serdes of the operator:
they are chosen by the name of the message or the file, and with `auto` by the topic.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from pathlib import Path

from pessoa.base.config_values import ConfigProblem
from pessoa.base.json_value import JsonValue
from pessoa.control_center.glue_schemas import message_paths
from pessoa.control_center.own_serdes import Serde
from pessoa.serde.codecs import AVRO, codec_for
from pessoa.serde.framing import decode_message_indexes, encode_message_indexes
from pessoa.serde.schema_problems import SchemaProblem

KEY = "pessoa.control.center.schema.files"


class SchemaFileSerde:
    """A serde for one schema of a file, with the topics whose keys or values it is for."""

    def __init__(self, name: str, decode: Callable[[bytes], JsonValue], encode: Callable[[JsonValue], bytes]) -> None:
        self.name = name
        self._decode = decode
        self._encode = encode
        # Pairs of "key" or "value" and a pattern of topics.
        self.places: list[tuple[str, str]] = []

    def __repr__(self) -> str:
        return f"<SchemaFileSerde {self.name} of {self.places}>"

    def can_read(self, topic: str, part: str) -> bool:
        return any(part == where and fnmatch.fnmatchcase(topic, pattern) for where, pattern in self.places)

    def decode(self, data: bytes) -> JsonValue:
        return self._decode(data)

    def encode(self, value: JsonValue) -> bytes:
        return self._encode(value)


def schema_file_serdes(text: str) -> list[Serde]:
    """Return the serdes of the setting, in its order. Raises a `ConfigProblem`."""
    found: dict[tuple[str, str], SchemaFileSerde] = {}
    for entry in filter(None, (one.strip() for one in text.split(";"))):
        topics, colon, rest = entry.partition(": ")
        file, _, message = rest.strip().partition(" ")
        if not colon or not topics.strip() or not file:
            raise ConfigProblem(KEY, entry, "write topics: file, or topics: file.proto package.Message")
        part, pattern = ("key", topics[7:].strip()) if topics.startswith("key of ") else ("value", topics.strip())
        known = found.get((file, message))
        if known is None:
            try:
                known = found[file, message] = _serde(Path(file), message.strip())
            except (OSError, UnicodeDecodeError, SchemaProblem) as wrong:
                raise ConfigProblem(KEY, entry, str(wrong)) from None
        known.places.append((part, pattern))
    return list(found.values())


def _serde(path: Path, message: str) -> SchemaFileSerde:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".avsc" and not message:
        codec = codec_for(AVRO, text)
        return SchemaFileSerde(path.name, codec.to_json, codec.from_json)
    from pessoa.serde.protobuf.codec import ProtobufCodec
    from pessoa.serde.protobuf.linking import link, read_proto

    if path.suffix != ".proto":
        raise SchemaProblem(f"{path.name} is not an .avsc file, nor a .proto file with or without a message")
    imports = dict(_imports(text, path.parent, set()))
    paths = message_paths(text, imports)
    if message and message not in paths:
        raise SchemaProblem(f"{path.name} has no message {message}: there are {', '.join(paths)}")
    codec = ProtobufCodec(link(read_proto(text), {name: read_proto(each, name) for name, each in imports.items()}))
    # The codec's payloads begin with the place of their message; in the records here it is left out.
    front = encode_message_indexes(paths.get(message, (0,)))
    return SchemaFileSerde(
        message or path.name,
        lambda data: codec.to_json(front + data),
        lambda value: bytes(decode_message_indexes(codec.from_json(value, message or None))[1]),
    )


def _imports(text: str, folder: Path, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Return the files that a file imports from its folder, dependencies first. Google's own files are built in."""
    from pessoa.serde.protobuf.linking import read_proto

    for name in read_proto(text).dependency:
        if name in seen or name.startswith("google/"):
            continue
        seen.add(name)
        found = (folder / name).read_text(encoding="utf-8")
        yield from _imports(found, folder, seen)
        yield name, found
