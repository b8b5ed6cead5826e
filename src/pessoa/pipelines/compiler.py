"""The plan as a Spark DataFrame: of a stream, or of rows in memory, which is how pipelines are tested.

    compile(plan, spark, kafka=…)              DataFrame with what Spark's Kafka sink takes: topic, key, value, headers
    compile(plan, spark, kafka=…, rows={…})    the same from DataFrames that stand in for topics

Each node becomes a few DataFrame operations on the flow below it. A flow has the columns that `shapes.py` says, and

    rowtime, rowdeleted       always
    rowtopic … rowheaders     up to the first aggregate or join
    rowraw, rowerror          where dead letters are wanted: the record as it came, and what is wrong with it

Bad records. `skip` filters them out where they are found, `stop` fails the query with a sentence that names the record.
`dead-letter` lets them travel on beside the good ones, untouched by any step, to be written to their own topic at the
end: one query, one pass, and real-time mode stays possible. State must not see them: before an aggregate or a join they
are set apart, and join the output at the end through a second reading of the source.

A refusal of Spark comes back as PlanRefused in the plan's words (`refusals.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from pessoa.pipelines.formats import decoder, encoder, is_native, sql_name, sql_text
from pessoa.pipelines.kafka_options import spark_settings
from pessoa.pipelines.plan import (
    NOTHING,
    Aggregate,
    Apply,
    Distinct,
    Errors,
    Filter,
    FlatMap,
    ForeignKeyJoin,
    Format,
    Function,
    Join,
    KafkaSettings,
    Node,
    PlanRefused,
    Process,
    Project,
    PythonSink,
    PythonSource,
    Rekey,
    Sink,
    Source,
    Through,
    Union,
    every,
)
from pessoa.pipelines.python_functions import (
    ERROR,
    RESULT,
    NamedFunctions,
    Wrapped,
    arrow_function,
    arrow_type,
    find_function,
    ship,
)
from pessoa.pipelines.shapes import (
    KEY,
    ORIGIN,
    ROWDELETED,
    ROWTIME,
    VALUE,
    WINDOW_COLUMNS,
    Shape,
    format_columns,
    shape,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RAW = "rowraw"
BAD = "rowerror"
# Kafka's names for the headers of a dead letter (KIP-1034).
LETTER_HEADERS = {
    "__streams.errors.exception": "'pessoa.BadRecord'",
    "__streams.errors.message": f"{BAD}.message",
    "__streams.errors.topic": f"{RAW}.topic",
    "__streams.errors.partition": f"CAST({RAW}.partition AS STRING)",
    "__streams.errors.offset": f"CAST({RAW}.offset AS STRING)",
}
NO_ERROR = "CAST(NULL AS STRUCT<message: STRING, topic: STRING>)"
HEADERS_TYPE = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
SINK_COLUMNS = ("topic", "key", "value", "headers", "timestamp")
RECORD_COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "headers")


class Flow(NamedTuple):
    frame: DataFrame
    shape: Shape
    # Whether bad rows travel along, in RAW and BAD.
    carries_bad: bool = False
    # Records for dead-letter topics that were set apart.
    letters: tuple[DataFrame, ...] = ()

    @property
    def carried(self) -> list[str]:
        """The columns that every step keeps beside key and value columns."""
        origin = ORIGIN if self.shape.has_origin else ()
        return [ROWTIME, ROWDELETED, *origin, *((RAW, BAD) if self.carries_bad else ())]


def compile(  # noqa: A001
    plan: Node,
    spark: SparkSession,
    *,
    kafka: KafkaSettings,
    functions: NamedFunctions | None = None,
    rows: Mapping[str, DataFrame] | None = None,
    real_time: bool = False,
    looks: bool = True,
) -> DataFrame:
    """Return the DataFrame that a plan with a Sink at its end writes (SINK_COLUMNS), or the rows of any other plan.

    `real_time`: the plan will run in real-time mode, where joins with tables are aggregates. `looks`: Spark checks the
    plan.
    """
    from pessoa.pipelines.refusals import in_the_plans_words

    compiler = Compiler(plan, spark, kafka, functions or {}, rows, real_time)
    with in_the_plans_words(plan, compiler):
        frame = compiler.flow(plan).frame
        # Spark Connect looks at a plan only when it is asked something.
        if looks:
            frame.schema  # noqa: B018
    return frame


class Compiler:
    def __init__(
        self, plan: Node, spark: SparkSession, kafka: KafkaSettings, functions: NamedFunctions,
        rows: Mapping[str, DataFrame] | None, real_time: bool = False,
    ) -> None:  # fmt: skip
        self.spark = spark
        self.kafka = kafka
        self._functions = functions
        self._rows = rows
        self._real_time = real_time
        self._wants_letters = any(
            getattr(node, "errors", Errors()).then == "dead-letter"
            for node in every(plan)
            if not isinstance(node, Sink)
        )

    def flow(self, node: Node) -> Flow:
        match node:
            case Source():
                return self._source(node)
            case Project():
                return self._project(node)
            case Apply():
                return self._apply(node)
            case Filter():
                return self._filter(node)
            case FlatMap():
                return self._flat_map(node)
            case Rekey():
                return self._rekey(node)
            case Aggregate():
                from pessoa.pipelines.stateful import aggregate

                return aggregate(node, self._split_off_bad_rows(self.flow(node.input)))
            case Distinct():
                from pessoa.pipelines.stateful import distinct

                return distinct(node, self._split_off_bad_rows(self.flow(node.input)))
            case Join():
                from pessoa.pipelines.stateful import join

                return join(
                    node,
                    self._split_off_bad_rows(self.flow(node.left)),
                    self._split_off_bad_rows(self.flow(node.right)),
                    self._real_time,
                )
            case Process():
                return self._process(node)
            case ForeignKeyJoin():
                # In a plan that runs this node was replaced by others before; for rows in memory it is replaced here.
                from pessoa.pipelines.table_foreign_keys import expand

                return self.flow(expand(node, self.types(node.left), self.types(node.right)))
            case Through():
                # A plan that runs was split into two queries here; for rows in memory it continues in one.
                below = self.flow(node.input)
                return below._replace(frame=below.frame.drop(*ORIGIN), shape=shape(node))
            case Union():
                return self._union(node)
            case Sink():
                return self._sink(node)
            case PythonSource() | PythonSink():
                raise PlanRefused("Python sources and sinks are run by the engine, not compiled")

    def types(self, node: Node) -> dict[str, str]:
        """Return the columns of a node and their types in Spark."""
        return {field.name: field.dataType.simpleString() for field in self.flow(node).frame.schema}

    # Sources and sinks

    def _source(self, node: Source) -> Flow:
        from pyspark.sql import functions as F

        made = shape(node)
        records = self._records(node)
        fields: list[Column] = []
        mistakes: list[str] = []
        for alias, format_, plain_name in (("__key", node.key, KEY), ("__value", node.value, VALUE)):
            columns, error, struct = self._decode_columns(format_, alias, plain_name)
            if struct is not None:
                records = records.withColumn(alias, struct)
            fields += (F.expr(sql).alias(name) for name, sql in columns.items())
            if error is not None:
                mistakes.append(f"concat('its {plain_name} ', {error})")
        error = f"coalesce({', '.join(mistakes)})" if mistakes else None
        deleted = "value IS NULL"
        if node.value.kind == "json":
            deleted = "(value IS NULL OR trim(CAST(value AS STRING)) = 'null')"
        frame = records.select(
            *fields,
            F.col("timestamp").alias(ROWTIME),
            F.expr(deleted).alias(ROWDELETED),
            *(F.col(name.removeprefix("row")).alias(name) for name in ORIGIN),
            *([F.struct(*RECORD_COLUMNS).alias(RAW)] if self._wants_letters else []),
            *([F.expr(error).alias("__error")] if error else []),
        )
        if node.timestamp:
            known = "__error, " if error else ""
            time = f"coalesce({known}IF(({node.timestamp}) IS NULL AND NOT {ROWDELETED}, 'has no event time', NULL))"
            frame = frame.withColumn("__error", F.expr(time)).withColumn(
                ROWTIME, F.expr(f"IF({ROWDELETED}, {ROWTIME}, CAST(({node.timestamp}) AS TIMESTAMP))")
            )
        flow = Flow(frame, made)
        return self._route_bad_rows(flow, "__error" if error or node.timestamp else None, node.errors)

    def _decode_columns(
        self, format_: Format, alias: str, plain_name: str
    ) -> tuple[Mapping[str, str], str | None, Column | None]:
        """Return SQL for the columns of a key or value, SQL for the decoding error, and the struct that both read."""
        from pyspark.sql import functions as F

        data = alias.removeprefix("__")
        if is_native(format_):
            found = decoder(format_, data, alias, plain_name)
            return found.columns, found.error, F.expr(found.struct) if found.struct is not None else None
        from pessoa.pipelines.registry_formats import decode_column

        names = format_columns(format_, plain_name)
        columns = {name: f"{alias}.{RESULT}.{sql_name(name)}" for name in names}
        return columns, f"{alias}.{ERROR}", decode_column(format_, data, self.kafka, self.spark)

    def _records(self, node: Source) -> DataFrame:
        if self._rows is not None:
            if node.topic not in self._rows:
                raise PlanRefused(f"there are no records for the source {node.topic}")
            return self._rows[node.topic]
        reader = self.spark.readStream.format("kafka").options(**spark_settings(self.kafka))
        reader = (
            reader.option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
            # Records of an uncommitted transaction are not read: it may be aborted.
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", node.topic)
            .option("startingOffsets", node.start)
            .option("includeHeaders", "true")
        )
        for name, value in node.options.items():
            reader = reader.option(name, value)
        return reader.load()

    def _sink(self, node: Sink) -> Flow:
        from pyspark.sql import functions as F

        flow = self.flow(node.input)
        made = flow.shape
        keys = tuple(name for name in made.keys if node.whole_key or name not in WINDOW_COLUMNS)
        key = self._encode_columns(node.key, keys, flow, f"{node.topic}-key", "the key")
        if made.window is not None and node.windowed_key and not node.whole_key and node.key.kind != NOTHING:
            times = ("window_end", "window_start") if made.window.kind == "session" else ("window_start",)
            parts = ", ".join(f"unhex(lpad(hex(unix_millis({name})), 16, '0'))" for name in times)
            key = F.concat(key, F.expr(f"concat({parts})"))
        value = self._encode_columns(node.value, made.values + node.also, flow, f"{node.topic}-value", "the value")
        value = F.when(F.expr(f"NOT {ROWDELETED}"), value)
        columns: dict[str, Column] = {
            "topic": F.lit(node.topic),
            "key": key,
            "value": value,
            "headers": F.col("rowheaders") if made.has_origin else F.lit(None).cast(HEADERS_TYPE),
            "timestamp": F.col(ROWTIME),
        }
        frame = flow.frame.select(*(column.alias(name) for name, column in columns.items()))
        if flow.carries_bad:
            frame = flow.frame.select(
                *(
                    F.when(F.expr(f"{BAD} IS NULL"), column).otherwise(_dead_letter_column(name)).alias(name)
                    for name, column in columns.items()
                )
            )
        for letters in flow.letters:
            frame = frame.unionByName(letters)
        return Flow(frame, made)

    def _encode_columns(self, format_: Format, columns: tuple[str, ...], flow: Flow, subject: str, what: str) -> Column:
        from pyspark.sql import functions as F

        if is_native(format_):
            return F.expr(encoder(format_, columns, what))
        from pessoa.pipelines.registry_formats import encode_column

        return encode_column(format_, columns, flow.frame, subject, self.kafka)

    # Steps without state

    def _project(self, node: Project) -> Flow:
        from pyspark.sql import functions as F

        below = self.flow(node.input)
        made = shape(node)
        expressions = {column.name: column.expression for column in node.columns}
        frame = below.frame.select(
            *(F.col(sql_name(name)) for name in made.keys),
            *(F.expr(expressions.get(name, sql_name(name))).alias(name) for name in made.values),
            *below.carried,
        )
        return below._replace(frame=frame, shape=made)

    def _apply(self, node: Apply) -> Flow:
        from pyspark.sql import functions as F

        below = self.flow(node.input)
        made = shape(node)
        frame = below.frame.withColumn("__made", self._call_function(node.function, below))
        is_struct = node.function.returns.strip().upper().startswith("STRUCT")
        frame = frame.select(
            *(F.col(sql_name(name)) for name in made.keys),
            *(
                F.expr(f"__made.{RESULT}.{sql_name(name)}" if is_struct else f"__made.{RESULT}").alias(name)
                for name in made.values
            ),
            *below.carried,
            F.expr(f"__made.{ERROR}").alias("__error"),
        )
        return self._route_bad_rows(below._replace(frame=frame, shape=made), "__error", node.errors)

    def _filter(self, node: Filter) -> Flow:
        from pyspark.sql import functions as F

        below = self.flow(node.input)
        condition = f"({node.condition})"
        if isinstance(node.condition, Function):
            frame = below.frame.withColumn("__made", self._call_function(node.condition, below))
            frame = frame.withColumn("__error", F.expr(f"__made.{ERROR}"))
            below = self._route_bad_rows(below._replace(frame=frame), "__error", node.errors)
            condition = f"__made.{RESULT}"
        if node.passes_deleted:
            condition = f"({ROWDELETED} OR {condition})"
        if below.shape.is_table:
            deleted = F.expr(f"{ROWDELETED} OR NOT coalesce({condition}, false)")
            return below._replace(frame=below.frame.withColumn(ROWDELETED, deleted).drop("__made"))
        if below.carries_bad:
            condition = f"({BAD} IS NOT NULL OR {condition})"
        return below._replace(frame=below.frame.filter(F.expr(condition)).drop("__made"))

    def _flat_map(self, node: FlatMap) -> Flow:
        from pyspark.sql import functions as F

        below = self.flow(node.input)
        made = shape(node)
        if isinstance(node.each, Function):
            frame = below.frame.withColumn("__made", self._call_function(node.each, below))
            frame = frame.withColumn("__error", F.expr(f"__made.{ERROR}")).withColumn(
                "__array", F.expr(f"__made.{RESULT}")
            )
            below = self._route_bad_rows(below._replace(frame=frame), "__error", node.errors)
        else:
            below = below._replace(frame=below.frame.withColumn("__array", F.expr(node.each)))
        if below.carries_bad:
            frame = below.frame.filter(f"{BAD} IS NOT NULL OR size(__array) > 0")
        else:
            frame = below.frame.filter("size(__array) > 0")
        frame = frame.withColumn("__each", F.explode_outer("__array"))
        with_key = isinstance(node.each, Function) and node.each.with_key
        element = f"__each.{VALUE}" if with_key else "__each"
        is_plain = made.values == (node.name,) and not node.columns and not _is_struct_array(node.each, with_key)
        frame = frame.select(
            *(F.expr(f"__each.{KEY}" if with_key else sql_name(name)).alias(name) for name in made.keys),
            *(F.expr(element if is_plain else f"{element}.{sql_name(name)}").alias(name) for name in made.values),
            *below.carried,
        )
        return below._replace(frame=frame, shape=made)

    def _rekey(self, node: Rekey) -> Flow:
        from pyspark.sql import functions as F

        below = self.flow(node.input)
        made = shape(node)
        if node.function is not None:
            frame = below.frame.withColumn("__made", self._call_function(node.function, below))
            frame = frame.withColumn("__error", F.expr(f"__made.{ERROR}"))
            below = self._route_bad_rows(below._replace(frame=frame), "__error", node.errors)
            keys = {KEY: f"__made.{RESULT}"}
        else:
            keys = {column.name: column.expression for column in node.columns}
        frame = below.frame.select(
            *(F.expr(expression).alias(name) for name, expression in keys.items()),
            *(F.col(sql_name(name)) for name in made.values),
            *below.carried,
        )
        return below._replace(frame=frame, shape=made)

    def _union(self, node: Union) -> Flow:
        flows = [self.flow(each) for each in node.inputs]
        made = shape(node)
        frame: DataFrame | None = None
        for flow in flows:
            part = flow.frame if made.has_origin else flow.frame.drop(*ORIGIN)
            frame = part if frame is None else frame.unionByName(part, allowMissingColumns=True)
        assert frame is not None
        carries_bad = any(flow.carries_bad for flow in flows)
        return Flow(frame, made, carries_bad, tuple(letters for flow in flows for letters in flow.letters))

    def _process(self, node: Process) -> Flow:
        from pessoa.pipelines.row_process import RowProcessor
        from pessoa.pipelines.row_process_state import process_rows

        below = self._split_off_bad_rows(self.flow(node.input))
        processor = find_function(node.function.name, self._functions)
        takes = find_function(node.function.takes, self._functions) if node.function.takes else None
        ship(type(processor))
        ship(takes)
        frame = process_rows(node, below, cast("RowProcessor", processor), takes)
        made = Flow(frame, shape(node), letters=below.letters)
        return self._route_bad_rows(made, "__error", node.errors)

    # Functions and bad records

    def _call_function(self, function: Function, below: Flow) -> Column:
        """Return the column of (result, error) of a Python function; null in, null out."""
        from pyspark.sql import functions as F

        called = find_function(function.name, self._functions)
        takes = find_function(function.takes, self._functions) if function.takes else None
        for shipped in (called, takes):
            ship(shipped)
        keys = list(below.shape.keys) if function.with_key else []
        is_plain = below.shape.values == (VALUE,) and takes is None
        result = arrow_type(self.spark, function.returns)
        wrapped = Wrapped(called, function, result, keys, is_plain, takes)
        udf = arrow_function(wrapped, f"{RESULT} {function.returns}, {ERROR} STRING")
        there = f"NOT {ROWDELETED}" + (f" AND {BAD} IS NULL" if below.carries_bad else "")
        return udf(F.when(F.expr(there), F.struct(*(F.col(sql_name(name)) for name in [*keys, *below.shape.values]))))

    def _route_bad_rows(self, flow: Flow, error: str | None, errors: Errors) -> Flow:
        """Return the flow whose bad rows (`error` not null) are skipped, become dead letters or fail the query."""
        from pyspark.sql import functions as F

        frame = flow.frame
        has_raw = flow.shape.has_origin and self._wants_letters
        if error is None:
            # No row can be bad at this node, but one may be at another.
            if has_raw and not flow.carries_bad:
                return flow._replace(frame=frame.withColumn(BAD, F.expr(NO_ERROR)), carries_bad=True)
            return flow
        if errors.then == "stop":
            where = (
                f"concat(rowtopic, '-', rowpartition, '@', rowoffset, ': ', {error})"
                if flow.shape.has_origin
                else error
            )
            sentence = f"concat('a bad record stopped the pipeline: ', {where})"
            frame = frame.filter(f"IF({error} IS NULL, true, CAST(raise_error({sentence}) AS BOOLEAN))")
        elif errors.then == "skip":
            frame = frame.filter(f"{error} IS NULL")
        else:
            if not has_raw:
                frame = frame.withColumn(RAW, _record_of_row(flow))
            bad = f"IF({error} IS NULL, NULL, named_struct('message', {error}, 'topic', {sql_text(errors.topic)}))"
            frame = frame.withColumn(BAD, F.expr(f"coalesce({BAD}, {bad})" if flow.carries_bad else bad))
            return flow._replace(frame=frame.drop(error), carries_bad=True)
        frame = frame.drop(error)
        if has_raw and not flow.carries_bad:
            # A node further up sends dead letters, and will want the record.
            return flow._replace(frame=frame.withColumn(BAD, F.expr(NO_ERROR)), carries_bad=True)
        return flow._replace(frame=frame)

    def _split_off_bad_rows(self, flow: Flow) -> Flow:
        """Return the flow without its bad rows, which become dead letters in a flow of their own."""
        if not flow.carries_bad:
            return flow
        bad = flow.frame.filter(f"{BAD} IS NOT NULL")
        letters = bad.select(
            *(_dead_letter_column(name).alias(name) for name in ("topic", "key", "value", "headers", "timestamp"))
        )
        good = flow.frame.filter(f"{BAD} IS NULL").drop(RAW, BAD)
        return Flow(good, flow.shape, False, (*flow.letters, letters))


def _is_struct_array(each: str | Function, with_key: bool) -> bool:
    if isinstance(each, str):
        return False
    returns = each.returns.replace(" ", "").upper()
    return ",VALUE:STRUCT<" in returns if with_key else returns.startswith("ARRAY<STRUCT<")


def _dead_letter_column(column: str) -> Column:
    """Return a column of the dead letter that a bad row becomes."""
    from pyspark.sql import functions as F

    if column == "topic":
        return F.expr(f"{BAD}.topic")
    if column == "headers":
        added = ", ".join(
            f"named_struct('key', {sql_text(name)}, 'value', CAST({value} AS BINARY))"
            for name, value in LETTER_HEADERS.items()
        )
        return F.expr(f"concat(coalesce({RAW}.headers, CAST(array() AS {HEADERS_TYPE})), array({added}))")
    return F.expr(f"{RAW}.{column}")


def _record_of_row(flow: Flow) -> Column:
    """Return the columns of a row as JSON, for a bad row after an aggregate or join, which is no single record."""
    from pyspark.sql import functions as F

    def as_json(columns: tuple[str, ...]) -> str:
        return f"CAST(to_json(struct({', '.join(map(sql_name, columns))})) AS BINARY)" if columns else "NULL"

    return F.expr(
        "named_struct('topic', CAST(NULL AS STRING), 'partition', CAST(NULL AS INT), 'offset', CAST(NULL AS BIGINT), "
        f"'key', {as_json(flow.shape.keys)}, 'value', {as_json(flow.shape.values)}, 'timestamp', {ROWTIME}, "
        f"'headers', CAST(NULL AS {HEADERS_TYPE}))"
    )
