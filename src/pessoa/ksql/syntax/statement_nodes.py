"""The tree of a statement: one class per form of the grammar. Names are as they count: upper-cased unless quoted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from pessoa.ksql.syntax.expression_nodes import Expression, Literal, Node
from pessoa.ksql.syntax.query_nodes import Duration, Query
from pessoa.ksql.types.sql_types import SqlType


class SourceKind(Enum):
    STREAM = "STREAM"
    TABLE = "TABLE"


class ColumnRole(Enum):
    VALUE = ""
    KEY = "KEY"
    PRIMARY_KEY = "PRIMARY KEY"
    HEADERS = "HEADERS"
    HEADER = "HEADER"


@dataclass(frozen=True)
class ColumnDefinition(Node):
    name: str
    type: SqlType
    role: ColumnRole = ColumnRole.VALUE
    # Of HEADER('key') only.
    header: str | None = None


@dataclass(frozen=True)
class Property(Node):
    """One property of WITH; the name is upper-cased unless it was a string, as the settings of connectors are."""

    name: str
    value: Literal


@dataclass(frozen=True)
class CreateSource(Node):
    kind: SourceKind
    name: str
    columns: tuple[ColumnDefinition, ...] = ()
    properties: tuple[Property, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    # CREATE SOURCE STREAM: read only; a SOURCE TABLE is materialised.
    is_source: bool = False


@dataclass(frozen=True)
class CreateAsSelect(Node):
    kind: SourceKind
    name: str
    query: Query
    properties: tuple[Property, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class InsertSelect(Node):
    target: str
    query: Query
    properties: tuple[Property, ...] = ()


@dataclass(frozen=True)
class InsertValues(Node):
    target: str
    columns: tuple[str, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True)
class QueryStatement(Node):
    """A push or pull query."""

    query: Query


@dataclass(frozen=True)
class AlterSource(Node):
    kind: SourceKind
    name: str
    columns: tuple[ColumnDefinition, ...]


@dataclass(frozen=True)
class DropSource(Node):
    kind: SourceKind
    name: str
    if_exists: bool = False
    delete_topic: bool = False


@dataclass(frozen=True)
class CreateType(Node):
    name: str
    type: SqlType
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropType(Node):
    name: str
    if_exists: bool = False


class ConnectorKind(Enum):
    SOURCE = "SOURCE"
    SINK = "SINK"


@dataclass(frozen=True)
class CreateConnector(Node):
    kind: ConnectorKind
    name: str
    properties: tuple[Property, ...]
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropConnector(Node):
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class DescribeConnector(Node):
    name: str


@dataclass(frozen=True)
class ShowConnectors(Node):
    kind: ConnectorKind | None = None


class Shown(Enum):
    TOPICS = "TOPICS"
    STREAMS = "STREAMS"
    TABLES = "TABLES"
    QUERIES = "QUERIES"
    FUNCTIONS = "FUNCTIONS"
    PROPERTIES = "PROPERTIES"
    VARIABLES = "VARIABLES"
    TYPES = "TYPES"
    CONNECTOR_PLUGINS = "CONNECTOR PLUGINS"


@dataclass(frozen=True)
class Show(Node):
    """SHOW or LIST. `all` belongs to TOPICS; EXTENDED to TOPICS, STREAMS, TABLES and QUERIES."""

    what: Shown
    extended: bool = False
    all: bool = False


@dataclass(frozen=True)
class DescribeSource(Node):
    name: str
    extended: bool = False


@dataclass(frozen=True)
class DescribeAll(Node):
    kind: SourceKind
    extended: bool = False


@dataclass(frozen=True)
class DescribeFunction(Node):
    name: str


@dataclass(frozen=True)
class Explain(Node):
    """EXPLAIN of a statement, or of the running query of this id."""

    subject: Statement | str


@dataclass(frozen=True)
class PrintTopic(Node):
    topic: str
    from_beginning: bool = False
    interval: int | None = None
    limit: int | None = None


class QueryAction(Enum):
    TERMINATE = "TERMINATE"
    PAUSE = "PAUSE"
    RESUME = "RESUME"


@dataclass(frozen=True)
class ControlQuery(Node):
    """TERMINATE, PAUSE or RESUME of a query; `query_id` None stands for ALL."""

    action: QueryAction
    query_id: str | None


@dataclass(frozen=True)
class SetProperty(Node):
    name: str
    value: str


@dataclass(frozen=True)
class UnsetProperty(Node):
    name: str


@dataclass(frozen=True)
class AlterSystem(Node):
    name: str
    value: str


@dataclass(frozen=True)
class DefineVariable(Node):
    name: str
    value: str


@dataclass(frozen=True)
class UndefineVariable(Node):
    name: str


@dataclass(frozen=True)
class RunScript(Node):
    file: str


@dataclass(frozen=True)
class AssertTopic(Node):
    topic: str
    exists: bool = True
    properties: tuple[Property, ...] = ()
    timeout: Duration | None = None


@dataclass(frozen=True)
class AssertSchema(Node):
    subject: str | None = None
    id: int | None = None
    exists: bool = True
    timeout: Duration | None = None


@dataclass(frozen=True)
class AssertValues(Node):
    """The next row of a source in a test; without `values` its value is null (ASSERT NULL VALUES)."""

    source: str
    columns: tuple[str, ...]
    values: tuple[Expression, ...]
    tombstone: bool = False


@dataclass(frozen=True)
class AssertSource(Node):
    """ASSERT STREAM|TABLE: the source is defined like this."""

    definition: CreateSource


Statement: TypeAlias = (
    CreateSource | CreateAsSelect | InsertSelect | InsertValues | QueryStatement | AlterSource | DropSource
    | CreateType | DropType | CreateConnector | DropConnector | DescribeConnector | ShowConnectors | Show
    | DescribeSource | DescribeAll | DescribeFunction | Explain | PrintTopic | ControlQuery | SetProperty
    | UnsetProperty | AlterSystem | DefineVariable | UndefineVariable | RunScript | AssertTopic | AssertSchema
    | AssertValues | AssertSource
)  # fmt: skip
