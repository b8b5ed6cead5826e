"""Operators compared with simple second implementations, on random records: final tables, and results of joins.

Tasks are restarted at random, and rows are encoded, as on Spark (`RestartingQuery`); or each stage runs in batches of
the records that have arrived so far (`BatchedQuery`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.ksql.analysis.analyser import analyse
from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.analysis.source_catalogue import Catalogue
from pessoa.ksql.operators.key_partitioner import partition_of
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord
from pessoa.ksql.operators.schema_source import MemorySchemas
from pessoa.ksql.syntax.parser import parse_statements
from tests.unit.ksql.batched_query import BatchedQuery
from tests.unit.ksql.restarting_query import RestartingQuery

PARTITIONS = 2
Change = tuple[str, str, int | None, int]
# Topic, key, value, time; None is a tombstone. Two topics, few keys, values and times: they meet often.
CHANGES = st.lists(
    st.tuples(
        st.sampled_from("lr"), st.sampled_from("abc"), st.none() | st.integers(0, 2), st.integers(0, 60)
    ),
    max_size=30,
)  # fmt: skip
SEEDS = st.integers(0, 1_000)

STREAMS = """
CREATE STREAM l (id STRING KEY, a INT) WITH (KAFKA_TOPIC='l', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE STREAM r (id STRING KEY, b INT) WITH (KAFKA_TOPIC='r', VALUE_FORMAT='JSON', PARTITIONS=2);
"""
TABLES = """
CREATE TABLE l (id STRING PRIMARY KEY, a INT) WITH (KAFKA_TOPIC='l', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE r (id STRING PRIMARY KEY, b INT) WITH (KAFKA_TOPIC='r', VALUE_FORMAT='JSON', PARTITIONS=2);
"""
FOREIGN = """
CREATE TABLE l (id STRING PRIMARY KEY, a INT) WITH (KAFKA_TOPIC='l', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE r (b INT PRIMARY KEY, v INT) WITH (KAFKA_TOPIC='r', VALUE_FORMAT='JSON', PARTITIONS=3);
"""

# The columns of a query's own rows: numbers, null, or a list.
Columns = dict[str, Any]
Written = list[tuple[bytes | None, Columns | None, int]]
Run = Callable[[str, list[tuple[str, bytes, dict[str, int] | None, int]], int], Written]


def planned(statements: str) -> tuple[LogicalPlan, dict[str, int]]:
    """Return the plan of the last statement, and the partitions of all topics."""
    catalogue = Catalogue()
    for parsed in parse_statements(statements):
        decision = analyse(parsed, catalogue)
        catalogue = decision.catalogue
    assert decision.plan is not None
    return decision.plan, {one.topic: one.partitions or 1 for one in catalogue.sources.values()}


def run(statements: str, changes: list[tuple[str, bytes, dict[str, int] | None, int]], seed: int) -> Written:
    """Return key, value and time of all records that the last statement's query writes."""
    plan, counts = planned(statements)
    query = RestartingQuery(plan, QuerySettings(), MemorySchemas(), counts, chance=0.3, seed=seed)
    found: Written = []
    for offset, (topic, key, value, time) in enumerate(changes):
        data = None if value is None else json.dumps(value).encode()
        partition = partition_of(key, counts[topic])
        for one in query.take(KafkaRecord(topic, partition, offset, time, key, data)):
            found.append((one.key, None if one.value is None else json.loads(one.value), one.timestamp_ms))
    return found


def run_in_batches(statements: str, changes: list[tuple[str, bytes, dict[str, int] | None, int]], seed: int) -> Written:
    plan, counts = planned(statements)
    query = BatchedQuery(plan, counts, seed)
    for topic, key, value, time in changes:
        data = None if value is None else json.dumps(value).encode()
        query.add(KafkaRecord(topic, partition_of(key, counts[topic]), 0, time, key, data))
    return [(one.key, None if one.value is None else json.loads(one.value), one.timestamp_ms) for one in query.run()]


RUNS = st.sampled_from([run, run_in_batches])


def as_records(changes: list[Change]) -> list[tuple[str, bytes, dict[str, int] | None, int]]:
    column = {"l": "a", "r": "b"}
    return [
        (topic, key.encode(), None if value is None else {column[topic]: value}, time)
        for topic, key, value, time in changes
    ]


def last(written: Written) -> dict[bytes | None, Columns]:
    """Return the table that results from the records."""
    table: dict[bytes | None, Columns] = {}
    for key, value, _ in written:
        table.pop(key, None)
        if value is not None:
            table[key] = value
    return table


def table_of(changes: list[Change], topic: str) -> dict[str, int]:
    table: dict[str, int] = {}
    for one, key, value, _ in changes:
        if one == topic:
            table.pop(key, None)
            if value is not None:
                table[key] = value
    return table


@settings(max_examples=40, deadline=None)
@given(CHANGES, SEEDS, RUNS)
def test_the_groups_of_a_table_are_those_of_its_latest_rows(changes: list[Change], seed: int, runs: Run) -> None:
    query = "CREATE TABLE o AS SELECT a, COUNT(*) AS n, COLLECT_LIST(id) AS ids FROM l GROUP BY a EMIT CHANGES;"
    found = last(runs(TABLES + query, as_records(changes), seed))
    rows = table_of(changes, "l")
    for value in range(3):
        ids = sorted(key for key, own in rows.items() if own == value)
        key = value.to_bytes(4, "big")
        if key in found:
            assert found[key]["N"] == len(ids)
            assert sorted(found[key]["IDS"]) == ids
        else:
            assert not ids


@settings(max_examples=40, deadline=None)
@given(CHANGES, SEEDS, st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"]), RUNS)
def test_a_join_of_tables_equals_the_join_of_their_latest_rows(
    changes: list[Change], seed: int, kind: str, runs: Run
) -> None:
    key_name = "ROWKEY AS k" if kind == "FULL" else "l.id"
    query = f"CREATE TABLE o AS SELECT {key_name}, a, b FROM l {kind} JOIN r ON l.id = r.id EMIT CHANGES;"
    found = last(runs(TABLES + query, as_records(changes), seed))
    left, right = table_of(changes, "l"), table_of(changes, "r")
    keys = {"INNER": left.keys() & right.keys(), "LEFT": left.keys(), "RIGHT": right.keys()}
    expected = {
        key.encode(): {"A": left.get(key), "B": right.get(key)} for key in keys.get(kind, left.keys() | right.keys())
    }
    assert found == expected


@settings(max_examples=150, deadline=None)
@given(CHANGES, SEEDS, st.sampled_from(["INNER", "LEFT"]), RUNS)
def test_a_foreign_key_join_equals_the_join_of_the_latest_rows(
    changes: list[Change], seed: int, kind: str, runs: Run
) -> None:
    query = f"CREATE TABLE o AS SELECT id, a, v FROM l {kind} JOIN r ON l.a = r.b EMIT CHANGES;"
    # The keys of the right table are the values of the left.
    numbers = {"a": 0, "b": 1, "c": 2}
    records = [
        (topic, key.encode(), None if value is None else {"a": value}, time)
        if topic == "l"
        else (topic, numbers[key].to_bytes(4, "big"), None if value is None else {"v": value}, time)
        for topic, key, value, time in changes
    ]
    found = last(runs(FOREIGN + query, records, seed))
    left = table_of(changes, "l")
    right = {numbers[key]: value for key, value in table_of(changes, "r").items()}
    expected = {
        key.encode(): {"A": value, "V": right.get(value)}
        for key, value in left.items()
        if kind == "LEFT" or value in right
    }
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(CHANGES, SEEDS, st.integers(0, 20), st.integers(0, 20))
def test_a_join_of_streams_finds_every_pair_within_the_window_once(
    changes: list[Change], seed: int, before: int, after: int
) -> None:
    within = f"WITHIN ({before} MILLISECONDS, {after} MILLISECONDS)"
    query = f"CREATE STREAM o AS SELECT l.id, a, b FROM l JOIN r {within} ON l.id = r.id EMIT CHANGES;"
    written = run(STREAMS + query, as_records(changes), seed)
    rows = [one for one in changes if one[2] is not None]
    expected = Counter(
        (left[1].encode(), left[2], right[2], max(left[3], right[3]))
        for left, right in product(rows, rows)
        if left[0] == "l" and right[0] == "r" and left[1] == right[1]
        if -before <= right[3] - left[3] <= after
    )
    assert Counter((key, value["A"], value["B"], time) for key, value, time in written if value) == expected


@settings(max_examples=60, deadline=None)
@given(CHANGES, SEEDS, st.sampled_from(["LEFT", "RIGHT", "FULL"]))
def test_with_grace_a_row_is_padded_once_or_joined_but_never_both(changes: list[Change], seed: int, kind: str) -> None:
    key_name = "ROWKEY AS k" if kind == "FULL" else "l.id"
    within = "WITHIN 5 MILLISECONDS GRACE PERIOD 5 MILLISECONDS"
    query = (
        f"CREATE STREAM o AS SELECT {key_name}, l.ROWOFFSET AS lo, r.ROWOFFSET AS ro FROM l {kind} JOIN r {within} "
        "ON l.id = r.id EMIT CHANGES;"
    )
    # The last rows close every window, in both partitions.
    ends = [("l", key, 1, 1_000) for key in "abcdefgh"]
    written = run(STREAMS + query, as_records([*changes, *ends]), seed)
    joined = {side: Counter(value[side] for _, value, _ in written if value) for side in ("LO", "RO")}
    padded = {
        "LO": Counter(value["LO"] for _, value, _ in written if value and value["RO"] is None),
        "RO": Counter(value["RO"] for _, value, _ in written if value and value["LO"] is None),
    }
    for offset, (topic, _, value, _) in enumerate(changes):
        side, kept = ("LO", kind != "RIGHT") if topic == "l" else ("RO", kind != "LEFT")
        if value is None:
            assert not joined[side][offset]
        elif kept:
            assert padded[side][offset] == (1 if joined[side][offset] == padded[side][offset] else 0)
            assert joined[side][offset] >= 1
        else:
            assert not padded[side][offset]


@settings(max_examples=60, deadline=None)
@given(CHANGES, SEEDS, st.integers(1, 20), st.integers(0, 20), st.booleans())
def test_windows_count_the_rows_that_were_not_late(
    changes: list[Change], seed: int, size: int, grace: int, is_final: bool
) -> None:
    query = (
        f"CREATE TABLE o AS SELECT id, WINDOWSTART AS ws, COUNT(*) AS n FROM l WINDOW TUMBLING "
        f"(SIZE {size} MILLISECONDS, GRACE PERIOD {grace} MILLISECONDS) GROUP BY id "
        f"EMIT {'FINAL' if is_final else 'CHANGES'};"
    )
    found = last(run(STREAMS + query, as_records(changes), seed))
    counts: Counter[tuple[str, int]] = Counter()
    now: dict[int, int] = defaultdict(lambda: -1)
    for topic, key, value, time in changes:
        if topic == "l" and value is not None:
            partition = partition_of(key.encode(), PARTITIONS)
            now[partition] = max(now[partition], time)
            start = time // size * size
            if start + size + grace > now[partition]:
                counts[key, start] += 1
    if is_final:
        closed = [(key, start) for key, start in counts
                  if start + size + grace <= now[partition_of(key.encode(), PARTITIONS)]]  # fmt: skip
        counts = Counter({one: counts[one] for one in closed})
    assert {(key[:1].decode(), value["WS"]): value["N"] for key, value in found.items() if key} == counts


@settings(max_examples=60, deadline=None)
@given(CHANGES, SEEDS, st.integers(0, 20))
def test_sessions_are_the_rows_no_further_apart_than_the_gap(changes: list[Change], seed: int, gap: int) -> None:
    query = (
        f"CREATE TABLE o AS SELECT id, WINDOWSTART AS s, WINDOWEND AS e, COUNT(*) AS n FROM l WINDOW SESSION "
        f"({max(1, gap)} MILLISECONDS) GROUP BY id EMIT CHANGES;"
    )
    found = last(run(STREAMS + query, as_records(changes), seed))
    expected: Counter[tuple[str, int, int]] = Counter()
    for key in "abc":
        session: list[int] = []
        times = sorted(time for topic, own, value, time in changes if topic == "l" and own == key and value is not None)
        for time in [*times, 10**9]:
            if session and time - session[-1] > max(1, gap):
                expected[key, session[0], session[-1]] = len(session)
                session = []
            session.append(time)
    assert {(str(key)[2:3], one["S"], one["E"]): one["N"] for key, one in found.items()} == expected
