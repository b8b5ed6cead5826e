"""Values of a schema registry without Spark: bytes with a schema's id become Python values, and keys bytes again.

    RegistryValues(client).decode(data)                       what the schema that wrote it makes of it
    RegistryValues(client).encode(value, "totais-key")        bytes with the latest schema of the subject

For those who ask a table for rows (stores of an app, the tables' HTTP interface). Each schema is looked up once. A row
is found by the bytes of its key, so a key is written as the table's writer writes it now: with the latest schema of the
subject. A record of Avro, of Protobuf and of JSON Schema tells by its id which of them it is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from pessoa.client.registry_client import (
    RegistryClient,
    RegistryFailed,
    RegistryRefused,
    ResolvedSchema,
    by_id,
    by_version,
    resolved,
)
from pessoa.pipelines.kafka_options import registry_client
from pessoa.pipelines.plan import KafkaSettings
from pessoa.serde.framing import encode_message_indexes, frame, unframe
from pessoa.serde.schema_problems import DataProblem, SchemaProblem

# Ids that the registry does not have are remembered too: bytes that only look framed may name any of them.
MOST_SCHEMAS = 1000
_NO_SCHEMA = 40403


class RegistryValues:
    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._mutex = threading.Lock()
        self._readers: dict[int, Callable[[bytes], object] | str] = {}
        self._writers: dict[str, Callable[[object], bytes]] = {}

    def __repr__(self) -> str:
        return f"<RegistryValues, {len(self._readers)} schemas, {self._client}>"

    def decode(self, data: bytes) -> object:
        """Return the value; DataProblem if the bytes follow no schema, RegistryFailed if no registry answers."""
        schema, payload = unframe(data)
        if not isinstance(schema, int):
            raise DataProblem("its schema is named by a guid")
        with self._mutex:
            if schema not in self._readers:
                if len(self._readers) >= MOST_SCHEMAS:
                    self._readers.clear()
                self._readers[schema] = self._look_up(schema)
            reader = self._readers[schema]
        if isinstance(reader, str):
            raise DataProblem(reader)
        return reader(payload)

    def encode(self, value: object, subject: str) -> bytes:
        """Return the encoded value. Raises as `decode` does, also if the value does not fit the schema."""
        with self._mutex:
            if subject not in self._writers:
                self._writers[subject] = self._writer(self._client.ask(resolved(by_version(subject))))
            writer = self._writers[subject]
        return writer(value)

    def _look_up(self, schema_id: int) -> Callable[[bytes], object] | str:
        try:
            return _reader(self._client.ask(resolved(by_id(schema_id))))
        except RegistryRefused as refused:
            if refused.code != _NO_SCHEMA:
                raise
            return f"the registry has no schema with the id {schema_id}"
        except SchemaProblem as wrong:
            return f"the schema with the id {schema_id} cannot be used: {wrong}"

    def _writer(self, schema: ResolvedSchema) -> Callable[[object], bytes]:
        if schema.type == "AVRO":
            from pessoa.pipelines.registry_formats import parse_avro_with_references
            from pessoa.serde.avro.avro_schema import Record
            from pessoa.serde.avro.codec import AvroCodec

            kind = parse_avro_with_references(schema.text, schema.references)
            codec = AvroCodec(kind)
            only = kind.fields[0].name if isinstance(kind, Record) and len(kind.fields) == 1 else None

            def write_avro(value: object) -> bytes:
                # A key of one column may be given by itself.
                is_bare = only is not None and not isinstance(value, dict)
                return frame(schema.id, codec.encode({only: value} if is_bare else value))

            return write_avro
        if schema.type == "PROTOBUF":
            from google.protobuf.message_factory import GetMessageClass

            from pessoa.pipelines.registry_formats import link_files
            from pessoa.serde.protobuf.plain_values import fill

            descriptor = next(
                iter(link_files(schema.text, schema.references).descriptor.message_types_by_name.values())
            )
            make, fields = GetMessageClass(descriptor), [field.name for field in descriptor.fields]

            def write_protobuf(value: object) -> bytes:
                row = value if isinstance(value, dict) else {fields[0]: value}
                try:
                    data = fill(make(), row).SerializeToString(deterministic=True)
                except (TypeError, ValueError) as wrong:
                    raise DataProblem(f"{value!r} does not fit the message {descriptor.full_name}: {wrong}") from None
                return frame(schema.id, encode_message_indexes((0,)) + data)

            return write_protobuf
        return lambda value: frame(schema.id, json.dumps(value).encode())


def _reader(schema: ResolvedSchema) -> Callable[[bytes], object]:
    if schema.type == "AVRO":
        from pessoa.pipelines.registry_formats import parse_avro_with_references
        from pessoa.serde.avro.codec import AvroCodec

        return AvroCodec(parse_avro_with_references(schema.text, schema.references)).decode
    if schema.type == "PROTOBUF":
        from pessoa.pipelines.registry_formats import link_files
        from pessoa.serde.protobuf.codec import ProtobufCodec
        from pessoa.serde.protobuf.plain_values import as_dict

        codec = ProtobufCodec(link_files(schema.text, schema.references))
        return lambda payload: as_dict(codec.read(payload))
    return _read_json


def _read_json(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except ValueError as wrong:
        raise DataProblem(f"the payload is no JSON: {wrong}") from None


def registry_values(kafka: KafkaSettings) -> RegistryValues | None:
    """Return the decoder of registry values; None if no registry is configured."""
    client = registry_client(kafka)
    return None if client is None else RegistryValues(client)


__all__ = ["RegistryFailed", "RegistryValues", "registry_values"]
