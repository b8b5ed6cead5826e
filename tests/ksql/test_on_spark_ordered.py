"""The ordered operator on a real Spark: time order, state and output records, with and without exactly-once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.ksql.spark.ordered_program import PROGRAM, StageArgument
from pessoa.pipelines.engine import Engine
from pessoa.pipelines.ordered_state import OrderedQuery, start_function
from pessoa.pipelines.queries import QuerySpec
from pessoa.testing import Broker
from tests.ksql import tiny_topology
from tests.ksql.tiny_topology import copying, counting
from tests.support.topics import eventually, fill, make_topic, read_all


@pytest.fixture(autouse=True, scope="module")
def _workers_get_the_topology_by_value() -> None:
    from pyspark import cloudpickle

    # Spark's workers can import pessoa, but not these tests.
    cloudpickle.register_pickle_by_value(tiny_topology)  # type: ignore[no-untyped-call]


def rows(servers: str, topic: str) -> list[tuple[bytes, int, int]]:
    found = [(message.key(), int(message.value()), message.timestamp()[1]) for message in read_all(servers, topic)]
    return sorted(found)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_the_ordered_operator_emits_updates_in_time_order_and_keeps_state_over_an_engine_restart(
    broker: Broker, spark_address: str, tmp_path: Path, delivery: str
) -> None:
    servers = broker.bootstrap_servers
    source, target = f"in-{delivery}", f"out-{delivery}"

    def told() -> list[tuple[bytes, int, int]]:
        """Return the output; at least once, without duplicates: a batch that was not committed is written again."""
        found = rows(servers, target)
        return found if delivery == "exactly-once" else sorted(set(found))

    make_topic(servers, source, 2, retention_ms="-1")
    make_topic(servers, target, 2, retention_ms="-1")
    argument = StageArgument(counting, 0, (source,), 2, target, 2).to_bytes()
    query = OrderedQuery((source,), PROGRAM, argument)
    spec = QuerySpec(
        "count", start_function=start_function(query), delivery=delivery,  # type: ignore[arg-type]
        keep_timestamps=True, slots=2,
    )  # fmt: skip
    # The records of both partitions are processed in the order of their timestamps.
    fill(servers, source, [(b"a", b"x"), (b"d", b"x"), (b"a", b"y"), (b"d", b"gone")], [1000, 500, 2000, 3000])
    first = [(b"gone", 1, 3000), (b"x", 1, 500), (b"x", 2, 1000), (b"y", 1, 2000)]
    with Engine(servers, home=tmp_path, spark_remote=spark_address, state_topic=None) as engine:
        engine.start(spec)
        eventually(lambda: told() == first, about=lambda: (engine.queries(), rows(servers, target)))
    fill(servers, source, [(b"d", b"x"), (b"a", b"gone")], [4000, 5000])
    with Engine(servers, home=tmp_path, spark_remote=spark_address, state_topic=None) as engine:
        engine.start(spec)
        both = sorted([*first, (b"x", 3, 4000), (b"gone", 1, 5000)])
        eventually(lambda: told() == both, about=lambda: (engine.queries(), rows(servers, target)))
    assert {message.headers()[0] for message in read_all(servers, target)} == {("from", b"tiny")}


def test_the_ordered_operator_copies_every_row_in_a_stage_without_state(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    make_topic(servers, "plain-in", 2, retention_ms="-1")
    make_topic(servers, "plain-out", 2, retention_ms="-1")
    argument = StageArgument(copying, 0, ("plain-in",), 2, "plain-out", 2).to_bytes()
    query = OrderedQuery(("plain-in",), PROGRAM, argument)
    fill(servers, "plain-in", [(b"a", b"%d" % number) for number in range(20)], [7000] * 20)
    with Engine(servers, home=tmp_path, spark_remote=spark_address, state_topic=None) as engine:
        engine.start(QuerySpec("copy", start_function=start_function(query), keep_timestamps=True))
        expected = sorted((b"%d" % number, number, 7000) for number in range(20))
        eventually(lambda: rows(servers, "plain-out") == expected, about=engine.queries)
