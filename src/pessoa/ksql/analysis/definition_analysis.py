"""CREATE STREAM and CREATE TABLE with columns: the source that they declare."""

from __future__ import annotations

from collections.abc import Sequence

from pessoa.ksql.analysis.format_rules import check_columns, find_format
from pessoa.ksql.analysis.pseudo_columns import refuse_reserved
from pessoa.ksql.analysis.query_analysis import DEFAULT_KEY_FORMAT
from pessoa.ksql.analysis.source_catalogue import (
    Catalogue,
    HeaderColumn,
    SchemaColumn,
    Source,
    SourceWindow,
)
from pessoa.ksql.analysis.with_properties import SOURCE_PROPERTIES, Properties, read_properties
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.syntax.statement_nodes import ColumnDefinition, ColumnRole, CreateSource, SourceKind
from pessoa.ksql.types.sql_types import BIGINT, BYTES, STRING, TIMESTAMP, Array, SqlType, Struct, quoted

_HEADERS = Array(Struct((("KEY", STRING), ("VALUE", BYTES))))


def define_source(
    statement: CreateSource, catalogue: Catalogue, default_value_format: str | None = None
) -> tuple[Source, list[str]]:
    """Return the source and warnings. The columns that are inferred from a schema registry are still missing."""
    properties = read_properties(statement.properties, SOURCE_PROPERTIES)
    warnings: list[str] = []
    columns = _with_old_key(statement, properties, warnings)
    key, value, headers = _columns(statement, columns, catalogue)
    key_format, value_format = _formats(statement, properties, default_value_format)
    topic = properties.text("KAFKA_TOPIC")
    if topic is None:
        raise SemanticFailure(
            'Missing required property "KAFKA_TOPIC" which has no default value.',
            statement.at,
            hint=f"WITH (KAFKA_TOPIC='{statement.name.lower()}', …)",
        )
    _check_schema(statement, properties, key, value, (key_format, value_format))
    check_wrapping(properties, value_format, value)
    window = properties.window()
    source = Source(
        statement.name,
        statement.kind,
        topic,
        key,
        value,
        headers,
        key_format,
        value_format,
        None if window is None else SourceWindow(*window),
        _timestamp(properties, key, value),
        properties.text("TIMESTAMP_FORMAT"),
        properties.number("PARTITIONS"),
        properties.number("REPLICAS"),
        read_only=statement.is_source,
        materialised=statement.is_source and statement.kind is SourceKind.TABLE,
        key_options=properties.options("KEY"),
        value_options=properties.options("VALUE"),
    )
    return source, warnings


def _with_old_key(statement: CreateSource, properties: Properties, warnings: list[str]) -> tuple[ColumnDefinition, ...]:
    """Return the columns, with the one named by the 5.x property `KEY` marked as key."""
    name = properties.text("KEY")
    if name is None:
        return statement.columns
    role = ColumnRole.KEY if statement.kind is SourceKind.STREAM else ColumnRole.PRIMARY_KEY
    wanted = name if any(column.name == name for column in statement.columns) else name.upper()
    if all(column.name != wanted for column in statement.columns):
        raise SemanticFailure(
            f"The KEY column set in the WITH clause does not exist in the schema: '{name}'",
            properties.place("KEY"),
            hint=did_you_mean(name, [column.name for column in statement.columns]),
        )
    warnings.append(f"KEY='{name}' is a property of 5.x; declare the column as {wanted} … {role.value}.")
    return tuple(
        ColumnDefinition(column.name, column.type, role, at=column.at) if column.name == wanted else column
        for column in statement.columns
    )


def _columns(
    statement: CreateSource, columns: Sequence[ColumnDefinition], catalogue: Catalogue
) -> tuple[tuple[SchemaColumn, ...], tuple[SchemaColumn, ...], tuple[HeaderColumn, ...]]:
    key: list[SchemaColumn] = []
    value: list[SchemaColumn] = []
    headers: list[HeaderColumn] = []
    seen: set[str] = set()
    for column in columns:
        refuse_reserved(column.name, column.at)
        if column.name in seen:
            raise SemanticFailure(f"Duplicate column names: {quoted(column.name)}", column.at, length=len(column.name))
        seen.add(column.name)
        kind = catalogue.resolve_type(column.type, column.at)
        _check_role(statement.kind, column, kind)
        match column.role:
            case ColumnRole.KEY | ColumnRole.PRIMARY_KEY:
                key.append(SchemaColumn(column.name, kind))
            case ColumnRole.HEADERS | ColumnRole.HEADER:
                headers.append(HeaderColumn(column.name, kind, column.header))
            case ColumnRole.VALUE:
                value.append(SchemaColumn(column.name, kind))
    if len(headers) > 1 and any(one.header is None for one in headers):
        raise SemanticFailure("Schema already contains a HEADERS column.", statement.at)
    named = [one.header for one in headers]
    if len(set(named)) < len(named):
        raise SemanticFailure("Schema contains a HEADER column of the same key twice.", statement.at)
    return tuple(key), tuple(value), tuple(headers)


def _check_role(kind: SourceKind, column: ColumnDefinition, own: SqlType) -> None:
    name = quoted(column.name)
    if kind is SourceKind.STREAM and column.role is ColumnRole.PRIMARY_KEY:
        raise SemanticFailure(f"Column {name} is a 'PRIMARY KEY' column: please use 'KEY' for streams.", column.at)
    if kind is SourceKind.TABLE and column.role is ColumnRole.KEY:
        raise SemanticFailure(f"Column {name} is a 'KEY' column: please use 'PRIMARY KEY' for tables.", column.at)
    wanted = {ColumnRole.HEADERS: _HEADERS, ColumnRole.HEADER: BYTES}.get(column.role)
    if wanted is not None and own != wanted:
        raise SemanticFailure(
            f"Invalid type for {column.role.value} column {name}: expected {wanted}, got {own}", column.at
        )


def _formats(statement: CreateSource, properties: Properties, default: str | None) -> tuple[str, str]:
    key, value = properties.formats()
    if value is None and default is None:
        raise SemanticFailure(
            "Statement is missing the 'VALUE_FORMAT' property from the WITH clause.",
            statement.at,
            hint="Either provide one or set a default via the 'ksql.persistence.default.format.value' config.",
        )
    chosen = find_format(value or default or "", properties.place("VALUE_FORMAT")).name
    if chosen == "NONE":
        raise SemanticFailure("The 'NONE' format can only be used for keys", properties.place("VALUE_FORMAT"))
    return find_format(key or DEFAULT_KEY_FORMAT, properties.place("KEY_FORMAT")).name, chosen


def _check_schema(
    statement: CreateSource,
    properties: Properties,
    key: tuple[SchemaColumn, ...],
    value: tuple[SchemaColumn, ...],
    formats: tuple[str, str],
) -> None:
    key_format, value_format = formats
    for side, columns in (("KEY", key), ("VALUE", value)):
        if columns and properties.number(f"{side}_SCHEMA_ID") is not None:
            raise SemanticFailure(
                f"Table elements and {side}_SCHEMA_ID cannot both exist for create statement.",
                properties.place(f"{side}_SCHEMA_ID"),
            )
    if not key and not value and not find_format(value_format).registry:
        raise SemanticFailure(
            "The statement does not define any columns.",
            statement.at,
            hint=f"The format {value_format} has no schema registry to take columns from.",
        )
    if statement.kind is SourceKind.TABLE and not key and not find_format(key_format).registry:
        raise SemanticFailure(
            "Tables require a PRIMARY KEY. Please define the PRIMARY KEY.",
            statement.at,
            hint="For example: id BIGINT PRIMARY KEY",
        )
    check_columns(key_format, key, "Key", properties.place("KEY_FORMAT"))
    check_columns(value_format, value, "Value", properties.place("VALUE_FORMAT"))


def check_wrapping(properties: Properties, value_format: str, value: tuple[SchemaColumn, ...]) -> None:
    wrap = properties.values.get("WRAP_SINGLE_VALUE")
    if wrap is None:
        return
    at = properties.place("WRAP_SINGLE_VALUE")
    if not find_format(value_format).wrapping:
        word = str(wrap).lower()
        raise SemanticFailure(f"Format '{value_format}' does not support 'WRAP_SINGLE_VALUE' set to '{word}'.", at)
    if len(value) > 1:
        raise SemanticFailure("'WRAP_SINGLE_VALUE' is only valid for single-field value schemas", at)


def _timestamp(properties: Properties, key: tuple[SchemaColumn, ...], value: tuple[SchemaColumn, ...]) -> str | None:
    name = properties.text("TIMESTAMP")
    if name is None:
        if properties.text("TIMESTAMP_FORMAT") is not None:
            raise SemanticFailure("TIMESTAMP_FORMAT needs TIMESTAMP", properties.place("TIMESTAMP_FORMAT"))
        return None
    return check_timestamp(name, properties, (*key, *value))


def check_timestamp(name: str, properties: Properties, columns: Sequence[SchemaColumn]) -> str:
    """Return the name of the column that record times come from: BIGINT or TIMESTAMP, or text with a format."""
    wanted = name.strip("`") if name.startswith("`") else name.upper()
    found = next((column for column in columns if column.name == wanted), None)
    at = properties.place("TIMESTAMP")
    if found is None:
        raise SemanticFailure(
            f"The TIMESTAMP column set in the WITH clause does not exist in the schema: '{wanted}'",
            at,
            hint=did_you_mean(wanted, [column.name for column in columns]),
        )
    formatted = properties.text("TIMESTAMP_FORMAT") is not None
    if found.type == STRING and not formatted:
        raise SemanticFailure(f"A String timestamp field has been specified: {found}, without a TIMESTAMP_FORMAT", at)
    if found.type in (BIGINT, TIMESTAMP) and formatted:
        raise SemanticFailure("'TIMESTAMP_FORMAT' set, but the timestamp column is no STRING", at)
    if found.type not in (BIGINT, TIMESTAMP, STRING):
        raise SemanticFailure(
            f"Timestamp column, {quoted(wanted)}, should be LONG(INT64), TIMESTAMP, or a String with a TIMESTAMP_FORMAT"
            f" specified, but it is {found.type}.",
            at,
        )
    return wanted
