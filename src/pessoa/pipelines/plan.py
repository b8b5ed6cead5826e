"""The logical plan of a pipeline, before anything runs it: Streams, ksql and Connect have it in common.

A plan is a tree of frozen values. Records come from its leaves, the root says where they go:

    Sink "totais" ← Aggregate count(*) ← Filter "valor > 10" ← Source "vendas"

What flows from node to node is a row with named columns:

    key columns      what the record's key was decoded to. A plain key is the one column `key`
    value columns    what its value was decoded to. A plain value is the one column `value`
    rowtime          the event time, a timestamp: that of the record, or of an expression that the source names
    rowtopic, rowpartition, rowoffset, rowheaders    where the record came from, up to the first aggregate or join
    rowdeleted       true for a record without a value: in a table, the key is gone
    window_start, window_end   key columns behind a windowed aggregate

A flow is a stream (every row is a fact) or a table (a row replaces the one with its key before it). `shapes.py` says
which columns a node has and whether it is a table; `stages.py` where a plan must be cut in two; `explain.py` prints it;
`compiler.py` makes a Spark DataFrame of it. Expressions are Spark SQL over the columns, and are kept as text.

A plan goes through JSON and back (`to_json`, `from_json`). A Python function within it is only named: the caller of
the compiler brings the functions along, or the name is `module:function` and is imported.

Pure: nothing here imports Spark or touches the world.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

# The kinds of format. Those of the second line are Kafka's own serialisers, and stand for one column.
STRUCTURED = ("json", "avro", "protobuf", "delimited")
PRIMITIVES = ("string", "short", "int", "long", "float", "double", "boolean", "bytes")
# The third line: no bytes at all, as in a record without a key.
NOTHING = "none"

OnError: TypeAlias = Literal["stop", "skip", "dead-letter"]
How: TypeAlias = Literal["inner", "left", "outer"]
Start: TypeAlias = Literal["earliest", "latest"]
Style: TypeAlias = Literal["row", "pandas", "arrow"]
Timers: TypeAlias = Literal["none", "processing", "event"]
Speed: TypeAlias = Literal["real-time", "micro-batch"]
Lookup: TypeAlias = Literal["by-time", "latest"]


class PlanRefused(ValueError):
    """A plan that cannot run; the message says why in terms of the plan."""


class Format(msgspec.Struct, frozen=True, omit_defaults=True):
    """The format by which bytes are decoded to columns, and columns encoded to bytes."""

    kind: str
    # The columns and their types, as Spark writes them: "id BIGINT, nome STRING". Empty for a registry's schema that
    # has still to be looked up, and for a sink, which takes all columns that arrive.
    columns: str = ""
    # The schema as the registry has it, and where: the subject goes without saying (`<topic>-value`).
    schema: str = ""
    subject: str = ""
    # The full name of a message in a .proto file; its first one if empty.
    message: str = ""
    delimiter: str = ","


STRING = Format("string")
BYTES = Format("bytes")


class Column(msgspec.Struct, frozen=True):
    name: str
    expression: str


class Function(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Python function by name. `returns` is a Spark type; a STRUCT's fields become the value's columns.

    A function of style `row` is called once a record with plain Python values; `pandas` and `arrow` ones once a chunk,
    with a DataFrame or Table of the value's columns (or a Series or Array, if the value is plain).
    """

    name: str
    returns: str
    style: Style = "row"
    # The function takes (key, value) instead of the value alone.
    with_key: bool = False
    # The dataclass, by module:name, that a row function wants its value as; a dict or plain value if empty.
    takes: str = ""


class Errors(msgspec.Struct, frozen=True, omit_defaults=True):
    """How records are handled that cannot be decoded, or whose function fails."""

    then: OnError = "stop"
    # The topic for dead letters.
    topic: str = ""


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """A window in time; times are in milliseconds. It takes late records until the stream is `grace_ms` past its
    end."""

    kind: Literal["tumbling", "hopping", "session", "sliding"]
    # The length, or the gap that ends a session.
    size_ms: int
    advance_ms: int = 0
    grace_ms: int = 0
    # Write no result before a window is closed; sessions never do.
    final: bool = False


class Within(msgspec.Struct, frozen=True, omit_defaults=True):
    """The time bounds of a join of two streams: how much older or younger than the left row the right row may be."""

    before_ms: int
    after_ms: int
    grace_ms: int = 0


class Source(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    topic: str
    key: Format = STRING
    value: Format = STRING
    is_table: bool = False
    # An expression for the event time, of type timestamp; the record's own if empty.
    timestamp: str = ""
    start: Start = "earliest"
    # The windows of a windowed table whose key has its window's columns: what a Sink with `whole_key` wrote.
    window: Window | None = None
    errors: Errors = Errors()
    # Options of Spark's Kafka source, such as maxOffsetsPerTrigger.
    options: Mapping[str, str] = {}


class Project(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Replaces the value by these columns, or adds them to it if `keep` is set."""

    input: Node
    columns: tuple[Column, ...]
    keep: bool = False


class Apply(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Replaces the value by the result of a Python function."""

    input: Node
    function: Function
    errors: Errors = Errors()


class Filter(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Keeps the rows that meet a condition. In a table, a row that does not meet it deletes its key."""

    input: Node
    condition: str | Function
    errors: Errors = Errors()
    # A stream's records without a value pass, as they do where a function only looks at rows.
    passes_deleted: bool = False


class FlatMap(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Replaces each row by one row for each element of the array that the expression or function returns.

    An element that is a struct becomes the value's columns, any other the column `name`. A function with keys returns
    structs of two fields: `key` and `value`.
    """

    input: Node
    each: str | Function
    # The columns of an element, as in Format.columns; an expression whose elements are plain needs none.
    columns: str = ""
    name: str = "value"
    errors: Errors = Errors()


class Rekey(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Replaces the key by these columns. A table becomes the stream of its changes."""

    input: Node
    columns: tuple[Column, ...]
    # Instead of `columns`: a function from the value (or key and value) to a plain key.
    function: Function | None = None
    errors: Errors = Errors()


class Aggregate(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Makes one row of a table of the rows of one key (and window), by SQL aggregates such as count(*) or
    sum(valor)."""

    input: Node
    columns: tuple[Column, ...]
    window: Window | None = None


class Distinct(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Keeps the first of the rows that are equal in these columns, or in all columns of key and value if none are
    named.

    Earlier rows are kept in the state for ever, or until the stream is `within_ms` past them.
    """

    input: Node
    columns: tuple[str, ...] = ()
    within_ms: int = 0


class Process(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Passes the rows of a key, in the order of their times, to a Python object that keeps state for the key, sets
    timers, and returns any number of values for each row (`row_process.py`)."""

    input: Node
    # Names the object; `returns` is the type of one value.
    function: Function
    timers: Timers = "none"
    # With event-time timers: how late a row may be.
    grace_ms: int = 0
    # The values have WINDOW_COLUMNS, and are the rows of a windowed table.
    window: Window | None = None
    # The values are rows of a table: the latest of a key holds.
    gives_table: bool = False
    errors: Errors = Errors()


class Join(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Joins rows with equal keys. Its kind follows from its inputs: two streams (`within` bounds the difference in
    time), a stream with the state of a table, or two tables. The value has the columns of both; a prefix keeps them
    apart.

    A stream's row is joined with the table's row of its own time (`by-time`: rows of both are taken in the order of
    their times), or with the current row when it arrives (`latest`, as with Kafka's global tables: the table is read to
    its end before the stream is).
    """

    left: Node
    right: Node
    how: How = "inner"
    within: Within | None = None
    left_prefix: str = ""
    right_prefix: str = ""
    lookup: Lookup = "by-time"


class ForeignKeyJoin(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Joins two tables: each row of the left table with the row of the right table whose key the expression `on`
    returns. It is replaced by other nodes before it runs (`table_foreign_keys.py`)."""

    left: Node
    right: Node
    on: str
    how: How = "inner"
    right_prefix: str = ""


class Through(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Writes the rows to a topic and reads them back: the nodes above are another query, with `partitions` to read."""

    input: Node
    # A name of ours if empty.
    topic: str = ""
    # As many as the cluster gives a new topic, if -1.
    partitions: int = -1


class Union(msgspec.Struct, frozen=True, tag=True):
    """The rows of all inputs; their columns have the same names, in any order."""

    inputs: tuple[Node, ...]


class Sink(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The end of a plan, which writes the rows as records of a topic."""

    input: Node
    topic: str
    key: Format = STRING
    value: Format = Format("json")
    # Columns of the key that the value gets as well.
    also: tuple[str, ...] = ()
    # The key of a windowed table is followed by its window, as Kafka's TimeWindowedSerializer writes it.
    windowed_key: bool = True
    # The key has the window's columns among its own instead: for topics between two queries.
    whole_key: bool = False


class PythonSource(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Records of a `pipelines.python_source` reader, by the name under which the compiler is given the reader."""

    reader: str
    options: Mapping[str, str] = {}


class PythonSink(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Records handed to a `pipelines.python_sink` writer, by name."""

    input: Node
    writer: str
    options: Mapping[str, str] = {}


Node: TypeAlias = (
    Source
    | Project
    | Apply
    | Filter
    | FlatMap
    | Rekey
    | Aggregate
    | Distinct
    | Process
    | Through
    | ForeignKeyJoin
    | Join
    | Union
    | Sink
    | PythonSource
    | PythonSink
)


class KafkaSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The addresses of brokers and schema registry. `options` are Kafka's client keys (security.protocol,
    sasl.jaas.config, …)."""

    bootstrap_servers: str
    options: Mapping[str, str] = {}
    schema_registry_url: str = ""


def inputs(node: Node) -> tuple[Node, ...]:
    """Return the nodes whose rows a node takes."""
    match node:
        case Source() | PythonSource():
            return ()
        case Join() | ForeignKeyJoin():
            return (node.left, node.right)
        case Union():
            return node.inputs
        case _:
            return (node.input,)


def every(node: Node) -> list[Node]:
    """Return a node and all nodes below it, inputs first."""
    return [found for each in inputs(node) for found in every(each)] + [node]


def to_json(node: Node) -> bytes:
    return msgspec.json.encode(node)


def from_json(text: bytes | str) -> Node:
    try:
        plan: Node = msgspec.json.decode(text, type=Node)
    except msgspec.ValidationError as wrong:
        raise PlanRefused(f"this is no plan: {wrong}") from None
    return plan
