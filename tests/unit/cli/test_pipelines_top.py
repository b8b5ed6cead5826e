"""The rows of `pessoa pipelines top`."""

from __future__ import annotations

from pessoa.cli.pipelines import TOP_COLUMNS, top_rows


def test_failed_queries_stand_first_and_tables_last() -> None:
    progress = {"rows_per_second": 1234.5, "lag": 1_000_000, "batch_id": 3, "batch_ms": 250, "state_rows": 12}
    fresh = {**progress, "lag": None, "batch_id": -1}
    queries = [
        {"id": "a", "state": "RUNNING", "speed": "real-time", "restarts": 0, "progress": fresh},
        {"id": "b", "state": "FAILED", "speed": "micro-batch", "restarts": 10, "progress": progress},
    ]
    tables = [
        {"topic": "totais", "count": 5000, "lag": 0, "trouble": ""},
        {"topic": "x", "count": 0, "lag": None, "trouble": "the topic x does not exist"},
    ]
    rows = top_rows(queries, tables)
    assert rows == [
        ("b", "FAILED", "micro-batch", "1,234", "1,000,000", "250 ms", "12", "10"),
        ("a", "RUNNING", "real-time", "1,234", "-", "-", "12", "0"),
        ("table totais", "FOLLOWS", "", "", "0", "", "5,000", ""),
        ("table x", "WAITING", "", "", "-", "", "0", ""),
    ]
    assert {len(row) for row in rows} == {len(TOP_COLUMNS)}
