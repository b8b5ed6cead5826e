"""Bytes to columns and back in Spark SQL, as ksql's codecs read and write them.

A side becomes three texts: what has to be computed first (each under a name), a column for each of ksql's, and what is
wrong with a record that must be skipped. JSON is read twice, as texts and as variants, since a text alone does not say
whether it was `true` or `"true"`:

    fields   names, texts and kinds of the object's fields, the last first: of two with one name the last counts
    t<i>     the text of column i: the field of its name, else the one whose name is it in upper case
    k<i>     its kind: BIGINT, DECIMAL(2,1), DOUBLE, STRING, BOOLEAN, VOID, OBJECT<…>, ARRAY<…>

Where it differs from the codec (docs/DEVIATIONS.md): a number, object or array in a STRING column is printed as Spark
prints it, text behind the object is not noticed, and numbers of more than 28 digits are no whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pessoa.ksql.analysis.source_catalogue import PLAIN_OPTIONS, FormatOptions, SchemaColumn
from pessoa.ksql.spark.spark_expressions import DIGITS, REAL, NotNative, spark_type
from pessoa.ksql.types.sql_types import BIGINT, BOOLEAN, DOUBLE, INTEGER, STRING, SqlType
from pessoa.pipelines.formats import decoder, encoder, sql_name, sql_text
from pessoa.pipelines.plan import Format

_KAFKA = {INTEGER: "int", BIGINT: "long", DOUBLE: "double", STRING: "string"}
_STRICT = "map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false')"


class Reading(NamedTuple):
    """The SQL that reads a key or value. `steps` are projections, one after the other, of (name, SQL text)."""

    steps: tuple[tuple[tuple[str, str], ...], ...]
    columns: tuple[str, ...]
    # A sentence if the record is skipped, else null; empty: it never is.
    mistake: str
    # Whether there is no value; empty for a key.
    is_null: str = ""


def read_key(format_: str, columns: Sequence[SchemaColumn], options: FormatOptions) -> Reading:
    """Return the SQL that reads the columns of a key from the bytes `key`. Raises NotNative."""
    if format_ == "NONE" or not columns:
        return Reading((), (), "")
    if format_ == "KAFKA" and options == PLAIN_OPTIONS:
        return _read_primitive("key", columns)
    raise NotNative(f"keys in {format_} are read by ksql's own codec")


def read_value(format_: str, columns: Sequence[SchemaColumn], options: FormatOptions) -> Reading:
    """Return the SQL that reads the columns of a value from the bytes `value`. Raises NotNative."""
    if options != PLAIN_OPTIONS:
        raise NotNative("the value's format has options")
    if format_ == "KAFKA":
        return _read_primitive("value", columns)._replace(is_null="value IS NULL")
    if format_ == "JSON" and columns:
        return _read_json(columns)
    raise NotNative(f"values in {format_} are read by ksql's own codec")


def _read_primitive(data: str, columns: Sequence[SchemaColumn]) -> Reading:
    (column,) = columns
    if column.type not in _KAFKA:
        raise NotNative(f"{column.type} is no type of Kafka's serialisers")
    found = decoder(Format(_KAFKA[column.type]), data, data, data)
    mistake = f"concat({sql_text(f'the {data} ')}, {found.error})" if found.error else ""
    return Reading((), tuple(found.columns.values()), mistake)


def _read_json(columns: Sequence[SchemaColumn]) -> Reading:
    for column in columns:
        spark_type(column.type)
    text = "CAST(value AS STRING)"
    fields = (
        ("json", text),
        ("texts", f"from_json({text}, 'MAP<STRING, STRING>', {_STRICT})"),
        ("kinds", f"from_json({text}, 'MAP<STRING, VARIANT>', {_STRICT})"),
    )
    arrays = (
        ("json", "json"),
        ("names", "reverse(map_keys(texts))"),
        ("uppers", "reverse(transform(map_keys(texts), name -> upper(name)))"),
        ("texts", "reverse(map_values(texts))"),
        ("kinds", "reverse(transform(map_values(kinds), one -> schema_of_variant(one)))"),
    )
    chosen: list[tuple[str, str]] = [("json", "json"), ("names", "names")]
    for index, column in enumerate(columns):
        name = sql_text(column.name)
        own, upper = (f"nullif(array_position({names}, {name}), 0)" for names in ("names", "uppers"))
        place = f"CAST(coalesce({own}, {upper}) - 1 AS INT)"
        chosen += [(f"t{index}", f"get(texts, {place})"), (f"k{index}", f"get(kinds, {place})")]
    values = [_json_column(f"t{index}", f"k{index}", column.type) for index, column in enumerate(columns)]
    wrong = [
        f"WHEN t{index} IS NOT NULL AND {value} IS NULL"
        f" THEN {sql_text(f'the field {column.name} of the value is no {column.type}')}"
        for index, (column, value) in enumerate(zip(columns, values, strict=True))
    ]
    is_null = "(value IS NULL OR trim(json) = 'null')"
    no_object = "WHEN names IS NULL OR NOT is_valid_utf8(json) THEN 'the value is no JSON object'"
    mistake = f"CASE WHEN {is_null} THEN NULL {no_object} {' '.join(wrong)} END"
    return Reading((fields, arrays, tuple(chosen)), tuple(values), mistake, is_null)


def json_time(column: SchemaColumn) -> str:
    """Return the SQL for the time in a column of a JSON value, over the bytes alone; it is null if the column has no
    time."""
    text = "CAST(value AS STRING)"
    both = (
        f"named_struct('texts', from_json({text}, 'MAP<STRING, STRING>', {_STRICT}),"
        f" 'kinds', from_json({text}, 'MAP<STRING, VARIANT>', {_STRICT}))"
    )
    keys = "reverse(map_keys(read.texts))"
    name = sql_text(column.name)
    place = (
        f"CAST(coalesce(nullif(array_position({keys}, {name}), 0),"
        f" nullif(array_position(transform({keys}, one -> upper(one)), {name}), 0)) - 1 AS INT)"
    )
    found = f"get(reverse(map_values(read.texts)), {place})"
    kind = f"schema_of_variant(get(reverse(map_values(read.kinds)), {place}))"
    # SQL has no names for parts of an expression; a lambda's parameter is one.
    number = f"get(transform(array({both}), read -> {_json_column(found, kind, column.type)}), 0)"
    return f"timestamp_millis(IF({number} < 0, NULL, {number}))"


def _json_column(text: str, kind: str, wanted: SqlType) -> str:
    held = spark_type(wanted)
    has_point = f"{kind} LIKE 'DECIMAL%' OR {kind} = 'DOUBLE'"
    if wanted == STRING:
        return text
    if wanted == BOOLEAN:
        return f"IF({kind} = 'BOOLEAN', {text} = 'true', NULL)"
    if wanted == DOUBLE:
        parsed = f"CAST(regexp_extract({text}, {sql_text(REAL)}, 1) AS DOUBLE)"
        number = f"{kind} = 'BIGINT' OR {has_point}"
        return f"CASE WHEN {number} THEN CAST({text} AS DOUBLE) WHEN {kind} = 'STRING' THEN {parsed} END"
    parsed = f"CAST(regexp_extract({text}, {sql_text(DIGITS)}, 1) AS {held})"
    return (
        f"CASE WHEN {kind} = 'BIGINT' THEN CAST(CAST({text} AS BIGINT) AS {held})"
        f" WHEN {kind} = 'STRING' THEN {parsed}"
        f" WHEN {has_point} THEN CAST(CAST(CAST({text} AS DECIMAL(38, 10)) AS BIGINT) AS {held}) END"
    )


def write_side(
    format_: str, columns: Sequence[SchemaColumn], names: Sequence[str], options: FormatOptions, *, is_key: bool
) -> str:
    """Return the SQL that encodes columns, which have these names in Spark, as bytes. Raises NotNative."""
    if format_ == "NONE" or not columns:
        return "CAST(NULL AS BINARY)"
    if options != PLAIN_OPTIONS:
        raise NotNative("the sink's format has options")
    for column in columns:
        spark_type(column.type)
    if format_ == "KAFKA":
        (column,) = columns
        if column.type not in _KAFKA:
            raise NotNative(f"{column.type} is no type of Kafka's serialisers")
        return encoder(Format(_KAFKA[column.type]), tuple(names), "the key" if is_key else "the value")
    if format_ != "JSON":
        raise NotNative(f"{format_} is written by ksql's own codec")
    if is_key and len(columns) == 1:
        # Spark writes objects and arrays only: the one element of an array is what is wanted.
        listed = f"to_json(array({sql_name(names[0])}))"
        bare = f"CAST(substring({listed}, 2, length({listed}) - 2) AS BINARY)"
        return f"IF({sql_name(names[0])} IS NULL, NULL, {bare})"
    pairs = ", ".join(f"{sql_text(column.name)}, {sql_name(name)}" for column, name in zip(columns, names, strict=True))
    return f"CAST(to_json(named_struct({pairs}), map('ignoreNullFields', 'false')) AS BINARY)"
