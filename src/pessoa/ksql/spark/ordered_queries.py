"""A plan on the ordered operator: for each stage of its topology a query of the engine, with topics in between.

    sources ─ stage 1 ─ …-repartition ─ stage 2 ─ sink

Internal topics keep their records for as long as the query is there: only the query reads them, and records carry
the times of their rows, which may be long ago.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pessoa.client.topic_creation import IfExists, TopicSpec
from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.schema_source import MemorySchemas, SchemaSource
from pessoa.ksql.operators.topology import Stage, Topology, build_topology
from pessoa.ksql.registry_schemas import RegistrySchemas
from pessoa.ksql.spark.ordered_program import PROGRAM, StageArgument, log_failure
from pessoa.ksql.spark.query_names import application_id, engine_name, internal_topic
from pessoa.ksql.system_evaluation_context import SystemEvaluationContext
from pessoa.pipelines.ordered_state import OrderedQuery, start_function
from pessoa.pipelines.plan import Start
from pessoa.pipelines.queries import Delivery, QuerySpec

REPLICATION_FACTOR = 3
# As ksqlDB: a query that fails is tried again for ever, after pauses of up to a minute.
MAX_RESTARTS = 1_000_000_000


@dataclass(frozen=True)
class OrderedPlan:
    """The engine's queries, sources first, and the topics between them."""

    specs: tuple[QuerySpec, ...]
    internal_topics: tuple[TopicSpec, ...]


def make_topology(plan: LogicalPlan, properties: Mapping[str, str], registry: Mapping[str, str]) -> Topology:
    """Return the topology; called in the process that runs it."""
    settings = QuerySettings(SystemEvaluationContext(), log_failure, properties)
    schemas: SchemaSource = RegistrySchemas(registry) if registry else MemorySchemas()
    return build_topology(plan, settings, schemas)


def source_topics(topology: Topology) -> tuple[str, ...]:
    found = [one.source.topic for stage in topology.stages for one in stage.inputs if one.source is not None]
    return tuple(dict.fromkeys(found))


def plan_ordered(
    query_id: str,
    plan: LogicalPlan,
    partitions: Mapping[str, int],
    *,
    service_id: str,
    properties: Mapping[str, str],
    registry: Mapping[str, str],
    delivery: Delivery,
    start: Start,
) -> OrderedPlan:
    """Return the queries of a plan; `partitions` are the partition counts of its source topics and of its sink's."""
    assert plan.sink is not None, "a persistent query has a sink"
    make = partial(make_topology, plan, dict(properties), dict(registry))
    stages = make().stages
    counts = dict(partitions)
    specs: list[QuerySpec] = []
    topics: list[TopicSpec] = []
    for number, stage in enumerate(stages):
        task_count = stage.task_count(counts)
        if stage.output.internal:
            counts[stage.output.internal] = task_count
            name = internal_topic(service_id, query_id, stage.output.internal)
            config = {"retention.ms": "-1", "cleanup.policy": "delete"}
            topics.append(TopicSpec(name, task_count, REPLICATION_FACTOR, config, IfExists.TAKE))
            output, output_partitions = name, task_count
        else:
            output, output_partitions = plan.sink.topic, partitions[plan.sink.topic]
        argument = StageArgument(
            make, number, _input_topics(stage, service_id, query_id), task_count, output, output_partitions
        )
        query = OrderedQuery(
            tuple(dict.fromkeys(argument.input_topics)),
            PROGRAM,
            argument.to_bytes(),
            start=_start(stage, start, argument.input_topics, counts),
        )
        name = engine_name(query_id, number, len(stages))
        specs.append(
            QuerySpec(
                name,
                start_function=start_function(query),
                delivery=delivery,
                speed="micro-batch",
                output_mode="append",
                keep_timestamps=True,
                max_restarts=MAX_RESTARTS,
                group_id=application_id(service_id, name),
            )
        )
    return OrderedPlan(tuple(specs), tuple(topics))


def _start(stage: Stage, start: Start, topics: tuple[str, ...], partitions: Mapping[str, int]) -> str:
    """Return the start offsets of a stage: an internal topic is read from its first record, whatever `start` is for
    the others."""
    if start == "earliest" or all(one.source is None for one in stage.inputs):
        return "earliest"
    if all(one.source is not None for one in stage.inputs):
        return start
    first, end = -2, -1
    places = {
        topic: {str(number): first if one.source is None else end for number in range(partitions[one.topic])}
        for one, topic in zip(stage.inputs, topics, strict=True)
    }
    return json.dumps(places)


def _input_topics(stage: Stage, service_id: str, query_id: str) -> tuple[str, ...]:
    return tuple(
        one.source.topic if one.source is not None else internal_topic(service_id, query_id, one.internal)
        for one in stage.inputs
    )
