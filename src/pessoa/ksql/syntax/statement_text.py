"""Statements to SQL: canonical text, which ends with a semicolon. The parser reads the same tree from it."""

from __future__ import annotations

from pessoa.ksql.syntax.expression_nodes import Expression
from pessoa.ksql.syntax.expression_text import expression_text, literal_text, name_text, string_text
from pessoa.ksql.syntax.query_text import duration_text, query_text
from pessoa.ksql.syntax.statement_nodes import (
    AlterSource,
    AlterSystem,
    AssertSchema,
    AssertSource,
    AssertTopic,
    AssertValues,
    ColumnDefinition,
    ColumnRole,
    ControlQuery,
    CreateAsSelect,
    CreateConnector,
    CreateSource,
    CreateType,
    DefineVariable,
    DescribeAll,
    DescribeConnector,
    DescribeFunction,
    DescribeSource,
    DropConnector,
    DropSource,
    DropType,
    Explain,
    InsertSelect,
    InsertValues,
    PrintTopic,
    Property,
    QueryStatement,
    RunScript,
    SetProperty,
    Show,
    ShowConnectors,
    Statement,
    UndefineVariable,
    UnsetProperty,
)


def statement_text(statement: Statement) -> str:
    return _text(statement) + ";"


def _text(statement: Statement) -> str:
    match statement:
        case QueryStatement(query):
            return query_text(query)
        case CreateSource() | CreateAsSelect() | CreateType() | CreateConnector():
            return _create_text(statement)
        case InsertSelect(target, query, properties):
            return "\n".join([f"INSERT INTO {name_text(target)}{_with_text(properties)}", query_text(query)])
        case InsertValues(target, columns, values):
            return " ".join(["INSERT INTO", name_text(target) + _names(columns), "VALUES", _row(values)])
        case AlterSource(kind, name, columns):
            added = ", ".join(f"ADD COLUMN {column_text(column)}" for column in columns)
            return f"ALTER {kind.value} {name_text(name)} {added}"
        case DropSource(kind, name, if_exists, delete_topic):
            return (
                f"DROP {kind.value} {_if_exists(if_exists)}{name_text(name)}{' DELETE TOPIC' if delete_topic else ''}"
            )
        case DropType(name, if_exists):
            return f"DROP TYPE {_if_exists(if_exists)}{name_text(name)}"
        case DropConnector(name, if_exists):
            return f"DROP CONNECTOR {_if_exists(if_exists)}{name_text(name)}"
        case Explain(str(query_id)):
            return f"EXPLAIN {name_text(query_id)}"
        case Explain(subject):
            assert not isinstance(subject, str)
            return f"EXPLAIN {_text(subject)}"
        case AssertTopic() | AssertSchema() | AssertValues() | AssertSource():
            return _assert_text(statement)
    return _command_text(statement)


def _create_text(statement: CreateSource | CreateAsSelect | CreateType | CreateConnector) -> str:
    if_not_exists = "IF NOT EXISTS " if statement.if_not_exists else ""
    name = name_text(statement.name)
    if isinstance(statement, CreateType):
        return f"CREATE TYPE {if_not_exists}{name} AS {statement.type}"
    if isinstance(statement, CreateConnector):
        return f"CREATE {statement.kind.value} CONNECTOR {if_not_exists}{name}{_with_text(statement.properties)}"
    replace = "OR REPLACE " if statement.or_replace else ""
    if isinstance(statement, CreateAsSelect):
        head = f"CREATE {replace}{statement.kind.value} {if_not_exists}{name}{_with_text(statement.properties)}"
        return f"{head} AS {query_text(statement.query)}"
    source = "SOURCE " if statement.is_source else ""
    return f"CREATE {replace}{source}{statement.kind.value} {if_not_exists}{_definition(statement)}"


def _definition(source: CreateSource) -> str:
    columns = f" ({', '.join(map(column_text, source.columns))})" if source.columns else ""
    return f"{name_text(source.name)}{columns}{_with_text(source.properties)}"


def _command_text(statement: Statement) -> str:
    match statement:
        case Show(what, extended, everything):
            return f"SHOW {'ALL ' if everything else ''}{what.value}{_extended_text(extended)}"
        case ShowConnectors(kind):
            return f"SHOW {'' if kind is None else kind.value + ' '}CONNECTORS"
        case DescribeSource(name, extended):
            return f"DESCRIBE {name_text(name)}{_extended_text(extended)}"
        case DescribeAll(kind, extended):
            return f"DESCRIBE {kind.value}S{_extended_text(extended)}"
        case DescribeFunction(name):
            return f"DESCRIBE FUNCTION {name_text(name)}"
        case DescribeConnector(name):
            return f"DESCRIBE CONNECTOR {name_text(name)}"
        case PrintTopic(topic, beginning, interval, limit):
            parts = [f"PRINT {string_text(topic)}"]
            parts += ["FROM BEGINNING"] if beginning else []
            parts += [] if interval is None else [f"INTERVAL {interval}"]
            parts += [] if limit is None else [f"LIMIT {limit}"]
            return " ".join(parts)
        case ControlQuery(action, query_id):
            return f"{action.value} {'ALL' if query_id is None else name_text(query_id)}"
        case SetProperty(name, value):
            return f"SET {string_text(name)} = {string_text(value)}"
        case UnsetProperty(name):
            return f"UNSET {string_text(name)}"
        case AlterSystem(name, value):
            return f"ALTER SYSTEM {string_text(name)} = {string_text(value)}"
        case DefineVariable(name, value):
            return f"DEFINE {name_text(name)} = {string_text(value)}"
        case UndefineVariable(name):
            return f"UNDEFINE {name_text(name)}"
        case RunScript(file):
            return f"RUN SCRIPT {string_text(file)}"
    raise AssertionError(f"no text for {type(statement).__name__}")


def _assert_text(statement: AssertTopic | AssertSchema | AssertValues | AssertSource) -> str:
    if isinstance(statement, AssertSource):
        return f"ASSERT {statement.definition.kind.value} {_definition(statement.definition)}"
    if isinstance(statement, AssertValues):
        words = "NULL VALUES" if statement.tombstone else "VALUES"
        return (
            f"ASSERT {words} {name_text(statement.source)}{_names(statement.columns)} VALUES {_row(statement.values)}"
        )
    timeout = "" if statement.timeout is None else f" TIMEOUT {duration_text(statement.timeout)}"
    head = "ASSERT " if statement.exists else "ASSERT NOT EXISTS "
    if isinstance(statement, AssertTopic):
        return f"{head}TOPIC {string_text(statement.topic)}{_with_text(statement.properties)}{timeout}"
    subject = "" if statement.subject is None else f" SUBJECT {string_text(statement.subject)}"
    schema_id = "" if statement.id is None else f" ID {statement.id}"
    return f"{head}SCHEMA{subject}{schema_id}{timeout}"


def column_text(column: ColumnDefinition) -> str:
    text = f"{name_text(column.name)} {column.type}"
    if column.role is ColumnRole.HEADER:
        assert column.header is not None
        return f"{text} HEADER({string_text(column.header)})"
    return text if column.role is ColumnRole.VALUE else f"{text} {column.role.value}"


def _with_text(properties: tuple[Property, ...]) -> str:
    if not properties:
        return ""
    return f" WITH ({', '.join(f'{_property_name(one.name)} = {literal_text(one.value.value)}' for one in properties)})"


def _property_name(name: str) -> str:
    text = name_text(name)
    return text if not text.startswith("`") else string_text(name)


def _row(values: tuple[Expression, ...]) -> str:
    return f"({', '.join(map(expression_text, values))})"


def _names(columns: tuple[str, ...]) -> str:
    return f" ({', '.join(map(name_text, columns))})" if columns else ""


def _if_exists(flag: bool) -> str:
    return "IF EXISTS " if flag else ""


def _extended_text(flag: bool) -> str:
    return " EXTENDED" if flag else ""
