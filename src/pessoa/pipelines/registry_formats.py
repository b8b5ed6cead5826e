"""Avro and Protobuf with the schema registry: read and written in Python, by Spark's workers.

A record says by its id which schema wrote it, and the next record may say another, so each id is looked up once and its
codec kept. Avro data of every version is seen through the reader schema of the format: old records get defaults,
new fields are left out. Protobuf needs no such thing: it is read by the message that wrote it, and the format's columns
are picked by name.

`resolve_schemas(plan)` looks up the schemas that a plan only mentions. After that the plan stands by itself: a schema
that gets a new version does not change a pipeline that runs.

Writing registers the schema first (that of the format, or one made of the columns) and puts its id before every value.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from pessoa.client.registry_client import (
    RegisteredSchema,
    RegistryClient,
    RegistryFailed,
    RegistryRefused,
    ResolvedSchema,
    by_id,
    by_version,
    register,
    resolved,
)
from pessoa.pipelines.avro_columns import avro_columns, avro_schema
from pessoa.pipelines.formats import sql_name
from pessoa.pipelines.kafka_options import registry_client
from pessoa.pipelines.plan import Format, KafkaSettings, Node, PlanRefused, Source
from pessoa.pipelines.python_functions import ERROR, RESULT, arrow_function, arrow_type, describe_failure, fit_to_arrow
from pessoa.pipelines.shapes import KEY, VALUE
from pessoa.pipelines.stages import REGISTRY_FORMATS
from pessoa.serde.avro.avro_schema import AvroType, NamedType, Record
from pessoa.serde.framing import encode_message_indexes, frame, unframe
from pessoa.serde.schema_problems import DataProblem, SchemaProblem

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor
    from pyspark.sql import Column, DataFrame, SparkSession

    from pessoa.serde.protobuf.linking import ProtoFile

# The columns of a record, by name.
Row: TypeAlias = dict[str, object]


def resolve_schemas(plan: Node, kafka: KafkaSettings) -> Node:
    """Return the plan with the columns of every source's schema in it."""
    if isinstance(plan, Source):
        return msgspec.structs.replace(
            plan,
            key=_look_up_columns(plan.key, f"{plan.topic}-key", KEY, kafka),
            value=_look_up_columns(plan.value, f"{plan.topic}-value", VALUE, kafka),
        )
    changes: dict[str, Node | tuple[Node, ...]] = {}
    for name in ("input", "left", "right"):
        if hasattr(plan, name):
            changes[name] = resolve_schemas(getattr(plan, name), kafka)
    if hasattr(plan, "inputs"):
        changes["inputs"] = tuple(resolve_schemas(each, kafka) for each in plan.inputs)
    return msgspec.structs.replace(plan, **changes) if changes else plan


def _look_up_columns(format_: Format, subject: str, plain_name: str, kafka: KafkaSettings) -> Format:
    if format_.kind not in REGISTRY_FORMATS or format_.columns:
        return format_
    text, references = format_.schema, {}
    if not text:
        try:
            found = _client(kafka, format_).ask(resolved(by_version(format_.subject or subject)))
        except RegistryFailed as failed:
            raise PlanRefused(f"the schema of {format_.subject or subject} is not to be had: {failed}") from None
        text, references = found.text, found.references
    try:
        if format_.kind == "avro":
            from pessoa.serde.avro.printing import print_avro

            whole = parse_avro_with_references(text, references)
            written_out = print_avro(whole, resolve=True)
            return msgspec.structs.replace(format_, columns=avro_columns(whole, plain_name), schema=written_out)
        from pessoa.pipelines.protobuf_columns import message_columns

        file = link_files(text, references)
        return msgspec.structs.replace(
            format_, columns=message_columns(_message(file, format_.message)[1]), schema=text
        )
    except SchemaProblem as wrong:
        raise PlanRefused(f"the schema for {subject} is wrong: {wrong}") from None


def parse_avro_with_references(text: str, references: dict[str, str]) -> AvroType:
    """Return the parsed schema; `references` are the texts of the schemas that it refers to."""
    from pessoa.serde.avro.parsing import parse_avro

    known: dict[str, NamedType] = {}
    for each in references.values():
        known.update(parse_avro(each, known)[1])
    return parse_avro(text, known)[0]


def link_files(text: str, references: dict[str, str]) -> ProtoFile:
    from pessoa.serde.protobuf.linking import link, read_proto

    return link(read_proto(text), {name: read_proto(each, name) for name, each in references.items()})


def _message(file: ProtoFile, name: str) -> tuple[tuple[int, ...], Descriptor]:
    """Return the index path and descriptor of the message with this full name, or of the first message if `name` is
    empty."""
    messages = list(file.descriptor.message_types_by_name.values())
    if not name:
        return (0,), messages[0]
    for index, descriptor in enumerate(messages):
        if descriptor.full_name == name:
            return (index,), descriptor
    raise PlanRefused(f"the schema has no message {name}; there are {', '.join(each.full_name for each in messages)}")


def _client(kafka: KafkaSettings, format_: Format) -> RegistryClient:
    client = registry_client(kafka)
    if client is None:
        raise PlanRefused(f"the format {format_.kind} needs the address of a schema registry")
    return client


def decode_column(format_: Format, data: str, kafka: KafkaSettings, spark: SparkSession) -> Column:
    """Return a column of structs (result, error), the result with the columns of the format."""
    from pyspark.sql import functions as F

    columns = arrow_type(spark, f"STRUCT<{format_.columns}>")
    decoder = Decoder(format_, columns, _client(kafka, format_))
    return arrow_function(decoder, f"{RESULT} STRUCT<{format_.columns}>, {ERROR} STRING")(F.col(data))


class Decoder:
    """Decodes bytes to rows; Spark's workers call it with Arrow arrays."""

    def __init__(self, format_: Format, columns: pa.DataType, client: RegistryClient) -> None:
        self._format = format_
        self._columns = columns
        self._client = client
        self._readers: dict[int, Callable[[bytes], object]] = {}

    def __getstate__(self) -> dict[str, object]:
        # Codecs hold what cannot be pickled; a worker makes its own.
        return {**self.__dict__, "_readers": {}}

    def __call__(self, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        results: list[object] = []
        errors: list[str | None] = []
        for data in values.to_pylist():
            result, error = None, None
            if data is not None:
                try:
                    result = fit_to_arrow(self._decode(data), self._columns)
                except DataProblem as wrong:
                    error = f"is not {self._format.kind}: {wrong}"
            results.append(result)
            errors.append(error)
        arrays = [pa.array(results, self._columns), pa.array(errors, pa.string())]
        return pa.StructArray.from_arrays(arrays, names=[RESULT, ERROR])

    def _decode(self, data: bytes) -> object:
        schema, payload = unframe(data)
        if not isinstance(schema, int):
            raise DataProblem("its schema is named by a guid")
        if schema not in self._readers:
            self._readers[schema] = self._reader(schema)
        return self._readers[schema](payload)

    def _reader(self, schema_id: int) -> Callable[[bytes], object]:
        try:
            written = self._client.ask(resolved(by_id(schema_id)))
        except RegistryRefused as refused:
            if refused.code == 40403:
                raise DataProblem(f"the registry has no schema with the id {schema_id}") from None
            raise
        if written.type != self._format.kind.upper():
            raise DataProblem(f"it was written with a schema of type {written.type}")
        return self._avro_reader(written) if self._format.kind == "avro" else self._protobuf_reader(written)

    def _avro_reader(self, written: ResolvedSchema) -> Callable[[bytes], object]:
        from pessoa.serde.avro.codec import AvroCodec

        writer = AvroCodec(parse_avro_with_references(written.text, written.references))
        schema = parse_avro_with_references(self._format.schema, {})
        ours = AvroCodec(schema)
        if isinstance(schema, Record):
            return lambda payload: writer.decode(payload, ours)
        name = self._columns.field(0).name
        return lambda payload: {name: writer.decode(payload, ours)}

    def _protobuf_reader(self, written: ResolvedSchema) -> Callable[[bytes], object]:
        from pessoa.serde.protobuf.codec import ProtobufCodec
        from pessoa.serde.protobuf.plain_values import as_dict

        codec = ProtobufCodec(link_files(written.text, written.references))
        names = {field.name for field in self._columns}

        def read(payload: bytes) -> Row:
            row = as_dict(codec.read(payload))
            return {name: value for name, value in row.items() if name in names}

        return read


def encode_column(
    format_: Format, columns: tuple[str, ...], frame_: DataFrame, subject: str, kafka: KafkaSettings
) -> Column:
    """Return a column with the bytes of these columns, magic byte and schema id first."""
    from pyspark.sql import functions as F

    if not columns:
        raise PlanRefused(f"there are no columns to write to {subject}")
    spark_schema = frame_.select(*map(sql_name, columns)).schema.jsonValue()
    name = _record_name(subject)
    if format_.kind == "avro":
        text = format_.schema or json.dumps(avro_schema(spark_schema, name))
    else:
        from pessoa.pipelines.protobuf_columns import proto_text

        text = format_.schema or proto_text(spark_schema, name)
    try:
        schema = RegisteredSchema(text, schema_type=format_.kind.upper())
        schema_id = _client(kafka, format_).ask(register(format_.subject or subject, schema))
    except RegistryFailed as failed:
        raise PlanRefused(f"the schema for {subject} cannot be registered: {failed}") from None
    encoder = Encoder(format_, text, schema_id)
    return arrow_function(encoder, "BINARY")(F.struct(*(F.col(sql_name(column)) for column in columns)))


def _record_name(subject: str) -> str:
    words = "".join(letter if letter.isalnum() and letter.isascii() else " " for letter in subject).title().split()
    name = "".join(words)
    return name if name[:1].isalpha() else f"Record{name}"


class Encoder:
    def __init__(self, format_: Format, text: str, schema_id: int) -> None:
        self._format = format_
        self._text = text
        self._schema_id = schema_id
        self._write: Callable[[Row], bytes] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_write": None}

    def __call__(self, rows: pa.Array) -> pa.Array:
        import pyarrow as pa

        write = self._write
        if write is None:
            write = self._write = self._avro_writer() if self._format.kind == "avro" else self._protobuf_writer()
        return pa.array(
            [None if row is None else frame(self._schema_id, write(row)) for row in rows.to_pylist()],
            pa.binary(),
        )

    def _avro_writer(self) -> Callable[[Row], bytes]:
        from pessoa.serde.avro.codec import AvroCodec

        schema = parse_avro_with_references(self._text, {})
        codec = AvroCodec(schema)
        if isinstance(schema, Record):
            return codec.encode
        return lambda row: codec.encode(next(iter(row.values())))

    def _protobuf_writer(self) -> Callable[[Row], bytes]:
        from google.protobuf.message_factory import GetMessageClass

        from pessoa.serde.protobuf.plain_values import fill

        indexes, descriptor = _message(link_files(self._text, {}), self._format.message)
        make, prefix = GetMessageClass(descriptor), encode_message_indexes(indexes)

        def write(row: Row) -> bytes:
            try:
                data = fill(make(), row).SerializeToString()
            except (TypeError, ValueError) as wrong:
                raise DataProblem(f"the row does not fit its message: {describe_failure(wrong)}") from None
            return prefix + data

        return write
