"""Bytes to columns and back, as Spark SQL: what runs inside the JVM, at either speed.

    decoder    the format's columns, and the sentence that says what is wrong with the bytes
    encoder    the bytes of some columns

Both are made of SQL text. A decoder never fails and never guesses: bytes that do not fit give null columns and an
error, and the caller decides what becomes of the record. JSON `null` and no bytes at all are no error: there is no
value.

    json         fields by name; one that is missing is null, one of the wrong type is an error
    delimited    one line of comma-separated (or otherwise delimited) values, quoted where they must be
    primitives   what Kafka's own serialisers write: UTF-8, big-endian numbers of fixed size

Avro and Protobuf need a registry and Python: `registry_formats.py`.

Spark has no function that reads a double from its bits, but it can call Java's, which gives the number as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pessoa.pipelines.columns import read_columns
from pessoa.pipelines.plan import NOTHING, PRIMITIVES, Format, PlanRefused
from pessoa.pipelines.shapes import format_columns

# How many bytes Kafka's serialisers write.
_SIZES = {"short": 2, "int": 4, "long": 8, "float": 4, "double": 8, "boolean": 1}
# Where Spark puts the text that it could not parse.
BAD = "__bad"
# ISO 8601 with milliseconds, as in JavaScript.
_TIMES = "'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSXXX\""


class Decoder(NamedTuple):
    # SQL for a struct that has the columns by name; null where there is no value. Without one the columns stand alone.
    struct: str | None
    # SQL for each column; that of a struct's asks the struct, by its alias.
    columns: Mapping[str, str]
    # SQL for the error as a string, null where there is none. It may ask the struct too. None if nothing can be wrong:
    # Spark plans every batch anew, and what is not in the plan costs nothing.
    error: str | None


def sql_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def sql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def is_native(format_: Format) -> bool:
    """Whether the JVM alone can read and write the format."""
    return format_.kind not in ("avro", "protobuf")


def decoder(format_: Format, data: str, alias: str, plain_name: str) -> Decoder:
    if format_.kind == NOTHING:
        return Decoder(None, {}, None)
    if format_.kind in PRIMITIVES:
        return _primitive(format_, data, plain_name)
    text = f"CAST({data} AS STRING)"
    names = ", ".join(column.name for column in read_columns(format_.columns))
    columns = sql_text(f"{format_.columns}, {BAD} STRING")
    options = f"'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{BAD}'"
    if format_.kind == "json":
        parsed = f"from_json({text}, {columns}, map({options}))"
        nothing = f"({data} IS NULL OR trim({text}) = 'null')"
        what = f"JSON with the columns {names}"
    else:
        parsed = f"from_csv({text}, {columns}, map({options}, 'sep', {sql_text(format_.delimiter)}))"
        nothing = f"({data} IS NULL)"
        what = f"a line with the columns {names}"
    error = (
        f"CASE WHEN {nothing} THEN NULL "
        f"WHEN {alias} IS NULL OR {alias}.{BAD} IS NOT NULL THEN {sql_text('is not ' + what)} END"
    )
    columns_by_name = {name: f"{alias}.{sql_name(name)}" for name in format_columns(format_, plain_name)}
    return Decoder(f"IF({nothing}, NULL, {parsed})", columns_by_name, error)


def _primitive(format_: Format, data: str, plain_name: str) -> Decoder:
    kind = format_.kind
    (name,) = format_columns(format_, plain_name)
    if kind == "bytes":
        return Decoder(None, {name: data}, None)
    if kind == "string":
        text = f"CAST({data} AS STRING)"
        error = f"IF({data} IS NOT NULL AND NOT is_valid_utf8({text}), 'is not UTF-8', NULL)"
        return Decoder(None, {name: text}, error)
    size = _SIZES[kind]
    error = (
        f"IF({data} IS NOT NULL AND length({data}) <> {size}, "
        f"concat('has ', length({data}), ' bytes, and a {kind} has {size}'), NULL)"
    )
    # Sign extension to the 64 bits that conv() works with.
    bits = f"CAST(conv(lpad(hex({data}), 16, IF(hex({data}) >= '8', 'F', '0')), 16, -10) AS BIGINT)"
    number = {
        "short": f"CAST({bits} AS SMALLINT)",
        "int": f"CAST({bits} AS INT)",
        "long": bits,
        "float": f"CAST(java_method('java.lang.Float', 'intBitsToFloat', CAST({bits} AS INT)) AS FLOAT)",
        "double": f"CAST(java_method('java.lang.Double', 'longBitsToDouble', {bits}) AS DOUBLE)",
        "boolean": f"({data} = X'01')",
    }[kind]
    return Decoder(None, {name: f"IF(length({data}) = {size}, {number}, NULL)"}, error)


def encoder(format_: Format, columns: tuple[str, ...], what: str) -> str:
    """Return SQL for the bytes of these columns. `what` is "the key" or "the value", for the error message."""
    if format_.kind == NOTHING:
        return "CAST(NULL AS BINARY)"
    names = [sql_name(column) for column in columns]
    if format_.kind in PRIMITIVES:
        if len(columns) != 1:
            raise PlanRefused(
                f"{what} has the columns {', '.join(columns) or '(none)'}, and the format {format_.kind} takes one: "
                "select one, or use json"
            )
        return _primitive_bytes(format_.kind, names[0])
    if not columns:
        return "CAST(NULL AS BINARY)"
    struct = f"struct({', '.join(names)})"
    if format_.kind == "json":
        return f"CAST(to_json({struct}, map('ignoreNullFields', 'false', {_TIMES})) AS BINARY)"
    return f"CAST(to_csv({struct}, map('sep', {sql_text(format_.delimiter)})) AS BINARY)"


def _primitive_bytes(kind: str, column: str) -> str:
    bits = {
        "short": f"CAST(CAST({column} AS SMALLINT) AS BIGINT)",
        "int": f"CAST(CAST({column} AS INT) AS BIGINT)",
        "long": f"CAST({column} AS BIGINT)",
        "float": f"CAST(java_method('java.lang.Float', 'floatToIntBits', CAST({column} AS FLOAT)) AS BIGINT)",
        "double": f"CAST(java_method('java.lang.Double', 'doubleToLongBits', CAST({column} AS DOUBLE)) AS BIGINT)",
    }
    if kind in bits:
        digits = 2 * _SIZES[kind]
        return f"IF({column} IS NULL, NULL, unhex(right(lpad(hex({bits[kind]}), 16, '0'), {digits})))"
    if kind == "boolean":
        return f"IF({column} IS NULL, NULL, IF({column}, X'01', X'00'))"
    if kind == "bytes":
        return f"CAST({column} AS BINARY)"
    return f"CAST(CAST({column} AS STRING) AS BINARY)"
