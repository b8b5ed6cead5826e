"""Plans as stages: where rows are repartitioned, and what each stage reads and writes."""

from __future__ import annotations

import pytest

from pessoa.ksql.analysis.analyser import analyse
from pessoa.ksql.analysis.source_catalogue import Catalogue
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.schema_source import MemorySchemas
from pessoa.ksql.operators.topology import Stage, Topology, build_topology
from pessoa.ksql.syntax.parser import parse_statements

SETUP = """
CREATE STREAM s (id STRING KEY, a INT, b STRING) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE STREAM r (id STRING KEY, c INT, d STRING) WITH (KAFKA_TOPIC='r', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE t (id STRING PRIMARY KEY, v INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE u (id STRING PRIMARY KEY, w INT) WITH (KAFKA_TOPIC='u', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE f (k INT PRIMARY KEY, x INT) WITH (KAFKA_TOPIC='f', VALUE_FORMAT='JSON', PARTITIONS=3);
"""
PARTITIONS = {"s": 2, "r": 2, "t": 2, "u": 2, "f": 3}


def topology_of(statement: str) -> Topology:
    catalogue = Catalogue()
    for parsed in parse_statements(SETUP + statement):
        decision = analyse(parsed, catalogue)
        catalogue = decision.catalogue
    assert decision.plan is not None
    return build_topology(decision.plan, QuerySettings(), MemorySchemas())


def shown(stage: Stage) -> str:
    """Return a stage as one line; * marks an input whose rows change their task, ! a stage with state."""
    inputs = " ".join(one.topic + ("*" if one.repartitioned else "") for one in stage.inputs)
    output = stage.output.internal or ("-" if stage.output.sink is None else stage.output.sink.topic)
    return f"{inputs} →{'!' if stage.has_state else ''} {output}"


@pytest.mark.parametrize(
    ("statement", "stages"),
    [
        ("CREATE STREAM o AS SELECT * FROM s WHERE a > 1 EMIT CHANGES;", ["s → O"]),
        ("CREATE STREAM o AS SELECT * FROM s PARTITION BY a EMIT CHANGES;", ["s → O"]),
        ("SELECT a FROM s EMIT CHANGES;", ["s → -"]),
        ("CREATE TABLE o AS SELECT * FROM t EMIT CHANGES;", ["t → O"]),
        ("CREATE TABLE o AS SELECT * FROM t WHERE v > 1 EMIT CHANGES;", ["t →! O"]),
        ("CREATE TABLE o AS SELECT id, COUNT(*) AS n FROM s GROUP BY id EMIT CHANGES;", ["s →! O"]),
        ("CREATE TABLE o AS SELECT a, COUNT(*) AS n FROM s GROUP BY a EMIT CHANGES;", ["s* →! O"]),
        (
            "CREATE TABLE o AS SELECT v, COUNT(*) AS n FROM t GROUP BY v EMIT CHANGES;",
            ["t →! 1-repartition", "1-repartition* →! O"],
        ),
        ("CREATE STREAM o AS SELECT s.id, v FROM s JOIN t ON s.id = t.id EMIT CHANGES;", ["s t →! O"]),
        ("CREATE STREAM o AS SELECT s.b, v FROM s JOIN t ON s.b = t.id EMIT CHANGES;", ["s* t →! O"]),
        ("CREATE STREAM o AS SELECT s.id, c FROM s JOIN r WITHIN 1 DAY ON s.id = r.id EMIT CHANGES;", ["s r →! O"]),
        ("CREATE STREAM o AS SELECT s.b, c FROM s JOIN r WITHIN 1 DAY ON s.b = r.d EMIT CHANGES;", ["s* r* →! O"]),
        ("CREATE TABLE o AS SELECT t.id, v, w FROM t JOIN u ON t.id = u.id EMIT CHANGES;", ["t u →! O"]),
        (
            "CREATE TABLE o AS SELECT t.id, v, x FROM t JOIN f ON t.v = f.k EMIT CHANGES;",
            ["t →! 1-repartition", "1-repartition* f →! 2-repartition", "2-repartition* →! O"],
        ),
        (
            "CREATE STREAM o AS SELECT s.a, v, x FROM s JOIN t ON s.id = t.id JOIN f ON s.a = f.k EMIT CHANGES;",
            ["s t →! 1-repartition", "1-repartition* f →! O"],
        ),
        (
            "CREATE TABLE o AS SELECT v, COUNT(*) AS n FROM s JOIN t ON s.id = t.id GROUP BY v EMIT CHANGES;",
            ["s t →! 1-repartition", "1-repartition* →! O"],
        ),
        (
            "CREATE TABLE o AS SELECT s.id, COUNT(*) AS n FROM s JOIN t ON s.id = t.id GROUP BY s.id EMIT CHANGES;",
            ["s t →! O"],
        ),
    ],
)
def test_a_stage_ends_where_rows_before_a_stateful_step_get_a_new_key(statement: str, stages: list[str]) -> None:
    assert [shown(stage) for stage in topology_of(statement).stages] == stages


def test_there_are_as_many_tasks_as_partitions_of_rows_that_are_not_repartitioned() -> None:
    topology = topology_of("CREATE TABLE o AS SELECT t.id, v, x FROM t JOIN f ON t.v = f.k EMIT CHANGES;")
    assert [stage.task_count(PARTITIONS) for stage in topology.stages] == [2, 3, 3]
    (moved,) = topology_of("CREATE TABLE o AS SELECT a, COUNT(*) AS n FROM s GROUP BY a EMIT CHANGES;").stages
    assert moved.task_count(PARTITIONS) == 2
