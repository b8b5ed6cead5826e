"""The formats of the object sinks: records of one topic, partition and schema as the bytes of one file."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pessoa.connect.converters.avro_converter import avro_tree, schema_of, to_fastavro
from pessoa.connect.converters.json_converter import PLAIN_JSON
from pessoa.connect.data import DATE, DECIMAL, TIME, TIMESTAMP, DataFailure, Record, Schema, Type, java_text, scale_of
from pessoa.connect.definition import Config

if TYPE_CHECKING:
    import pyarrow


class Format(ABC):
    suffix = ""
    # Avro and Parquet compress by themselves.
    may_be_compressed = False

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def encode(self, records: Sequence[Record]) -> bytes:
        """Return the contents of the file; DataFailure if one of the records cannot be written."""


class JsonFormat(Format):
    """JSON, one value a line."""

    suffix = ".json"
    may_be_compressed = True

    def encode(self, records: Sequence[Record]) -> bytes:
        lines = [PLAIN_JSON.to_bytes(each.topic, each.value_schema, each.value) or b"null" for each in records]
        return b"".join(line + b"\n" for line in lines)


class ByteArrayFormat(Format):
    """Raw bytes, one value a line."""

    suffix = ".bin"
    may_be_compressed = True

    def encode(self, records: Sequence[Record]) -> bytes:
        return b"".join(_raw_bytes(each) + b"\n" for each in records)


def _raw_bytes(record: Record) -> bytes:
    if isinstance(record.value, bytes):
        return record.value
    return java_text(record.value_schema, record.value).encode()


class AvroFormat(Format):
    suffix = ".avro"

    def encode(self, records: Sequence[Record]) -> bytes:
        import fastavro

        from pessoa.serde.avro.codec import FAILURES

        schema = records[0].value_schema or schema_of(records[0].value)
        out = io.BytesIO()
        try:
            parsed = fastavro.parse_schema(avro_tree(schema))
            values = [to_fastavro(schema, each.value) for each in records]
            # The mark between blocks is random by default; the same records are the same bytes.
            fastavro.writer(out, parsed, values, codec=self.config.string("avro.codec"), sync_marker=bytes(16))
        except FAILURES as wrong:
            raise DataFailure(f"the records do not fit one Avro schema: {wrong}") from None
        return out.getvalue()


class ParquetFormat(Format):
    suffix = ".parquet"

    def encode(self, records: Sequence[Record]) -> bytes:
        import pyarrow
        from pyarrow import parquet

        schema = records[0].value_schema or schema_of(records[0].value)
        if schema.type is not Type.STRUCT:
            raise DataFailure("Parquet needs structs; hoist the value first (HoistField$Value)")
        try:
            rows = [each.value for each in records]
            table = pyarrow.Table.from_pylist(
                rows, pyarrow.schema([_field(each.name, each.schema) for each in schema.fields])
            )
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, TypeError) as wrong:
            raise DataFailure(f"the records do not fit one Parquet schema: {wrong}") from None
        out = io.BytesIO()
        parquet.write_table(table, out, compression=self.config.string("parquet.codec"))
        return out.getvalue()


def _field(name: str, schema: Schema) -> pyarrow.Field:
    import pyarrow

    return pyarrow.field(name, _arrow(schema), nullable=schema.optional or schema.default is not None)


def _arrow(schema: Schema) -> pyarrow.DataType:
    import pyarrow as arrow

    if schema.name == DECIMAL:
        return arrow.decimal128(38, scale_of(schema))
    logical = {DATE: arrow.date32(), TIME: arrow.time32("ms"), TIMESTAMP: arrow.timestamp("ms", tz="UTC")}
    if schema.name in logical:
        return logical[schema.name]
    match schema.type:
        case Type.STRUCT:
            return arrow.struct([_field(each.name, each.schema) for each in schema.fields])
        case Type.ARRAY:
            assert schema.values is not None
            return arrow.list_(_arrow(schema.values))
        case Type.MAP:
            assert schema.keys is not None
            assert schema.values is not None
            return arrow.map_(_arrow(schema.keys), _arrow(schema.values))
    kinds = {
        Type.INT8: arrow.int8, Type.INT16: arrow.int16, Type.INT32: arrow.int32, Type.INT64: arrow.int64,
        Type.FLOAT32: arrow.float32, Type.FLOAT64: arrow.float64, Type.BOOLEAN: arrow.bool_, Type.STRING: arrow.string,
        Type.BYTES: arrow.binary,
    }  # fmt: skip
    return kinds[schema.type]()


FORMATS: dict[str, Callable[[Config], Format]] = {
    "JsonFormat": JsonFormat,
    "AvroFormat": AvroFormat,
    "ParquetFormat": ParquetFormat,
    "ByteArrayFormat": ByteArrayFormat,
}
