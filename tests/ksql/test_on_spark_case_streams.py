"""Run a sample of the cases as streams: real topics and queries, all at the same time in one Spark session.

Some cases run natively, the others through the ordered operator: at least one for each reason in NOT_NATIVE.
Each case has its own topics with one partition. The output is compared with the output of the pure runtime for the same
records, which test_ksql_cases.py compares with the case. Schemas are registered in a real registry, whose ids differ
from those in the case: ids are replaced in the input and removed from the output before it is compared.
PESSOA_KSQL_STREAM_CASES=100 runs more cases, half of them natively.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from pessoa.ksql.analysis.logical_plan import JoinStep, LogicalPlan, ReadSource, Step
from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.case_files import Case
from pessoa.ksql.operators.in_process import InProcessQuery
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord
from pessoa.ksql.operators.schema_source import MemorySchemas
from pessoa.ksql.query_runner import PersistentQuery
from pessoa.ksql.registry_schemas import RegistrySchemas
from pessoa.ksql.spark.native_plan import source_topics_of
from pessoa.ksql.spark.query_choice import choose
from pessoa.ksql.spark.spark_query_runner import SparkQueryRunner
from pessoa.pipelines.engine import Engine
from pessoa.testing import Broker, SchemaRegistry
from tests.ksql.statements import Row, by_key, row
from tests.ksql.test_ksql_cases import CASES
from tests.ksql.test_on_spark_cases import DIFFERENT, single_query
from tests.support.topics import eventually, make_topic, read_all

COUNT = int(os.environ.get("PESSOA_KSQL_STREAM_CASES", "12"))
LATER_MS = 100 * 86_400_000
EARLIEST = {"auto.offset.reset": "earliest"}
# Cases with these words depend on the clock, on chance, or on the order between keys.
UNLIKE = ("RANDOM", "UUID", "UNIX_TIMESTAMP()", "ROWPARTITION", "ROWOFFSET")
# Prefixes of the reasons for which a query does not run natively.
NOT_NATIVE = (
    "values in AVRO ",
    "values in PROTOBUF ",
    "values in PROTOBUF_NOSR ",
    "values in JSON_SR ",
    "values in DELIMITED ",
    "keys in JSON ",
    "keys in AVRO ",
    "EXPLODE ",
    "STRUCT<",
    "ARRAY<",
    "MAP<",
    "DECIMAL(",
)
REGISTRY_FORMATS = ("AVRO", "JSON_SR", "PROTOBUF")
# Data in these formats begins with a byte 0 and the four bytes of the schema id.
SCHEMA_ID_END = 5


class StreamCase(NamedTuple):
    name: str
    plan: LogicalPlan
    records: list[KafkaRecord]
    properties: dict[str, str]
    schemas: MemorySchemas
    # Why the plan is not native.
    why: str


def renamed(value: Any, prefix: str) -> Any:
    """Return the plan with a prefix before the names of its topics."""
    if isinstance(value, Source):
        return replace(value, topic=prefix + value.topic, partitions=1)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(renamed(one, prefix) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {one.name: renamed(getattr(value, one.name), prefix) for one in fields(value) if one.init}
        return replace(value, **{name: one for name, one in changed.items() if one is not getattr(value, name)})
    return value


def stream_cases() -> tuple[list[StreamCase], list[StreamCase]]:
    """Return the cases that run natively, and those that do not."""
    native: list[StreamCase] = []
    ordered: list[StreamCase] = []
    for number, (file, case) in enumerate(CASES):
        found = single_query(case)
        if found is None or case.name in DIFFERENT or not _is_fit(file, case):
            continue
        opened, plan = found
        topics = source_topics_of(plan)
        records = [one for one in opened.input_records() if one.topic in topics]
        times = [one.timestamp_ms for one in records]
        # Records of different topics are processed by timestamp, so these must be distinct and ascending.
        if not records or (len(set(topics)) > 1 and times != sorted(set(times))):
            continue
        prefix = f"case{number}-"
        moved = renamed(plan, prefix)
        choice = choose(moved, {**dict(case.settings), **EARLIEST})
        made = StreamCase(
            f"{file}: {case.name}",
            moved,
            [_moved(one, prefix) for one in records],
            dict(case.settings),
            opened.schemas,
            choice.why,
        )
        (native if choice.native is not None else ordered).append(made)
    return native, ordered


def _moved(record: KafkaRecord, prefix: str) -> KafkaRecord:
    """Return the record in the case's own topic, 100 days later: a producer treats the timestamp 0 as none."""
    return record._replace(topic=prefix + record.topic, partition=0, timestamp_ms=record.timestamp_ms + LATER_MS)


def _is_fit(file: str, case: Case) -> bool:
    text = case.statements.upper()
    several = any(one.partition for one in case.inputs)
    # Expressions run by the hundred in test_on_spark_expressions.py.
    is_expression = file.startswith(("functions/", "types/"))
    written = bool(case.inputs and case.outputs)
    return written and not several and not is_expression and not any(word in text for word in UNLIKE)


def chosen() -> list[StreamCase]:
    """Return COUNT cases or more, spread over all files: native and others in turn, at least one for each reason."""
    native, ordered = stream_cases()
    half = COUNT // 2
    firsts = [next(one for one in ordered if one.why.startswith(reason)) for reason in NOT_NATIVE]
    others = _spread([one for one in ordered if not one.why.startswith(NOT_NATIVE)], max(4, half - len(firsts)))
    return [one for one in chain(*zip_longest(_spread(native, half), firsts + others)) if one is not None]


def _spread(found: list[StreamCase], count: int) -> list[StreamCase]:
    return found[:: max(1, len(found) // count)][:count]


def expected(case: StreamCase) -> list[Row]:
    partitions = dict.fromkeys([*source_topics_of(case.plan), _sink(case)], 1)
    settings = QuerySettings(properties=case.properties)
    query = InProcessQuery(case.plan, settings, case.schemas, partitions)
    offsets: Counter[str] = Counter()
    found = []
    for record in case.records:
        made = query.take(record._replace(offset=offsets[record.topic]))
        offsets[record.topic] += 1
        found += [_row(case, one.key, one.value, max(0, one.timestamp_ms)) for one in made]
    return found


def _row(case: StreamCase, key: bytes | None, value: bytes | None, timestamp_ms: int) -> Row:
    sink = case.plan.sink
    assert sink is not None
    if key is not None and sink.key_format in REGISTRY_FORMATS:
        key = key[SCHEMA_ID_END:]
    if value is not None and sink.value_format in REGISTRY_FORMATS:
        value = value[SCHEMA_ID_END:]
    return row(key, value, timestamp_ms)


def _with_ids_of(registry: RegistrySchemas, case: StreamCase, record: KafkaRecord) -> KafkaRecord:
    """Return the record with the ids that the registry gives its schemas."""
    source = next(one for one in _sources(case.plan.root) if one.topic == record.topic)

    def replaced(data: bytes | None, format_: str, side: str) -> bytes | None:
        if not data or format_ not in REGISTRY_FORMATS:
            return data
        schema = case.schemas.by_id(int.from_bytes(data[1:SCHEMA_ID_END], "big"))
        if schema is None:
            return data
        registered = registry.register(f"{record.topic}-{side}", schema.type, schema.text)
        return data[:1] + registered.to_bytes(4, "big") + data[SCHEMA_ID_END:]

    key = replaced(record.key, source.key_format, "key")
    return record._replace(key=key, value=replaced(record.value, source.value_format, "value"))


def _sources(step: Step) -> Iterator[Source]:
    if isinstance(step, ReadSource):
        yield step.source
    elif isinstance(step, JoinStep):
        yield from _sources(step.left)
        yield from _sources(step.right)
    else:
        yield from _sources(step.below)


def _sink(case: StreamCase) -> str:
    assert case.plan.sink is not None
    return case.plan.sink.topic


@pytest.fixture
def registry(broker: Broker) -> Iterator[dict[str, str]]:
    with SchemaRegistry(broker.bootstrap_servers) as running:
        yield {"schema.registry.url": running.url}


@pytest.fixture
def runner(broker: Broker, registry: dict[str, str], spark_address: str, tmp_path: Path) -> Iterator[SparkQueryRunner]:
    engine = Engine(broker.bootstrap_servers, home=tmp_path, spark_remote=spark_address, state_topic=None)
    running = SparkQueryRunner(engine, registry=registry, properties=EARLIEST)
    yield running
    running.close()


def test_cases_run_as_concurrent_streams_with_the_output_of_the_pure_runtime(
    runner: SparkQueryRunner, broker: Broker, registry: dict[str, str]
) -> None:
    servers = broker.bootstrap_servers
    schemas = RegistrySchemas(registry)
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    taken = chosen()
    assert len(taken) >= COUNT * 2 // 3, f"only {len(taken)} cases can run as streams"
    for case in taken:
        for topic in {*source_topics_of(case.plan), _sink(case)}:
            make_topic(servers, topic, 1, retention_ms="-1")
        for record in case.records:
            one = _with_ids_of(schemas, case, record)
            producer.produce(one.topic, one.value, one.key, 0, timestamp=one.timestamp_ms, headers=list(one.headers))
    assert producer.flush(60) == 0
    schemas.close()
    ids = {case.name: f"Q_CASE_{number}" for number, case in enumerate(taken)}
    for case in taken:
        runner.start(PersistentQuery(ids[case.name], case.name, case.plan, case.properties))
    speeds = Counter(runner.status(name).speed for name in ids.values())
    print(f"{len(taken)} cases as streams: {dict(speeds)}")
    for case in taken:
        wanted = by_key(expected(case))
        eventually(_has_written(servers, case, wanted), about=_told(servers, case, runner, ids[case.name], wanted))


def _written(servers: str, case: StreamCase) -> object:
    return by_key(_row(case, one.key(), one.value(), one.timestamp()[1]) for one in read_all(servers, _sink(case)))


def _has_written(servers: str, case: StreamCase, wanted: object) -> Callable[[], bool]:
    def has_written() -> bool:
        return _written(servers, case) == wanted

    return has_written


def _told(servers: str, case: StreamCase, runner: SparkQueryRunner, name: str, wanted: object) -> Callable[[], str]:
    return lambda: f"\n{case.name}: {_written(servers, case)}\nwanted {wanted}\n{runner.status(name)}"
