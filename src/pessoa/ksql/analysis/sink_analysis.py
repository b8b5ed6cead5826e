"""CREATE … AS SELECT and INSERT INTO … SELECT: the plan of the query, and the source that it writes."""

from __future__ import annotations

from dataclasses import replace

from pessoa.ksql.analysis.definition_analysis import check_timestamp, check_wrapping
from pessoa.ksql.analysis.format_rules import find_format
from pessoa.ksql.analysis.logical_plan import JoinStep, LogicalPlan, ReadSource, Step
from pessoa.ksql.analysis.query_analysis import plan_query
from pessoa.ksql.analysis.source_catalogue import Catalogue, FormatOptions, SchemaColumn, Source
from pessoa.ksql.analysis.with_properties import INSERT_PROPERTIES, SINK_PROPERTIES, Properties, read_properties
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.query_nodes import Query
from pessoa.ksql.syntax.statement_nodes import CreateAsSelect, InsertSelect, SourceKind
from pessoa.ksql.types.implicit_casts import fits_column


def plan_create_as(statement: CreateAsSelect, catalogue: Catalogue, topic_prefix: str = "") -> LogicalPlan:
    """Return the plan with its sink: topic, partitions and formats are the left source's unless WITH sets them."""
    properties = read_properties(statement.properties, SINK_PROPERTIES)
    key_format, value_format = properties.formats()
    for name, given in (("KEY_FORMAT", key_format), ("VALUE_FORMAT", value_format)):
        if given is not None:
            find_format(given, properties.place(name))
    _refuse_limit(statement.query, f"CREATE {statement.kind.value} AS SELECT")
    plan = plan_query(statement.query, catalogue, statement.name, key_format, value_format)
    _check_kind(statement, plan)
    check_wrapping(properties, plan.value_format, plan.value)
    left = left_source(plan.root)
    timestamp = properties.text("TIMESTAMP")
    sink = Source(
        statement.name,
        statement.kind,
        properties.text("KAFKA_TOPIC") or f"{topic_prefix}{statement.name}",
        plan.key,
        plan.value,
        (),
        plan.key_format,
        plan.value_format,
        plan.window,
        None if timestamp is None else check_timestamp(timestamp, properties, (*plan.key, *plan.value)),
        properties.text("TIMESTAMP_FORMAT"),
        properties.number("PARTITIONS") or left.partitions,
        properties.number("REPLICAS") or left.replicas,
        materialised=statement.kind is SourceKind.TABLE,
        key_options=_options(properties, "KEY", left.key_options if key_format is None else None),
        value_options=_options(properties, "VALUE", left.value_options if value_format is None else None),
    )
    return replace(plan, sink=sink)


def _options(properties: Properties, side: str, inherited: FormatOptions | None) -> FormatOptions:
    """Return the format options of a side; if the format is the left source's, its delimiter is inherited."""
    given = properties.options(side)
    if inherited is None or properties.text(f"{side}_DELIMITER") is not None:
        return given
    return replace(given, delimiter=inherited.delimiter)


def _refuse_limit(query: Query, statement: str) -> None:
    if query.limit is not None:
        raise SemanticFailure(f"{statement} statements don't support LIMIT clause.", query.at)


def _check_kind(statement: CreateAsSelect, plan: LogicalPlan) -> None:
    if plan.kind is not statement.kind:
        raise SemanticFailure(
            f"Invalid result type. Your SELECT query produces a {plan.kind.value}. Please use CREATE {plan.kind.value} "
            "AS SELECT statement instead.",
            statement.at,
            length=len("CREATE"),
        )


def left_source(step: Step) -> Source:
    """Return the left-most source of a plan."""
    while not isinstance(step, ReadSource):
        step = step.left if isinstance(step, JoinStep) else step.below
    return step.source


def plan_insert_select(statement: InsertSelect, catalogue: Catalogue) -> tuple[LogicalPlan, str | None]:
    """Return the plan that writes into a stream that exists, and the query id if one was given."""
    properties = read_properties(statement.properties, INSERT_PROPERTIES)
    target = catalogue.find(statement.target, statement.at)
    if target.kind is not SourceKind.STREAM:
        raise SemanticFailure(
            f"INSERT INTO can only be used to insert into a stream. {target.name} is a table.", statement.at
        )
    if target.read_only:
        raise SemanticFailure(f"Cannot insert into read-only stream: {target.name}", statement.at)
    if target.headers:
        raise SemanticFailure(f"Cannot insert into {target.name} because it has header columns", statement.at)
    _refuse_limit(statement.query, "INSERT INTO SELECT")
    plan = plan_query(statement.query, catalogue, target.name, check_formats=False)
    if plan.kind is not SourceKind.STREAM:
        raise SemanticFailure(
            "Incompatible data sink and query result. Data sink is a STREAM, and the result a TABLE.", statement.at
        )
    _check_schema(statement, plan, target)
    plan = replace(plan, sink=target, key_format=target.key_format, value_format=target.value_format)
    return plan, properties.text("QUERY_ID")


def _check_schema(statement: InsertSelect, plan: LogicalPlan, target: Source) -> None:
    """Raise unless keys and values agree with the sink's in number, order and name, and their types can be cast."""
    if _columns_fit(plan.key, target.key) and _columns_fit(plan.value, target.value):
        return
    raise SemanticFailure(
        f"Incompatible schema between results and sink.\nResult schema is {plan.schema_text()}\n"
        f"Sink schema is {target.schema_text()}",
        statement.at,
        hint="Select the columns in the sink's order, under its names.",
    )


def _columns_fit(given: tuple[SchemaColumn, ...], wanted: tuple[SchemaColumn, ...]) -> bool:
    return len(given) == len(wanted) and all(
        own.name == other.name and fits_column(own.type, other.type) for own, other in zip(given, wanted, strict=True)
    )
