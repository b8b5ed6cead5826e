"""Which keys and windows a pull query looks up."""

from __future__ import annotations

import pytest

from pessoa.ksql.analysis.analyser import analyse
from pessoa.ksql.analysis.logical_plan import FilterStep, ProjectStep
from pessoa.ksql.operators.query_settings import FixedEvaluationContext
from pessoa.ksql.server.commands import Command
from pessoa.ksql.server.key_lookups import Lookup, plan_lookup
from pessoa.ksql.server.ksql_state import KsqlState, apply_command
from pessoa.ksql.syntax.parser import parse_statement

TABLE = (
    "CREATE SOURCE TABLE T (A INT PRIMARY KEY, B VARCHAR PRIMARY KEY, V INT) WITH (KAFKA_TOPIC='t', FORMAT='JSON', "
    "WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 MINUTE');"
)
STATE = apply_command(KsqlState(), Command(TABLE), 0).state


def lookup(where: str) -> Lookup:
    plan = analyse(parse_statement(f"SELECT * FROM T WHERE {where};"), STATE.catalogue).plan
    assert plan is not None
    assert isinstance(plan.root, ProjectStep)
    assert isinstance(plan.root.below, FilterStep)
    return plan_lookup(plan.root.below.condition, STATE.catalogue.sources["T"], FixedEvaluationContext())


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("A = 1 AND B = 'x'", ((1, "x"),)),
        ("'x' = B AND A = 1 + 1", ((2, "x"),)),
        ("A IN (1, 2, 1) AND B = 'x'", ((1, "x"), (2, "x"))),
        ("A IN (1, 2) AND B IN ('x', 'y') AND V > 3", ((1, "x"), (1, "y"), (2, "x"), (2, "y"))),
        ("A = 1", None),
        ("A = 1 OR B = 'x'", None),
        ("A = V AND B = 'x'", None),
        ("A > 1 AND B = 'x'", None),
        ("NOT (A = 1 AND B = 'x')", None),
        ("A NOT IN (1) AND B = 'x'", None),
    ],
)
def test_a_pull_query_condition_on_keys_becomes_key_lookups(
    where: str, keys: tuple[tuple[object, ...], ...] | None
) -> None:
    assert lookup(where).keys == keys


@pytest.mark.parametrize(
    ("where", "start", "end"),
    [
        ("A = 1", 0, None),
        ("WINDOWSTART = 60000", 60_000, 60_001),
        ("WINDOWSTART >= 60000 AND WINDOWSTART < 180000", 60_000, 180_001),
        ("WINDOWSTART BETWEEN 60000 AND 120000", 60_000, 120_001),
        ("WINDOWEND <= 120000", 0, None),
    ],
)
def test_a_pull_query_condition_on_windows_becomes_window_bounds(where: str, start: int, end: int | None) -> None:
    found = lookup(where)
    assert (found.start_ms, found.end_ms) == (start, end)
